//! Edits of the context that the gateway serves, read by the SDK of Anthropic.

use std::path::Path;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::Server;

use crate::language::{Language, Program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_reads_summaries_and_sends_them_back() {
    palimpsest_tests::binary();
    let provider = FakeProvider::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "gateway.enabled=true".to_owned(),
        "gateway.listen=127.0.0.1:0".to_owned(),
        "gateway.prepare_timeout_ms=120000".to_owned(),
        "gateway.upstreams.anthropic.compaction=served".to_owned(),
        format!("gateway.upstreams.anthropic.base_url={}", provider.url()),
    ];
    let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
    let server = Server::start(folder.path(), &args);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdks/python/served_edits.py");
    let program = Program::of(Language::Python, &file);
    let gateway = format!("http://{}", server.gateway());
    let printed = program.run(&[], &[("GATEWAY", gateway)]).await;
    assert_eq!(printed, "done\n");
    // Two conversations with three requests, and two with a pause instead of the second one. Twice.
    let requests = provider.requests();
    assert!(requests.iter().all(|request| request.status == 200));
    assert_eq!(requests.len(), 2 * (3 + 2));
}

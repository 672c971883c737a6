//! A provider for direct requests, and another one behind a server with a gateway.

use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::Server;
use tempfile::TempDir;

/// Both ways to a provider. Each has a provider of its own, so that both give the same ids.
pub(crate) struct World {
    pub(crate) direct: FakeProvider,
    /// The provider behind the gateway.
    pub(crate) upstream: FakeProvider,
    gateway: String,
    _server: Server,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let direct = FakeProvider::start().await.unwrap();
        let upstream = FakeProvider::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let settings = [
            "gateway.enabled=true".to_owned(),
            "gateway.listen=127.0.0.1:0".to_owned(),
            // A busy machine must not change the outcome.
            "gateway.prepare_timeout_ms=120000".to_owned(),
            "gateway.hold_timeout_ms=60000".to_owned(),
            // Conversations of the cases `managed` exceed it.
            "policy.tokens.default_window_tokens=60000".to_owned(),
            format!("gateway.upstreams.anthropic.base_url={}", upstream.url()),
            format!("gateway.upstreams.openai.base_url={}", upstream.url()),
        ];
        let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
        let server = Server::start(folder.path(), &args);
        Self {
            gateway: format!("http://{}", server.gateway()),
            direct,
            upstream,
            _server: server,
            _folder: folder,
        }
    }

    /// Returns the environment of a program.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("GATEWAY", self.gateway.clone()),
            ("DIRECT_PROVIDER", self.direct.url()),
            ("GATEWAY_PROVIDER", self.upstream.url()),
        ]
    }

    /// Returns the host and the port of the gateway.
    pub(crate) fn gateway_host(&self) -> String {
        self.gateway.trim_start_matches("http://").to_owned()
    }

    /// Returns the addresses that differ between the ways.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let urls = [self.gateway.clone(), self.direct.url(), self.upstream.url()];
        let hosts = urls.iter().map(|url| url.trim_start_matches("http://"));
        hosts.map(str::to_owned).collect()
    }

    /// Waits until this number of streams has ended at both providers because the client left.
    pub(crate) async fn wait_for_aborts(&self, count: u64) {
        for provider in [&self.direct, &self.upstream] {
            while provider.abandoned() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(provider.abandoned(), count);
        }
    }
}

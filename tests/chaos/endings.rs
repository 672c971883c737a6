//! Tests that data survives while a fault lasts: retention deletes no session that cannot be exported, and no session
//! because of a wrong clock.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::{
    CallRef, ExportTranscriptRequest, ListSessionsRequest, LostResult, PersistToolResultRequest,
    ResultLoss, SearchMessagesRequest, TextPattern, ToolResultContent, text_pattern,
};
use palimpsest_tests::say::{append, assistant_call, result, user};
use palimpsest_tests::{Server, name, palimpsest};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use crate::faults::{Fault, Faults};

/// Generous, because this limit must only detect hangs.
const TIMEOUT: Duration = Duration::from_mins(2);

const SETTINGS: &[&str] = &[
    "worker.enabled=false",
    "retention.every_ms=100",
    "retention.duty_cycle_percent=100",
    "policy.tool_results.max_result_chars=4000",
];

fn start(data: &Path, faults: &Faults, settings: &[&str]) -> Server {
    let settings = SETTINGS.iter().chain(settings).copied();
    let arguments: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
    Server::start_with(data, &arguments, &faults.vars())
}

/// The end of a result. The preview contains only the beginning.
const ENDS: &str = "and the end of it";

/// Returns a result that exists only as a stored file, because its message contains the replacement text.
fn said() -> String {
    "a line that is in a file alone\n".repeat(1_000) + ENDS
}

async fn store_result(server: &Server, session: &str) {
    let mut client = server.context().await;
    let asked = vec![user("Look."), assistant_call("call_1")];
    client
        .append_messages(append(&name(session), asked))
        .await
        .unwrap();
    let text = |text: String| ToolResultContent {
        content: Some(Content::Text(text)),
    };
    let request = PersistToolResultRequest {
        session: name(session),
        call: Some(CallRef {
            tool_use_id: "call_1".into(),
            ..CallRef::default()
        }),
        tool_name: "read".into(),
        content: Some(text(said())),
        ..PersistToolResultRequest::default()
    };
    let reply = client
        .persist_tool_result(request)
        .await
        .unwrap()
        .into_inner();
    let Some(Content::Text(replacement)) = reply.replacement.and_then(|it| it.content) else {
        panic!("the result was not stored");
    };
    let came = vec![result("call_1", &replacement)];
    client
        .append_messages(append(&name(session), came))
        .await
        .unwrap();
}

async fn export(server: &Server, session: &str) -> Result<(String, Vec<LostResult>), Status> {
    let request = ExportTranscriptRequest {
        session: name(session),
        ..ExportTranscriptRequest::default()
    };
    let mut client = server.sessions().await;
    let mut stream = client.export_transcript(request).await?.into_inner();
    let (mut text, mut lost) = (Vec::new(), Vec::new());
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        text.extend_from_slice(&chunk.data);
        lost.extend(chunk.unreadable_results);
    }
    Ok((String::from_utf8(text).unwrap(), lost))
}

async fn search(server: &Server, session: &str) -> Result<(usize, u32), Status> {
    let request = SearchMessagesRequest {
        session: name(session),
        pattern: Some(TextPattern {
            pattern: Some(text_pattern::Pattern::Literal(ENDS.into())),
            ..TextPattern::default()
        }),
        ..SearchMessagesRequest::default()
    };
    let mut client = server.sessions().await;
    let found = client.search_messages(request).await?.into_inner();
    Ok((found.hits.len(), found.unreadable_results))
}

async fn count(server: &Server) -> usize {
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        page_size: 1_000,
        ..ListSessionsRequest::default()
    };
    let list = server.sessions().await.list_sessions(request).await;
    list.unwrap().into_inner().sessions.len()
}

fn metric(server: &Server, line: &str) -> f64 {
    let scraped = server.scrape();
    let found = scraped.lines().find_map(|it| {
        let rest = it.strip_prefix(line)?;
        rest.rsplit(' ').next()?.parse().ok()
    });
    found.unwrap_or(0.0)
}

async fn until(server: &Server, what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        let log = || server.log().join("\n");
        assert!(
            began.elapsed() < TIMEOUT,
            "timed out waiting for {what}: {}",
            log()
        );
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for several passes of retention that begin after now.
async fn passes(server: &Server) {
    let passes = || {
        metric(
            server,
            "palimpsest_maintenance_passes_total{task=\"retention\"",
        )
    };
    // A pass that began before the change proves nothing, so several passes are awaited.
    let until_passes = passes() + 3.0;
    until(server, "passed", async || passes() >= until_passes).await;
}

fn lines(server: &Server, what: &str) -> usize {
    let log = server.log();
    log.iter().filter(|line| line.contains(what)).count()
}

fn exported(place: &Path) -> Vec<String> {
    let Ok(entries) = place.read_dir() else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(exported(&path));
        } else {
            texts.push(std::fs::read_to_string(path).unwrap());
        }
    }
    texts
}

#[tokio::test]
async fn an_unreadable_result_fails_the_export_and_keeps_the_session() {
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("exports"));
    let faults = Faults::new(root.path());
    let server = start(&data, &faults, &[]);
    store_result(&server, "kept").await;
    let (whole, lost) = export(&server, "kept").await.unwrap();
    assert!(whole.matches("in a file alone").count() >= 1_000);
    assert!(lost.is_empty());
    faults.set(Fault::NoResults);
    let refused = export(&server, "kept").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let refused = search(&server, "kept").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    server.stop();

    let url = format!("retention.export_url=file://{}", place.display());
    let server = start(&data, &faults, &[&url, "retention.max_age=1s"]);
    until(&server, "tried", async || {
        lines(&server, "failed to export an expired session") > 1
    })
    .await;
    assert_eq!(count(&server).await, 1);
    assert!(exported(&place).is_empty());
    // After the fault ends, retention continues and loses nothing.
    faults.set(Fault::None);
    until(&server, "deleted", async || count(&server).await == 0).await;
    let texts = exported(&place);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].matches("in a file alone").count() >= 1_000);
}

#[tokio::test]
async fn a_lost_result_is_reported_by_its_export_and_keeps_its_session() {
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("exports"));
    let faults = Faults::new(root.path());
    let server = start(&data, &faults, &[]);
    store_result(&server, "kept").await;
    assert_eq!(search(&server, "kept").await.unwrap(), (1, 0));
    let folder = data.join("blobs/p/kept/tool-results");
    let file = folder.read_dir().unwrap().next().unwrap().unwrap().path();
    let content = std::fs::read(&file).unwrap();
    for (loss, said) in [
        (ResultLoss::Missing, "MISSING"),
        (ResultLoss::Damaged, "DAMAGED"),
    ] {
        match loss {
            ResultLoss::Damaged => std::fs::write(&file, "something else").unwrap(),
            _ => std::fs::remove_file(&file).unwrap(),
        }
        let (text, lost) = export(&server, "kept").await.unwrap();
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].loss(), loss);
        assert!(file.ends_with(&lost[0].file), "{lost:?}");
        let line = text
            .lines()
            .find(|line| line.contains("unreadable_results"));
        assert!(line.unwrap().contains(said), "{text}");
        assert_eq!(search(&server, "kept").await.unwrap(), (0, 1));
    }
    // The export writes the complete file, and its exit code reports the missing content.
    let out = root.path().join("kept.jsonl");
    let address = format!("http://{}", server.address());
    let export = [
        "export",
        "--server",
        &address,
        "--output",
        out.to_str().unwrap(),
        &name("kept"),
    ];
    let done = palimpsest(&export);
    assert!(!done.status.success());
    let says = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(says.contains("1 stored results are lost"), "{says}");
    assert!(std::fs::read_to_string(&out).unwrap().contains("DAMAGED"));
    server.stop();

    let url = format!("retention.export_url=file://{}", place.display());
    let server = start(&data, &faults, &[&url, "retention.max_age=1s"]);
    until(&server, "kept", async || {
        metric(&server, "palimpsest_retention_blocked_sessions") >= 1.0
    })
    .await;
    passes(&server).await;
    assert_eq!(lines(&server, "because its export would be incomplete"), 1);
    assert_eq!(count(&server).await, 1);
    assert!(exported(&place).is_empty());
    std::fs::write(&file, content).unwrap();
    until(&server, "deleted", async || count(&server).await == 0).await;
    assert!(exported(&place)[0].contains("in a file alone"));
}

#[tokio::test]
async fn a_clock_that_jumps_during_retention_deletes_nothing() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let faults = Faults::new(root.path());
    let server = start(&data, &faults, &["retention.max_age=90d"]);
    let mut client = server.context().await;
    for number in 0..21 {
        let session = name(&format!("s{number}"));
        client
            .append_messages(append(&session, vec![user("hello")]))
            .await
            .unwrap();
    }
    passes(&server).await;
    let paused = || metric(&server, "palimpsest_retention_paused");
    assert!(paused() < 1.0);
    faults.set(Fault::ClockYearAhead);
    until(&server, "paused", async || paused() >= 1.0).await;
    passes(&server).await;
    assert_eq!(count(&server).await, 21);
    // Events that were recorded under the wrong clock do not prove that the clock is right.
    client
        .append_messages(append(&name("s0"), vec![user("and on")]))
        .await
        .unwrap();
    passes(&server).await;
    assert_eq!(
        (
            count(&server).await,
            lines(&server, "retention by age is paused")
        ),
        (21, 1)
    );
    server.stop();
    // A restart does not make the clock right.
    let server = start(&data, &faults, &["retention.max_age=90d"]);
    let paused = || metric(&server, "palimpsest_retention_paused");
    until(&server, "paused", async || paused() >= 1.0).await;
    passes(&server).await;
    assert_eq!(count(&server).await, 21);
    faults.set(Fault::None);
    until(&server, "going on", async || paused() < 1.0).await;
    assert_eq!(count(&server).await, 21);
}

#[tokio::test]
async fn a_dry_run_deletes_nothing_and_lists_deletions() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let faults = Faults::new(root.path());
    let settings = ["retention.max_sessions=1", "retention.dry_run=true"];
    let server = start(&data, &faults, &settings);
    let mut client = server.context().await;
    for session in ["a", "b", "c"] {
        client
            .append_messages(append(&name(session), vec![user("hello")]))
            .await
            .unwrap();
    }
    until(&server, "counted", async || {
        metric(&server, "palimpsest_retention_would_delete") >= 2.0
    })
    .await;
    passes(&server).await;
    assert_eq!(count(&server).await, 3);
    server.stop();
    let data = data.to_str().unwrap();
    let list = [
        "retention",
        "--dry-run",
        "--data-dir",
        data,
        "--set",
        "retention.max_sessions=1",
    ];
    let listed = palimpsest(&list);
    let says = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success(), "{listed:?}");
    assert!(says.contains("2 of 3 sessions would be deleted"), "{says}");
    assert!(
        says.contains(&name("a")) && !says.contains(&name("c")),
        "{says}"
    );
}

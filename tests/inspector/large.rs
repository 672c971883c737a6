//! Pages of a large session: as small as those of a small one. `--nocapture` prints the time of the first paint.

use palimpsest_proto::context::v1::{CompactRequest, CompactionStrategy, Level, MessageInput};
use palimpsest_tests::name;
use palimpsest_tests::say::{append, assistant, noise, prepare, user};
use palimpsest_tests::server::Server;

use crate::browser::Browser;

/// The sizes of the two sessions, in messages.
const SMALL: usize = 1_000;
const LARGE: usize = 10_000;
/// The number of requests in each session: more than a page of events has.
const REQUESTS: usize = 320;
const BATCH: usize = 500;
/// The sessions of a large store, its projects, and the concurrent calls that create it.
const SESSIONS: usize = 100_000;
const PROJECTS: usize = 20;
const CALLERS: usize = 64;

/// The messages of a turn: a question and its answer.
fn turn(number: u64) -> [MessageInput; 2] {
    [
        user(&format!("Question {number}: {}", noise(number, 200))),
        assistant(&format!("Answer {number}: {}", noise(number + 1, 600))),
    ]
}

/// Creates a session with a compaction, after which each turn is a request.
async fn create(server: &Server, session: &str, messages: usize) {
    let mut client = server.context().await;
    let turns: Vec<u64> = (0..).take(messages / 2).collect();
    let (before, requests) = turns.split_at(turns.len() - REQUESTS);
    for batch in before.chunks(BATCH / 2) {
        let batch = batch.iter().flat_map(|number| turn(*number)).collect();
        let reply = client.append_messages(append(&name(session), batch)).await;
        reply.unwrap();
    }
    let compact = CompactRequest {
        session: name(session),
        level: Level::Compaction.into(),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    client.compact(compact).await.unwrap();
    for number in requests {
        let [question, answer] = turn(*number);
        let request = prepare(&name(session), vec![question]);
        client.prepare_context(request).await.unwrap();
        let reply = client
            .append_messages(append(&name(session), vec![answer]))
            .await;
        reply.unwrap();
    }
}

/// Opens a page. Returns its size in bytes, and the time of its first paint in milliseconds.
async fn paint(browser: &Browser, base: &str, path: &str) -> (u64, f64) {
    browser.goto(&format!("{base}{path}")).await;
    let painted = "performance.getEntriesByName('first-contentful-paint').length > 0";
    browser.until(painted).await;
    let paint = browser
        .value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        .await;
    let size = browser
        .value("performance.getEntriesByType('navigation')[0].decodedBodySize")
        .await;
    (size.as_u64().unwrap(), paint.as_f64().unwrap())
}

#[tokio::test]
async fn the_size_of_a_page_does_not_grow_with_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    create(&server, "small", SMALL).await;
    create(&server, "large", LARGE).await;
    let browser = Browser::open().await;
    let base = format!("http://{}/inspector/projects/p", server.address());
    for page in ["", "/view", "/transcript", "/memory", "/search?q=Question"] {
        let mut sizes = Vec::new();
        for session in ["small", "large"] {
            let path = format!("/sessions/{session}{page}");
            let (size, paint) = paint(&browser, &base, &path).await;
            println!("{path}: {size} bytes, painted after {paint} ms");
            sizes.push(size);
        }
        assert!(sizes[0] > 1_000, "{page}: {sizes:?}");
        assert!(sizes[1] < sizes[0] * 2, "{page}: {sizes:?}");
    }
    browser.close(&[]).await;
}

/// Run with a release build in `PALIMPSEST_TEST_BINARY`.
#[tokio::test]
#[ignore = "a measurement of a minute"]
async fn the_pages_of_many_sessions_are_painted() {
    let folder = tempfile::tempdir().unwrap();
    // Load shedding would reject a part of the calls that fill the store.
    let server = Server::start(folder.path(), &["--set", "grpc.max_slowdown_percent=10000"]);
    let client = server.context().await;
    let callers = (0..CALLERS).map(|caller| {
        let mut client = client.clone();
        async move {
            for number in (caller..SESSIONS).step_by(CALLERS) {
                let session = format!("projects/p{}/sessions/s{number}", number % PROJECTS);
                let messages = vec![user(&format!("Question {number}"))];
                let reply = client.append_messages(append(&session, messages)).await;
                reply.unwrap();
            }
        }
    });
    futures::future::join_all(callers).await;
    let browser = Browser::open().await;
    let base = format!("http://{}/inspector", server.address());
    for path in ["", "/projects/p1", "/projects/p1?q=Question+9"] {
        let (bytes, paint) = paint(&browser, &base, path).await;
        println!("{path}: {bytes} bytes, painted after {paint} ms");
        assert!(bytes < 200_000, "{path}: {bytes} bytes");
    }
    browser.close(&[]).await;
}

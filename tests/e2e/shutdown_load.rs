//! Tests of SIGTERM under load: every accepted call is answered, and the next start is quick.

#![expect(
    clippy::disallowed_methods,
    reason = "a process takes real time to end and to start"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::ListMessagesRequest;
use palimpsest_tests::name;
use palimpsest_tests::say::{append, user, uuid, with_id};
use palimpsest_tests::server::{Context, Server};
use tokio::sync::Mutex;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Number of clients. Each one has its own connection and session.
const CLIENTS: u64 = 32;
/// Time under load before the signal. Work of the server's start has ended by then.
const LOAD: Duration = Duration::from_millis(1_500);
/// Generous limits, which must only detect hangs, also on a slow machine.
const DRAIN: Duration = Duration::from_mins(2);
/// Maximum time after the drain: the worker's grace period, and the last flush of the store.
const CLOSE: Duration = Duration::from_mins(1);
const NEXT_START: Duration = Duration::from_mins(1);

/// The outcome of a client's calls.
struct Sent {
    session: String,
    /// The ids of acknowledged messages.
    acknowledged: BTreeSet<String>,
    /// Number of messages that were acknowledged after the signal.
    after_signal: usize,
    /// The error that ended the client, and the start time of that call.
    refused: Status,
    began: Instant,
}

/// Appends one message after another until a call fails.
async fn send(mut client: Context, number: u64, signal: Arc<Mutex<Option<Instant>>>) -> Sent {
    let session = name(&format!("load-{number}"));
    let mut acknowledged = BTreeSet::new();
    let mut after_signal = 0;
    let mut next = 0;
    let (refused, began) = loop {
        let began = Instant::now();
        let id = uuid(number * 1_000_000 + next);
        next += 1;
        let text = "x".repeat(1_000);
        let request = append(&session, vec![with_id(&id, user(&text))]);
        match client.append_messages(request).await {
            Ok(_) => {
                acknowledged.insert(id);
                after_signal += usize::from(signal.lock().await.is_some());
            }
            Err(status) => break (status, began),
        }
    };
    Sent {
        session,
        acknowledged,
        after_signal,
        refused,
        began,
    }
}

async fn stored(server: &Server, session: &str) -> BTreeSet<String> {
    let mut sessions = server.sessions().await;
    let mut all = BTreeSet::new();
    let mut page_token = String::new();
    loop {
        let request = ListMessagesRequest {
            session: session.to_owned(),
            omit_content: true,
            page_size: 1_000,
            page_token,
            ..Default::default()
        };
        let page = sessions.list_messages(request).await.unwrap().into_inner();
        all.extend(page.messages.into_iter().map(|message| message.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

/// Returns true if the server sent GOAWAY before the client had sent the call. HTTP/2 then guarantees that the server
/// did not process it. tonic's client reports an internal error.
fn said_goodbye(status: &Status) -> bool {
    format!("{status:?}").contains("GoAway(b\"\", NO_ERROR, Remote)")
}

/// Returns true if the listener closed while the client connected, or if the server closed the connection before the
/// client wrote the call. tonic's client reports an unknown error.
fn was_not_accepted(sent: &Sent) -> bool {
    let text = format!("{:?}", sent.refused);
    text.contains("Kind(ConnectionReset)") || text.contains("kind: BrokenPipe")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_fails_no_admitted_call() {
    let folder = tempfile::tempdir().unwrap();
    let drain = format!("shutdown.drain_ms={}", DRAIN.as_millis());
    // A high limit avoids load shedding, so that every error comes from the shutdown.
    let patient = "grpc.max_slowdown_percent=10000";
    let server = Server::start(folder.path(), &["--set", &drain, "--set", patient]);
    let signal = Arc::new(Mutex::new(None));
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = server.context().await;
        clients.push(tokio::spawn(send(client, number, Arc::clone(&signal))));
    }
    tokio::time::sleep(LOAD).await;

    let signalled = Instant::now();
    server.signal("TERM");
    *signal.lock().await = Some(signalled);
    let end = tokio::task::spawn_blocking(move || server.wait());
    let status = tokio::time::timeout(DRAIN + CLOSE, end).await;
    let status = status
        .expect("the server runs longer than its drain")
        .unwrap();
    let took = signalled.elapsed();
    assert!(status.success(), "{status}");
    let mut all = Vec::new();
    for client in clients {
        all.push(client.await.unwrap());
    }

    let began = Instant::now();
    let server = Server::start(folder.path(), &[]);
    let start = began.elapsed();
    let acknowledged: usize = all.iter().map(|sent| sent.acknowledged.len()).sum();
    let after: usize = all.iter().map(|sent| sent.after_signal).sum();
    println!(
        "{acknowledged} appends, {after} of them answered after SIGTERM; down in {took:?}, up again in {start:?}"
    );
    for sent in &all {
        // The error of a call that was not accepted states this, whether the call started before or after the signal.
        let reason = sent
            .refused
            .get_details_error_info()
            .map(|info| info.reason);
        let was_not_let_in = reason.is_some_and(|reason| reason == "NOT_SERVING");
        let was_not_sent = said_goodbye(&sent.refused);
        assert!(
            sent.began > signalled || was_not_let_in || was_not_sent,
            "{:?}",
            sent.refused
        );
        // The store must contain exactly the acknowledged messages. Any other message would belong to a call that took
        // effect and was not answered.
        assert_eq!(stored(&server, &sent.session).await, sent.acknowledged);
        let codes = [Code::Unavailable, Code::Cancelled];
        let code = sent.refused.code();
        assert!(
            was_not_sent || was_not_accepted(sent) || codes.contains(&code),
            "{:?}",
            sent.refused
        );
    }
    assert!(after > 0, "no call was in flight at the signal");
    assert!(start < NEXT_START, "{start:?}");
}

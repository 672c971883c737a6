//! Requests that are sent while their conversations are committed.

use std::sync::Arc;

use palimpsest_gateway::context::Unmanaged;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::raw::{
    Message, REQUEST, Running, connect, in_time, read_message, recording_gateway, upstream,
};
use crate::scripted_context::ScriptedContext;

const MESSAGE: &str = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"one"}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":1}}"#;

/// A gateway in front of an upstream that answers at once.
struct World {
    gateway: Running,
    context: Arc<ScriptedContext>,
    /// One value for each request to upstream.
    requests: mpsc::UnboundedReceiver<()>,
    records: mpsc::UnboundedReceiver<palimpsest_gateway::context::RecordedResponse>,
}

impl World {
    async fn new(requires_session: bool) -> Self {
        let (arrived, requests) = mpsc::unbounded_channel();
        let upstream = upstream(move |mut stream: TcpStream| {
            let arrived = arrived.clone();
            async move {
                while read_message(&mut stream).await.is_some() {
                    arrived.send(()).unwrap();
                    let length = MESSAGE.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
                    );
                    let answer = [head.as_bytes(), MESSAGE.as_bytes()].concat();
                    stream.write_all(&answer).await.unwrap();
                }
            }
        })
        .await;
        let (context, records) = ScriptedContext::new();
        // Records end at once, because these tests concern commits only.
        context.permit(100);
        let used = Arc::clone(&context);
        let url = format!("http://{upstream}");
        let change = |config: &mut palimpsest_settings::GatewayConfig| {
            config.require_session = requires_session;
        };
        Self {
            gateway: recording_gateway(&url, used, change).await,
            context,
            requests,
            records,
        }
    }

    async fn send(&self) -> TcpStream {
        let mut client = connect(self.gateway.address).await;
        client.write_all(REQUEST).await.unwrap();
        client
    }
}

fn header(response: &Message, name: &str) -> Option<String> {
    crate::raw::header(&response.head, name)
}

/// Gives all tasks enough turns to do what they can do.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_is_sent_before_its_commit_and_its_response_waits() {
    in_time(async {
        let mut world = World::new(false).await;
        let commit = world.context.commit_later();
        let mut client = world.send().await;
        // The request reaches upstream although its commit never ends by itself.
        world.requests.recv().await.unwrap();
        settle().await;
        let mut byte = [0];
        // An error here is `WouldBlock`: no byte of the response has arrived.
        let read = client.try_read(&mut byte);
        assert!(read.is_err(), "the response did not wait: {read:?}");
        commit.send(Ok(())).unwrap();
        let response = read_message(&mut client).await.unwrap();
        assert_eq!(
            header(&response, "x-palimpsest-body"),
            Some("original".to_owned())
        );
        world.records.recv().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_failed_commit_is_visible_and_its_response_is_not_recorded() {
    in_time(async {
        let mut world = World::new(false).await;
        let commit = world.context.commit_later();
        let mut client = world.send().await;
        world.requests.recv().await.unwrap();
        commit.send(Err(Unmanaged::Store)).unwrap();
        let response = read_message(&mut client).await.unwrap();
        assert_eq!(
            header(&response, "x-palimpsest-body"),
            Some("unmanaged".to_owned())
        );
        assert_eq!(
            header(&response, "x-palimpsest-reason"),
            Some("store".to_owned())
        );
        assert_eq!(header(&response, "x-palimpsest-session"), None);
        let line = "palimpsest_gateway_unmanaged_total{reason=\"store\"} 1";
        let metrics = world.gateway.metrics.exposition();
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
        settle().await;
        assert!(world.records.try_recv().is_err());
    })
    .await;
}

#[tokio::test]
async fn a_required_session_is_committed_before_the_request_is_sent() {
    in_time(async {
        let mut world = World::new(true).await;
        let commit = world.context.commit_later();
        let mut client = world.send().await;
        settle().await;
        assert!(world.requests.try_recv().is_err());
        commit.send(Err(Unmanaged::Store)).unwrap();
        let response = read_message(&mut client).await.unwrap();
        assert!(
            response.head_text().starts_with("HTTP/1.1 503"),
            "{response:?}"
        );
        assert!(world.requests.try_recv().is_err());

        let commit = world.context.commit_later();
        let mut client = world.send().await;
        commit.send(Ok(())).unwrap();
        let response = read_message(&mut client).await.unwrap();
        assert_eq!(
            header(&response, "x-palimpsest-body"),
            Some("original".to_owned())
        );
    })
    .await;
}

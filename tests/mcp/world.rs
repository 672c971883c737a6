//! Servers and sessions of these tests.

use palimpsest_proto::context::v1::MessageInput;
use palimpsest_tests::say::{assistant, assistant_call, prepare, result, user};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Shared, name};

/// A server without authentication.
pub(crate) static SERVER: Shared = Shared::new(&["--set", "worker.enabled=false"]);

/// The number of lines of the stored result.
pub(crate) const LINES: usize = 20_000;

/// Appends messages to a session, and serves its view. Returns the view.
pub(crate) async fn add(client: &mut Context, session: &str, messages: Vec<MessageInput>) -> Array {
    let request = prepare(&name(session), messages);
    let mut array = Array::default();
    array.take(&client.prepare_context(request).await.unwrap().into_inner());
    array
}

/// Creates a session with a stored result. Returns the reference of the result.
pub(crate) async fn session(client: &mut Context, session: &str) -> String {
    let lines: Vec<String> = (1..=LINES).map(|n| format!("line {n}")).collect();
    let messages = vec![
        user("Where is the aardvark?"),
        assistant_call("big"),
        result("big", &(lines.join("\n") + "\n")),
        assistant("It sleeps below line 12345."),
    ];
    let array = add(client, session, messages).await;
    let shown = array.values()[2]["content"][0]["content"].to_string();
    let (_, rest) = shown.split_once("saved to: ").unwrap();
    rest.split_once("\\n").unwrap().0.to_owned()
}

/// Returns the path of the API for a session of the project `p`.
pub(crate) fn path(session: &str) -> String {
    format!("/mcp/projects/p/sessions/{session}")
}

/// Returns the URI of the memory of a session of the project `p`.
pub(crate) fn memory_uri(session: &str) -> String {
    format!("palimpsest://{}/memory", name(session))
}

//! A session whose view differs from its transcript: it was compacted, rewound and snipped, and a result is stored.

use palimpsest_proto::context::v1::compact_request::Range;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, MessageInput, RewindSessionRequest, SnipRequest,
};

use crate::Server;
use crate::say::{append, assistant, assistant_call, prepare, result, user, uuid, with_id};

/// The settings of a server with this session.
pub const CHANGED_SESSION_SETTINGS: [&str; 2] = [
    "policy.autocompact.min_input_tokens=100",
    "policy.tool_results.max_result_chars=4000",
];

/// The texts of the view, in order. The summary precedes them.
pub const SHOWN_TEXTS: [&str; 8] = [
    "a question that stays",
    "an answer that stays",
    "a question before a rewind",
    "a better answer",
    "run the command",
    "row 1 of the output",
    "the command has run",
    "the last question",
];

/// The texts that the view does not contain.
pub const HIDDEN_TEXTS: [&str; 6] = [
    "the first long answer",
    "an abandoned answer",
    "an abandoned thought",
    "a removed question",
    "a removed answer",
    "row 400 of the output",
];

/// Creates the session.
pub async fn create_changed_session(server: &Server, session: &str) {
    let say = |number: u64, message: MessageInput| with_id(&uuid(number), message);
    let mut client = server.context().await;
    let early = vec![
        say(1, user("the first question")),
        say(2, assistant(&"the first long answer. ".repeat(400))),
        say(3, user("a question that stays")),
        say(4, assistant("an answer that stays")),
        say(5, user("a question before a rewind")),
    ];
    client
        .prepare_context(prepare(session, early))
        .await
        .unwrap();
    let compact = CompactRequest {
        session: session.to_owned(),
        strategy: CompactionStrategy::Extractive.into(),
        range: Some(Range::UpToMessageId(uuid(2))),
        ..CompactRequest::default()
    };
    client.compact(compact).await.unwrap();
    let abandoned = vec![
        // The rewind keeps this answer and removes the two messages after it.
        say(11, assistant("a better answer")),
        say(12, user("an abandoned thought")),
        say(13, assistant("an abandoned answer")),
    ];
    client
        .append_messages(append(session, abandoned))
        .await
        .unwrap();
    let rewind = RewindSessionRequest {
        session: session.to_owned(),
        target_message: Some(TargetMessage::ToMessageId(uuid(11))),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(rewind).await.unwrap();
    let rows = (1..=400).map(|row| format!("row {row} of the output\n"));
    let later = vec![
        say(14, user("run the command")),
        say(15, assistant_call("call_1")),
        say(16, result("call_1", &rows.collect::<String>())),
        say(17, assistant("the command has run")),
        say(18, user("a removed question")),
        say(19, assistant("a removed answer")),
        say(20, user("the last question")),
    ];
    client
        .prepare_context(prepare(session, later))
        .await
        .unwrap();
    let snip = SnipRequest {
        session: session.to_owned(),
        message_ids: vec![uuid(18), uuid(19)],
        ..SnipRequest::default()
    };
    client.snip(snip).await.unwrap();
}

//! Tests of rejections by the levels and by recovery: each has its own error, and no state changes.

mod asked;
mod parts;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use palimpsest_proto::context::v1::read_tool_result_request::{Result as Whose, Selection};
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{
    BlockRef, ByteRange, CallRef, CompactRequest, CreateSessionRequest, GetSessionRequest, Level,
    LineRange, LineSearch, ReadToolResultRequest, ReadToolResultResponse, RestoreContextRequest,
    RewindSessionRequest, SearchMessagesRequest, Session, SnipRequest, TextPattern, ViewBlocks,
    WirePosition,
};
use palimpsest_tests::say::{
    append, assistant, assistant_call, prepare, result, tools_with_snip, user, uuid, with_id,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, fields, name, refused};
use tonic::{Code, Status};

use self::asked::{reads, snips, ways_back};
use crate::SERVER;

/// A request, its expected error, and the names that the error must contain.
struct Case {
    what: &'static str,
    ask: Ask,
    code: Code,
    reason: &'static str,
    /// The invalid field, or a key and value of the metadata.
    named: Vec<(&'static str, String)>,
}

enum Ask {
    Snip(SnipRequest),
    Read(ReadToolResultRequest),
    Search(SearchMessagesRequest),
    Restore(RestoreContextRequest),
    Rewind(RewindSessionRequest),
    Compact(CompactRequest),
}

impl Ask {
    fn send<'a>(
        self,
        server: &'a Server,
        client: &'a mut Context,
    ) -> BoxFuture<'a, Option<Status>> {
        Box::pin(async move {
            match self {
                Self::Snip(request) => client.snip(request).await.err(),
                Self::Read(request) => read(client, request).await.err(),
                Self::Search(request) => {
                    let mut sessions = server.sessions().await;
                    sessions.search_messages(request).await.err()
                }
                Self::Restore(request) => client.restore_context(request).await.err(),
                Self::Rewind(request) => client.rewind_session(request).await.err(),
                Self::Compact(request) => client.compact(request).await.err(),
            }
        })
    }
}

async fn read(
    client: &mut Context,
    request: ReadToolResultRequest,
) -> Result<Vec<ReadToolResultResponse>, Status> {
    let stream = client.read_tool_result(request).await?.into_inner();
    let chunks: Vec<_> = stream.collect().await;
    chunks.into_iter().collect()
}

fn data(chunks: &[ReadToolResultResponse]) -> String {
    let bytes: Vec<u8> = chunks
        .iter()
        .flat_map(|chunk| chunk.data.to_vec())
        .collect();
    String::from_utf8(bytes).unwrap()
}

fn snip(session: &str) -> SnipRequest {
    SnipRequest {
        session: name(session),
        ..SnipRequest::default()
    }
}

fn of(session: &str, result: Whose) -> ReadToolResultRequest {
    ReadToolResultRequest {
        session: name(session),
        result: Some(result),
        ..ReadToolResultRequest::default()
    }
}

fn id(id: &str) -> Whose {
    Whose::Call(CallRef {
        tool_use_id: id.into(),
        ..CallRef::default()
    })
}

fn key(call_key: &str, id: &str) -> Whose {
    Whose::Call(CallRef {
        call_key: call_key.into(),
        tool_use_id: id.into(),
    })
}

fn regex(pattern: &str) -> TextPattern {
    TextPattern {
        pattern: Some(Pattern::Regex(pattern.into())),
        ignore_case: false,
    }
}

/// Returns the id of the turn with this question.
fn tag(array: &Array, question: &str) -> String {
    for message in array.values() {
        for block in message["content"].as_array().unwrap() {
            let text = block["text"].as_str().unwrap_or_default();
            if let Some(tag) = text.strip_prefix(&format!("{question}\n[id:")) {
                return tag.trim_end_matches(']').to_owned();
            }
        }
    }
    panic!("{question} is not in the view");
}

async fn take(client: &mut Context, array: &mut Array, session: &str) {
    let mut request = prepare(&name(session), vec![]);
    request.known_etag = array.etag.clone();
    request.prompt_prefix = tools_with_snip();
    array.take(&client.prepare_context(request).await.unwrap().into_inner());
}

/// A session with an object for every rejection. It has a snipped turn, a rewound turn, a current turn, an id of two
/// calls, and an open call.
struct Place {
    array: Array,
    snipped: String,
    rewound: String,
    open: String,
    current: String,
    foreign: String,
    elsewhere: String,
    stale: bytes::Bytes,
    revision: u64,
}

async fn place(server: &Server) -> Place {
    let (session, mut client) = ("refuse-all", server.context().await);
    let mut array = Array::default();
    let say = |number, said| with_id(&uuid(number), said);
    let said = vec![
        say(1, user("first")),
        say(2, assistant("of the first")),
        say(3, user("second")),
        say(4, assistant_call("once")),
        say(5, result("once", "line 1\nline 2\n")),
        say(6, assistant("of the second")),
        say(7, user("third")),
        // Two calls share an id, so the id alone is ambiguous.
        say(8, assistant_call("twice")),
        say(9, result("twice", "one")),
        say(10, assistant_call("twice")),
        say(11, result("twice", "two")),
        say(12, assistant("of the third")),
        say(13, user("fourth")),
    ];
    client
        .append_messages(append(&name(session), said))
        .await
        .unwrap();
    take(&mut client, &mut array, session).await;
    let (snipped, rewound) = (tag(&array, "first"), tag(&array, "fourth"));
    let stale = array.etag.clone();
    let request = SnipRequest {
        turn_ids: vec![snipped.clone()],
        blocks: vec![BlockRef {
            message_id: uuid(6),
            block_index: 0,
        }],
        ..snip(session)
    };
    client.snip(request).await.unwrap();
    // Message 13, the question of the fourth turn, follows the target.
    let request = RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(uuid(12))),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(request).await.unwrap();
    let said = vec![say(14, user("fifth")), say(15, assistant_call("open"))];
    client
        .append_messages(append(&name(session), said))
        .await
        .unwrap();
    take(&mut client, &mut array, session).await;

    // A turn of a subagent session is foreign. A turn of an unrelated session is unknown.
    let child = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "refuse-child".into(),
        session: Some(Session {
            parent_session: name(session),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    server.sessions().await.create_session(child).await.unwrap();
    let mut seen = Vec::new();
    for other in ["refuse-child", "refuse-stranger"] {
        let mut array = Array::default();
        let said = vec![user("mine"), assistant("yes"), user("on")];
        client
            .append_messages(append(&name(other), said))
            .await
            .unwrap();
        take(&mut client, &mut array, other).await;
        seen.push(tag(&array, "mine"));
    }
    let elsewhere = seen.pop().unwrap();
    Place {
        open: tag(&array, "second"),
        current: tag(&array, "fifth"),
        revision: revision(server, session).await,
        foreign: seen.remove(0),
        elsewhere,
        array,
        snipped,
        rewound,
        stale,
    }
}

async fn revision(server: &Server, session: &str) -> u64 {
    let request = GetSessionRequest {
        session: name(session),
        ..GetSessionRequest::default()
    };
    let mut sessions = server.sessions().await;
    let reply = sessions.get_session(request).await.unwrap().into_inner();
    reply.session.unwrap().revision
}

#[tokio::test]
async fn every_rejection_has_its_message_and_changes_nothing() {
    let shared = SERVER.get();
    let server = &shared.0;
    let mut client = server.context().await;
    let mut place = place(server).await;
    let mut cases = snips(&place);
    cases.extend(reads());
    cases.extend(ways_back(&place));
    let before = place.array.clone();
    for case in cases {
        let status = case.ask.send(server, &mut client).await;
        let status = status.unwrap_or_else(|| panic!("{} is accepted", case.what));
        let code = status.code();
        assert_eq!(code, case.code, "{}: {status:?}", case.what);
        let metadata = refused(&status, case.code, case.reason);
        for (key, value) in case.named {
            if key == "field" {
                assert_eq!(fields(&status), [value], "{}", case.what);
            } else {
                assert_eq!(
                    metadata.get(key),
                    Some(&value),
                    "{}: {metadata:?}",
                    case.what
                );
            }
        }
        assert_eq!(
            revision(server, "refuse-all").await,
            place.revision,
            "{}",
            case.what
        );
    }
    take(&mut client, &mut place.array, "refuse-all").await;
    assert_eq!(place.array, before);
}

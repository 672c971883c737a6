//! Tests of cache breakpoints, placed as the replies state, like a client does it.

use bytes::Bytes;
use palimpsest_core::validate::validate;
use palimpsest_core::view::{self, Provider as Rules};
use palimpsest_proto::context::v1::cache_breakpoint::{Marker, Place};
use palimpsest_proto::context::v1::{
    CacheBreakpoint, CacheBreakpointOptions, GetSessionRequest, MessageForm, MessageInput,
    PrepareContextRequest, PrepareContextResponse, PromptPrefix, Provider, StreamContextRequest,
};
use palimpsest_tests::say::{
    anthropic, assistant, assistant_calls, openai, prepare, result, target, user,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, name, refused_field};
use prost_types::Duration;
use serde_json::{Value, json};

use crate::SERVER;

const OWN_SYSTEM: &str = r#"[{"type":"text","text":"who you are"},{"type":"text","text":"what you may do"},{"type":"text","text":"the date"}]"#;

fn asking(session: &str, messages: Vec<MessageInput>) -> PrepareContextRequest {
    let mut request = prepare(&name(session), messages);
    request.cache_breakpoints = Some(CacheBreakpointOptions::default());
    request.prompt_prefix = Some(PromptPrefix {
        system_json: OWN_SYSTEM.into(),
        ..PromptPrefix::default()
    });
    request
}

/// A client that keeps its array without breakpoints and sends a copy with them.
struct Caller {
    client: Context,
    array: Array,
    provider: Provider,
    session: &'static str,
}

impl Caller {
    async fn new(server: &Server, session: &'static str, provider: Provider) -> Self {
        Self {
            client: server.context().await,
            array: Array::default(),
            provider,
            session,
        }
    }

    async fn send(&mut self, messages: Vec<MessageInput>) -> (PrepareContextResponse, Vec<String>) {
        let mut request = asking(self.session, messages);
        request.known_etag = self.array.etag.clone();
        request.target = Some(target(self.provider, "m"));
        let reply = self.client.prepare_context(request).await.unwrap();
        let reply = reply.into_inner();
        self.array.take(&reply);
        let placed = self.check(&reply);
        (reply, placed)
    }

    /// Places the breakpoints in a copy of the request and validates it with the provider's rules.
    fn check(&self, reply: &PrepareContextResponse) -> Vec<String> {
        let mut system: Vec<Value> = serde_json::from_str(OWN_SYSTEM).unwrap();
        if !reply.system_json.is_empty() {
            let given: Vec<Value> = serde_json::from_slice(&reply.system_json).unwrap();
            system.extend(given);
        }
        let mut messages = self.array.values();
        let mut names = Vec::new();
        // The last breakpoint comes first, because an inserted block shifts the positions after it.
        for point in reply.cache_breakpoints.iter().rev() {
            let (blocks, at, name) = match point.place.as_ref().unwrap() {
                Place::SystemBlockIndex(block) => {
                    (&mut system, *block as usize, format!("system.{block}"))
                }
                Place::Position(at) => {
                    let block = at.block_index.unwrap();
                    let message = &mut messages[at.message_index as usize];
                    let blocks = message["content"].as_array_mut().unwrap();
                    let name = format!("{}.{block}", at.message_index);
                    (blocks, block as usize, name)
                }
            };
            mark(blocks, at, point);
            names.push(name);
        }
        names.reverse();
        // Anthropic's API accepts at most four breakpoints.
        assert!(names.len() <= 4);
        let rules = view::Target {
            provider: match self.provider {
                Provider::Bedrock => Rules::Bedrock,
                Provider::Openai => Rules::OpenAi,
                _ => Rules::Anthropic,
            },
            ..view::Target::default()
        };
        let sent: Vec<_> = messages.iter().map(Value::to_string).collect();
        let violations = validate(&rules, &sent);
        assert!(violations.is_empty(), "{violations:?}");
        // A system prompt consists of blocks, so the rules for a user message apply.
        let system = json!({"role": "user", "content": system}).to_string();
        if self.provider != Provider::Openai {
            let violations = validate(&rules, &[system]);
            assert!(violations.is_empty(), "{violations:?}");
        }
        names
    }
}

fn mark(blocks: &mut Vec<Value>, at: usize, point: &CacheBreakpoint) {
    match point.marker.as_ref().unwrap() {
        Marker::MergeJson(json) => {
            let fields: serde_json::Map<String, Value> = serde_json::from_slice(json).unwrap();
            blocks[at].as_object_mut().unwrap().extend(fields);
        }
        Marker::InsertJson(json) => {
            blocks.insert(at + 1, serde_json::from_slice(json).unwrap());
        }
    }
}

/// Returns `calls` concurrent tool calls, each with its result in a separate message.
fn work(round: usize, calls: usize) -> Vec<MessageInput> {
    let ids: Vec<String> = (0..calls).map(|call| format!("c{round}_{call}")).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let results = ids.iter().map(|id| result(id, "said"));
    std::iter::once(assistant_calls(&names))
        .chain(results)
        .collect()
}

#[tokio::test]
async fn breakpoints_move_with_the_conversation_and_are_not_in_the_view() {
    let shared = SERVER.get();
    for (provider, session) in [
        (Provider::Anthropic, "breaks-anthropic"),
        (Provider::Bedrock, "breaks-bedrock"),
    ] {
        let mut caller = Caller::new(&shared.0, session, provider).await;
        let (_, placed) = caller.send(vec![user("one")]).await;
        assert_eq!(placed, ["system.0", "system.1", "0.0"]);
        let (_, placed) = caller.send(work(1, 2)).await;
        assert_eq!(placed, ["system.0", "system.1", "0.0", "2.1"]);
        // The end of the previous request keeps its breakpoint, because 15 calls exceed the provider's look-back of 20
        // blocks.
        let (_, placed) = caller.send(work(2, 15)).await;
        assert_eq!(placed, ["system.0", "system.1", "2.1", "4.14"]);
        let (reply, placed) = caller.send(vec![assistant("done"), user("two")]).await;
        assert_eq!(placed, ["system.0", "system.1", "4.14", "6.0"]);

        // Without the option there are no breakpoints, and everything else is equal.
        let mut plain = prepare(&name(session), vec![]);
        plain.target = Some(target(provider, "m"));
        let plain = caller.client.prepare_context(plain).await.unwrap();
        let plain = plain.into_inner();
        assert!(plain.cache_breakpoints.is_empty());
        assert_eq!(
            (plain.etag, plain.messages_json),
            (reply.etag, caller.array.messages.clone())
        );
        let all = caller.array.values();
        assert!(!json!(all).to_string().contains("cache"), "{all:?}");

        // Typed messages have the same positions.
        let mut typed = asking(session, vec![]);
        typed.form = MessageForm::Typed.into();
        let typed = caller.client.prepare_context(typed).await.unwrap();
        assert_eq!(
            typed.into_inner().cache_breakpoints,
            reply.cache_breakpoints
        );
    }
}

#[tokio::test]
async fn markers_of_callers_are_hidden_and_counted() {
    let shared = SERVER.get();
    let mut caller = Caller::new(&shared.0, "breaks-own", Provider::Anthropic).await;
    let marker = json!({"type": "ephemeral"});
    let text = json!({"type": "text", "text": "one", "cache_control": marker});
    let novel = json!({"type": "novel", "n": 7, "cache_control": marker});
    let system = json!({"role": "system", "content": [{"type": "text", "text": "the operator's", "cache_control": marker}]});
    let said = json!({"role": "user", "content": [text, novel]});
    let (reply, placed) = caller
        .send(vec![anthropic(&system), anthropic(&said)])
        .await;
    assert_eq!(placed, ["system.0", "system.1", "0.0"]);
    let shown = String::from_utf8(caller.array.messages.concat()).unwrap();
    assert!(!shown.contains("cache_control"), "{shown}");
    assert!(shown.contains(r#"{"n":7,"type":"novel"}"#), "{shown}");
    assert!(!reply.system_json.is_empty());

    let mut request = asking("breaks-own", vec![]);
    request.prompt_prefix = Some(PromptPrefix {
        system_json: r#"[{"type":"text","text":"own","cache_control":{"type":"ephemeral"}}]"#
            .into(),
        tools_json: r#"[{"name":"t","cache_control":{"type":"ephemeral"}}]"#.into(),
        ..PromptPrefix::default()
    });
    let reply = caller
        .client
        .prepare_context(request.clone())
        .await
        .unwrap();
    let placed = reply.into_inner().cache_breakpoints;
    // The session's own system text follows the caller's block. The caller uses two of the four breakpoints, so two
    // remain.
    assert_eq!(placed.len(), 2);
    assert_eq!(placed[0].place, Some(Place::SystemBlockIndex(1)));
    request.cache_breakpoints = Some(CacheBreakpointOptions {
        max_breakpoints: 1,
        ttl: Some(Duration {
            seconds: 3_600,
            nanos: 0,
        }),
    });
    let reply = caller
        .client
        .prepare_context(request.clone())
        .await
        .unwrap();
    let placed = reply.into_inner().cache_breakpoints;
    let hour = r#"{"cache_control":{"type":"ephemeral","ttl":"1h"}}"#;
    assert_eq!(placed.len(), 1);
    assert_eq!(placed[0].marker, Some(Marker::MergeJson(Bytes::from(hour))));
    // If the system prompt is unknown, only messages have breakpoints.
    request.prompt_prefix = None;
    request.cache_breakpoints = Some(CacheBreakpointOptions::default());
    let reply = caller
        .client
        .prepare_context(request.clone())
        .await
        .unwrap();
    assert_eq!(reply.into_inner().cache_breakpoints.len(), 1);

    let mut refused = async |options, field| {
        request.cache_breakpoints = Some(options);
        let status = caller.client.prepare_context(request.clone()).await;
        refused_field(&status.unwrap_err(), field);
    };
    let many = CacheBreakpointOptions {
        max_breakpoints: 5,
        ttl: None,
    };
    refused(many, "cache_breakpoints.max_breakpoints").await;
    let long = CacheBreakpointOptions {
        max_breakpoints: 0,
        ttl: Some(Duration {
            seconds: 7_200,
            nanos: 0,
        }),
    };
    refused(long, "cache_breakpoints.ttl").await;
}

#[tokio::test]
async fn openai_views_have_no_breakpoints() {
    let shared = SERVER.get();
    let mut caller = Caller::new(&shared.0, "breaks-openai", Provider::Openai).await;
    let said = openai(&json!({"role": "user", "content": "one"}));
    let (_, placed) = caller.send(vec![said]).await;
    assert!(placed.is_empty());
}

#[tokio::test]
async fn bedrock_is_a_separate_stored_target() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut caller = Caller::new(&server, "bedrock", Provider::Bedrock).await;
    caller.send(vec![user("one")]).await;
    let (second, _) = caller.send(vec![assistant("two"), user("three")]).await;
    assert_eq!(second.cache_ledger.unwrap().reused_messages, 1);

    // The messages equal Anthropic's, but the prompt cache is another one.
    let mut request = asking("bedrock", vec![]);
    request.target = Some(target(Provider::Anthropic, "m"));
    let other = caller.client.prepare_context(request).await.unwrap();
    let other = other.into_inner();
    assert_eq!(other.messages_json, caller.array.messages);
    assert_ne!(other.etag, second.etag);
    assert_eq!(other.cache_ledger.unwrap().reused_messages, 0);
    assert!(matches!(
        other.cache_breakpoints[0].marker,
        Some(Marker::MergeJson(_))
    ));

    server.kill();
    let server = Server::start(folder.path(), &[]);
    caller.client = server.context().await;
    // A call without a target uses the target of the previous call.
    let mut request = asking("bedrock", vec![assistant("four"), user("five")]);
    request.known_etag = second.etag.clone();
    let third = caller.client.prepare_context(request).await.unwrap();
    let third = third.into_inner();
    caller.array.take(&third);
    assert_eq!(third.keep_messages, 3);
    assert_eq!(third.cache_ledger.unwrap().reused_messages, 3);
    assert_eq!(caller.check(&third), ["system.0", "system.1", "2.0", "4.0"]);
    assert!(matches!(
        third.cache_breakpoints[0].marker,
        Some(Marker::InsertJson(_))
    ));

    let mut stream = caller
        .client
        .stream_context(StreamContextRequest {
            session: name("bedrock"),
            etag: third.etag.clone(),
            skip_messages: 0,
        })
        .await
        .unwrap()
        .into_inner();
    let chunk = stream.message().await.unwrap().unwrap();
    assert_eq!(chunk.messages_json, caller.array.messages);
    let request = GetSessionRequest {
        session: name("bedrock"),
        ..GetSessionRequest::default()
    };
    let mut sessions = server.sessions().await;
    let session = sessions.get_session(request).await.unwrap().into_inner();
    let last = session.session.unwrap().last_target.unwrap();
    assert_eq!(last, target(Provider::Bedrock, "m"));
}

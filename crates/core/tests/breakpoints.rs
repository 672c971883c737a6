//! Positions of cache breakpoints, in fixed examples and in random histories. The histories simulate a caller that sets
//! the breakpoints and a provider that records the cached positions.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::command::{Append, Command, Rewind, ServeView, Snip};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::MessageId;
use palimpsest_core::policy::Policy;
use palimpsest_core::session::Session;
use palimpsest_core::validate::validate;
use palimpsest_core::view::{
    BreakpointRequest, Breakpoints, Etag, Piece, Provider, Target, WireBlock, WireBlockPosition,
    WireMessage, WireRole, breakpoints,
};
use palimpsest_histories::{Operation, SessionHarness, operation};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

/// A caller that keeps its array and requests breakpoints.
struct Talk {
    world: SessionHarness,
    target: Target,
    etag: Option<Etag>,
    array: Vec<Value>,
}

impl Talk {
    fn new(provider: Provider) -> Self {
        let mut policy = Policy::default();
        policy.snip.tag_turns = false;
        Self {
            world: SessionHarness::with_policy(policy),
            target: Target {
                provider,
                model: "m".into(),
                thinking: true,
                system_messages: false,
            },
            etag: None,
            array: Vec::new(),
        }
    }

    /// Appends a message whose id is its number.
    fn say(&mut self, json: &Value) -> MessageId {
        let number = self.world.session.transcript().len() + 1;
        let id = MessageId::new(Uuid::from_u128(number as u128));
        let payload = json.to_string();
        let read = codec::read(Provider::Anthropic, payload.as_bytes(), &mut || id).unwrap();
        self.world.run(Command::Append(Append {
            messages: read.into_iter().map(Arc::new).collect(),
            ..Append::default()
        }));
        id
    }

    fn user(&mut self, content: &Value) -> MessageId {
        self.say(&json!({"role": "user", "content": content}))
    }

    fn model(&mut self, content: &Value) -> MessageId {
        self.say(&json!({"role": "assistant", "content": content, "model": "m"}))
    }

    /// Appends this number of parallel calls with their results.
    fn calls(&mut self, calls: usize) {
        let number = self.world.session.transcript().len();
        let id = |call: usize| format!("c{number}_{call}");
        let call = |call| json!({"type": "tool_use", "id": id(call), "name": "t", "input": {}});
        let result =
            |call| json!({"type": "tool_result", "tool_use_id": id(call), "content": "said"});
        self.model(&(0..calls).map(call).collect());
        self.user(&(0..calls).map(result).collect());
    }

    fn ask(&mut self, max_breakpoints: usize, caller_system: Option<&[bool]>) -> Breakpoints {
        self.world.run(Command::ServeView(ServeView {
            target: self.target.clone(),
            ..ServeView::default()
        }));
        let view = self.world.session.view(&self.target, self.etag).unwrap();
        self.array.truncate(view.keep as usize);
        self.array.extend(values(&self.target, &view.messages));
        self.etag = Some(view.etag);
        let wanted = BreakpointRequest {
            length: view.length,
            max_breakpoints,
            caller_system,
        };
        breakpoints(&self.world.session, &self.target, wanted).unwrap()
    }

    /// Checks the positions in the messages, written as `message.block`.
    #[track_caller]
    fn check(&mut self, expected: &str) {
        let placed = self.ask(4, None);
        assert_eq!(places(&placed), expected, "{:#?}", self.array);
        assert!(placed.system.is_empty());
        let marked = marked(&self.target, &self.array, &placed);
        let violations = validate(&self.target, &marked);
        assert!(violations.is_empty(), "{violations:?}");
    }
}

fn values(target: &Target, messages: &[WireMessage<'_>]) -> Vec<Value> {
    let value = |message| {
        let mut out = Vec::new();
        codec::write(target.provider, message, &mut out);
        serde_json::from_slice(&out).unwrap()
    };
    messages.iter().map(value).collect()
}

fn places(placed: &Breakpoints) -> String {
    let place = |spot: &WireBlockPosition| format!("{}.{}", spot.message, spot.block);
    let all: Vec<_> = placed.messages.iter().map(place).collect();
    all.join(" ")
}

/// Returns the array with its breakpoints. Insertion starts at the last one, so that earlier positions stay valid.
fn marked(target: &Target, array: &[Value], placed: &Breakpoints) -> Vec<Vec<u8>> {
    let mut array = array.to_vec();
    for spot in placed.messages.iter().rev() {
        let blocks = array[spot.message as usize]["content"]
            .as_array_mut()
            .unwrap();
        if target.provider == Provider::Bedrock {
            let point = json!({"cachePoint": {"type": "default"}});
            blocks.insert(spot.block as usize + 1, point);
        } else {
            blocks[spot.block as usize]["cache_control"] = json!({"type": "ephemeral"});
        }
    }
    let array = array.iter().map(Value::to_string);
    array.map(String::into_bytes).collect()
}

#[test]
fn breakpoints_mark_the_end_and_the_end_of_the_last_request() {
    for provider in [Provider::Anthropic, Provider::Bedrock] {
        let mut talk = Talk::new(provider);
        talk.user(&json!("one"));
        talk.check("0.0");
        // The same request is repeated without new content.
        talk.check("0.0");
        talk.calls(2);
        talk.check("0.0 2.1");
        // A provider does not look back over this many blocks.
        talk.calls(30);
        talk.check("2.1 4.29");
        talk.model(&json!("well"));
        talk.user(&json!([{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]));
        talk.check("4.29 6.1");
        // The unanswered request grows. The last answered request ended before it.
        talk.user(&json!("four"));
        talk.check("4.29 6.2");
    }
}

#[test]
fn messages_without_a_request_between_them_get_no_breakpoint() {
    let mut talk = Talk::new(Provider::Anthropic);
    talk.user(&json!("one"));
    talk.check("0.0");
    for _ in 0..3 {
        talk.calls(11);
    }
    talk.check("0.0 6.10");
    // Without an earlier request, the end of the previous user message is the best choice.
    let mut talk = Talk::new(Provider::Anthropic);
    talk.user(&json!("one"));
    talk.calls(2);
    talk.calls(3);
    talk.check("2.1 4.2");
}

#[test]
fn after_a_view_change_the_previous_user_message_gets_a_breakpoint() {
    let mut talk = Talk::new(Provider::Anthropic);
    let first = talk.user(&json!("one"));
    talk.check("0.0");
    talk.calls(1);
    talk.check("0.0 2.0");
    let answer = talk.model(&json!("done"));
    talk.user(&json!("two"));
    talk.check("2.0 4.0");
    // The user rewinds the question and asks another one.
    let rewind = |to| {
        Command::Rewind(Rewind {
            to: Some(to),
            expected_revision: None,
            request: None,
        })
    };
    talk.world.run(rewind(answer));
    let next = talk.user(&json!("three"));
    talk.check("2.0 4.0");
    // The answer is regenerated. The request and the one before it are cached already.
    talk.model(&json!("bad"));
    talk.world.run(rewind(next));
    talk.check("2.0 4.0");
    // The content of the last request has left the view.
    talk.model(&json!("good"));
    talk.user(&json!("four"));
    talk.check("4.0 6.0");
    talk.world.run(Command::Snip(Snip {
        turns: Vec::new(),
        messages: vec![first],
        blocks: Vec::new(),
        reason: "".into(),
        trigger: Trigger::Manual,
        expected_revision: None,
        request: None,
    }));
    talk.check("4.0 6.0");
}

#[test]
fn blocks_that_cannot_carry_a_breakpoint_are_skipped() {
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let novel = json!({"type": "novel", "n": 1, "cache_control": {"type": "ephemeral"}});
    let file = json!({
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "words"},
    });
    let text = |words| json!({"type": "text", "text": words});
    for (provider, with_file) in [(Provider::Anthropic, "0.2"), (Provider::Bedrock, "0.0")] {
        let mut talk = Talk::new(provider);
        talk.user(&json!([text("one"), novel, file]));
        talk.check(with_file);
        talk.model(&json!([text("well"), thought, novel]));
        talk.user(&json!([text(" "), novel]));
        // The user message has no suitable block. The text of the model message carries the breakpoint, not its
        // thinking.
        talk.check(&format!("{with_file} 1.0"));
        talk.model(&json!([thought, text("well")]));
        talk.user(&json!([text("go"), novel]));
        talk.check("1.0 4.0");
    }
    let mut talk = Talk::new(Provider::Anthropic);
    talk.user(&json!([novel]));
    talk.check("");
}

#[test]
fn the_first_two_suitable_system_blocks_get_breakpoints() {
    let check = |own: Option<&[bool]>, most: usize, system: &[u32], messages: &str| {
        let mut talk = Talk::new(Provider::Anthropic);
        talk.say(&json!({"role": "system", "content": "the operator's"}));
        talk.user(&json!("one"));
        talk.ask(4, None);
        talk.calls(1);
        let placed = talk.ask(most, own);
        assert_eq!(
            (placed.system.as_slice(), &*places(&placed)),
            (system, messages)
        );
    };
    check(Some(&[]), 4, &[0], "0.0 2.0");
    check(Some(&[true]), 4, &[0, 1], "0.0 2.0");
    check(Some(&[true, true, true]), 4, &[0, 1], "0.0 2.0");
    check(Some(&[false, true]), 4, &[1, 2], "0.0 2.0");
    // Without the caller's system blocks, the positions of system blocks are unknown.
    check(None, 4, &[], "0.0 2.0");
    // Breakpoints are omitted in ascending order of their savings.
    check(Some(&[true, true]), 3, &[1], "0.0 2.0");
    check(Some(&[true, true]), 2, &[], "0.0 2.0");
    check(Some(&[true, true]), 1, &[], "2.0");
    check(Some(&[true, true]), 0, &[], "");
    check(Some(&[true, true]), 9, &[0, 1], "0.0 2.0");
}

#[test]
fn openai_requests_have_no_breakpoints() {
    let mut talk = Talk::new(Provider::OpenAi);
    talk.user(&json!("one"));
    assert_eq!(talk.ask(4, Some(&[true])), Breakpoints::default());
}

#[test]
fn the_validator_detects_each_breakpoint_rule_violation() {
    let check = |provider, messages: Value, expected: &str| {
        let target = Target {
            provider,
            thinking: true,
            ..Target::default()
        };
        let messages: Vec<_> = messages
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect();
        let violations = validate(&target, &messages);
        let said: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(expected)), "{said:?}");
    };
    let mark = |mut block: Value, ttl: Option<&str>| {
        block["cache_control"] = json!({"type": "ephemeral"});
        if let Some(ttl) = ttl {
            block["cache_control"]["ttl"] = ttl.into();
        }
        block
    };
    let text = json!({"type": "text", "text": "words"});
    let user = |blocks: Value| json!([{"role": "user", "content": blocks}]);
    let five: Vec<_> = (0..5).map(|_| mark(text.clone(), None)).collect();
    // Each case violates one rule. The other rules may report the same array too.
    check(Provider::Anthropic, user(five.into()), "a maximum of 4");
    let order = json!([mark(text.clone(), None), mark(text.clone(), Some("1h"))]);
    check(Provider::Anthropic, user(order), "must not come after");
    let odd = json!([mark(text.clone(), Some("2h"))]);
    check(Provider::Anthropic, user(odd), "\"5m\" or \"1h\"");
    let blank = json!([mark(json!({"type": "text", "text": " "}), None)]);
    check(Provider::Anthropic, user(blank), "empty text blocks");
    let redacted = json!([
        {"role": "user", "content": [text]},
        {"role": "assistant", "content": [mark(json!({"type": "redacted_thinking", "data": "x"}), None), text]},
        {"role": "user", "content": [text]},
    ]);
    check(Provider::Anthropic, redacted, "extra inputs");
    let point = json!({"cachePoint": {"type": "default"}});
    let nothing = "no content to cache";
    check(Provider::Bedrock, user(json!([point, text])), nothing);
    check(
        Provider::Bedrock,
        user(json!([text, point, point])),
        nothing,
    );
    let document = json!({"type": "document", "source": {"type": "text"}});
    check(
        Provider::Bedrock,
        user(json!([text, document, point])),
        "after this block",
    );
    let five: Vec<_> = (0..5).flat_map(|_| [text.clone(), point.clone()]).collect();
    check(Provider::Bedrock, user(five.into()), "a maximum of 4");
}

fn targets() -> [Target; 5] {
    let target = |provider, model: &str, thinking| Target {
        provider,
        model: model.into(),
        thinking,
        system_messages: false,
    };
    [
        target(Provider::Anthropic, "model-a", true),
        target(Provider::Bedrock, "model-b", true),
        Target {
            system_messages: true,
            ..target(Provider::Anthropic, "model-a", false)
        },
        target(Provider::OpenAi, "model-c", false),
        target(Provider::OpenAiResponses, "model-a", false),
    ]
}

/// The callers of several targets, with the ends of their requests.
#[derive(Default)]
struct Callers {
    etags: HashMap<u8, Etag>,
    /// The last breakpoint of the request with these pieces.
    ends: HashMap<(u8, Vec<Piece>), WireBlockPosition>,
}

impl Callers {
    fn serve(&mut self, world: &mut SessionHarness, which: u8, interrupt: bool) {
        let target = &targets()[usize::from(which)];
        world.run(Command::ServeView(ServeView {
            target: target.clone(),
            interrupt_open_calls: interrupt,
            ..ServeView::default()
        }));
        let etag = self.etags.get(&which).copied();
        let of = |session: &Session| {
            let length = session.view(target, etag)?.length;
            let wanted = BreakpointRequest {
                length,
                max_breakpoints: 4,
                caller_system: Some(&[true]),
            };
            let placed = breakpoints(session, target, wanted)?;
            Ok((placed, session.edit_positions(target, length)?))
        };
        // A session with few loaded contents returns the same positions, unless content is missing.
        let of_little: Result<_, palimpsest_core::session::ContentNotLoaded> = of(&world.session);
        world.load_content();
        let session = &world.session;
        let (placed, edits) = of(session).unwrap();
        if let Ok(of_little) = of_little {
            assert_eq!(of_little, (placed.clone(), edits.clone()));
        }
        let full = session.view(target, None).unwrap();
        self.etags.insert(which, full.etag);
        check_legal(target, &full.messages, &placed);
        check_edits(session, target, full.length, &edits);
        let pieces = session.sealed().pieces();
        for kept in 0..=pieces.len() {
            let counted = session.message_count_before(kept, target, full.length);
            assert_eq!(
                counted,
                session.message_count_of(kept, target),
                "{kept} of {pieces:?}"
            );
        }
        let Some(last) = placed.messages.last() else {
            return;
        };
        // One breakpoint is at the end of the last request, whatever was added since.
        let cache = session.prompt_cache();
        if cache.last_request.target == *target && cache.divergence.is_none() {
            let held = (which, pieces[..cache.last_request.pieces as usize].to_vec());
            if let Some(end) = self.ends.get(&held) {
                assert!(placed.messages.contains(end), "{placed:?} without {end:?}");
            }
        }
        if full.not_sendable.is_none() {
            self.ends.insert((which, pieces.to_vec()), *last);
        }
    }
}

/// Checks that every position accepts a breakpoint, and that breakpoints violate no rule.
fn check_legal(target: &Target, messages: &[WireMessage<'_>], placed: &Breakpoints) {
    if !target.provider.is_anthropic() {
        assert_eq!(*placed, Breakpoints::default());
        return;
    }
    assert!(
        placed.messages.is_sorted() && placed.messages.len() <= 2,
        "{placed:?}"
    );
    let mut distinct = placed.messages.clone();
    distinct.dedup();
    assert_eq!(distinct, placed.messages);
    let array = values(target, messages);
    let rules = |array: &[Vec<u8>]| -> Vec<&str> {
        let violations = validate(target, array);
        violations.iter().map(|violation| violation.rule).collect()
    };
    let plain = marked(target, &array, &Breakpoints::default());
    let sent = marked(target, &array, placed);
    assert_eq!(rules(&sent), rules(&plain), "{placed:?} in {array:#?}");
    // The last breakpoint is on the last suitable block at or before the end of the last user turn.
    let is_user = |role| matches!(role, WireRole::User | WireRole::Operator);
    let end = messages.iter().rposition(|message| is_user(message.role));
    let takes = |block: &WireBlock<'_>| match block {
        WireBlock::Text { text, .. } => !text.trim().is_empty(),
        WireBlock::Thinking { .. } | WireBlock::Opaque(_) => false,
        _ => true,
    };
    let blocks = (0..=end.unwrap_or(0))
        .take(messages.len())
        .flat_map(|message| {
            let blocks = messages[message].blocks.iter().enumerate();
            blocks.map(move |(block, content)| (message, block, content))
        });
    let expected = blocks.filter(|(.., content)| takes(content)).last();
    let expected = expected
        .filter(|_| end.is_some())
        .map(|(message, block, _)| WireBlockPosition {
            message: u32::try_from(message).unwrap(),
            block: u32::try_from(block).unwrap(),
        });
    assert_eq!(placed.messages.last().copied(), expected, "{array:#?}");
}

/// Checks that the recorded positions of cache edits equal the positions that a walk finds.
fn check_edits(session: &Session, target: &Target, length: u32, places: &[Option<u32>]) {
    let mut forgotten = session.snapshot();
    for pin in &mut forgotten.cache_edits {
        pin.position = None;
    }
    let entries = session.transcript().entries();
    let contents = entries.filter_map(|(_, entry)| entry.content.clone());
    let forgotten = forgotten.restore(contents.collect::<Vec<_>>()).unwrap();
    assert_eq!(forgotten.edit_positions(target, length).unwrap(), places);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn breakpoints_are_valid_and_hit_the_cache_in_any_history(
        operations in prop::collection::vec(operation(), 1..24)
    ) {
        let mut world = SessionHarness::new();
        let mut callers = Callers::default();
        for operation in &operations {
            world.step(operation);
            if let Operation::Serve { target, interrupt } = operation {
                callers.serve(&mut world, *target, *interrupt);
            }
        }
        for target in 0..5 {
            callers.serve(&mut world, target, true);
        }
    }
}

//! Property tests: messages of random sessions and payloads do not change in a round trip.

use bytes::Bytes;
use std::collections::HashSet;

use palimpsest_core::codec;
use palimpsest_core::command::{Command, ServeView};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Digest, Message};
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_histories::{Operation, SessionHarness, operation};
use palimpsest_proto::context::v1;
use proptest::prelude::*;

use super::{anthropic, payload, read, target};
use crate::convert::transcript::original;
use crate::convert::{
    BlockStatuses, ContentForm, breakdown, budget, event_kind, events, json_messages, repairs,
    session, token_report, transcript_message, view_message,
};

fn input(message: v1::Message) -> v1::MessageInput {
    v1::MessageInput {
        content: Some(v1::message_input::Content::Message(message)),
        ..v1::MessageInput::default()
    }
}

fn without_keys(mut message: v1::Message) -> v1::Message {
    for block in &mut message.blocks {
        match &mut block.block {
            Some(v1::block::Block::ToolUse(call)) => call.call_key.clear(),
            Some(v1::block::Block::ToolResult(result)) => result.call_key.clear(),
            _ => {}
        }
    }
    message
}

fn originals(world: &SessionHarness) -> Vec<Message> {
    let events = world.log.iter();
    let appended = events.flat_map(|recorded| recorded.event.messages());
    appended
        .map(|appended| (*appended.message).clone())
        .collect()
}

/// Checks that all replies about a session can be built and are consistent.
fn check(mut world: SessionHarness) {
    world.load_content();
    let world = &world;
    let session = &world.session;
    let calls = session.calls();
    let statuses = BlockStatuses::of(session);
    let originals = originals(world);
    assert_eq!(originals.len(), session.transcript().len());
    for ((ordinal, entry), message) in session.transcript().entries().zip(&originals) {
        let out = original(ordinal, message, calls);
        let back = read(vec![input(out.clone())], &Limits::default()).unwrap();
        let [back] = back.as_slice() else {
            panic!("one message was not converted to one message")
        };
        assert_eq!(back.message.blocks, message.blocks);
        assert_eq!(
            Digest::of_message(&back.message),
            Digest::of_message(message)
        );
        let again = original(ordinal, &back.message, calls);
        assert_eq!(again, out);
        for content in [
            ContentForm::Typed,
            ContentForm::Json(Provider::Anthropic),
            ContentForm::Json(Provider::OpenAi),
            ContentForm::Omitted,
        ] {
            let place = (ordinal, entry);
            let out = transcript_message(session, place, message, content, &statuses);
            assert_eq!(out.ordinal, u64::from(ordinal.get()) + 1);
            assert_eq!(out.message.is_some(), content == ContentForm::Typed);
            let is_json = matches!(content, ContentForm::Json(_));
            assert_eq!(!out.messages_json.is_empty(), is_json);
            for json in &out.messages_json {
                assert!(serde_json::from_slice::<serde_json::Value>(json).is_ok());
            }
        }
    }
    for provider in [
        Provider::Anthropic,
        Provider::OpenAi,
        Provider::OpenAiResponses,
    ] {
        let target = target(provider);
        let view = session.view(&target, None).unwrap();
        for message in &view.messages {
            let out = view_message(message, calls, provider);
            assert_eq!(out.blocks.len(), message.blocks.len());
            for block in &out.blocks {
                if let Some(v1::block::Block::ToolUse(call)) = &block.block {
                    let key = palimpsest_core::ids::CallKey::parse(&call.call_key).unwrap();
                    // 40 is the limit of OpenAI's Chat format for the id of a call, the lowest of all formats.
                    assert_eq!(calls.wire_id(key, 40), call.tool_use_id);
                }
            }
            // A caller that stores typed messages may send one back.
            let back = read(vec![input(out.clone())], &Limits::default()).unwrap();
            // No call of the session is at this ordinal, so the keys of the second conversion differ and are left out.
            let ordinal = palimpsest_core::ids::Ordinal::new(u32::MAX);
            let again = original(ordinal, &back[0].message, calls);
            assert_eq!(without_keys(again), without_keys(out));
        }
        assert_eq!(repairs(session, &view.repairs).len(), view.repairs.len());
        let parts = breakdown(session, None);
        let report = token_report(session, Some(parts));
        let sum = parts.system_tokens
            + parts.tools_tokens
            + parts.summary_tokens
            + parts.messages_tokens
            + parts.results_tokens
            + parts.attachments_tokens;
        assert_eq!(sum, report.total_tokens);
        // The reported count of the anchor still contains content that was removed after it.
        assert_eq!(
            report.total_tokens,
            report.anchor_tokens + report.tail_tokens - report.removed_tokens
        );
        let budget = budget(session, &target, session.last_served().window);
        assert_eq!(budget.used_tokens, report.total_tokens);
    }
    check_events(world);
    let out = self::session(session);
    assert_eq!(out.revision, world.log.len() as u64);
}

/// Checks that every message removed by a rewind is reported. A message may have returned and been removed again.
fn check_events(world: &SessionHarness) {
    let mut left = HashSet::new();
    for (recorded, revision) in world.log.iter().zip(1_u64..) {
        let revision = palimpsest_core::ids::Revision::new(revision);
        for event in events(recorded, revision, &world.session, None) {
            assert_eq!(event.revision, revision.get());
            assert_ne!(event_kind(&event), v1::EventKind::Unspecified);
            if let Some(v1::session_event::Event::SessionRewound(rewound)) = event.event {
                left.extend(rewound.message_ids);
            }
        }
    }
    let entries = world.session.transcript().entries();
    let mut gone = entries
        .filter(|(_, entry)| entry.visibility == palimpsest_core::session::Visibility::Rewound)
        .map(|(_, entry)| entry.id.to_string());
    assert!(gone.all(|id| left.contains(&id)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_survives_a_round_trip(steps in prop::collection::vec(operation(), 1..24)) {
        let mut world = SessionHarness::new();
        for step in &steps {
            world.step(step);
            if let Operation::Serve { target: which, interrupt } = step {
                let provider = if which % 2 == 0 { Provider::Anthropic } else { Provider::OpenAi };
                world.run(Command::ServeView(ServeView {
                    target: target(provider),
                    interrupt_open_calls: *interrupt,
                    ..ServeView::default()
                }));
            }
        }
        check(world);
    }
}

#[track_caller]
fn blocks_survive(blocks: &str) {
    let json = format!(r#"{{"role":"user","content":[{blocks}]}}"#);
    let message = read(vec![anthropic(&json)], &Limits::default()).unwrap();
    let message = &message[0].message;
    let mut out = Vec::new();
    for (index, block) in message.blocks.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        codec::write_block(Provider::Anthropic, &WireBlock::from_block(block), &mut out);
    }
    assert_eq!(std::str::from_utf8(&out).unwrap(), blocks);
    let whole = json_messages(message, Provider::Anthropic);
    assert_eq!(whole, [Bytes::from(json)]);
    // The typed form must give the same result.
    let ordinal = palimpsest_core::ids::Ordinal::new(0);
    let calls = palimpsest_core::session::Calls::default();
    let typed = original(ordinal, message, &calls);
    let back = read(vec![input(typed)], &Limits::default()).unwrap();
    assert_eq!(json_messages(&back[0].message, Provider::Anthropic), whole);
}

#[test]
fn payload_blocks_are_returned_byte_for_byte() {
    blocks_survive(r#"{"type":"text","text":"a\nb é 😀","citations":[{"n": 1.0}]}"#);
    blocks_survive(
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}"#,
    );
    blocks_survive(r#"{"type":"image","source":{"type":"url","url":"https://e/x?a=\"b"}}"#);
    blocks_survive(r#"{"type":"image","source":{"type":"file","file_id":"f1"},"x":null}"#);
    blocks_survive(
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"},"title":"t","context":"c","citations":{"enabled":true}}"#,
    );
    // `1e400` exceeds every float, and the spaces are lost in a parsed value: the input must stay text.
    blocks_survive(
        r#"{"type":"tool_use","id":"i","name":"n","input":{ "b" : 1e400, "a":[1, 2] },"caller":{"type":"direct"}},{"type":"new","z": 0,"a":[ ]}"#,
    );
    blocks_survive(
        // An absent content and an empty array are two different forms of an empty result.
        r#"{"type":"tool_result","tool_use_id":"i","content":"said","is_error":true},{"type":"tool_result","tool_use_id":"i"},{"type":"tool_result","tool_use_id":"i","content":[]}"#,
    );
    blocks_survive(
        r#"{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"x"},{"type":"new","a":1}]}"#,
    );
    blocks_survive(
        r#"{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"xx"}"#,
    );
}

#[test]
fn openai_payloads_survive_a_round_trip() {
    let json = r#"[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"q"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{ \"a\" :1}"}}]},{"role":"tool","tool_call_id":"c","content":"said"}]"#;
    let read = read(
        vec![payload(v1::Format::OpenaiChat, json)],
        &Limits::default(),
    )
    .unwrap();
    let out: Vec<String> = read
        .iter()
        .flat_map(|input| json_messages(&input.message, Provider::OpenAi))
        .map(|json| String::from_utf8(json.to_vec()).unwrap())
        .collect();
    assert_eq!(format!("[{}]", out.join(",")), json);
}

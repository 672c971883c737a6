//! Tests of the fields that an append stores.

use bytes::Bytes;
use expect_test::{Expect, expect};
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, MessageKind};
use palimpsest_core::view::Provider;
use palimpsest_proto::context::v1;
use v1::block::Block as B;
use v1::media_source::Source;
use v1::tool_result_content::Content as C;

use super::{anthropic, block, call, image, opaque, read, result, typed, with_extra};
use crate::convert::{FieldError, json_messages};

fn taken(inputs: Vec<v1::MessageInput>) -> Vec<Message> {
    let read: Result<Vec<_>, FieldError> = read(inputs, &Limits::default());
    read.unwrap()
        .into_iter()
        .map(|input| input.message)
        .collect()
}

#[test]
fn metadata_applies_to_all_messages_and_the_parent_to_the_first() {
    let parent = uuid::Uuid::from_u128(99);
    let mut input = anthropic(
        r#"[{"role":"user","content":"q"},
            {"role":"assistant","content":"a","id":"msg","model":"m","usage":{"input_tokens":3}}]"#,
    );
    input.metadata = Some(v1::MessageMetadata {
        parent_id: parent.to_string(),
        create_time: Some(prost_types::Timestamp {
            seconds: 1,
            nanos: 2_999_999,
        }),
        kind: v1::MessageKind::Attachment.into(),
        machine_generated: true,
        // The caller reported no usage, so that of the payload is kept.
        usage: Some(v1::Usage::default()),
        attributes: [("b", "2"), ("a", "1"), ("c", "3")]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        ..v1::MessageMetadata::default()
    });
    let [first, second] = <[Message; 2]>::try_from(taken(vec![input])).unwrap();
    assert_eq!(first.parent, Some(MessageId::new(parent)));
    assert_eq!(second.parent, Some(first.id));
    for message in [&first, &second] {
        // 2,999,999 ns are cut to 2 ms, not rounded.
        assert_eq!(message.at, Some(Timestamp::from_millis(1_002)));
        assert_eq!(
            (message.kind, message.machine_generated),
            (MessageKind::Attachment, true)
        );
        // A map of the contract has no order, so the stored one is sorted by name.
        let names: Vec<&str> = message.attributes.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
    assert_eq!(second.provider_message_id.as_deref(), Some("msg"));
    assert_eq!(second.model.as_deref(), Some("m"));
    assert_eq!(second.usage.unwrap().input_tokens, 3);
}

#[test]
fn metadata_of_the_caller_overrides_that_of_the_payload() {
    let mut input = anthropic(r#"{"role":"assistant","content":"a","id":"msg","model":"m"}"#);
    input.id = uuid::Uuid::from_u128(7).to_string();
    input.metadata = Some(v1::MessageMetadata {
        provider_message_id: "other".into(),
        model: "n".into(),
        usage: Some(v1::Usage {
            output_tokens: 5,
            ..v1::Usage::default()
        }),
        transcript_only: true,
        ..v1::MessageMetadata::default()
    });
    let [message] = <[Message; 1]>::try_from(taken(vec![input])).unwrap();
    assert_eq!(message.id, MessageId::new(uuid::Uuid::from_u128(7)));
    assert_eq!(message.provider_message_id.as_deref(), Some("other"));
    assert_eq!(message.model.as_deref(), Some("n"));
    assert_eq!(message.usage.unwrap().output_tokens, 5);
    assert!(message.transcript_only && message.parent.is_none());
}

#[test]
fn messages_record_the_index_of_their_input() {
    let pair = r#"[{"role":"user","content":"a"},{"role":"user","content":"b"}]"#;
    let read = read(
        vec![
            typed(vec![]),
            anthropic(pair),
            typed(vec![]),
            anthropic("[]"),
        ],
        &Limits::default(),
    );
    let from: Vec<u32> = read
        .unwrap()
        .iter()
        .map(|input| input.input_index)
        .collect();
    // The empty array at index 3 has no message.
    assert_eq!(from, [0, 1, 1, 2]);
}

#[track_caller]
fn becomes(given: v1::Block, expected: &Expect) {
    let [message] = <[Message; 1]>::try_from(taken(vec![typed(vec![given])])).unwrap();
    let json = json_messages(&message, Provider::Anthropic);
    expected.assert_eq(std::str::from_utf8(&json[0]).unwrap());
}

#[test]
fn typed_blocks_equal_the_json_of_the_provider() {
    // Each block must equal the JSON that the provider itself would send.
    becomes(
        image(
            Some(Source::Data(Bytes::from_static(b"\xff\x00"))),
            "image/png",
        ),
        &expect![[
            r#"{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"/wA="}}]}"#
        ]],
    );
    becomes(
        image(Some(Source::FileId("f\"1".into())), ""),
        &expect![[
            r#"{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f\"1"}}]}"#
        ]],
    );
    let document = block(B::Document(v1::DocumentBlock {
        source: Some(v1::MediaSource {
            media_type: String::new(),
            source: Some(Source::Text("line\n".into())),
        }),
        title: "T".into(),
        context: "C".into(),
    }));
    becomes(
        with_extra(document, r#"{"citations":{"enabled":true}}"#),
        &expect![[
            r#"{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"line\n"},"title":"T","context":"C","citations":{"enabled":true}}]}"#
        ]],
    );
    // A lone surrogate is legal JSON but not valid Unicode. It becomes U+FFFD, and the number stays as it is.
    becomes(
        call("i", "n", br#"{ "a" : 1e400, "s":"\ud83d" }"#),
        &expect![[
            r#"{"role":"user","content":[{"type":"tool_use","id":"i","name":"n","input":{ "a" : 1e400, "s":"\ufffd" }}]}"#
        ]],
    );
    // A cut input is no JSON. It is kept as a text in an object, as Anthropic accepts only objects.
    becomes(
        call("i", "n", br#"{"cut": "#),
        &expect![[
            r#"{"role":"user","content":[{"type":"tool_use","id":"i","name":"n","input":{"raw_arguments":"{\"cut\": "}}]}"#
        ]],
    );
    let blocks = Bytes::from_static(br#"[{"type":"text","text":"said"},{"type":"new","n":1}]"#);
    becomes(
        result("i", Some(C::Json(blocks))),
        &expect![[
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"said"},{"type":"new","n":1}]}]}"#
        ]],
    );
    becomes(
        opaque("new", r#"{"type":"new", "n":12345678901234567890123}"#),
        &expect![[r#"{"role":"user","content":[{"type":"new", "n":12345678901234567890123}]}"#]],
    );
}

//! Tests of rejected requests and the fields that their errors name.

use bytes::Bytes;
use palimpsest_core::limits::Limits;
use palimpsest_proto::context::v1;
use v1::block::Block as B;
use v1::media_source::Source;
use v1::tool_result_content::Content as C;

use super::{
    anthropic, block, call, image, opaque, payload, read, result, text, typed, with_extra,
};
use crate::convert::FieldProblem;

fn small() -> Limits {
    Limits {
        max_messages: 2,
        max_blocks: 2,
        max_id_bytes: 8,
        max_message_bytes: 200,
        max_request_bytes: 400,
        max_attributes: 2,
        max_attribute_bytes: 8,
        ..Limits::default()
    }
}

#[track_caller]
fn refused(input: v1::MessageInput, expected: &str) {
    let error = read(vec![input], &small()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// Returns the error for a block in the second message.
#[track_caller]
fn refused_block(wrong: v1::Block, expected: &str) {
    refused(
        typed(vec![text("fine"), wrong]),
        &format!("messages[0].message.blocks[1].{expected}"),
    );
}

#[test]
fn an_invalid_message_is_rejected_with_its_path() {
    refused(
        v1::MessageInput::default(),
        "messages[0].content must be set",
    );
    let mut input = typed(vec![]);
    input.id = "no uuid".into();
    refused(input, "messages[0].id must be a UUID");
    // Each change makes a valid message invalid in one place.
    let with = |change: fn(&mut v1::Message)| {
        let mut message = v1::Message {
            role: v1::Role::User.into(),
            ..v1::Message::default()
        };
        change(&mut message);
        v1::MessageInput {
            content: Some(v1::message_input::Content::Message(message)),
            ..v1::MessageInput::default()
        }
    };
    refused(with(|m| m.role = 0), "messages[0].message.role must be set");
    refused(
        with(|m| m.role = 7),
        "messages[0].message.role is a value that this version does not know",
    );
    refused(
        with(|m| m.extra_json = Bytes::from_static(b"{\"content\":1}")),
        "messages[0].message.extra_json must not contain the field `content`, which has its own \
         place in the message",
    );
    refused(
        with(|m| m.extra_json = Bytes::from_static(b"[]")),
        "messages[0].message.extra_json must be an object",
    );
    refused(
        typed(vec![text("a"), text("b"), text("c")]),
        "messages[0].message.blocks must have at most 2 blocks in one message, has 3",
    );
    refused(
        typed(vec![v1::Block::default()]),
        "messages[0].message.blocks[0].block must be set",
    );
    let error = read(vec![typed(vec![text(&"x".repeat(300))])], &small()).unwrap_err();
    assert_eq!(error.path, "messages[0].message");
    assert!(matches!(
        error.problem,
        FieldProblem::TooLarge { limit: 200, .. }
    ));
}

#[test]
fn an_invalid_block_is_rejected_with_its_path() {
    let png = || Some(Source::Data(Bytes::from_static(b"x")));
    // Each block lacks one required value, or has one that its type does not allow.
    refused_block(
        block(B::Image(v1::ImageBlock::default())),
        "image.source must be set",
    );
    refused_block(image(None, ""), "image.source.source must be set");
    refused_block(image(png(), ""), "image.source.media_type must be set");
    let empty = Some(Source::Data(Bytes::new()));
    refused_block(image(empty, "image/png"), "image.source.data must be set");
    let no_url = Some(Source::Url(String::new()));
    refused_block(image(no_url, ""), "image.source.url must be set");
    let no_file = Some(Source::FileId(String::new()));
    refused_block(image(no_file, ""), "image.source.file_id must be set");
    refused_block(
        image(Some(Source::Text("t".into())), ""),
        "image.source.text is for documents only",
    );
    refused_block(call("", "n", b"{}"), "tool_use.tool_use_id must be set");
    refused_block(call("i", "", b"{}"), "tool_use.tool_name must be set");
    refused_block(call("i", "n", b""), "tool_use.input_json must be set");
    refused_block(
        // Bytes are counted from 0: the brace, the quote and then the invalid byte.
        call("i", "n", b"{\"\xff\"}"),
        "tool_use.input_json is not UTF-8 (first bad byte at 2)",
    );
    refused_block(
        call("123456789", "n", b"{}"),
        "tool_use.tool_use_id must have ids and names of at most 8 bytes, has one of 9",
    );
    refused_block(result("", None), "tool_result.tool_use_id must be set");
    refused_block(
        result("123456789", Some(C::Text(String::new()))),
        "tool_result.tool_use_id must have ids and names of at most 8 bytes, has one of 9",
    );
    refused_block(
        block(B::RedactedThinking(v1::RedactedThinkingBlock::default())),
        "redacted_thinking.data must be set",
    );
    refused_block(opaque("", "{}"), "opaque.type must be set");
    refused_block(
        opaque("tool_use", "{}"),
        "opaque.type names a type that has its own block type",
    );
    refused_block(opaque("new", ""), "opaque.json must be set");
    refused_block(opaque("new", "[1]"), "opaque.json must be an object");
    // The type is missing, differs, or occurs twice, so that readers could disagree about it.
    for json in ["{}", r#"{"type":"old"}"#, r#"{"type":"new","type":"new"}"#] {
        refused_block(
            opaque("new", json),
            "opaque.json must have the field `type` with the value of `opaque.type`",
        );
    }
    refused_block(
        with_extra(opaque("new", r#"{"type":"new"}"#), "{}"),
        "extra_json must be empty: `opaque.json` contains the whole block",
    );
}

#[test]
fn an_invalid_tool_result_is_rejected_with_its_path() {
    refused_block(result("i", None), "tool_result.content.content must be set");
    let nested = |blocks| result("i", Some(C::Blocks(v1::BlockList { blocks })));
    refused_block(
        nested(vec![text("a"), call("i", "n", b"{}")]),
        "tool_result.content.blocks.blocks[1].block must be a text, an image, a document or an \
         opaque block: a result cannot contain another block",
    );
    refused_block(
        nested(vec![v1::Block::default()]),
        "tool_result.content.blocks.blocks[0].block must be set",
    );
    let json = |json: &'static str| result("i", Some(C::Json(Bytes::from_static(json.as_bytes()))));
    refused_block(
        json("{}"),
        "tool_result.content.json must be an array of blocks",
    );
    refused_block(
        json(r#"[{"type":"text"}]"#),
        "tool_result.content.json: [0] lacks the field `text`",
    );
    refused_block(
        json(r#"[{"type":"tool_use","id":"i","name":"n"}]"#),
        "tool_result.content.json: [0] must be a block that a result may hold",
    );
    // No fields can be added beside an array.
    refused_block(
        json(r#"[],"is_error":[]"#),
        "tool_result.content.json is not JSON: a syntax error at line 1, column 3",
    );
}

#[test]
fn unknown_fields_that_repeat_known_fields_are_rejected() {
    // Each `extra_json` repeats a field that the typed block already has.
    let blocks = [
        (text("t"), r#"{"text":"x"}"#, "text"),
        (text("t"), r#"{"type":"x"}"#, "type"),
        (call("i", "n", b"{}"), r#"{"a":1,"input":{}}"#, "input"),
        (call("i", "n", b"{}"), r#"{"function":{}}"#, "function"),
        (
            image(Some(Source::Url("u".into())), ""),
            r#"{"source":1}"#,
            "source",
        ),
        (
            block(B::Document(v1::DocumentBlock {
                source: Some(v1::MediaSource {
                    source: Some(Source::Url("u".into())),
                    ..v1::MediaSource::default()
                }),
                ..v1::DocumentBlock::default()
            })),
            r#"{"title":"x"}"#,
            "title",
        ),
    ];
    for (block, extra, field) in blocks {
        refused_block(
            with_extra(block, extra),
            &format!(
                "extra_json must not contain the field `{field}`, which has its own place in the message"
            ),
        );
    }
    refused_block(
        with_extra(text("t"), r#"{"a":1,"a":2}"#),
        "extra_json names a field twice",
    );
    refused_block(with_extra(text("t"), "[]"), "extra_json must be an object");
    refused_block(
        with_extra(text("t"), "{"),
        "extra_json is not JSON: it ends too early at line 1, column 1",
    );
}

#[test]
fn an_invalid_payload_is_rejected_with_its_path() {
    refused(
        payload(v1::Format::Unspecified, "{}"),
        "messages[0].payload.format must be set",
    );
    refused(
        payload(v1::Format::PalimpsestJsonl, "{}"),
        "messages[0].payload.format must be FORMAT_ANTHROPIC_MESSAGES, FORMAT_OPENAI_CHAT or FORMAT_OPENAI_RESPONSES",
    );
    refused(anthropic(""), "messages[0].payload.json must be set");
    refused(
        anthropic(r#"[{"role":"user","content":[{"type":"text"}]}]"#),
        "messages[0].payload.json: [0].content[0] lacks the field `text`",
    );
    refused(
        anthropic(r#"{"role":"user","content":["#),
        "messages[0].payload.json is not JSON: it ends too early at line 1, column 26",
    );
    // A message of the AI SDK has parts. It must not be taken for a message without content.
    for message in [
        r#"{"role":"user","parts":[{"type":"text","text":"a"}]}"#,
        r#"{"role":"assistant","parts":[{"type":"text","text":"a"}]}"#,
        r#"{"role":"system"}"#,
    ] {
        refused(
            payload(v1::Format::OpenaiChat, message),
            "messages[0].payload.json lacks the field `content`",
        );
    }
    let words = "x".repeat(200);
    let one = format!(r#"{{"role":"user","content":"{words}"}}"#);
    // A payload with one message counts as a whole: 200 characters and 28 bytes around them.
    refused(
        anthropic(&one),
        "messages[0].payload.json has 228 bytes, and the limit is 200 bytes",
    );
    // An array may exceed the limit of a message, but none of its messages may.
    let short = format!(r#"{{"role":"user","content":"{}"}}"#, &words[..150]);
    assert!(read(vec![anthropic(&format!("[{short},{short}]"))], &small()).is_ok());
    // In an array, only the content of each message counts.
    let long = format!(r#"[{{"role":"user","content":"{words}x"}}]"#);
    refused(
        anthropic(&long),
        "messages[0].payload.json has 201 bytes, and the limit is 200 bytes",
    );
    refused(
        anthropic(&format!("[{one},{one}]")),
        "messages[0].payload.json has 459 bytes, and the limit is 400 bytes",
    );
    let three = r#"{"role":"user","content":[{"type":"n"},{"type":"n"},{"type":"n"}]}"#;
    refused(
        anthropic(three),
        "messages[0].payload.json must have at most 2 blocks in one message, has 3",
    );
    let id = r#"{"role":"assistant","content":[],"id":"123456789"}"#;
    refused(
        anthropic(id),
        "messages[0].payload.json must have ids and names of at most 8 bytes, has one of 9",
    );
    let mut two = anthropic(r#"[{"role":"user","content":""},{"role":"user","content":""}]"#);
    two.id = uuid::Uuid::nil().to_string();
    refused(
        two.clone(),
        "messages[0].id must not be set with a payload that does not contain exactly one message",
    );
    two.id.clear();
    let error = read(vec![typed(vec![]), two], &small()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "messages must have at most 2 messages, those inside payloads included"
    );
}

#[test]
fn invalid_metadata_is_rejected_with_its_path() {
    let with = |change: fn(&mut v1::MessageMetadata), expected: &str| {
        let mut metadata = v1::MessageMetadata::default();
        change(&mut metadata);
        let mut input = typed(vec![]);
        input.metadata = Some(metadata);
        // The first message is valid, so that the path must contain the index of the second one.
        let error = read(vec![typed(vec![]), input], &small()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("messages[1].metadata.{expected}")
        );
    };
    with(|m| m.parent_id = "x".into(), "parent_id must be a UUID");
    with(
        |m| {
            m.create_time = Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: 0,
            });
        },
        "create_time must lie between the years 1 and 9999",
    );
    with(
        |m| m.provider_message_id = "123456789".into(),
        "provider_message_id must have ids and names of at most 8 bytes, has one of 9",
    );
    with(
        |m| m.model = "123456789".into(),
        "model must have ids and names of at most 8 bytes, has one of 9",
    );
    for kind in [
        v1::MessageKind::Summary,
        v1::MessageKind::Boundary,
        v1::MessageKind::Synthetic,
    ] {
        let mut input = typed(vec![]);
        input.metadata = Some(v1::MessageMetadata {
            kind: kind.into(),
            ..v1::MessageMetadata::default()
        });
        refused(
            input,
            "messages[0].metadata.kind must be ORDINARY, ATTACHMENT or HOOK: the service sets the \
             others",
        );
    }
    with(
        |m| m.kind = 99,
        "kind is a value that this version does not know",
    );
    with(
        |m| m.attributes = [("a".into(), "12345678".into())].into(),
        "attributes must have entries of at most 8 bytes, has one of 9",
    );
    with(
        |m| m.attributes = [(String::new(), "1".into())].into(),
        "attributes must not contain an empty name",
    );
    with(
        |m| m.attributes = ["a", "b", "c"].map(|n| (n.into(), n.into())).into(),
        "attributes must have at most 2 entries, has 3",
    );
}

//! Tests of messages and sessions in replies.

use expect_test::expect;
use palimpsest_core::event::Event;
use palimpsest_core::ids::{MessageId, Ordinal, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, Media, MediaKind, MediaSource, Message, Role};
use palimpsest_core::session::Calls;
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_proto::context::v1;
use v1::AppendOutcome as O;
use v1::block::Block as B;

use super::{anthropic, append, payload, read, serve, target, world};
use crate::convert::transcript::original;
use crate::convert::{
    BlockStatuses, ContentForm, append_result, json_messages, not_sendable, open_calls, session,
    session_state, tool_call, transcript_message, view_message, warnings,
};

const CALL: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"Read","input":{}}],"model":"m"}"#;
const RESULT: &str =
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"said"}]}"#;
const QUESTION: &str = r#"{"role":"user","content":"q"}"#;

fn strings(message: &Message, provider: Provider) -> Vec<String> {
    json_messages(message, provider)
        .iter()
        .map(|json| String::from_utf8(json.to_vec()).unwrap())
        .collect()
}

fn one(input: v1::MessageInput) -> Message {
    read(vec![input], &Limits::default())
        .unwrap()
        .remove(0)
        .message
}

#[test]
fn a_user_message_with_two_results_is_split_for_openai() {
    let message = one(anthropic(
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"tool_result","tool_use_id":"b","content":[{"type":"new"}]},{"type":"text","text":"and","citations":[]}]}"#,
    ));
    expect![[r#"
        [
            "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"1\"}",
            "{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"[new: this format does not have it]\"}",
            "{\"role\":\"user\",\"content\":\"and\"}",
        ]
    "#]]
    .assert_debug_eq(&strings(&message, Provider::OpenAi));
    let thinking = one(anthropic(
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]}"#,
    ));
    assert_eq!(
        // The Chat format has no place for thinking, so no content is left.
        strings(&thinking, Provider::OpenAi),
        [r#"{"role":"assistant","content":null}"#]
    );
    let file = one(anthropic(
        r#"{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}"#,
    ));
    assert_eq!(
        strings(&file, Provider::OpenAi),
        [r#"{"role":"user","content":"[image: this format does not have it]"}"#]
    );
}

#[test]
fn unknown_fields_are_returned_in_their_own_format_only() {
    let message = one(payload(
        v1::Format::OpenaiChat,
        r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://e/x","detail":"low"}}],"name":"n"}"#,
    ));
    assert_eq!(
        strings(&message, Provider::Anthropic),
        [
            r#"{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://e/x"}}]}"#
        ]
    );
    assert!(strings(&message, Provider::OpenAi)[0].ends_with(r#"}],"name":"n"}"#));
}

#[test]
fn a_typed_item_returned_by_the_caller_is_for_its_own_format_only() {
    let item = one(payload(
        v1::Format::OpenaiResponses,
        r#"{"type":"custom_tool_call","id":"ctc_1","call_id":"c","name":"n","input":"x"}"#,
    ));
    let typed = original(Ordinal::new(0), &item, &Calls::default());
    assert_eq!(
        (typed.extra_format(), &typed.blocks[0].extra_json[..]),
        (
            v1::Format::OpenaiResponses,
            br#"{"type":"custom_tool_call","id":"ctc_1"}"#.as_slice()
        )
    );
    let input = |message| v1::MessageInput {
        content: Some(v1::message_input::Content::Message(message)),
        ..v1::MessageInput::default()
    };
    let back = one(input(typed.clone()));
    for provider in [
        Provider::Anthropic,
        Provider::OpenAi,
        Provider::OpenAiResponses,
    ] {
        assert_eq!(strings(&back, provider), strings(&item, provider));
    }
    // Without the format, the type of the item would be a second type of the call.
    let unmarked = v1::Message {
        extra_format: v1::Format::Unspecified.into(),
        ..typed
    };
    let error = read(vec![input(unmarked)], &Limits::default()).unwrap_err();
    assert_eq!(error.path, "messages[0].message.blocks[0].extra_json");
}

#[test]
fn media_without_a_typed_form_is_returned_as_json() {
    let media = |source| {
        Block::Media(Media {
            kind: MediaKind::Document,
            source,
            extra: palimpsest_core::json::UnknownFields::default(),
        })
    };
    // Invalid base64 has no bytes, so the block can only be returned as JSON.
    let broken = media(MediaSource::Base64 {
        media_type: "application/pdf".into(),
        data: "not base64!".into(),
    });
    let id = MessageId::new(uuid::Uuid::nil());
    let message = Message::new(id, Role::User, vec![broken]);
    let out = original(Ordinal::new(0), &message, &Calls::default());
    let Some(B::Opaque(opaque)) = &out.blocks[0].block else {
        panic!("{out:?}")
    };
    assert_eq!(opaque.r#type, "document");
    assert!(
        opaque
            .json
            .starts_with(b"{\"type\":\"document\",\"source\":")
    );
    // `AA` lacks its padding `==`. Providers accept that, so the bytes can be decoded.
    let unpadded = media(MediaSource::Base64 {
        media_type: "application/pdf".into(),
        data: "AA".into(),
    });
    let message = Message::new(id, Role::User, vec![unpadded]);
    let out = original(Ordinal::new(0), &message, &Calls::default());
    let Some(B::Document(document)) = &out.blocks[0].block else {
        panic!("{out:?}")
    };
    let source = document.source.as_ref().unwrap();
    assert_eq!(
        source.source,
        Some(v1::media_source::Source::Data(vec![0].into()))
    );
}

#[test]
fn views_omit_cache_markers_of_the_transcript() {
    let marked = r#"{"role":"user","content":[{"type":"text","text":"q","cache_control":{"type":"ephemeral"},"n":1}]}"#;
    let mut world = world(&[marked]);
    serve(&mut world, false);
    let session = &world.session;
    let target = target(Provider::Anthropic);
    let view = session.view(&target, None).unwrap();
    let shown = view_message(&view.messages[0], session.calls(), Provider::Anthropic);
    assert_eq!(shown.blocks[0].extra_json, r#"{"n":1}"#);
    let message = session.transcript().content(Ordinal::new(0)).unwrap();
    let stored = original(Ordinal::new(0), message, session.calls());
    assert_eq!(
        stored.blocks[0].extra_json,
        r#"{"cache_control":{"type":"ephemeral"},"n":1}"#
    );
}

#[test]
fn a_view_shows_wire_ids_and_keys() {
    let odd = r#"{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"Bash","input":"cut"}]}"#;
    // The second call repeats the id of the first one, so its wire id is mapped.
    let mut world = world(&[QUESTION, CALL, RESULT, odd, RESULT]);
    serve(&mut world, false);
    let session = &world.session;
    // Anthropic accepts only an object as input, so cut arguments are wrapped. OpenAI takes them as text.
    for (provider, input) in [
        (Provider::Anthropic, r#"{"raw_arguments":"cut"}"#),
        (Provider::OpenAi, "cut"),
    ] {
        let view = session.view(&target(provider), None).unwrap();
        let names: Vec<_> = view
            .messages
            .iter()
            .flat_map(|message| view_message(message, session.calls(), provider).blocks)
            .filter_map(|block| match block.block {
                Some(B::ToolUse(call)) => Some((call.tool_use_id, call.call_key)),
                Some(B::ToolResult(result)) => Some((result.tool_use_id, result.call_key)),
                _ => None,
            })
            .collect();
        let pair = |id: &str, key: &str| (id.to_owned(), key.to_owned());
        let second = pair("palimpsest_c1", "c1");
        assert_eq!(
            names,
            [pair("x", "c0"), pair("x", "c0"), second.clone(), second]
        );
        let call = &view.messages[3];
        let WireBlock::Call { .. } = &call.blocks[0] else {
            panic!("{call:?}")
        };
        let out = view_message(call, session.calls(), provider);
        let Some(B::ToolUse(call)) = &out.blocks[0].block else {
            panic!("{out:?}")
        };
        assert_eq!(call.input_json, input);
    }
}

#[test]
fn an_append_reports_the_outcome_of_each_message() {
    // The usage of 900,000 tokens exceeds the window, so it is ignored with a warning.
    let fragment = r#"{"role":"assistant","content":[{"type":"text","text":"a"}],"id":"msg","usage":{"input_tokens":900000}}"#;
    let mut world = world(&[QUESTION, fragment]);
    append(&mut world, &[fragment, CALL]);
    let Some(Event::MessagesAppended(event)) = world.log.last().map(|r| &r.event) else {
        panic!("appended")
    };
    // Adds a duplicate at index 0 of the call.
    let mut event = event.clone();
    event.duplicates = vec![(0, MessageId::new(uuid::Uuid::from_u128(1)))];
    let out = append_result(&world.session, &event, &[0, 0, 1], true);
    let said: Vec<_> = out
        .messages
        .iter()
        .map(|m| {
            (
                m.input_index,
                m.ordinal,
                m.outcome(),
                m.original_message_id.len(),
            )
        })
        .collect();
    assert_eq!(
        // The input indexes `[0, 0, 1]` cover the duplicate, the re-emission and the call.
        said,
        [
            (0, 1, O::Duplicate, 0),
            (0, 3, O::ReEmission, 36),
            (1, 4, O::Appended, 0)
        ]
    );
    assert!(out.session_created);
    let call = &out.messages[2].calls[0];
    assert_eq!(call.tool_name, "Read");
    assert_eq!(call.state(), v1::CallState::Open);
    assert_eq!(call.call.as_ref().unwrap().call_key, "c0");
    assert_eq!(
        call.block.as_ref().unwrap().message_id,
        out.messages[2].message_id
    );

    let Event::MessagesAppended(first) = &world.log[1].event else {
        panic!("appended")
    };
    let core = palimpsest_core::command::warnings(&world.session, &event);
    assert!(
        !core.is_empty(),
        "a re-emission is warned of by its outcome"
    );
    let usage = palimpsest_core::command::warnings(&world.session, first);
    let out = warnings(&usage);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].code(), v1::WarningCode::UsageIgnored);
    assert_eq!(out[0].message_id, uuid::Uuid::from_u128(2).to_string());
}

#[test]
fn a_view_with_open_calls_is_not_sendable() {
    let mut world = world(&[QUESTION, CALL]);
    serve(&mut world, false);
    let unsendable = world.session.not_sendable_reason();
    assert_eq!(
        not_sendable(unsendable.as_ref()),
        v1::NotSendableReason::OpenCalls
    );
    let open = open_calls(&world.session, unsendable.as_ref());
    assert_eq!((open.len(), open[0].state()), (1, v1::CallState::Open));
    append(&mut world, &[RESULT]);
    serve(&mut world, false);
    let key = palimpsest_core::ids::CallKey::new(0);
    assert_eq!(
        tool_call(&world.session, key).state(),
        v1::CallState::Answered
    );
    assert_eq!(
        not_sendable(world.session.not_sendable_reason().as_ref()),
        v1::NotSendableReason::Unspecified
    );
}

#[test]
fn the_session_state_reports_the_awaited_side() {
    use v1::SessionState as S;
    let state = |jsons: &[&str]| session_state(world(jsons).session.info());
    let answer = r#"{"role":"assistant","content":"a"}"#;
    assert_eq!(state(&[]), S::Empty);
    assert_eq!(state(&[r#"{"role":"system","content":"s"}"#]), S::Idle);
    assert_eq!(state(&[QUESTION]), S::AwaitingModel);
    assert_eq!(state(&[QUESTION, answer]), S::Idle);
    assert_eq!(state(&[QUESTION, CALL]), S::AwaitingResults);
    assert_eq!(state(&[QUESTION, CALL, RESULT]), S::AwaitingModel);
    // A user's message starts a turn of the model even with an open call. An answer of the assistant does not.
    assert_eq!(state(&[QUESTION, CALL, QUESTION]), S::AwaitingModel);
    assert_eq!(state(&[QUESTION, CALL, answer]), S::AwaitingResults);
}

#[test]
fn a_session_reports_counts_state_policy_and_target() {
    let mut world = world(&[]);
    let empty = session(&world.session);
    assert!(empty.budget.is_none() && empty.last_target.is_none());
    append(&mut world, &[QUESTION, CALL]);
    assert!(session(&world.session).last_target.is_none());
    serve(&mut world, false);
    let full = session(&world.session);
    assert_eq!(full.name, "projects/p/sessions/s");
    assert_eq!(full.first_prompt, "q");
    assert_eq!(full.last_model, "m");
    assert_eq!((full.revision, full.epoch), (3, 0));
    assert_eq!(full.state(), v1::SessionState::AwaitingResults);
    assert_eq!(full.open_calls.len(), 1);
    assert!(full.last_target.is_some());
    let counts = full.counts.unwrap();
    assert_eq!((counts.messages, counts.visible_messages), (2, 2));
    assert_eq!((counts.user_turns, counts.tool_calls), (1, 1));
    let autocompact = full.policy.unwrap().autocompact.unwrap();
    assert_eq!(autocompact.compact_buffer_tokens, Some(13_000));
}

#[test]
fn only_changed_blocks_have_a_status() {
    let bad = r#"{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"AAAA"}}]}"#;
    let mut world = world(&[bad]);
    serve(&mut world, false);
    let session = &world.session;
    let statuses = BlockStatuses::of(session);
    let (ordinal, entry) = session.transcript().entries().next().unwrap();
    let mut message = (**session.transcript().content(ordinal).unwrap()).clone();
    message.at = Some(Timestamp::from_millis(5_000));
    let out = transcript_message(
        session,
        (ordinal, entry),
        &message,
        ContentForm::Omitted,
        &statuses,
    );
    // Anthropic accepts no TIFF image, so the view shows a marker for the second block.
    assert_eq!(out.block_statuses.len(), 1);
    assert_eq!(out.block_statuses[0].block_index, 1);
    assert_eq!(
        out.block_statuses[0].visibility(),
        v1::BlockVisibility::Cleared
    );
    assert_eq!(out.visibility(), v1::Visibility::Visible);
    assert!(out.message.is_none() && out.messages_json.is_empty() && out.size_bytes > 50);
    let said = out.metadata.unwrap().create_time.unwrap();
    assert_eq!(said.seconds, 5);
}

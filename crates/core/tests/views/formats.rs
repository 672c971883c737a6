//! Thinking in conversations whose messages have the formats of several APIs. A target receives neither the thinking nor
//! the blocks of unknown types of another API, so such a block keeps no foreign thinking in the view. Also ids of items,
//! which one array must not repeat.

use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::command::{Append, Command, RestoreContext, ServeView, Snip};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Role;
use palimpsest_core::policy::Policy;
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Provider, RepairKind, Target};
use palimpsest_histories::SessionHarness;
use serde_json::{Value, json};
use uuid::Uuid;

const ANTHROPIC: Provider = Provider::Anthropic;
const RESPONSES: Provider = Provider::OpenAiResponses;

struct Conversation {
    world: SessionHarness,
    ids: Vec<MessageId>,
}

impl Conversation {
    /// Appends messages, each in the format of its API, and serves the view. Fragments of one response have its id.
    fn new(messages: &[(Provider, Value)], response: Option<&str>) -> Self {
        // Tags of turns and reminders are covered by other tests.
        let mut policy = Policy::default();
        (policy.snip.tag_turns, policy.snip.nudge) = (false, false);
        let mut conversation = Self {
            world: SessionHarness::with_policy(policy),
            ids: Vec::new(),
        };
        for message in messages {
            conversation.append(message, response);
        }
        conversation.serve();
        conversation
    }

    fn append(&mut self, (provider, json): &(Provider, Value), response: Option<&str>) {
        let id = MessageId::new(Uuid::from_u128(self.ids.len() as u128 + 1));
        let json = json.to_string();
        let mut read = codec::read(*provider, json.as_bytes(), &mut || id).unwrap();
        let mut message = read.remove(0);
        if message.role == Role::Assistant {
            message.provider_message_id = response.map(Into::into);
        }
        self.ids.push(id);
        self.world.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
    }

    fn serve(&mut self) {
        self.world.run(Command::ServeView(ServeView::default()));
    }

    fn snip(&mut self, message: usize) {
        self.world.run(Command::Snip(Snip {
            turns: Vec::new(),
            messages: vec![self.ids[message]],
            blocks: Vec::new(),
            reason: "".into(),
            trigger: Trigger::Manual,
            expected_revision: None,
            request: None,
        }));
    }

    /// Checks that the array for an API is valid. Returns the types of its items and blocks.
    #[track_caller]
    fn types(&self, provider: Provider) -> Vec<String> {
        let target = Target {
            provider,
            model: "m".into(),
            thinking: provider == ANTHROPIC,
            system_messages: false,
        };
        let view = self.world.session.view(&target, None).unwrap();
        assert_eq!(view.not_sendable, None);
        let array: Vec<Vec<u8>> = (view.messages.iter())
            .map(|message| {
                let mut out = Vec::new();
                codec::write(provider, message, &mut out);
                out
            })
            .collect();
        assert_eq!(validate(&target, &array), vec![]);
        let mut types = Vec::new();
        for message in array {
            let message: Value = serde_json::from_slice(&message).unwrap();
            // An item of the Responses API counts as one, also a message with several parts.
            let blocks = message["content"]
                .as_array()
                .filter(|_| provider == ANTHROPIC);
            let blocks = blocks.cloned().unwrap_or_else(|| vec![message.clone()]);
            types.extend(
                blocks
                    .iter()
                    .map(|it| it["type"].as_str().unwrap().to_owned()),
            );
        }
        types
    }

    /// Returns the number of thinking blocks that a repair removed.
    fn dropped_thinking(&self) -> usize {
        self.repairs(RepairKind::TrailingThinking)
    }

    fn repairs(&self, kind: RepairKind) -> usize {
        self.repairs_for(ANTHROPIC, kind)
    }

    fn repairs_for(&self, provider: Provider, kind: RepairKind) -> usize {
        let target = Target {
            provider,
            ..Target::default()
        };
        let view = self.world.session.view(&target, None).unwrap();
        let repairs = view.repairs.iter();
        repairs.filter(|it| it.kind == kind).count()
    }
}

fn user(text: &str) -> (Provider, Value) {
    (ANTHROPIC, json!({"role": "user", "content": text}))
}

fn reasoning() -> (Provider, Value) {
    let item = json!({"type": "reasoning", "summary": [], "encrypted_content": "x"});
    (RESPONSES, item)
}

fn call() -> (Provider, Value) {
    let item = json!({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"});
    (RESPONSES, item)
}

fn output() -> (Provider, Value) {
    let item = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
    (RESPONSES, item)
}

fn search() -> (Provider, Value) {
    (RESPONSES, json!({"type": "web_search_call"}))
}

/// An item that is sent with its id.
fn identified() -> (Provider, Value) {
    (RESPONSES, json!({"type": "web_search_call", "id": "ws_1"}))
}

fn assistant(blocks: Value) -> (Provider, Value) {
    (ANTHROPIC, json!({"role": "assistant", "content": blocks}))
}

#[test]
fn reasoning_leaves_with_the_call_after_it_if_only_a_block_of_another_api_follows() {
    let novel = assistant(json!([{"type": "novel"}]));
    let messages = [user("a"), reasoning(), call(), novel, user("b")];
    let mut conversation = Conversation::new(&messages, None);
    assert_eq!(
        conversation.types(RESPONSES),
        [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "message"
        ]
    );
    assert_eq!(conversation.dropped_thinking(), 0);
    conversation.snip(2);
    assert_eq!(conversation.types(RESPONSES), ["message"; 2]);
    assert_eq!(conversation.types(ANTHROPIC), ["text", "novel", "text"]);
    assert_eq!(conversation.dropped_thinking(), 1);
}

#[test]
fn thinking_leaves_with_the_call_after_it_if_only_an_item_of_another_api_follows() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let use_ = json!({"type": "tool_use", "id": "c", "name": "n", "input": {}});
    let (first, second) = (assistant(json!([thinking])), assistant(json!([use_])));
    let messages = [user("a"), first, second, search(), output(), user("b")];
    let mut conversation = Conversation::new(&messages, Some("r"));
    let before = ["text", "thinking", "tool_use", "tool_result", "text"];
    assert_eq!(conversation.types(ANTHROPIC), before);
    conversation.snip(2);
    assert_eq!(conversation.types(ANTHROPIC), ["text"; 2]);
    let after = ["message", "web_search_call", "message"];
    assert_eq!(conversation.types(RESPONSES), after);
    assert_eq!(conversation.dropped_thinking(), 1);
}

#[test]
fn a_new_view_has_no_thinking_before_a_block_of_another_api_alone() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let novel = assistant(json!([{"type": "novel"}]));
    let messages = [user("a"), reasoning(), novel.clone(), user("b")];
    let conversation = Conversation::new(&messages, Some("r"));
    assert_eq!(conversation.types(RESPONSES), ["message"; 2]);
    assert_eq!(conversation.dropped_thinking(), 1);
    let messages = [user("a"), assistant(json!([thinking])), search(), user("b")];
    let conversation = Conversation::new(&messages, Some("r"));
    assert_eq!(conversation.types(ANTHROPIC), ["text"; 2]);
    assert_eq!(conversation.dropped_thinking(), 1);
    // The block of the same API keeps the thinking.
    let messages = [user("a"), reasoning(), novel, search(), user("b")];
    let conversation = Conversation::new(&messages, Some("r"));
    let types = ["message", "reasoning", "web_search_call", "message"];
    assert_eq!(conversation.types(RESPONSES), types);
    assert_eq!(conversation.dropped_thinking(), 0);
}

#[test]
fn an_item_with_the_id_of_an_earlier_item_is_dropped() {
    let messages = [user("a"), identified(), user("b"), identified(), user("c")];
    let conversation = Conversation::new(&messages, None);
    let types = ["message", "web_search_call", "message", "message"];
    assert_eq!(conversation.types(RESPONSES), types);
    assert_eq!(conversation.repairs(RepairKind::RepeatedItem), 1);
}

#[test]
fn reasoning_before_an_item_with_a_repeated_id_leaves_with_the_item() {
    let again = [user("b"), reasoning(), identified(), user("c")];
    let messages = [&[user("a"), identified()], &again[..]].concat();
    let conversation = Conversation::new(&messages, None);
    let types = ["message", "web_search_call", "message", "message"];
    assert_eq!(conversation.types(RESPONSES), types);
    assert_eq!(conversation.dropped_thinking(), 1);
}

#[test]
fn the_id_of_an_item_is_known_after_a_reload() {
    let mut conversation = Conversation::new(&[user("a"), identified(), user("b")], None);
    // The content of the first item is not loaded.
    conversation.world.session = conversation.world.loaded();
    conversation.append(&identified(), None);
    conversation.append(&user("c"), None);
    conversation.serve();
    conversation.world.load_content();
    let types = ["message", "web_search_call", "message", "message"];
    assert_eq!(conversation.types(RESPONSES), types);
    assert_eq!(conversation.repairs(RepairKind::RepeatedItem), 1);
}

#[test]
fn an_undo_shows_an_item_once_that_was_repeated_after_it_had_left() {
    let mut conversation = Conversation::new(&[user("a"), identified(), user("b")], None);
    let before = conversation.world.session.revision();
    conversation.snip(1);
    conversation.append(&identified(), None);
    conversation.append(&user("c"), None);
    conversation.serve();
    let types = ["message", "message", "web_search_call", "message"];
    assert_eq!(conversation.types(RESPONSES), types);
    assert_eq!(conversation.repairs(RepairKind::RepeatedItem), 0);
    let world = &mut conversation.world;
    let restore = RestoreContext {
        past: Box::new(world.at(before)),
        later: Vec::new(),
        force: true,
        expected_revision: None,
        request: None,
    };
    world.run(Command::Restore(restore));
    world.load_content();
    let types = ["message", "web_search_call", "message", "message"];
    assert_eq!(conversation.types(RESPONSES), types);
    assert_eq!(conversation.repairs(RepairKind::RepeatedItem), 1);
}

#[test]
fn blocks_that_the_target_lacks_are_reported() {
    let novel = json!({"type": "novel"});
    let call = json!({"type": "tool_use", "id": "c", "name": "n", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": [novel, {"type": "text", "text": "x"}]});
    let document = json!({"type": "document", "source": {"type": "file", "file_id": "f"}});
    let messages = [
        (
            ANTHROPIC,
            json!({"role": "user", "content": [novel, document, {"type": "text", "text": "a"}]}),
        ),
        assistant(json!([novel, call])),
        (ANTHROPIC, json!({"role": "user", "content": [result]})),
        user("b"),
    ];
    let conversation = Conversation::new(&messages, None);
    let lacking = |provider| conversation.repairs_for(provider, RepairKind::UnsupportedBlock);
    assert_eq!(lacking(ANTHROPIC), 0);
    // The blocks of the user, of the model and inside the result, and the document.
    for provider in [RESPONSES, Provider::OpenAi] {
        assert_eq!(lacking(provider), 4, "{provider:?}");
    }
    // The provider of an item takes it, unless the item has no source.
    let sourceless =
        json!({"type": "message", "role": "user", "content": [{"type": "input_image"}]});
    let conversation = Conversation::new(&[(RESPONSES, sourceless), search(), user("a")], None);
    let lacking = |provider| conversation.repairs_for(provider, RepairKind::UnsupportedBlock);
    assert_eq!((lacking(RESPONSES), lacking(ANTHROPIC)), (1, 2));
}

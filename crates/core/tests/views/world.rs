//! A compact notation for conversations and for the views that they result in.

use std::sync::Arc;

use expect_test::Expect;
use palimpsest_core::codec;
use palimpsest_core::command::{
    Append, Command, CreateSession, Decided, Decision, DecisionContext, Rewind, ServeView,
    create_session, decide,
};
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{
    Block, Message, MessageOrigin, ResultContent, Role, Thinking, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::{NotSendableReason, Session};
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Provider, Target, WireRole};
use uuid::Uuid;

/// Runs a conversation and compares its final view, its repairs and the reason for an unsendable view with `expected`.
#[track_caller]
pub(crate) fn check(conversation: &str, expected: Expect) {
    check_for(Provider::Anthropic, "m", conversation, expected);
}

#[track_caller]
pub(crate) fn check_for(provider: Provider, model: &str, conversation: &str, expected: Expect) {
    expected.assert_eq(&show_for(provider, model, conversation));
}

/// Runs a conversation. Returns its final view, its repairs and the reason for an unsendable view.
#[track_caller]
pub(crate) fn show_for(provider: Provider, model: &str, conversation: &str) -> String {
    let target = Target {
        provider,
        model: model.into(),
        thinking: provider == Provider::Anthropic,
        system_messages: false,
    };
    show_in(&target, conversation)
}

/// Runs a conversation for a target.
#[track_caller]
pub(crate) fn show_in(target: &Target, conversation: &str) -> String {
    let mut play = Play::new();
    for (index, line) in conversation.lines().map(str::trim).enumerate() {
        match line {
            "" => {}
            "----" => play.serve(target, false),
            "interrupt" => play.serve(target, true),
            line => match line.strip_prefix("rewind ") {
                Some(to) => play.rewind(to.parse().unwrap()),
                None => play.append(index, line),
            },
        }
    }
    play.serve(target, false);
    play.show(target)
}

struct Play {
    session: Session,
    ids: Vec<MessageId>,
}

impl Play {
    fn new() -> Self {
        let limits = Limits::default();
        let context = context(&limits);
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        // Turn ids are covered by other tests. Without them the expected views are shorter.
        let mut policy = Policy::default();
        policy.snip.tag_turns = false;
        let new = CreateSession {
            policy: Arc::new(policy),
            ..CreateSession::default()
        };
        let event = create_session(new, context).unwrap();
        let at = context.now;
        let session = Session::replay(
            key,
            [RecordedEvent {
                at,
                by: None,
                event,
            }],
        )
        .unwrap();
        Self {
            session,
            ids: vec![],
        }
    }

    fn run(&mut self, command: Command) {
        let limits = Limits::default();
        let context = context(&limits);
        let Decided::Now(Decision { events, .. }) =
            decide(&self.session, command, context).unwrap()
        else {
            unreachable!("no request is stamped");
        };
        for event in events {
            let at = context.now;
            self.session
                .apply(&RecordedEvent {
                    at,
                    by: None,
                    event,
                })
                .unwrap();
        }
    }

    fn append(&mut self, index: usize, line: &str) {
        let id = MessageId::new(Uuid::from_u128(index as u128 + 1));
        self.ids.push(id);
        let message = Arc::new(message(id, line));
        self.run(Command::Append(Append {
            messages: vec![message],
            ..Append::default()
        }));
    }

    fn serve(&mut self, target: &Target, interrupt: bool) {
        self.run(Command::ServeView(ServeView {
            target: target.clone(),
            interrupt_open_calls: interrupt,
            ..ServeView::default()
        }));
    }

    fn rewind(&mut self, to: usize) {
        let to = to.checked_sub(1).map(|to| self.ids[to]);
        self.run(Command::Rewind(Rewind {
            to,
            ..Rewind::default()
        }));
    }

    fn show(&self, target: &Target) -> String {
        let view = self.session.view(target, None).unwrap();
        let mut out = String::new();
        for message in view.system.iter().chain(&view.messages) {
            let role = match message.role {
                WireRole::System => "system",
                WireRole::Developer => "developer",
                WireRole::Operator => "operator",
                WireRole::User => "user",
                WireRole::Assistant => "assistant",
                WireRole::Tool => "tool",
            };
            out.push_str(role);
            out.push('\n');
            for block in &message.blocks {
                let mut bytes = Vec::new();
                codec::write_block(target.provider, block, &mut bytes);
                out.push_str(&format!("  {}\n", String::from_utf8(bytes).unwrap()));
            }
        }
        for repair in &view.repairs {
            let message = repair.message.get() + 1;
            out.push_str(&format!(
                "repair {message}.{}: {:?}\n",
                repair.block, repair.kind
            ));
        }
        match &view.not_sendable {
            Some(NotSendableReason::OpenCalls(calls)) => {
                out.push_str(&format!("open: {calls:?}\n"));
            }
            Some(reason) => out.push_str(&format!("unsendable: {reason:?}\n")),
            None => {
                let mut json = Vec::new();
                // A sendable view must be valid for its provider.
                for message in &view.messages {
                    let mut bytes = Vec::new();
                    codec::write(target.provider, message, &mut bytes);
                    json.push(bytes);
                }
                assert_eq!(validate(target, &json), vec![]);
            }
        }
        out
    }
}

fn context(limits: &Limits) -> DecisionContext<'_> {
    DecisionContext {
        now: Timestamp::from_millis(0),
        limits,
        can_store: true,
        file_salt: 0,
    }
}

/// Parses a line: a role (`user`, `meta`, `system`, `assistant` or `assistant#response`), a colon, and blocks separated
/// by semicolons.
fn message(id: MessageId, line: &str) -> Message {
    let (who, blocks) = line.split_once(':').unwrap();
    let (who, response) = who.split_once('#').unwrap_or((who, ""));
    let role = match who {
        "user" | "meta" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::System,
    };
    let blocks = blocks.split(';').map(|text| block(text.trim())).collect();
    let mut message = Message::new(id, role, blocks);
    message.origin = MessageOrigin::Anthropic;
    message.machine_generated = who == "meta";
    message.provider_message_id = (!response.is_empty()).then(|| response.into());
    message.model = Some("m".into());
    message
}

fn block(text: &str) -> Block {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    match kind {
        "call" => {
            let (id, name) = rest.split_once(' ').unwrap_or((rest, "t"));
            Block::ToolUse(ToolUse {
                id: id.into(),
                name: name.into(),
                input: ToolInput::parse("{}"),
                extra: UnknownFields::default(),
            })
        }
        "result" => {
            let (id, content) = rest.split_once(' ').unwrap_or((rest, ""));
            Block::ToolResult(ToolResult {
                tool_use_id: id.into(),
                content: ResultContent::Text(content.into()),
                is_error: None,
                extra: UnknownFields::default(),
            })
        }
        "thinks" => Block::Thinking(Thinking::Plain {
            thinking: rest.into(),
            signature: Some("s".into()),
            extra: UnknownFields::default(),
        }),
        "blank" => Block::text("  "),
        _ => Block::text(text),
    }
}

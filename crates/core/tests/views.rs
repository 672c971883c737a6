//! What a view makes of a transcript, case by case: a conversation in a few lines goes in, the wire
//! comes out. A line of `----` stands for a serving, which seals what came before it.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::format_push_string,
    reason = "a case that is written wrongly should stop where it stands"
)]

use std::sync::Arc;

use expect_test::{Expect, expect};
use palimpsest_core::codec;
use palimpsest_core::command::{
    Append, Command, Context, Create, Decision, Rewind, Serve, create, decide,
};
use palimpsest_core::event::Recorded;
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::json::Extra;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{
    Block, Message, Origin, ResultContent, Role, Thinking, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::session::{Session, Unsendable};
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Provider, Target, WireRole};
use uuid::Uuid;

/// Plays a conversation and prints the view that it ends with, its repairs, and why it cannot be
/// sent, if it cannot.
#[track_caller]
fn check(conversation: &str, expected: Expect) {
    check_for(Provider::Anthropic, "m", conversation, expected);
}

#[track_caller]
fn check_for(provider: Provider, model: &str, conversation: &str, expected: Expect) {
    let target = Target {
        provider,
        model: model.into(),
        thinking: provider == Provider::Anthropic,
    };
    let mut play = Play::new();
    for (index, line) in conversation.lines().map(str::trim).enumerate() {
        match line {
            "" => {}
            "----" => play.serve(&target, false),
            "interrupt" => play.serve(&target, true),
            line => match line.strip_prefix("rewind ") {
                Some(to) => play.rewind(to.parse().unwrap()),
                None => play.append(index, line),
            },
        }
    }
    play.serve(&target, false);
    expected.assert_eq(&play.show(&target));
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
        let event = create(Create::default(), context).unwrap();
        let at = context.now;
        let session = Session::replay(key, [Recorded { at, event }]).unwrap();
        Self {
            session,
            ids: vec![],
        }
    }

    fn run(&mut self, command: Command) {
        let limits = Limits::default();
        let context = context(&limits);
        let Decision::Events(events) = decide(&self.session, command, context).unwrap() else {
            unreachable!("no request is stamped");
        };
        for event in events {
            let at = context.now;
            self.session.apply(&Recorded { at, event }).unwrap();
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
        self.run(Command::Serve(Serve {
            target: target.clone(),
            interrupt_open_calls: interrupt,
            ..Serve::default()
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
        match &view.unsendable {
            Some(Unsendable::OpenCalls(calls)) => out.push_str(&format!("open: {calls:?}\n")),
            Some(reason) => out.push_str(&format!("unsendable: {reason:?}\n")),
            None => {
                let mut json = Vec::new();
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

fn context(limits: &Limits) -> Context<'_> {
    Context {
        now: Timestamp::from_millis(0),
        limits,
    }
}

/// `user`, `meta`, `system`, `assistant` or `assistant#response`, then blocks between semicolons.
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
    message.origin = Origin::Anthropic;
    message.meta = who == "meta";
    message.provider_message_id = (!response.is_empty()).then(|| response.into());
    message.model = Some("m".into());
    message
}

fn block(text: &str) -> Block {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    match kind {
        "call" => Block::ToolUse(ToolUse {
            id: rest.into(),
            name: "t".into(),
            input: ToolInput::parse("{}"),
            extra: Extra::default(),
        }),
        "result" => {
            let (id, content) = rest.split_once(' ').unwrap_or((rest, ""));
            Block::ToolResult(ToolResult {
                tool_use_id: id.into(),
                content: ResultContent::Text(content.into()),
                is_error: None,
                extra: Extra::default(),
            })
        }
        "thinks" => Block::Thinking(Thinking::Plain {
            thinking: rest.into(),
            signature: Some("s".into()),
            extra: Extra::default(),
        }),
        "blank" => Block::text("  "),
        _ => Block::text(text),
    }
}

#[test]
fn fragments_of_one_response_become_one_message() {
    check(
        "user: go
         assistant#r: thinks hm
         assistant#r: call a
         user: result a 1
         assistant#r: call b
         user: result b 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"thinking","thinking":"hm","signature":"s"}
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"tool_result","tool_use_id":"b","content":"2"}
        "#]],
    );
}

#[test]
fn a_fragment_that_comes_after_a_serving_begins_a_new_message() {
    check(
        "user: go
         assistant#r: call a
         user: result a 1
         ----
         assistant#r: call b
         user: result b 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"b","content":"2"}
        "#]],
    );
}

#[test]
fn a_fragment_waits_while_calls_of_its_response_are_open() {
    check(
        "user: go
         assistant#r: call a; call b
         user: result a 1
         ----
         assistant#r: call c",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            open: [c1]
        "#]],
    );
    check(
        "user: go
         assistant#r: call a; call b
         user: result a 1
         ----
         assistant#r: call c
         ----
         user: result b 2
         user: result c 3",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"tool_result","tool_use_id":"b","content":"2"}
            assistant
              {"type":"tool_use","id":"c","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"c","content":"3"}
        "#]],
    );
}

#[test]
fn results_come_before_words() {
    check(
        "user: go
         assistant: call a
         meta: a reminder
         user: result a 1",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"text","text":"a reminder"}
        "#]],
    );
}

#[test]
fn words_wait_for_results_when_the_view_was_served_without_them() {
    check(
        "user: go
         assistant: call a; call b
         user: result a 1
         ----
         meta: a reminder
         ----
         user: result b 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"tool_result","tool_use_id":"b","content":"2"}
              {"type":"text","text":"a reminder"}
        "#]],
    );
}

#[test]
fn an_open_call_is_not_sendable_and_is_interrupted_by_a_person() {
    check(
        "user: go
         assistant: call a",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            open: [c0]
        "#]],
    );
    check(
        "user: go
         assistant: call a
         user: stop, do this instead",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"[Interrupted: the conversation went on before this tool returned a result.]","is_error":true}
              {"type":"text","text":"stop, do this instead"}
            repair 3.0: InterruptedCall(c0)
        "#]],
    );
    check(
        "user: go
         assistant: call a
         interrupt",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"[Interrupted: the conversation went on before this tool returned a result.]","is_error":true}
            repair 2.0: InterruptedCall(c0)
        "#]],
    );
}

#[test]
fn a_late_result_is_told_once_in_words() {
    check(
        "user: go
         assistant: call a
         user: stop
         ----
         assistant: as you like
         user: result a 42
         user: result a 42",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"[Interrupted: the conversation went on before this tool returned a result.]","is_error":true}
              {"type":"text","text":"stop"}
            assistant
              {"type":"text","text":"as you like"}
            user
              {"type":"text","text":"[Late result of the interrupted tool call a]\n42"}
            repair 3.0: InterruptedCall(c0)
            repair 6.0: DuplicateResult(c0)
            repair 5.0: LateResult(c0)
        "#]],
    );
}

#[test]
fn orphans_duplicates_and_blanks() {
    check(
        "user: go; blank
         assistant: call a
         user: result a 1; result a 2; result zz 3",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"text","text":"[Result of a tool call that is not shown]\n3"}
            repair 1.1: BlankText
            repair 3.1: DuplicateResult(c0)
            repair 3.2: OrphanResult
        "#]],
    );
}

#[test]
fn a_reused_id_is_mapped_and_stays_mapped() {
    check(
        "user: go
         assistant: call a
         user: result a 1
         ----
         assistant: call a
         user: result a 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"tool_use","id":"palimpsest_c1","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"palimpsest_c1","content":"2"}
            repair 4.0: MappedCallId(c1)
        "#]],
    );
}

#[test]
fn the_model_may_not_speak_first() {
    check(
        "assistant: hello
         user: hi",
        expect![[r#"
            user
              {"type":"text","text":"[The conversation begins with the assistant.]"}
            assistant
              {"type":"text","text":"hello"}
            user
              {"type":"text","text":"hi"}
            repair 1.0: Opening
        "#]],
    );
}

#[test]
fn system_messages_lead_or_become_reminders() {
    let conversation = "system: be kind
         user: go
         assistant: done
         system: be brief";
    check(
        conversation,
        expect![[r#"
        system
          {"type":"text","text":"be kind"}
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"text","text":"done"}
        user
          {"type":"text","text":"<system-reminder>\nbe brief\n</system-reminder>"}
    "#]],
    );
    check_for(
        Provider::OpenAi,
        "m",
        conversation,
        expect![[r#"
        system
          {"type":"text","text":"be kind"}
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"text","text":"done"}
        system
          {"type":"text","text":"be brief"}
    "#]],
    );
}

#[test]
fn p16_thinking_goes_back_verbatim_to_its_model_and_to_no_other() {
    let conversation = "user: go
         assistant: thinks deeply; call a
         user: result a 1";
    check(
        conversation,
        expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"thinking","thinking":"deeply","signature":"s"}
          {"type":"tool_use","id":"a","name":"t","input":{}}
        user
          {"type":"tool_result","tool_use_id":"a","content":"1"}
    "#]],
    );
    check_for(
        Provider::Anthropic,
        "other",
        conversation,
        expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"type":"tool_use","id":"a","name":"t","input":{}}
        user
          {"type":"tool_result","tool_use_id":"a","content":"1"}
    "#]],
    );
    check_for(
        Provider::OpenAi,
        "m",
        conversation,
        expect![[r#"
        user
          {"type":"text","text":"go"}
        assistant
          {"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}
        tool
          {"tool_call_id":"a","content":"1"}
    "#]],
    );
}

#[test]
fn trailing_thinking_waits_and_is_dropped_when_the_user_goes_on() {
    check(
        "user: go
         assistant#r: thinks hm",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            unsendable: EndsWithAssistant
        "#]],
    );
    check(
        "user: go
         assistant#r: thinks hm
         ----
         user: never mind",
        expect![[r#"
            user
              {"type":"text","text":"go"}
              {"type":"text","text":"never mind"}
            repair 2.0: TrailingThinking
        "#]],
    );
    check(
        "user: go
         assistant#r: thinks hm
         ----
         assistant#r: here it is
         user: thanks",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"thinking","thinking":"hm","signature":"s"}
              {"type":"text","text":"here it is"}
            user
              {"type":"text","text":"thanks"}
        "#]],
    );
}

#[test]
fn a_rewind_takes_later_messages_out() {
    check(
        "user: go
         assistant: call a
         user: result a 1
         assistant: wrong
         ----
         rewind 3
         assistant: right
         user: yes",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"text","text":"right"}
            user
              {"type":"text","text":"yes"}
        "#]],
    );
    check(
        "user: go
         ----
         rewind 0
         user: go elsewhere",
        expect![[r#"
            user
              {"type":"text","text":"go elsewhere"}
        "#]],
    );
}

//! The transcript as text for a model: original messages, with the ordinals and ids for further requests. A page of
//! several messages is shortened per block. A single message is complete.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::ids::{CallKey, Ordinal};
use crate::message::{Block, Message, ResultContent, Role, Thinking, ToolResult};
use crate::policy::{ModelTool, ModelToolPolicy};
use crate::session::{Call, Calls};

/// Maximum length of a tool result in [`outline`], in bytes.
const MAX_RESULT_BYTES: usize = 1_500;
/// Maximum length of any other block in [`outline`], in bytes.
const MAX_BLOCK_BYTES: usize = 4_000;

/// A page of the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptPage {
    /// The text for the model.
    pub text: String,
    /// The first message that did not fit. `None` if all messages fit.
    pub next: Option<Ordinal>,
}

/// Renders as many messages as fit into `max_bytes`. The first message is always included and cut if necessary. The
/// notes about cut parts name the tools as the policy does.
pub fn outline<'m>(
    messages: impl IntoIterator<Item = (Ordinal, &'m Message)>,
    calls: &Calls,
    tools: &ModelToolPolicy,
    max_bytes: usize,
) -> TranscriptPage {
    let mut page = TranscriptPage {
        text: String::new(),
        next: None,
    };
    let mut answers = ResultCalls::default();
    for (ordinal, message) in messages {
        answers.index_through(calls, ordinal);
        let mut shown = heading(ordinal, message);
        for (at, block) in (0_u16..).zip(&message.blocks) {
            let (text, max) = match block {
                Block::ToolResult(result) => (result_text(result), MAX_RESULT_BYTES),
                other => (block_text(other), MAX_BLOCK_BYTES),
            };
            let call = calls
                .find_at(ordinal, at)
                .or_else(|| answers.call(ordinal, at));
            shown.push_str(&label(block, call, calls));
            let cut = &text[..text.floor_char_boundary(max)];
            shown.push_str(cut);
            if cut.len() < text.len() {
                let by_call = match block {
                    Block::ToolResult(result) => {
                        reads_result(tools, &unique_call_id(call, calls, &result.tool_use_id))
                    }
                    _ => None,
                };
                let reader = by_call.or_else(|| reads_message(tools, message));
                let hint = reader.map(|reader| format!("; {reader}"));
                let hint = hint.unwrap_or_default();
                // Writing to a string cannot fail.
                let _ = write!(shown, "\n[cut: {} bytes in all{hint}]", text.len());
            }
            shown.push('\n');
        }
        // A page never ends within a message, except if the first message alone is too large.
        if page.text.len() + shown.len() > max_bytes {
            if !page.text.is_empty() {
                page.next = Some(ordinal);
                break;
            }
            let hint = reads_message(tools, message).map(|reader| format!(": {reader}"));
            let note = format!("\n[cut{}]\n", hint.unwrap_or_default());
            // The note needs space too, so that the page stays within its limit.
            shown.truncate(shown.floor_char_boundary(max_bytes.saturating_sub(note.len())));
            shown.push_str(&note);
        }
        page.text.push_str(&shown);
    }
    page
}

/// Renders one message from the byte `from` on. Also returns the start of the rest, if the text exceeds `max_bytes`.
pub fn render_message(
    (ordinal, message): (Ordinal, &Message),
    calls: &Calls,
    from: usize,
    max_bytes: usize,
) -> (String, Option<usize>) {
    let mut all = heading(ordinal, message);
    let mut answers = ResultCalls::default();
    answers.index_through(calls, ordinal);
    for (at, block) in (0_u16..).zip(&message.blocks) {
        let call = calls
            .find_at(ordinal, at)
            .or_else(|| answers.call(ordinal, at));
        all.push_str(&label(block, call, calls));
        match block {
            Block::ToolResult(result) => all.push_str(&result_text(result)),
            other => all.push_str(&block_text(other)),
        }
        all.push('\n');
    }
    // A model can request any offset, also one within a character.
    let start = all.floor_char_boundary(from);
    let end = all.floor_char_boundary(start.saturating_add(max_bytes));
    let next = (end < all.len()).then_some(end);
    (all[start..end].to_owned(), next)
}

/// Returns the text of a block, for reading and for search. Images and redacted thinking have none.
pub fn block_text(block: &Block) -> std::borrow::Cow<'_, str> {
    match block {
        Block::Text { text, .. } => (&**text).into(),
        Block::ToolUse(call) => call.input.as_str().into(),
        Block::ToolResult(result) => result_text(result),
        Block::Thinking(Thinking::Plain { thinking, .. }) => (&**thinking).into(),
        Block::Opaque { json, .. } => json.as_str().into(),
        Block::Media(_) | Block::Thinking(Thinking::Redacted { .. }) => "".into(),
    }
}

fn result_text(result: &ToolResult) -> std::borrow::Cow<'_, str> {
    match &result.content {
        ResultContent::None => "".into(),
        ResultContent::Text(text) => (&**text).into(),
        ResultContent::Blocks(blocks) => {
            let texts: Vec<_> = blocks.iter().map(block_text).collect();
            texts.join("\n").into()
        }
    }
}

fn heading(ordinal: Ordinal, message: &Message) -> String {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Developer => "developer",
    };
    // The tools of the model count messages from 1, and `Ordinal` counts from 0.
    format!("[{}] {role} {}\n", u64::from(ordinal.get()) + 1, message.id)
}

fn label(block: &Block, call: Option<CallKey>, calls: &Calls) -> String {
    match block {
        Block::ToolUse(tool) => format!(
            "call {} {}: ",
            tool.name,
            unique_call_id(call, calls, &tool.id)
        ),
        Block::ToolResult(result) => {
            format!(
                "result of {}: ",
                unique_call_id(call, calls, &result.tool_use_id)
            )
        }
        Block::Media(_) => "a picture or a document".into(),
        Block::Text { .. } | Block::Thinking(_) | Block::Opaque { .. } => String::new(),
    }
}

/// Returns an id that identifies this call uniquely within the session.
fn unique_call_id(call: Option<CallKey>, calls: &Calls, id: &str) -> String {
    match call {
        // Callers reuse ids. The service's own id leads to one call.
        Some(call) if calls.with_id(id).len() != 1 => calls.service_id(call),
        _ => id.to_owned(),
    }
}

/// Returns the hint to read a result, or `None` if the policy does not enable the tool.
fn reads_result(tools: &ModelToolPolicy, id: &str) -> Option<String> {
    let tool = tools.name_of(ModelTool::ReadToolResult)?;
    Some(format!("{tool} with tool_use_id \"{id}\" has the rest"))
}

/// Returns the hint to read a message, or `None` if the policy does not enable the tool.
fn reads_message(tools: &ModelToolPolicy, message: &Message) -> Option<String> {
    let tool = tools.name_of(ModelTool::ReadTranscript)?;
    let id = message.id;
    Some(format!("{tool} with message_id \"{id}\" has the rest"))
}

/// The calls that results answer, by the position of the result.
#[derive(Default)]
struct ResultCalls {
    calls: HashMap<(Ordinal, u16), CallKey>,
    indexed_through: Option<Ordinal>,
}

impl ResultCalls {
    /// Adds the calls of the messages up to `upto`. The first call of this method looks back 64 messages, because
    /// results follow their calls closely.
    fn index_through(&mut self, calls: &Calls, upto: Ordinal) {
        const LOOKBACK_MESSAGES: u32 = 64;
        let from = match self.indexed_through {
            Some(last) => last.get() + 1,
            None => upto.get().saturating_sub(LOOKBACK_MESSAGES),
        };
        for message in from..=upto.get() {
            for (key, call) in calls.of(Ordinal::new(message)) {
                let Call {
                    result_position, ..
                } = call;
                self.calls.extend(result_position.map(|place| (place, key)));
            }
        }
        self.indexed_through = Some(upto);
    }

    fn call(&self, message: Ordinal, block: u16) -> Option<CallKey> {
        self.calls.get(&(message, block)).copied()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;
    use crate::json::UnknownFields;
    use crate::policy::Policy;

    fn says(number: u32, texts: &[&str]) -> (Ordinal, Message) {
        let id = MessageId::new(Uuid::from_u128(number.into()));
        let blocks = texts.iter().map(|text| Block::text(*text)).collect();
        let message = Message::new(id, Role::User, blocks);
        (Ordinal::new(number), message)
    }

    #[test]
    fn an_outline_page_is_bounded_and_refers_to_the_rest() {
        let calls = Calls::default();
        let long = "\u{e9} and on".repeat(100);
        // Each block has 900 bytes, so the first message alone exceeds a page and is cut.
        let both = [says(1, &[&*long; 9]), says(2, &["short"])];
        let messages = || both.iter().map(|(at, message)| (*at, message));
        let mut tools = Policy::default().model_tools;
        tools.name_prefix = "my_".into();
        tools.enabled_tools = ModelTool::ALL.to_vec();
        let page = outline(messages(), &calls, &tools, 900);
        assert!(page.text.len() <= 900, "{}", page.text.len());
        let note = format!(
            "[cut: my_ReadTranscript with message_id \"{}\" has the rest]\n",
            both[0].1.id
        );
        assert!(page.text.ends_with(&note), "{}", page.text);
        assert_eq!(page.next, Some(Ordinal::new(2)));
        let rest = outline(messages().skip(1), &calls, &tools, 900);
        assert!(rest.text.ends_with("\nshort\n"), "{}", rest.text);
        assert_eq!(rest.next, None);
    }

    #[test]
    fn notes_about_cut_blocks_name_only_tools_that_the_policy_enables() {
        let id = MessageId::new(Uuid::from_u128(7));
        let result = ToolResult {
            tool_use_id: "c".into(),
            content: ResultContent::Text("long ".repeat(1_000).into()),
            is_error: None,
            extra: UnknownFields::default(),
        };
        let message = Message::new(id, Role::User, vec![Block::ToolResult(result)]);
        let note = |enabled: &[ModelTool]| {
            let mut tools = Policy::default().model_tools;
            tools.name_prefix = "my_".into();
            tools.enabled_tools = enabled.to_vec();
            let messages = [(Ordinal::new(0), &message)];
            let page = outline(messages, &Calls::default(), &tools, 9_000).text;
            page.rsplit_once("\n[cut: 5000 bytes in all")
                .map(|(_, note)| note.to_owned())
        };
        let note = |enabled: &[ModelTool]| note(enabled).expect("the block is cut");
        let both = [ModelTool::ReadTranscript, ModelTool::ReadToolResult];
        let by_call = "; my_ReadToolResult with tool_use_id \"c\" has the rest]\n";
        assert_eq!(note(&both), by_call);
        // The result is also readable as a part of its message.
        let by_message = format!("; my_ReadTranscript with message_id \"{id}\" has the rest]\n");
        assert_eq!(note(&both[..1]), by_message);
        assert_eq!(note(&[]), "]\n");
    }
}

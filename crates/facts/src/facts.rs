//! The facts of a run of messages: user inputs, statements of the model, tool calls and their
//! outcomes.

use std::collections::VecDeque;

use palimpsest_types::message::{Block, Message, MessageKind, Role, ToolResult};

use super::action_outcome::{self, ActionOutcome};
use super::names::Names;
use super::text::truncate;
use super::tool_action::{self, ActionKind, PlanChange, ToolAction, WorkItemState};
use super::user_text::{fenced_command, tool_echo, user_text};

/// The maximum size of all facts in bytes of text. Beyond it the oldest facts are dropped. User
/// inputs are kept in shortened form.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The overhead of a fact in addition to its text, in bytes.
const FACT_BYTES: usize = 160;
const MAX_INPUT_CHARS: usize = 8_000;
const MAX_OLD_INPUT_CHARS: usize = 400;
/// The maximum number of user inputs that are kept after their facts were dropped.
const MAX_OLD_INPUTS: usize = 400;
const MAX_ASSISTANT_TEXT_CHARS: usize = 3_000;
/// The maximum number of open calls. Agent programs leave fewer.
const MAX_OPEN: usize = 256;

/// The facts of a run of messages. Messages are added in order. A result is assigned to the oldest
/// open call with its id, because ids can repeat.
///
/// The size is bounded: each text is shortened when it is added, and all texts together are limited
/// to 4 MiB.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    entries: VecDeque<Fact>,
    /// The number of facts dropped from the front of the queue.
    dropped_count: usize,
    bytes: usize,
    open: VecDeque<OpenCall>,
    /// User inputs that were dropped from the queue, shortened.
    old_inputs: VecDeque<UserInput>,
    root: Option<Box<str>>,
    /// A command in the last text of the model. The next user message may contain its output.
    fenced_command: Option<Box<str>>,
    names: Names,
}

/// One event in a run of messages.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    /// A user input.
    UserInput(UserInput),
    /// A statement of the model.
    AssistantText(Box<str>),
    /// A tool call.
    Action(CompletedAction),
}

#[derive(Debug, Clone)]
pub(crate) struct UserInput {
    pub(crate) words: Box<str>,
}

/// A tool call and its outcome.
#[derive(Debug, Clone)]
pub(crate) struct CompletedAction {
    pub(crate) call: ToolAction,
    pub(crate) outcome: ActionOutcome,
    /// True if the result of a write states that the file is new.
    pub(crate) created: bool,
}

#[derive(Debug, Clone)]
struct OpenCall {
    id: Box<str>,
    /// The position of the first action of the call, counted from the first fact ever added.
    at: usize,
    actions: usize,
}

impl Facts {
    /// Collects the facts of messages in order.
    pub fn of<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let mut facts = Self::default();
        for message in messages {
            facts.record(message);
        }
        facts
    }

    /// Adds the next message, and the names in it. Ignores summaries, boundaries, attachments and generated messages.
    pub fn record(&mut self, message: &Message) {
        self.record_message(message, true);
    }

    /// Collects the facts of messages in order, without their names.
    pub(crate) fn without_names<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let mut facts = Self::default();
        for message in messages {
            facts.record_message(message, false);
        }
        facts
    }

    fn record_message(&mut self, message: &Message, with_names: bool) {
        if message.transcript_only || message.kind != MessageKind::Ordinary {
            return;
        }
        // The first directory stays the root. With another root, the same file would have another relative path.
        if self.root.is_none() {
            let mut attributes = message.attributes.iter();
            let cwd = attributes.find(|(name, _)| &**name == "cwd");
            self.root = cwd.map(|(_, path)| truncate(path, 300).into());
        }
        if with_names {
            self.names.begin_message();
            for block in &message.blocks {
                // Calls follow below, so that their input is parsed once.
                if message.role != Role::Assistant || !matches!(block, Block::ToolUse(_)) {
                    self.names.record_block(block, message.role);
                }
            }
        }
        match message.role {
            Role::User => self.record_user(message),
            Role::Assistant => self.record_assistant(message, with_names),
            Role::System | Role::Developer => {}
        }
    }

    /// Returns true if there are no facts.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.old_inputs.is_empty()
    }

    /// Returns the number of facts that were dropped to stay within the size limit.
    pub fn dropped(&self) -> usize {
        self.dropped_count
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Fact> {
        self.entries.iter()
    }

    /// Returns the user inputs that precede all facts of `iter`.
    pub(crate) fn old_inputs(&self) -> impl Iterator<Item = &UserInput> {
        self.old_inputs.iter()
    }

    /// Returns the names in the messages.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the working directory.
    pub(crate) fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    fn record_user(&mut self, content: &Message) {
        for block in &content.blocks {
            if let Block::ToolResult(result) = block {
                self.complete_with_result(result);
            }
        }
        // An agent without tools runs the command in a fence of the model's text. It returns the output as a user
        // message.
        if let Some(output) = tool_echo(content).filter(|_| content.is_real_user_input()) {
            self.complete_with_echo(output);
        } else if let Some(words) = user_text(content) {
            let words = truncate(&words, MAX_INPUT_CHARS).into();
            self.push(Fact::UserInput(UserInput { words }));
        }
    }

    fn record_assistant(&mut self, message: &Message, with_names: bool) {
        for block in &message.blocks {
            match block {
                Block::Text { text, .. } if !block.is_blank() => {
                    self.fenced_command = fenced_command(text).map(Into::into);
                    self.push(Fact::AssistantText(
                        truncate(text, MAX_ASSISTANT_TEXT_CHARS).into(),
                    ));
                }
                Block::ToolUse(tool) => {
                    let fields = tool_action::fields(tool);
                    let calls = tool_action::parse_fields(tool, &fields);
                    if with_names {
                        self.names.record_call(tool, &fields);
                    }
                    // The oldest open call is the least likely to receive a result.
                    if self.open.len() == MAX_OPEN {
                        self.open.pop_front();
                    }
                    self.open.push_back(OpenCall {
                        id: tool.id.clone(),
                        // Dropped facts count too, so the position stays valid when old facts are dropped.
                        at: self.dropped_count + self.entries.len(),
                        actions: calls.len(),
                    });
                    for call in calls {
                        self.push(Fact::Action(CompletedAction::new(call)));
                    }
                }
                _ => {}
            }
        }
    }

    fn complete_with_result(&mut self, result: &ToolResult) {
        let Some(at) = self
            .open
            .iter()
            .position(|open| *open.id == *result.tool_use_id)
        else {
            return;
        };
        if let Some(open) = self.open.remove(at) {
            let text = action_outcome::text_of(result);
            // A patch has one action for each file, and all of them share its result.
            for at in open.at..open.at + open.actions {
                self.complete(at, text, result.is_error);
            }
        }
    }

    fn complete_with_echo(&mut self, output: &str) {
        // Each fence runs once. A second output without a new fence belongs to no known command.
        if let Some(command) = self.fenced_command.take() {
            let files = tool_action::files_of(&command);
            let (act, target) = tool_action::classify_command(command.into());
            let call = ToolAction {
                kind: act,
                tool: "bash".into(),
                target: truncate(&target, 400).into(),
                location: Box::default(),
                symbols: Vec::new(),
                files: if act == ActionKind::Run {
                    files
                } else {
                    Vec::new()
                },
                plan: None,
            };
            let at = self.dropped_count + self.entries.len();
            self.push(Fact::Action(CompletedAction::new(call)));
            self.complete(at, output, None);
        }
    }

    fn complete(&mut self, at: usize, text: &str, is_error: Option<bool>) {
        // An action can be dropped before its result arrives.
        let Some(Fact::Action(action)) = at
            .checked_sub(self.dropped_count)
            .and_then(|at| self.entries.get_mut(at))
        else {
            return;
        };
        action.outcome =
            action_outcome::parse_outcome(action.call.kind, &action.call.target, text, is_error);
        action.created =
            action.call.kind == ActionKind::Write && action_outcome::reports_created_file(text);
        // The tool's result contains the number of a new item after a `#`.
        if let Some(PlanChange::Add(item)) = &mut action.call.plan {
            item.number = text.split_once('#').map(|(_, rest)| {
                rest.chars()
                    .take_while(char::is_ascii_alphanumeric)
                    .take(20)
                    .collect::<String>()
                    .into()
            });
            item.state = WorkItemState::Open;
        }
    }

    fn push(&mut self, fact: Fact) {
        self.bytes += fact.bytes();
        self.entries.push_back(fact);
        while self.bytes > MAX_BYTES {
            let Some(fact) = self.entries.pop_front() else {
                break;
            };
            self.dropped_count += 1;
            self.bytes -= fact.bytes();
            if let Fact::UserInput(asked) = fact {
                self.old_inputs.push_back(UserInput {
                    words: truncate(&asked.words, MAX_OLD_INPUT_CHARS).into(),
                });
                // The first input is kept, because it states the purpose of the session.
                if self.old_inputs.len() > MAX_OLD_INPUTS {
                    self.old_inputs.remove(1);
                }
            }
        }
    }
}

impl CompletedAction {
    fn new(call: ToolAction) -> Self {
        Self {
            call,
            outcome: ActionOutcome::Open,
            created: false,
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.outcome, ActionOutcome::Failed(_))
    }
}

impl Fact {
    fn bytes(&self) -> usize {
        FACT_BYTES
            + match self {
                Self::UserInput(asked) => asked.words.len(),
                Self::AssistantText(text) => text.len(),
                Self::Action(action) => {
                    // The outcome arrives later, so its maximum size is reserved here.
                    let symbols: usize =
                        action.call.symbols.iter().map(|name| name.len() + 16).sum();
                    let items = match &action.call.plan {
                        Some(PlanChange::All(items)) => {
                            items.iter().map(|i| i.text.len() + 48).sum()
                        }
                        _ => 200,
                    };
                    let files: usize = action
                        .call
                        .files
                        .iter()
                        .map(|file| file.path.len() + 24)
                        .sum();
                    action.call.target.len()
                        + action.call.location.len()
                        + symbols
                        + files
                        + items
                        + 600
                }
            }
    }
}

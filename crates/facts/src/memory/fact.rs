//! The facts that session memory consists of. The wording of each fact is in `render`.

/// A fact of a section. The sections that can contain a fact are named at its group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MemoryFact {
    /// Any section: a line of a person or a model, kept as it is. Blank between paragraphs.
    Verbatim(Box<str>),

    /// Session title: the title, from the first request.
    Title(Box<str>),

    /// Current state: the user's latest request.
    LatestRequest(Box<str>),
    /// Current state: the latest request was answered.
    LatestRequestAnswered,
    /// Current state: the model's last statement before the latest request.
    EarlierStatement(Box<str>),
    /// Current state: the model's last statement.
    LatestStatement(Box<str>),
    /// Current state: the latest steps, as phrases.
    LatestSteps(Box<str>),
    /// Current state: the work items.
    WorkItems(WorkItems),
    /// Current state: the calls without a result, as a phrase.
    OpenCalls(Box<str>),
    /// Current state: the commands that failed last, as a phrase.
    FailingCommands(Box<str>),

    /// Task specification: a request of the user.
    Request(Request),

    /// Files: the directory to which paths are relative.
    Root(Box<str>),
    /// Files: a changed file.
    ChangedFile(ChangedFile),
    /// Files: files that were edited once without a defined name.
    FilesEditedOnce(Vec<Box<str>>),
    /// Files: files that were only read.
    FilesRead(Vec<Box<str>>),
    /// Files: names that no other fact contains.
    OtherNames(OtherNames),

    /// Workflow: the runs of similar commands.
    CommandRuns(CommandRuns),
    /// Workflow: commands that ran once and passed without a notable output.
    CommandsRunOnce(Vec<Box<str>>),
    /// Workflow: the commands and searches that only read.
    Exploration(Exploration),

    /// Errors: a failed action and its outcome.
    Failure(Failure),
    /// Errors: an action that the user declined.
    Declined(Declined),
    /// Errors: a sentence with which the user corrected the model.
    Correction(Box<str>),

    /// Documentation: a sentence with which the model explained a named item.
    Explanation(Box<str>),
    /// Documentation: a document that was read, with its headings.
    Document(Source),
    /// Documentation: a remote resource that was read, with the beginning of its text if that is notable.
    Lookup(Source),

    /// Learnings: a sentence in which the user states a rule.
    Rule(Box<str>),
    /// Learnings: the user's answer through a tool. The source is the tool.
    ToolAnswer(Source),
    /// Learnings: the change that fixed a command.
    Fix(Fix),

    /// Key results: the model's answer to a request.
    Answer(Answer),

    /// Worklog: a turn.
    Turn(Turn),
    /// Worklog: a statement of the model and the actions that followed it.
    Step(Step),
}

/// A request of the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// True for the first request of the session.
    pub is_first: bool,
    /// The user's words, with their line breaks.
    pub words: Box<str>,
}

/// The work items that are not done, and the number of those that are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct WorkItems {
    /// The items that are not done, at most 12.
    pub left: Vec<OpenWorkItem>,
    /// The number of items that are done.
    pub done: u32,
}

/// A work item that is not done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpenWorkItem {
    /// The number that the tool gave to the item.
    pub number: Option<Box<str>>,
    /// The text of the item.
    pub text: Box<str>,
    /// True if the work on the item has started.
    pub is_started: bool,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChangedFile {
    /// The path, relative to the root if it is below the root.
    pub path: Box<str>,
    /// The way in which the session wrote the whole file, if it did.
    pub written: Option<FileWrite>,
    /// The number of edits.
    pub edits: u32,
    /// The latest names that edits defined, at most 5.
    pub symbols: Vec<Box<str>>,
}

/// The way in which a whole file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileWrite {
    /// The file was new.
    Created,
    /// The file existed, or its tool did not report whether it did.
    Replaced,
}

/// Names that occurred in the conversation and that the agent may need again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OtherNames {
    /// The names, the most probable first, at most 160.
    pub names: Vec<KnownName>,
    /// The number of messages that were searched.
    pub messages: u32,
}

/// A name and its occurrences.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KnownName {
    /// The name. A path is relative to the root if it is below the root.
    pub name: Box<str>,
    /// The kind.
    pub kind: NameKind,
    /// The probability of a further use, as an order. A higher rank is more probable.
    pub rank: u32,
    /// True if the rendered fact contains the name. Other facts may contain the rest, or it has no space.
    pub is_shown: bool,
}

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// The path of a file or folder.
    Path,
    /// The name of something in a program.
    Identifier,
}

/// The runs of similar commands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommandRuns {
    /// The command that ran last.
    pub command: Box<str>,
    /// Other commands of the same kind in order of use, at most 6.
    pub others: Vec<Box<str>>,
    /// The number of runs.
    pub runs: u32,
    /// The number of failed runs.
    pub failed: u32,
    /// The outcome of the last run.
    pub last: RunOutcome,
    /// A line of the output of the last run. Empty if none is notable.
    pub output: Box<str>,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// The command passed.
    Passed,
    /// The command failed.
    Failed,
    /// The result has not arrived.
    Open,
}

/// The commands and searches that only read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Exploration {
    /// The number of commands.
    pub commands: u32,
    /// The number of searches.
    pub searches: u32,
    /// The programs of the commands, at most 16.
    pub programs: Vec<Box<str>>,
}

/// A failed action and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The action.
    pub action: FailedAction,
    /// The key that the same action has in later messages.
    pub key: Box<str>,
    /// The number of failures.
    pub times: u32,
    /// The error text of the tool.
    pub why: Box<str>,
    /// The action that followed, or the change that fixed the failure.
    pub next: Option<Box<str>>,
    /// True if the action succeeded afterwards.
    pub is_fixed: bool,
}

/// An action that failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FailedAction {
    /// The kind of the action.
    pub kind: FailedActionKind,
    /// The command, path, address or tool.
    pub name: Box<str>,
}

/// The kinds of actions that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailedActionKind {
    /// Running a command.
    Run,
    /// Changing or writing a file.
    Edit,
    /// Reading a file.
    Read,
    /// Reading a remote resource.
    Fetch,
    /// Calling any other tool.
    Tool,
}

/// An action that the user declined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Declined {
    /// The action.
    pub action: FailedAction,
    /// The user's reason. Empty if the user gave none.
    pub why: Box<str>,
}

/// The fix of a failing command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fix {
    /// The command.
    pub action: FailedAction,
    /// The error text of the command.
    pub why: Box<str>,
    /// The change, as a phrase.
    pub change: Box<str>,
}

/// A source and a text from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The path, address or tool.
    pub name: Box<str>,
    /// The text. Can be empty.
    pub text: Box<str>,
}

/// An answer of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The request. `None` if it precedes all known messages.
    pub request: Option<Box<str>>,
    /// The answer, in whole sentences.
    pub text: Box<str>,
}

/// A turn of the worklog.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Turn {
    /// The request. `None` if the turn began before all known messages.
    pub request: Option<Box<str>>,
    /// The number of actions by kind.
    pub counts: TurnCounts,
    /// The changed files, latest first, at most 4.
    pub files: Vec<Box<str>>,
    /// True if the turn changed further files.
    pub has_more_files: bool,
    /// The final statement of the turn. `None` while the turn is in progress.
    pub ended: Option<Box<str>>,
}

/// The number of actions of a turn, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TurnCounts {
    /// Reads and searches.
    pub reads: u32,
    /// Changes of files.
    pub edits: u32,
    /// Runs of commands.
    pub runs: u32,
    /// Failed runs.
    pub failed: u32,
    /// Other calls.
    pub others: u32,
}

/// A statement of the model and the actions until its next statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Step {
    /// The statement. Empty if the actions had none.
    pub statement: Box<str>,
    /// The actions, in groups of the same kind.
    pub actions: Vec<StepActions>,
}

/// Consecutive actions of the same kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StepActions {
    /// The kind.
    pub kind: StepKind,
    /// The targets of the actions.
    pub targets: Vec<StepTarget>,
}

/// The target of an action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StepTarget {
    /// The path, command, address or tool.
    pub name: Box<str>,
    /// True if the action failed.
    pub failed: bool,
}

/// The kinds of actions in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Edits of files.
    Edit,
    /// Writes of whole files.
    Write,
    /// Runs of commands.
    Run,
    /// Runs of commands that only read.
    Look,
    /// Reads of remote resources.
    Fetch,
    /// Work that was delegated to a subagent.
    Delegate,
    /// Calls of other tools.
    Call,
    /// Reads of files.
    Read,
}

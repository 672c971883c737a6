//! Classification of tool calls by the tool's name and the fields of its input.

use palimpsest_types::message::{ToolInput, ToolUse};
use serde_json::{Map, Value};

use super::shell::{self, FileUsage, command_files};
use super::symbols::defined_in;
use super::text::{one_line, truncate};

/// The input fields that contain the path of a file.
pub const PATH_FIELDS: [&str; 5] = ["file_path", "filePath", "path", "notebook_path", "filename"];
/// The input fields that contain the command to run.
pub const COMMAND_FIELDS: [&str; 2] = ["command", "cmd"];
const PATTERN_FIELDS: [&str; 5] = ["pattern", "query", "regex", "search_term", "q"];
const LOCATION_FIELDS: [&str; 6] = [
    "path", "glob", "include", "directory", "dir", "target_directory",
];
const SUBJECT_FIELDS: [&str; 8] = [
    "description", "subject", "skill", "plan", "prompt", "name", "question", "id",
];
const CONTENT_FIELDS: [&str; 7] = [
    "new_string", "new_str", "newText", "content", "file_text", "new_source", "insert_text",
];
const MAX_TARGET: usize = 400;
const MAX_SYMBOLS: usize = 8;
/// The maximum number of files per patch and of work items per list. Notes cannot name more.
const MAX_PARTS: usize = 40;

/// The kind of action that a tool call performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Reads a file.
    Read,
    /// Changes a file.
    Edit,
    /// Writes a whole file.
    Write,
    /// Searches files.
    Search,
    /// Runs a command.
    Run,
    /// Reads a remote resource.
    Fetch,
    /// Delegates work to a subagent.
    Delegate,
    /// Changes the list of work items.
    Plan,
    /// Performs any other action.
    Other,
}

/// A change of the list of work items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanChange {
    /// Replaces the whole list.
    All(Vec<WorkItem>),
    /// Adds an item. The tool's result contains the number of the item.
    Add(WorkItem),
    /// Changes the state of an item.
    Mark(Box<str>, WorkItemState),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkItem {
    pub(crate) number: Option<Box<str>>,
    pub(crate) text: Box<str>,
    pub(crate) state: WorkItemState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkItemState {
    Open,
    Doing,
    Done,
}

/// A tool call without its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAction {
    /// The kind of the action.
    pub kind: ActionKind,
    pub(crate) tool: Box<str>,
    /// The value that identifies the action best: a path, command, pattern, URL or description.
    pub target: Box<str>,
    /// The directory or file pattern to which a search is limited.
    pub(crate) location: Box<str>,
    /// The names that an edit defines.
    pub(crate) symbols: Vec<Box<str>>,
    /// The files that a command reads and changes. Empty if the target is the file.
    pub(crate) files: Vec<ActionFile>,
    pub(crate) plan: Option<PlanChange>,
}

/// A file that a command reads or changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionFile {
    pub(crate) path: Box<str>,
    pub(crate) usage: FileUsage,
}

impl ToolAction {
    /// Returns the directory or file pattern to which a search is limited. Empty for other actions.
    pub fn location(&self) -> &str {
        &self.location
    }
}

/// Returns the fields of a call's input. Returns an empty map if the input is not an object.
pub fn fields(tool: &ToolUse) -> Map<String, Value> {
    match &tool.input {
        ToolInput::Object(json) => serde_json::from_str(json.as_str()).unwrap_or_default(),
        ToolInput::Text(_) => Map::new(),
    }
}

/// Classifies a tool call with the given input fields. A patch of several files yields one action per file.
pub fn parse_fields(tool: &ToolUse, fields: &Map<String, Value>) -> Vec<ToolAction> {
    // A patch names its files itself, whatever the tool is called.
    if let Some(patch) = patch(tool, fields) {
        return patch_actions(&tool.name, patch);
    }
    // MCP tool names have the server's name as a prefix, separated by `__`.
    let name = tool.name.rsplit("__").next().unwrap_or_default();
    // Agents spell the same tool as `read_file`, `readFile` or `ReadFile`.
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    let plan = plan_change(&name, fields);
    let (kind, target) = if plan.is_some() {
        (ActionKind::Plan, String::new())
    } else {
        classify_action(&name, fields, &tool.input)
    };
    let mut symbols = Vec::new();
    if matches!(kind, ActionKind::Edit | ActionKind::Write) {
        // A command that writes a file by a here-document contains the content itself.
        if let Some(command) = command(fields) {
            defined_in(&command, MAX_SYMBOLS, &mut symbols);
        }
        contents(fields, &mut |code| {
            defined_in(code, MAX_SYMBOLS, &mut symbols);
        });
    }
    let place = match kind {
        ActionKind::Search => first(fields, &LOCATION_FIELDS).unwrap_or_default(),
        _ => "",
    };
    let files = match kind {
        ActionKind::Run => command(fields).map_or_else(Vec::new, |command| files_of(&command)),
        _ => Vec::new(),
    };
    vec![ToolAction {
        kind,
        tool: truncate(&tool.name, 80).into(),
        target: truncate(&target, MAX_TARGET).into(),
        location: truncate(place, MAX_TARGET).into(),
        symbols,
        files,
        plan,
    }]
}

/// Returns the files that a command reads and changes.
pub(crate) fn files_of(command: &str) -> Vec<ActionFile> {
    let files = command_files(command).into_iter();
    let files = files.filter(|file| file.usage != FileUsage::Other);
    files
        .map(|file| ActionFile {
            path: file.path.into(),
            usage: file.usage,
        })
        .collect()
}

fn classify_action(
    name: &str,
    fields: &Map<String, Value>,
    input: &ToolInput,
) -> (ActionKind, String) {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let path = first(fields, &PATH_FIELDS);
    let command = command(fields);
    let subject = || {
        let text =
            first(fields, &SUBJECT_FIELDS).or_else(|| fields.values().find_map(Value::as_str));
        one_line(text.unwrap_or_default())
    };
    // Text editor tools with several commands select the operation in the field `command`.
    if let (Some(path), Some(verb)) = (path, command.as_deref()) {
        match verb {
            "view" => return (ActionKind::Read, path.into()),
            "create" => return (ActionKind::Write, path.into()),
            "str_replace" | "insert" | "undo_edit" => return (ActionKind::Edit, path.into()),
            _ => {}
        }
    }
    if let Some(command) = command {
        return classify_command(command);
    }
    if let ToolInput::Text(text) = input {
        return (ActionKind::Other, one_line(&truncate(text, MAX_TARGET)));
    }
    if let Some(url) = first(fields, &["url", "uri"]) {
        return (ActionKind::Fetch, url.into());
    }
    // To-do tools are recognized before the generic fields, because their inputs may contain a `query` or a path too.
    if has(&["todo"]) || matches!(name, "tasklist" | "taskget" | "taskupdate") {
        return (ActionKind::Plan, String::new());
    }
    // A search tool can have a path for its place, so the pattern is checked before the path.
    let pattern = first(fields, &PATTERN_FIELDS);
    if let Some(pattern) = pattern {
        let kind = if has(&["web"]) {
            ActionKind::Fetch
        } else {
            ActionKind::Search
        };
        return (kind, one_line(pattern));
    }
    if let Some(path) = path {
        let kind = if has(&["write", "create", "save"]) {
            ActionKind::Write
        } else if has(&["edit", "replace", "patch", "update", "insert", "append"]) {
            ActionKind::Edit
        } else if has(&["grep", "search", "glob", "find", "list"]) || name == "ls" {
            return (ActionKind::Search, String::new());
        } else if has(&["read", "view", "open", "cat", "get", "show"]) {
            ActionKind::Read
        } else {
            ActionKind::Other
        };
        return (kind, path.into());
    }
    if matches!(name, "task" | "agent") || has(&["delegate", "subagent"]) {
        return (ActionKind::Delegate, subject());
    }
    (ActionKind::Other, subject())
}

/// Classifies a shell command. A command that only shows or writes one file counts as a read or a
/// write.
pub(super) fn classify_command(command: String) -> (ActionKind, String) {
    if let Some(path) = shell::shown_file(&command) {
        (ActionKind::Read, path.to_owned())
    } else if let Some((path, whole)) = shell::changed_file(&command) {
        (
            if whole {
                ActionKind::Write
            } else {
                ActionKind::Edit
            },
            path.to_owned(),
        )
    } else {
        (ActionKind::Run, command)
    }
}

fn first<'a>(fields: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    let mut texts = names.iter().filter_map(|name| fields.get(*name)?.as_str());
    texts.find(|text| !text.trim().is_empty())
}

/// Returns the command in a call's input fields. For an argument list such as `["bash", "-lc", "…"]`, returns the
/// script.
pub fn command(fields: &Map<String, Value>) -> Option<String> {
    COMMAND_FIELDS
        .iter()
        .find_map(|name| match fields.get(*name)? {
            Value::String(command) => Some(command.clone()),
            Value::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                let is_shell =
                    words.len() == 3 && words[1].starts_with('-') && words[1].contains('c');
                Some(if is_shell {
                    words[2].into()
                } else {
                    words.join(" ")
                })
            }
            _ => None,
        })
}

/// Calls `take` for every text that an edit writes into a file.
fn contents(fields: &Map<String, Value>, take: &mut impl FnMut(&str)) {
    for name in CONTENT_FIELDS {
        if let Some(code) = fields.get(name).and_then(Value::as_str) {
            take(code);
        }
    }
    if let Some(Value::Array(edits)) = fields.get("edits") {
        for edit in edits.iter().take(MAX_PARTS).filter_map(Value::as_object) {
            for name in CONTENT_FIELDS {
                if let Some(code) = edit.get(name).and_then(Value::as_str) {
                    take(code);
                }
            }
        }
    }
}

const PATCH: &str = "*** Begin Patch";

fn patch<'a>(tool: &'a ToolUse, fields: &'a Map<String, Value>) -> Option<&'a str> {
    let from_begin = |text: &'a str| text.find(PATCH).map(|at| &text[at..]);
    if let ToolInput::Text(text) = &tool.input {
        return from_begin(text);
    }
    let names = ["input", "patch"].iter().chain(&COMMAND_FIELDS);
    names
        .filter_map(|name| fields.get(*name))
        .find_map(|value| match value {
            Value::String(text) => from_begin(text),
            // An argument list contains the patch as a word or in a script.
            Value::Array(words) => words.iter().filter_map(Value::as_str).find_map(from_begin),
            _ => None,
        })
}

/// Returns one action per file of a patch, with the names that its added lines define.
fn patch_actions(tool: &str, patch: &str) -> Vec<ToolAction> {
    let mut calls: Vec<ToolAction> = Vec::new();
    let mut added = String::new();
    let close = |calls: &mut Vec<ToolAction>, added: &mut String| {
        if let Some(call) = calls.last_mut() {
            defined_in(added, MAX_SYMBOLS, &mut call.symbols);
        }
        added.clear();
    };
    for line in patch.lines() {
        // A file begins with a line such as `*** Add File: a.rs` or `*** Update File: a.rs`.
        let file = line
            .strip_prefix("*** ")
            .and_then(|rest| rest.split_once(" File: "));
        if let Some((verb, path)) = file {
            close(&mut calls, &mut added);
            // A patch is untrusted input, so the number of files is limited.
            if calls.len() == MAX_PARTS {
                return calls;
            }
            calls.push(ToolAction {
                kind: if verb == "Add" {
                    ActionKind::Write
                } else {
                    ActionKind::Edit
                },
                tool: tool.into(),
                target: truncate(path, MAX_TARGET).into(),
                location: Box::default(),
                symbols: Vec::new(),
                files: Vec::new(),
                plan: None,
            });
        } else if let Some(line) = line.strip_prefix('+') {
            added.push_str(line);
            added.push('\n');
        }
    }
    close(&mut calls, &mut added);
    calls
}

// Agent programs name the same fields differently, so several spellings of states and texts are
// accepted.
fn plan_change(name: &str, fields: &Map<String, Value>) -> Option<PlanChange> {
    let state = |value: &Map<String, Value>| match value.get("status").and_then(Value::as_str) {
        Some("completed" | "done" | "deleted" | "cancelled") => WorkItemState::Done,
        Some("in_progress" | "in-progress" | "active") => WorkItemState::Doing,
        _ => WorkItemState::Open,
    };
    let text = |value: &Map<String, Value>| {
        let text = first(
            value,
            &["content", "step", "subject", "text", "title", "description"],
        );
        Box::from(truncate(&one_line(text.unwrap_or_default()), 160))
    };
    // A tool with the whole list replaces the plan. Task tools change one item at a time.
    let list = ["todos", "plan"]
        .iter()
        .find_map(|name| fields.get(*name)?.as_array());
    if let Some(list) = list.filter(|_| name.contains("todo") || name.contains("plan")) {
        let items = list
            .iter()
            .filter_map(Value::as_object)
            .take(MAX_PARTS)
            .map(|item| WorkItem {
                number: None,
                text: text(item),
                state: state(item),
            });
        return Some(PlanChange::All(items.collect()));
    }
    match name {
        "taskcreate" => Some(PlanChange::Add(WorkItem {
            number: None,
            text: text(fields),
            state: WorkItemState::Open,
        })),
        "taskupdate" if fields.contains_key("status") => {
            let number = first(fields, &["taskId", "task_id", "id"])?;
            Some(PlanChange::Mark(truncate(number, 40).into(), state(fields)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palimpsest_types::json::UnknownFields;

    fn parse_actions(tool: &ToolUse) -> Vec<ToolAction> {
        parse_fields(tool, &fields(tool))
    }

    #[track_caller]
    fn check(name: &str, input: &str, kind: ActionKind, target: &str) {
        let calls = parse_actions(&ToolUse {
            id: "x".into(),
            name: name.into(),
            input: ToolInput::parse(input),
            extra: UnknownFields::default(),
        });
        assert_eq!(
            (calls[0].kind, &*calls[0].target),
            (kind, target),
            "{name} {input}"
        );
    }

    #[test]
    fn tool_calls_of_several_programs_are_parsed() {
        // The tools belong to several agent programs, which name the same fields differently.
        check("Read", r#"{"file_path":"/a"}"#, ActionKind::Read, "/a");
        check(
            "mcp__files__read_file",
            r#"{"path":"/a"}"#,
            ActionKind::Read,
            "/a",
        );
        check(
            "Edit",
            r#"{"file_path":"/a","new_string":"x"}"#,
            ActionKind::Edit,
            "/a",
        );
        check(
            "write",
            r#"{"filePath":"/a","content":"x"}"#,
            ActionKind::Write,
            "/a",
        );
        check(
            "str_replace_based_edit_tool",
            r#"{"command":"view","path":"/a"}"#,
            ActionKind::Read,
            "/a",
        );
        check("Bash", r#"{"command":"ls"}"#, ActionKind::Run, "ls");
        check(
            "shell",
            r#"{"command":["bash","-lc","ls -l"]}"#,
            ActionKind::Run,
            "ls -l",
        );
        check(
            "Grep",
            r#"{"pattern":"x y","path":"/a"}"#,
            ActionKind::Search,
            "x y",
        );
        check(
            "WebSearch",
            r#"{"query":"rust"}"#,
            ActionKind::Fetch,
            "rust",
        );
        check(
            "WebFetch",
            r#"{"url":"https://a.b","prompt":"x"}"#,
            ActionKind::Fetch,
            "https://a.b",
        );
        check(
            "Task",
            r#"{"description":"look","prompt":"long"}"#,
            ActionKind::Delegate,
            "look",
        );
        check("LS", r#"{"path":"/a"}"#, ActionKind::Search, "");
        check(
            "book_flight",
            r#"{"n":1,"id":"f7"}"#,
            ActionKind::Other,
            "f7",
        );
        check("TodoWrite", r#"{"todos":[]}"#, ActionKind::Plan, "");
    }

    #[test]
    fn a_patch_is_one_action_for_each_file() {
        let patch = "*** Begin Patch\n*** Update File: a.rs\n+fn one() {}\n*** Add File: b.rs\n+struct Two;\n*** End Patch";
        let calls = parse_actions(&ToolUse {
            id: "x".into(),
            name: "apply_patch".into(),
            input: ToolInput::Text(patch.into()),
            extra: UnknownFields::default(),
        });
        let outline: Vec<_> = calls
            .iter()
            .map(|c| (c.kind, &*c.target, &*c.symbols[0]))
            .collect();
        assert_eq!(
            outline,
            [
                (ActionKind::Edit, "a.rs", "one"),
                (ActionKind::Write, "b.rs", "Two")
            ]
        );
    }
}

//! Reconstructs file contents from the working state, from earlier attachments and from the tool calls in the view.
//! Later sources override earlier ones.

use std::collections::{BTreeSet, HashMap};

use palimpsest_facts::tool_action::{ActionKind, PATH_FIELDS, fields, parse_fields};
use serde_json::{Map, Value};

use super::file_excerpt::parse_excerpt;
use crate::event::{AttachmentKind, AttachmentRecord, CallState};
use crate::ids::{CallKey, Ordinal, Timestamp};
use crate::message::{Block, ResultContent, ToolResult, ToolUse};
use crate::quoting::unescape_tags;
use crate::session::{ContentNotLoaded, Session};
use crate::view::{CLEARED, Piece, PieceForm};
use crate::working::FileState;

/// The beginning of the replacement of a stored result. An imported transcript may contain only the replacement.
const STORED: &str = "<persisted-output>";
/// Names of tools that show a file, reduced to lowercase letters and digits.
const READERS: [&str; 14] = [
    "read",
    "readfile",
    "fileread",
    "readtextfile",
    "view",
    "viewfile",
    "open",
    "openfile",
    "cat",
    "catfile",
    "getfile",
    "getfilecontents",
    "strreplacebasededittool",
    "strreplaceeditor",
];
/// Input fields of a reading tool that select a part of a file.
const PART_FIELDS: [&str; 6] = [
    "offset", "limit", "view_range", "start_line", "end_line", "pages",
];

/// The state of one file, as far as the session can reconstruct it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is told apart")]
pub(super) struct TrackedFile {
    pub(super) path: Box<str>,
    pub(super) content: Option<String>,
    /// The number of the first line of the content, starting at 1.
    pub(super) first_line: usize,
    /// True if the content is not the complete file.
    pub(super) is_cut: bool,
    /// True if a later edit could not be applied.
    pub(super) is_stale: bool,
    /// True if the content includes edits that no other source has.
    pub(super) is_edited: bool,
    pub(super) is_instructions: bool,
    /// The last call that returned or wrote the complete file, followed by the calls that edited it since.
    calls: Vec<CallKey>,
    /// True if the first of these calls wrote the file.
    is_written: bool,
    /// The latest access: the message in the transcript, then the time.
    last_access: (Ordinal, Timestamp),
}

impl TrackedFile {
    fn new(path: &str) -> Self {
        Self {
            path: path.into(),
            content: None,
            first_line: 1,
            is_cut: false,
            is_stale: false,
            is_edited: false,
            is_instructions: false,
            calls: Vec::new(),
            is_written: false,
            last_access: (Ordinal::new(0), Timestamp::default()),
        }
    }

    fn set(&mut self, content: String) {
        self.content = Some(content);
        (self.first_line, self.is_cut) = (1, false);
        (self.is_stale, self.is_edited) = (false, false);
    }

    /// Returns true if the view still shows the complete file after some messages leave. The call with the content and
    /// every later edit must stay.
    pub(super) fn is_shown(&self, session: &Session, leaving: &BTreeSet<Ordinal>) -> bool {
        let stays = |call: &CallKey| {
            let Some(known) = session.calls().get(*call) else {
                return false;
            };
            let result = known.result().map(|(message, _)| message);
            !leaving.contains(&known.message)
                && result.is_some_and(|result| !leaving.contains(&result))
        };
        let Some(first) = self.calls.first() else {
            return false;
        };
        // A write call contains the content in its input. A read call contains it in its result.
        let content = if self.is_written {
            |piece: &Piece| piece.form.call_key()
        } else {
            |piece: &Piece| piece.form.answered_call_key()
        };
        let mut pieces = session.sealed().pieces().iter();
        let of_first = pieces.find(|piece| content(piece) == Some(*first));
        // A pending call has no piece yet. It is shown as soon as it is served.
        let is_whole = of_first
            .is_none_or(|piece| matches!(piece.form, PieceForm::Result(_) | PieceForm::Call(_)));
        is_whole && self.calls.iter().all(stays)
    }
}

/// The reconstructed content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconstructedFile {
    /// The path as the caller or the tools named it.
    pub path: Box<str>,
    /// The content. `None` if it is unknown.
    pub content: Option<String>,
    /// True if a later edit could not be applied.
    pub stale: bool,
}

/// Returns the files of a session with their reconstructed contents, latest access first. The plan file is omitted.
pub fn reconstructed_files(session: &Session) -> Result<Vec<ReconstructedFile>, ContentNotLoaded> {
    let known = tracked_files(session)?.into_iter();
    Ok(known
        .map(|file| ReconstructedFile {
            path: file.path,
            content: file.content,
            stale: file.is_stale,
        })
        .collect())
}

/// A source of a file's content, in the order of the transcript.
enum FileSource<'a> {
    State(&'a FileState),
    /// An attachment of an earlier compaction, its content, and the latest access of the file.
    Attached(&'a AttachmentRecord, Option<&'a str>, (Ordinal, Timestamp)),
    Call(CallKey, &'a ToolUse, &'a ToolResult),
}

/// Returns the files of a session, latest access first. The plan file is omitted.
pub(super) fn tracked_files(session: &Session) -> Result<Vec<TrackedFile>, ContentNotLoaded> {
    let state = &session.working().state;
    let policy = &session.policy().attachments;
    // The sources are applied in order, so that the latest content of each file remains.
    let mut known = FileTracker::default();
    for (at, word) in file_sources(session)? {
        match word {
            FileSource::State(file) => known.state(at, file),
            FileSource::Attached(one, content, touched) => known.attached(one, content, touched),
            FileSource::Call(call, tool, result) => known.call(session, at, (call, tool), result),
        }
    }
    let plan = state.plan.as_ref().map(|plan| &*plan.path);
    let mut all = known.all;
    // The plan is attached on its own.
    all.retain(|file| Some(&*file.path) != plan);
    let named: BTreeSet<&str> = state
        .instruction_files
        .iter()
        .map(|file| &*file.path)
        .collect();
    for file in &mut all {
        let name = file.path.rsplit(['/', '\\']).next().unwrap_or_default();
        let mut by_name = policy.instruction_files.iter();
        file.is_instructions = named.contains(&*file.path)
            || by_name.any(|other| **other == *name || *other == file.path);
    }
    all.sort_by_key(|file| std::cmp::Reverse(file.last_access));
    Ok(all)
}

/// Returns all sources of file contents in the order of the transcript.
fn file_sources(session: &Session) -> Result<Vec<(Ordinal, FileSource<'_>)>, ContentNotLoaded> {
    let state = &session.working().state;
    let files = state.instruction_files.iter().chain(&state.files);
    let mut sources: Vec<(Ordinal, FileSource<'_>)> = files
        .map(|file| (file.since, FileSource::State(file)))
        .collect();
    for boundary in &session.compactions().boundaries {
        for (index, one) in (0_i64..).zip(&boundary.attached) {
            let is_file = matches!(
                one.kind,
                AttachmentKind::File | AttachmentKind::Instructions
            );
            let at = one.message.unwrap_or(boundary.message);
            let stands = match (one.message, boundary.summary) {
                (Some(message), _) => session.transcript().is_in_view(message),
                // An omitted attachment counts only while the summary of its compaction is in force.
                (None, summary) => summary.is_some_and(|at| is_in_effect(session, at)),
            };
            if !(is_file && stands) {
                continue;
            }
            let content = match one.message {
                // Block 0 is the header, and block 1 is the content. An empty file has only the header.
                Some(at) => session.transcript().require_content(at)?.blocks.get(1),
                None => None,
            };
            let content = match content {
                Some(Block::Text { text, .. }) => Some(&**text),
                _ => None,
            };
            // Attachments are ordered from the latest access to the earliest, so the index serves as a descending time.
            let touched = (boundary.message, Timestamp::from_millis(-index));
            sources.push((at, FileSource::Attached(one, content, touched)));
        }
    }
    for (key, call) in session.calls().iter() {
        // The outcome of a call without a result is unknown.
        let CallState::Answered { message, block } = call.state else {
            continue;
        };
        let (Some(tool), Some(Block::ToolResult(result))) = (
            tool_at(session, call.message, call.block)?,
            block_at(session, message, block)?,
        ) else {
            continue;
        };
        sources.push((message, FileSource::Call(key, tool, result)));
    }
    // At the same message calls come last: the working state was recorded before the message.
    sources.sort_by_key(|(at, source)| (*at, matches!(source, FileSource::Call(..))));
    Ok(sources)
}

/// Returns true if the content of a message is still in force, whether it is shown or not.
fn is_in_effect(session: &Session, message: Ordinal) -> bool {
    let entry = session.transcript().get(message);
    entry.is_some_and(|entry| entry.visibility.is_in_effect())
}

fn tool_at(
    session: &Session,
    message: Ordinal,
    block: u16,
) -> Result<Option<&ToolUse>, ContentNotLoaded> {
    Ok(match block_at(session, message, block)? {
        Some(Block::ToolUse(tool)) => Some(tool),
        _ => None,
    })
}

/// Returns a block of a message. `None` if the view does not show the message.
fn block_at(
    session: &Session,
    message: Ordinal,
    block: u16,
) -> Result<Option<&Block>, ContentNotLoaded> {
    if !session.transcript().is_in_view(message) {
        return Ok(None);
    }
    let message = session.transcript().require_content(message)?;
    Ok(message.blocks.get(usize::from(block)))
}

#[derive(Default)]
struct FileTracker {
    all: Vec<TrackedFile>,
    places: HashMap<Box<str>, usize>,
}

impl FileTracker {
    fn file_mut(&mut self, path: &str) -> &mut TrackedFile {
        let next = self.all.len();
        let place = *self.places.entry(path.into()).or_insert(next);
        if place == next {
            self.all.push(TrackedFile::new(path));
        }
        &mut self.all[place]
    }

    fn state(&mut self, at: Ordinal, file: &FileState) {
        let known = self.file_mut(&file.path);
        if let Some(content) = &file.content {
            // If the caller reports the content that a call showed, that call still shows the file.
            if known.content.as_deref() != Some(&**content) {
                known.calls.clear();
            }
            known.set(content.to_string());
        }
        known.last_access = known.last_access.max((at, file.accessed));
    }

    fn attached(
        &mut self,
        one: &AttachmentRecord,
        content: Option<&str>,
        touched: (Ordinal, Timestamp),
    ) {
        let known = self.file_mut(&one.name);
        known.last_access = known.last_access.max(touched);
        if one.message.is_none() {
            // Edits that were removed with an omitted attachment are missing in the content from other sources.
            known.is_stale |= one.stale && known.content.is_some();
            return;
        }
        // `wording` has escaped the tags in the attached content.
        known.set(unescape_tags(content.unwrap_or_default()).into_owned());
        (known.is_cut, known.is_stale) = (one.truncated, one.stale);
        known.calls.clear();
    }

    fn call(
        &mut self,
        session: &Session,
        at: Ordinal,
        (key, tool): (CallKey, &ToolUse),
        result: &ToolResult,
    ) {
        // A failed call did not change the file and did not show it.
        if result.is_error == Some(true) {
            return;
        }
        let fields = fields(tool);
        let path = PATH_FIELDS
            .iter()
            .find_map(|name| fields.get(*name)?.as_str());
        for call in parse_fields(tool, &fields) {
            let path = path.unwrap_or(&call.target);
            let is_of_files = matches!(
                call.kind,
                ActionKind::Read | ActionKind::Edit | ActionKind::Write
            );
            if !is_of_files || path.is_empty() {
                continue;
            }
            let known = self.file_mut(path);
            known.last_access = known.last_access.max((at, Timestamp::default()));
            match call.kind {
                ActionKind::Read if is_reader(&tool.name) => {
                    known.read(session, key, &fields, result);
                }
                // The output format of other tools is unknown, so their output is not used as content.
                ActionKind::Read => {}
                ActionKind::Write => known.write(key, &fields),
                _ => known.edit(key, &fields),
            }
        }
    }
}

impl TrackedFile {
    fn read(
        &mut self,
        session: &Session,
        key: CallKey,
        fields: &Map<String, Value>,
        result: &ToolResult,
    ) {
        let Some(output) = text(result) else {
            return;
        };
        // The output is only a marker or a preview, not the content of the file.
        let is_elsewhere =
            output.starts_with(STORED) || output == CLEARED || session.is_replacement(&output);
        if is_elsewhere {
            return;
        }
        let shown = parse_excerpt(&output);
        let is_part = shown.first_line > 1
            || PART_FIELDS
                .iter()
                .any(|name| fields.get(*name).is_some_and(|value| !value.is_null()));
        // A partial read never replaces complete content.
        if !is_part {
            self.set(shown.content);
            (self.calls, self.is_written) = (vec![key], false);
        } else if self.content.is_none() {
            self.set(shown.content);
            (self.first_line, self.is_cut) = (shown.first_line, true);
        }
    }

    fn write(&mut self, key: CallKey, fields: &Map<String, Value>) {
        let content = ["content", "file_text", "contents"];
        match content.iter().find_map(|name| fields.get(*name)?.as_str()) {
            Some(content) => {
                self.set(content.to_owned());
                (self.calls, self.is_written) = (vec![key], true);
            }
            None => self.is_stale |= self.content.is_some(),
        }
    }

    fn edit(&mut self, key: CallKey, fields: &Map<String, Value>) {
        // The view shows the file only as long as it shows every edit, whether the edit can be applied or not.
        self.calls.push(key);
        let several = fields.get("edits").and_then(Value::as_array);
        let followed = match several {
            Some(edits) => {
                let mut edits = edits.iter().filter_map(Value::as_object);
                // Later edits build on earlier ones, so the first edit that fails ends the list.
                // The content is then stale.
                edits.all(|edit| self.replace(edit))
            }
            None => self.replace(fields) || self.insert(fields),
        };
        self.is_stale |= !followed && self.content.is_some();
        self.is_edited = self.content.is_some();
    }

    /// Applies one replacement of text. Returns false if the edit cannot be applied.
    fn replace(&mut self, fields: &Map<String, Value>) -> bool {
        let field = |names: [&str; 4]| names.iter().find_map(|name| fields.get(*name)?.as_str());
        let old = field(["old_string", "old_str", "oldString", "oldText"]);
        let new = field(["new_string", "new_str", "newString", "newText"]);
        let Some(old) = old else {
            return false;
        };
        let new = new.unwrap_or_default();
        let all = ["replace_all", "replaceAll"];
        let all = all
            .iter()
            .any(|name| fields.get(*name) == Some(&Value::Bool(true)));
        match &mut self.content {
            // An edit that replaces an empty string creates the file.
            None if old.is_empty() => {
                self.set(new.to_owned());
                true
            }
            Some(content) if old.is_empty() && content.is_empty() => {
                new.clone_into(content);
                true
            }
            Some(content) if !old.is_empty() && content.contains(old) => {
                *content = if all {
                    content.replace(old, new)
                } else {
                    content.replacen(old, new, 1)
                };
                true
            }
            _ => false,
        }
    }

    /// Applies an insertion after a line. Returns false if the edit cannot be applied.
    fn insert(&mut self, fields: &Map<String, Value>) -> bool {
        let line = fields.get("insert_line").and_then(Value::as_u64);
        let text = ["insert_text", "new_str"];
        let text = text.iter().find_map(|name| fields.get(*name)?.as_str());
        let (Some(line), Some(text), Some(content)) = (line, text, &mut self.content) else {
            return false;
        };
        // Line numbers count from the start of the file, which is missing here.
        if self.first_line > 1 {
            return false;
        }
        let Ok(line) = usize::try_from(line) else {
            return false;
        };
        let mut lines: Vec<&str> = content.split_inclusive('\n').collect();
        if line > lines.len() {
            return false;
        }
        // Inserted text forms complete lines, so it must end with exactly one newline.
        let mut text = format!("{}\n", text.trim_end_matches('\n'));
        // Only the last line of a file can lack its newline.
        let before = line.checked_sub(1).and_then(|it| lines.get(it));
        if before.is_some_and(|it| !it.ends_with('\n')) {
            text.insert(0, '\n');
        }
        lines.insert(line, &text);
        *content = lines.concat();
        true
    }
}

/// Returns true if a tool only shows a file. An MCP server's name may precede the tool's name, separated by `__`.
fn is_reader(tool: &str) -> bool {
    let name = tool.rsplit("__").next().unwrap_or_default();
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name = letters.collect::<String>().to_ascii_lowercase();
    READERS.contains(&name.as_str())
}

/// Returns the text of a result. `None` if the result contains other blocks than text, or nothing.
fn text(result: &ToolResult) -> Option<String> {
    match &result.content {
        ResultContent::None => None,
        ResultContent::Text(text) => Some(text.to_string()),
        ResultContent::Blocks(blocks) => {
            let texts = blocks.iter().map(|block| match block {
                Block::Text { text, .. } => Some(&**text),
                _ => None,
            });
            let texts: Option<Vec<&str>> = texts.collect();
            texts
                .filter(|texts| !texts.is_empty())
                .map(|texts| texts.concat())
        }
    }
}

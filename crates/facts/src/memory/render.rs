//! The wording of session memory. A change of a text in this file changes the text of new and
//! existing versions, and nothing else reads the text.

use std::fmt::Write as _;

use super::fact::{
    Answer, ChangedFile, CommandRuns, Declined, Exploration, FailedAction, FailedActionKind,
    Failure, FileWrite, Fix, MemoryFact, OtherNames, Request, RunOutcome, Source, Step, StepKind,
    Turn, TurnCounts, WorkItems,
};
use crate::names::{OTHER_NAMES_LEAD, in_groups};
use crate::paths::brief_path;
use crate::text::{count, format_times, list};

/// Renders a fact as one line. A request has further lines for its quote.
pub(crate) fn render(fact: &MemoryFact) -> String {
    match fact {
        // These texts are words of a person or a model and stay as they are.
        MemoryFact::Verbatim(text) | MemoryFact::Title(text) | MemoryFact::Explanation(text) => {
            text.to_string()
        }
        MemoryFact::LatestRequest(words) => format!("The user last asked: “{words}”"),
        MemoryFact::LatestRequestAnswered => "That request has been answered.".into(),
        MemoryFact::EarlierStatement(words) => {
            format!("Before that, the assistant had said: “{words}”")
        }
        MemoryFact::LatestStatement(words) => format!("The assistant last said: “{words}”"),
        MemoryFact::LatestSteps(steps) => format!("The last steps: it {steps}."),
        MemoryFact::WorkItems(items) => work_items(items),
        MemoryFact::OpenCalls(calls) => format!("No result has come yet for {calls}."),
        MemoryFact::FailingCommands(commands) => format!("Not passing at the moment: {commands}."),
        MemoryFact::Request(request) => requested(request),
        MemoryFact::Root(path) => format!("Paths are relative to `{path}`."),
        MemoryFact::ChangedFile(file) => changed_file(file),
        MemoryFact::FilesEditedOnce(paths) => files("Edited once: ", paths),
        MemoryFact::FilesRead(paths) => files("Read, and left as they are: ", paths),
        MemoryFact::OtherNames(names) => other_names(names),
        MemoryFact::CommandRuns(runs) => command_runs(runs),
        MemoryFact::CommandsRunOnce(commands) => named("Run once, without a failure: ", commands),
        MemoryFact::Exploration(exploration) => explored(exploration),
        MemoryFact::Failure(failure) => failed(failure),
        MemoryFact::Declined(declined) => user_declined(declined),
        MemoryFact::Correction(words) => format!("The user corrected the assistant: “{words}”."),
        MemoryFact::Document(Source { name, text }) => {
            format!("`{name}` has the sections “{text}”.")
        }
        MemoryFact::Lookup(Source { name, text }) if text.is_empty() => {
            format!("Looked up `{name}`.")
        }
        MemoryFact::Lookup(Source { name, text }) => {
            format!("Looked up `{name}`, which begins: “{text}”.")
        }
        MemoryFact::Rule(words) => format!("The user's rule: “{words}”."),
        MemoryFact::ToolAnswer(Source { name, text }) => format!("`{name}` returned “{text}”."),
        MemoryFact::Fix(Fix {
            action: broken,
            why,
            change,
        }) => format!(
            "{} failed with “{why}” until the assistant {change}.",
            action(broken)
        ),
        MemoryFact::Answer(Answer { request, text }) => match request {
            Some(request) => format!("On “{request}”: {text}"),
            None => format!("On the request before: {text}"),
        },
        MemoryFact::Turn(turn) => turned(turn),
        MemoryFact::Step(step) => stepped(step),
    }
}

/// Renders the latest request for a reader who receives a later request after the text.
pub(super) fn request_before(words: &str) -> String {
    format!("Before the latest request, the user had asked: “{words}”")
}

/// Renders the answer of the latest request for a reader who receives that request after the text.
pub(super) fn latest_answered() -> String {
    "The latest request has been answered.".into()
}

/// Renders a failed action as the beginning of a sentence.
pub(crate) fn action(FailedAction { kind, name }: &FailedAction) -> String {
    match kind {
        FailedActionKind::Run => format!("`{name}`"),
        FailedActionKind::Edit => format!("Editing `{name}`"),
        FailedActionKind::Read => format!("Reading `{name}`"),
        FailedActionKind::Fetch => format!("Looking up `{name}`"),
        FailedActionKind::Tool => format!("The tool `{name}`"),
    }
}

/// Formats a text as a block quote, so that no line of it is parsed as a heading or a fence.
pub(crate) fn block_quote(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + 16);
    for line in words.lines() {
        out.push_str(if line.trim().is_empty() { ">" } else { "> " });
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

fn named(begin: &str, names: &[Box<str>]) -> String {
    format!("{begin}{}.", in_backticks(names))
}

fn files(begin: &str, paths: &[Box<str>]) -> String {
    format!("{begin}{}.", in_groups(paths.iter().map(|path| &**path)))
}

fn in_backticks(names: &[Box<str>]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn usize_of(number: u32) -> usize {
    number as usize
}

fn requested(Request { is_first, words }: &Request) -> String {
    let lead = if *is_first {
        "The user asked:"
    } else {
        "The user then said:"
    };
    format!("{lead}\n{}", block_quote(words))
}

fn work_items(items: &WorkItems) -> String {
    let mut parts = Vec::new();
    for item in &items.left {
        let number = item.number.as_ref();
        let mut part = number.map_or_else(String::new, |number| format!("#{number} "));
        let _ = write!(part, "“{}”", item.text);
        if item.is_started {
            part.push_str(" (under way)");
        }
        parts.push(part);
    }
    if items.done > 0 || parts.is_empty() {
        parts.push(format!("{} done", items.done));
    }
    format!("Work items: {}.", parts.join("; "))
}

fn changed_file(file: &ChangedFile) -> String {
    let mut out = format!("- `{}` was ", file.path);
    out.push_str(match file.written {
        Some(FileWrite::Created) => "created",
        Some(FileWrite::Replaced) => "written anew",
        None => "",
    });
    if file.edits > 0 {
        let and = if file.written.is_some() { " and " } else { "" };
        let _ = write!(out, "{and}edited {}", format_times(usize_of(file.edits)));
    }
    if !file.symbols.is_empty() {
        let _ = write!(out, " ({})", in_backticks(&file.symbols));
    }
    out.push('.');
    out
}

fn other_names(OtherNames { names, .. }: &OtherNames) -> String {
    let shown = names.iter().filter(|known| known.is_shown);
    let shown = shown.map(|known| &*known.name);
    format!("{OTHER_NAMES_LEAD}{}.", in_groups(shown))
}

fn command_runs(runs: &CommandRuns) -> String {
    let mut out = format!("- `{}", runs.command);
    if !runs.others.is_empty() {
        let _ = write!(out, "`, also as `{}", runs.others.join("`, `"));
    }
    let _ = write!(out, "`: run {}", format_times(usize_of(runs.runs)));
    // The outcome at the end of the line covers a single run.
    if runs.failed > 0 && runs.runs > 1 {
        let _ = write!(out, " ({} failed)", runs.failed);
    }
    out.push_str(if runs.runs > 1 { ", last " } else { ", " });
    out.push_str(match runs.last {
        RunOutcome::Passed => "passed",
        RunOutcome::Failed => "failed",
        RunOutcome::Open => "has no result yet",
    });
    if !runs.output.is_empty() {
        let _ = write!(out, ": “{}”", runs.output);
    }
    out.push('.');
    out
}

fn explored(exploration: &Exploration) -> String {
    let mut parts = Vec::new();
    if exploration.commands > 0 {
        let programs = if exploration.programs.is_empty() {
            String::new()
        } else {
            format!(" ({})", in_backticks(&exploration.programs))
        };
        let commands = count(usize_of(exploration.commands), "command");
        parts.push(format!("{commands}{programs}"));
    }
    if exploration.searches > 0 {
        parts.push(count(usize_of(exploration.searches), "search"));
    }
    format!("Looking around has taken {} so far.", parts.join(" and "))
}

fn failed(failure: &Failure) -> String {
    let mut out = format!(
        "{} failed {}, saying “{}”. ",
        action(&failure.action),
        format_times(usize_of(failure.times)),
        failure.why
    );
    // The text follows `It` at the beginning of a sentence, or `and it` within one. The first letter is added
    // below.
    let end = if failure.is_fixed {
        "t passed afterwards."
    } else {
        "t has not passed since."
    };
    match &failure.next {
        Some(next) => {
            let _ = write!(out, "The assistant then {next}, and i{end}");
        }
        None => {
            let _ = write!(out, "I{end}");
        }
    }
    out
}

fn user_declined(Declined { action: asked, why }: &Declined) -> String {
    let asked = action(asked);
    if why.is_empty() {
        format!("The user declined {asked}.")
    } else {
        format!("The user declined {asked}, saying “{why}”.")
    }
}

/// The maximum number of files that a turn names.
pub(super) const MAX_TURN_FILES: usize = 4;

fn turned(turn: &Turn) -> String {
    let TurnCounts {
        reads,
        edits,
        runs,
        failed,
        others,
    } = turn.counts;
    let mut before = Vec::new();
    if reads > 0 {
        before.push(count(usize_of(reads), "read"));
    }
    if edits > 0 {
        let files: Vec<String> = turn
            .files
            .iter()
            .map(|path| format!("`{}`", brief_path(path)))
            .collect();
        let to = match (files.is_empty(), turn.has_more_files) {
            (true, _) => String::new(),
            (false, false) => format!(" to {}", list(&files, MAX_TURN_FILES)),
            (false, true) => format!(" to {} and others", files.join(", ")),
        };
        before.push(format!("{}{to}", count(usize_of(edits), "change")));
    }
    let mut after = Vec::new();
    if runs > 0 {
        let of_which = if failed > 0 {
            format!(" ({failed} failed)")
        } else {
            String::new()
        };
        after.push(format!("{}{of_which}", count(usize_of(runs), "run")));
    }
    if others > 0 {
        after.push(count(usize_of(others), "other call"));
    }
    // A list of files ends with a semicolon, because a comma would continue the list.
    let names_files = edits > 0 && !turn.files.is_empty() && !after.is_empty();
    let joint = if names_files { "; then " } else { ", " };
    let (before, after) = (before.join(", "), after.join(", "));
    let numbers = match (before.is_empty(), after.is_empty()) {
        (true, true) => "no call of a tool".to_owned(),
        (false, false) => format!("{before}{joint}{after}"),
        // One of the two texts is empty.
        _ => before + &after,
    };
    let mut out = match &turn.request {
        Some(request) => format!("- “{request}”: {numbers}"),
        None => format!("- The work went on: {numbers}"),
    };
    if let Some(ended) = &turn.ended {
        let _ = write!(out, "; it ended with “{ended}”");
    }
    out.push('.');
    out
}

fn stepped(step: &Step) -> String {
    let mut out = "The assistant".to_owned();
    if !step.statement.is_empty() {
        let _ = write!(out, ": “{}”", step.statement);
    }
    for (at, group) in step.actions.iter().enumerate() {
        out.push_str(match (at, step.statement.is_empty()) {
            (0, true) => " ",
            (0, false) => " It ",
            _ => "; ",
        });
        out.push_str(match group.kind {
            StepKind::Edit => "edited",
            StepKind::Write => "wrote",
            StepKind::Run => "ran",
            StepKind::Look => "looked with",
            StepKind::Fetch => "looked up",
            StepKind::Delegate => "handed on",
            StepKind::Call => "called",
            StepKind::Read => "read",
        });
        for (at, target) in group.targets.iter().enumerate() {
            let joint = if at == 0 { " " } else { ", " };
            let mark = if target.failed { " (failed)" } else { "" };
            // The section of files contains the whole paths.
            let name = match group.kind {
                StepKind::Edit | StepKind::Write | StepKind::Read => brief_path(&target.name),
                _ => &target.name,
            };
            let _ = write!(out, "{joint}`{name}`{mark}");
        }
    }
    if !step.actions.is_empty() {
        out.push('.');
    }
    out
}

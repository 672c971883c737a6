//! Phrases for groups of similar calls, such as `searched P in A and B: 7 matches in A, none in B`.

use std::borrow::Cow;

use super::action_outcome::ActionOutcome;
use super::facts::CompletedAction;
use super::paths::{brief_path, relative_path};
use super::shell;
use super::text::{code, count, format_times, list, quoted};
use super::tool_action::ActionKind;

/// The maximum number of names in one phrase.
const MAX_NAMES: usize = 4;
const MAX_COMMAND: usize = 100;

/// The property that calls must share to be combined into one phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PhraseGroup {
    Read,
    Change,
    Search,
    Inspect,
    Run(String),
    Fetch,
    Delegate,
    Other(String),
}

/// The format of paths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathStyle<'a> {
    /// The working directory. Paths inside it are relative.
    pub(crate) root: Option<&'a str>,
    /// True if a path is reduced to the file and its directory.
    pub(crate) brief: bool,
}

impl PathStyle<'_> {
    fn short(self, path: &str) -> &str {
        let path = relative_path(path, self.root);
        if self.brief { brief_path(path) } else { path }
    }
}

/// Describes calls in order with at most `max` phrases. Adjacent similar calls are combined. If
/// there are still too many phrases, similar calls that are not adjacent are combined too. The
/// earliest phrases are dropped first.
pub(crate) fn phrases(
    actions: &[&CompletedAction],
    naming: PathStyle<'_>,
    max: usize,
) -> Vec<String> {
    let mut groups: Vec<(PhraseGroup, Vec<&CompletedAction>)> = Vec::new();
    for action in actions
        .iter()
        .filter(|action| action.call.kind != ActionKind::Plan)
    {
        let group = group(action);
        match groups.last_mut() {
            Some((last, actions)) if *last == group => actions.push(action),
            _ => groups.push((group, vec![action])),
        }
    }
    if groups.len() > max {
        groups = merge_groups(groups);
    }
    // The last groups describe the current work, so the first ones are reduced to a count.
    let left_out = groups.len().saturating_sub(max);
    let calls: usize = groups
        .drain(..left_out)
        .map(|(_, actions)| actions.len())
        .sum();
    let first = (calls > 0).then(|| format!("made {}", count(calls, "other call")));
    let phrases = groups
        .iter()
        .map(|(group, actions)| phrase(group, actions, naming));
    first.into_iter().chain(phrases).collect()
}

/// The key by which two calls count as the same action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ActionSignature<'d> {
    act: ActionKind,
    tool: &'d str,
    target: Cow<'d, str>,
    location: &'d str,
}

impl<'d> ActionSignature<'d> {
    pub(crate) fn of(action: &'d CompletedAction) -> Self {
        let call = &action.call;
        let (target, place) = match call.kind {
            // The same command can be written in several ways and run from several directories.
            ActionKind::Run => (shell::normalize(&call.target, 200).into(), ""),
            _ => (Cow::Borrowed(&*call.target), &*call.location),
        };
        Self {
            act: call.kind,
            tool: &call.tool,
            target,
            location: place,
        }
    }
}

fn merge_groups(
    groups: Vec<(PhraseGroup, Vec<&CompletedAction>)>,
) -> Vec<(PhraseGroup, Vec<&CompletedAction>)> {
    let mut all: Vec<(PhraseGroup, Vec<&CompletedAction>)> = Vec::new();
    for (group, mut actions) in groups {
        match all.iter_mut().find(|(other, _)| *other == group) {
            Some((_, others)) => others.append(&mut actions),
            None => all.push((group, actions)),
        }
    }
    all
}

fn group(action: &CompletedAction) -> PhraseGroup {
    match action.call.kind {
        ActionKind::Read => PhraseGroup::Read,
        ActionKind::Edit | ActionKind::Write => PhraseGroup::Change,
        ActionKind::Search => PhraseGroup::Search,
        ActionKind::Run if shell::is_read_only(&action.call.target) => PhraseGroup::Inspect,
        ActionKind::Run => PhraseGroup::Run(shell::family(&action.call.target)),
        ActionKind::Fetch => PhraseGroup::Fetch,
        ActionKind::Delegate => PhraseGroup::Delegate,
        ActionKind::Plan | ActionKind::Other => PhraseGroup::Other(action.call.tool.to_string()),
    }
}

fn phrase(group: &PhraseGroup, actions: &[&CompletedAction], naming: PathStyle<'_>) -> String {
    match group {
        PhraseGroup::Read => format!("read {}", names(actions, naming)),
        PhraseGroup::Change => change_phrase(actions, naming),
        PhraseGroup::Search => search_phrase(actions, naming),
        PhraseGroup::Inspect => inspect_phrase(actions),
        PhraseGroup::Run(_) => run_phrase(actions, naming),
        PhraseGroup::Fetch => format!("looked up {}", names(actions, PathStyle::default())),
        PhraseGroup::Delegate => {
            let tasks = distinct(actions.iter().map(|action| quoted(&action.call.target, 80)));
            format!("handed {} to a subagent", list(&tasks, 2))
        }
        PhraseGroup::Other(tool) => other_phrase(tool, actions),
    }
}

fn distinct(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

fn names(actions: &[&CompletedAction], naming: PathStyle<'_>) -> String {
    let names = distinct(
        actions
            .iter()
            .map(|action| code(naming.short(&action.call.target), 120)),
    );
    let failed = actions.iter().filter(|action| action.has_failed()).count();
    let note = match failed {
        0 => String::new(),
        _ if failed == actions.len() => ", which failed".into(),
        _ => format!(", {failed} of which failed"),
    };
    format!("{}{note}", list(&names, MAX_NAMES))
}

fn change_phrase(actions: &[&CompletedAction], naming: PathStyle<'_>) -> String {
    let (failed, made): (Vec<&CompletedAction>, Vec<&CompletedAction>) = actions
        .iter()
        .copied()
        .partition(|action| action.has_failed());
    if made.is_empty() {
        return format!(
            "tried {} to edit {}",
            format_times(failed.len()),
            names(&failed, naming).replace(", which failed", " and failed")
        );
    }
    let mut files: Vec<(&str, usize)> = Vec::new();
    for action in &made {
        let path = naming.short(&action.call.target);
        match files.iter_mut().find(|(known, _)| *known == path) {
            Some((_, edits)) => *edits += 1,
            None => files.push((path, 1)),
        }
    }
    // A mix of writes and edits is described as edits.
    let wrote = made
        .iter()
        .all(|action| action.call.kind == ActionKind::Write);
    let named: Vec<String> = files
        .iter()
        .map(|(path, edits)| match edits {
            1 => code(path, 120),
            _ => format!("{} {}", code(path, 120), format_times(*edits)),
        })
        .collect();
    let verb = if wrote { "wrote" } else { "edited" };
    let note = match failed.len() {
        0 => String::new(),
        failed => format!(", with {}", count(failed, "failed attempt")),
    };
    format!("{verb} {}{note}", list(&named, MAX_NAMES))
}

fn search_phrase(actions: &[&CompletedAction], naming: PathStyle<'_>) -> String {
    // A group has at least one action.
    let last = actions[actions.len() - 1];
    let what = |action: &CompletedAction| match &*action.call.target {
        "" => "the files".to_owned(),
        pattern => code(pattern, 60),
    };
    let place = |action: &CompletedAction| code(naming.short(&action.call.location), 80);
    let found = |action: &CompletedAction| match &action.outcome {
        ActionOutcome::Passed(found) => found.to_string(),
        ActionOutcome::Failed(why) => format!("failed with {}", quoted(why, 60)),
        ActionOutcome::Open => "no answer yet".into(),
    };
    // Results can only be listed per directory if all queries have the same pattern.
    let same = actions
        .iter()
        .all(|action| action.call.target == last.call.target);
    // Queries in distinct places are listed with one count each. Other repetitions show the last
    // count only.
    if actions.len() == 1 || same {
        let places = distinct(
            actions
                .iter()
                .filter(|d| !d.call.location.is_empty())
                .map(|d| place(d)),
        );
        let at = if places.is_empty() {
            String::new()
        } else {
            format!(" in {}", list(&places, MAX_NAMES))
        };
        if places.len() > 1 && places.len() == actions.len() {
            let each: Vec<String> = actions
                .iter()
                .take(MAX_NAMES)
                .map(|d| format!("{} in {}", found(d), place(d)))
                .collect();
            return format!("searched {}{at}: {}", what(last), each.join(", "));
        }
        return format!("searched {}{at}: {}", what(last), found(last));
    }
    format!(
        "searched with {}, {} similar queries, the last for {}: {}",
        last.call.tool.to_lowercase(),
        actions.len(),
        what(last),
        found(last)
    )
}

fn inspect_phrase(actions: &[&CompletedAction]) -> String {
    if let [action] = actions {
        return format!(
            "looked with {}",
            code(
                &shell::normalize(&action.call.target, MAX_COMMAND),
                MAX_COMMAND
            )
        );
    }
    let programs = distinct(
        actions
            .iter()
            .map(|action| code(&shell::family(&action.call.target), 40)),
    );
    format!(
        "looked around with {} ({})",
        list(&programs, MAX_NAMES),
        count(actions.len(), "command")
    )
}

fn run_phrase(actions: &[&CompletedAction], naming: PathStyle<'_>) -> String {
    let last = actions[actions.len() - 1];
    let command = code(
        &shell::normalize(&last.call.target, MAX_COMMAND),
        MAX_COMMAND,
    );
    let failed = actions.iter().filter(|action| action.has_failed()).count();
    let said_chars = if naming.brief { 50 } else { 100 };
    let outcome = match &last.outcome {
        ActionOutcome::Open => "no result yet".to_owned(),
        ActionOutcome::Passed(said) if said.is_empty() || naming.brief => "passed".into(),
        ActionOutcome::Passed(said) => format!("passed: {}", quoted(said, said_chars)),
        ActionOutcome::Failed(why) => format!("failed: {}", quoted(why, said_chars)),
    };
    match actions.len() {
        1 => format!("ran {command} ({outcome})"),
        runs => {
            let of_which = if failed > 0 {
                format!(", {failed} failed")
            } else {
                String::new()
            };
            format!(
                "ran {command} and the like {}{of_which} (the last {outcome})",
                format_times(runs)
            )
        }
    }
}

fn other_phrase(tool: &str, actions: &[&CompletedAction]) -> String {
    let last = actions[actions.len() - 1];
    let about = match &*last.call.target {
        "" => String::new(),
        target if actions.len() == 1 => format!(" ({})", quoted(target, 60)),
        target => format!(" (last: {})", quoted(target, 60)),
    };
    let outcome = match &last.outcome {
        ActionOutcome::Failed(why) => format!(", which failed: {}", quoted(why, 80)),
        ActionOutcome::Open => ", which has not answered".into(),
        ActionOutcome::Passed(_) => String::new(),
    };
    let often = if actions.len() > 1 {
        format!(" {}", format_times(actions.len()))
    } else {
        String::new()
    };
    format!("called {}{often}{about}{outcome}", code(tool, 60))
}

//! The sections of a compaction's summary, from facts alone.

use super::call::Act;
use super::facts::Facts;
use super::lessons::lessons;
use super::memory::{block_quote, headlines, pending, root_in, update};
use super::notes::Notes;
use super::shell;
use super::steps::steps;
use super::text::{clip, code, gist, list, quoted};
use super::user_messages::user_messages;
use crate::memory::{Memory, SectionKind};
use crate::policy::SummaryStyle;
use crate::summary::{Document, Section};

/// Of a section that is taken from the memory.
const MAX_SECTION_TOKENS: u32 = 1_600;
const MAX_REQUEST: usize = 1_600;
const MAX_CORRECTIONS: usize = 12;

/// A summary of what the facts tell, built upon `previous` where an earlier summary or memory says what
/// came before. `inputs` are all the user's messages of the session, across earlier boundaries; they get
/// `max_input_tokens`.
pub fn summary<'a>(
    style: SummaryStyle,
    previous: &Memory,
    facts: &Facts,
    inputs: impl IntoIterator<Item = &'a str>,
    max_input_tokens: u32,
) -> Document {
    let inputs: Vec<&str> = inputs.into_iter().collect();
    let memory = update(previous, facts)
        .fit(MAX_SECTION_TOKENS, u32::MAX)
        .memory;
    let mut notes = Notes::of(facts);
    let root = root_in(memory.body(SectionKind::Files));
    notes.root = root.as_deref();
    let mut document = Document::new(style);
    let body = |kind| memory.body(kind);
    match style {
        SummaryStyle::NineSections => {
            document.set(Section::Request, &request(&inputs, body(SectionKind::Task)));
            document.set(Section::Concepts, &concepts(&notes, &memory));
            document.set(Section::Files, body(SectionKind::Files));
            document.set(Section::Errors, body(SectionKind::Errors));
            document.set(Section::Problems, &problems(&memory));
            document.set(
                Section::UserMessages,
                &user_messages(inputs, max_input_tokens),
            );
            document.set(
                Section::Pending,
                &pending(body(SectionKind::State)).join("\n\n"),
            );
            document.set(Section::Current, &current(&notes, body(SectionKind::State)));
            document.set(Section::Next, &next_step(&notes));
        }
        SummaryStyle::Brief => {
            document.set(Section::Done, &done(&memory));
            document.set(Section::Doing, &current(&notes, body(SectionKind::State)));
            document.set(Section::BriefFiles, body(SectionKind::Files));
            let pending = pending(body(SectionKind::State));
            document.set(
                Section::BriefNext,
                &[pending.join("\n\n"), next_step(&notes)].join("\n\n"),
            );
            document.set(Section::Constraints, &constraints(&notes, &memory));
            document.set(Section::Decisions, &decisions(&notes));
        }
    }
    document
}

/// The first request, what the user set right on the way, and the latest request: all that lies between
/// stands among the user's messages.
fn request(inputs: &[&str], task: &str) -> String {
    let Some((first, rest)) = inputs.split_first() else {
        return task.to_owned();
    };
    let mut parts = vec![format!(
        "The user asked:\n{}",
        block_quote(&clip(first, MAX_REQUEST))
    )];
    let set_right = rest.iter().flat_map(|words| lessons(words));
    let set_right: Vec<String> = set_right
        .map(|(_, sentence)| quoted(sentence, 300))
        .collect();
    if !set_right.is_empty() {
        let skip = set_right.len().saturating_sub(MAX_CORRECTIONS);
        parts.push(format!(
            "On the way the user said: {}.",
            set_right[skip..].join("; ")
        ));
    }
    if let Some(latest) = rest.last() {
        parts.push(format!(
            "The latest request is:\n{}",
            block_quote(&clip(latest, MAX_REQUEST))
        ));
    }
    parts.join("\n\n")
}

/// What was used: programs, kinds of files, and what the model explained.
fn concepts(notes: &Notes<'_>, memory: &Memory) -> String {
    let mut programs: Vec<String> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for deed in notes.deeds() {
        let target = &*deed.call.target;
        let (found, name) = match deed.call.act {
            Act::Run if !shell::is_looking(target) => {
                let family = shell::family(target);
                (
                    &mut programs,
                    family.split(' ').next().unwrap_or_default().to_owned(),
                )
            }
            Act::Read | Act::Edit | Act::Write => {
                let name = target.rsplit('/').next().unwrap_or_default();
                let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
                (
                    &mut kinds,
                    if ending.is_empty() {
                        String::new()
                    } else {
                        format!(".{ending}")
                    },
                )
            }
            _ => continue,
        };
        if !name.is_empty() && name.len() < 40 && !found.contains(&name) {
            found.push(name);
        }
    }
    let named = |names: &[String]| {
        list(
            &names.iter().map(|name| code(name, 40)).collect::<Vec<_>>(),
            8,
        )
    };
    let mut parts = Vec::new();
    if !kinds.is_empty() {
        parts.push(format!(
            "The work is on files of the kinds {}.",
            named(&kinds)
        ));
    }
    if !programs.is_empty() {
        parts.push(format!("It is done with {}.", named(&programs)));
    }
    parts.push(memory.body(SectionKind::Documentation).to_owned());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn problems(memory: &Memory) -> String {
    let parts = [SectionKind::Learnings, SectionKind::Results].map(|kind| memory.body(kind));
    let parts = parts.into_iter().filter(|body| !body.is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Where the work stands, without what `Pending Tasks` tells.
fn current(notes: &Notes<'_>, state: &str) -> String {
    let pending = pending(state);
    let lines = state
        .lines()
        .filter(|line| !line.is_empty() && pending.iter().all(|other| other != line));
    let mut parts: Vec<String> = lines.map(Into::into).collect();
    if parts.is_empty() {
        let deeds: Vec<_> = notes.deeds().collect();
        let steps = steps(&deeds, notes.naming(), 6);
        if !steps.is_empty() {
            parts.push(format!("The assistant {}.", steps.join("; ")));
        }
    }
    parts.join("\n\n")
}

/// What the user and the model said last, word for word: what comes next is theirs to say.
fn next_step(notes: &Notes<'_>) -> String {
    let Some(asked) = notes.inputs().next_back() else {
        return String::new();
    };
    let asked = quoted(&asked.words, 600);
    let turn = notes.turns.last();
    if let Some(answer) = turn.and_then(super::notes::Turn::answer) {
        format!(
            "The user's latest request was: {asked}. It was answered, ending with {}. Wait for what the user says next, \
         unless something of it is still to be done.",
            quoted(&last_of(answer), 300)
        )
    } else {
        let said = turn.and_then(super::notes::Turn::last_words);
        let said = said.map(|words| {
            format!(
                " The last words on it were {}.",
                quoted(&last_of(words), 300)
            )
        });
        format!(
            "Go on with the latest request: {asked}.{}",
            said.unwrap_or_default()
        )
    }
}

fn last_of(words: &str) -> String {
    let words = words.trim();
    let last = words.rsplit("\n\n").next().unwrap_or(words);
    gist(
        if last.chars().count() < 20 {
            words
        } else {
            last
        },
        300,
    )
}

fn done(memory: &Memory) -> String {
    let results = memory.body(SectionKind::Results);
    if results.is_empty() {
        memory.body(SectionKind::Worklog).to_owned()
    } else {
        results.to_owned()
    }
}

fn constraints(notes: &Notes<'_>, memory: &Memory) -> String {
    let mut lines: Vec<String> = Vec::new();
    let first = memory.body(SectionKind::Task);
    if !first.is_empty() {
        lines.push(first.to_owned());
    }
    for asked in notes.inputs() {
        for (_, sentence) in lessons(&asked.words) {
            lines.push(format!("The user said: {}.", quoted(sentence, 300)));
        }
    }
    let files = headlines(memory.body(SectionKind::Files));
    if lines.is_empty() && !files.is_empty() {
        lines.push("The user has named no constraint.".into());
    }
    lines.join("\n\n")
}

/// Sentences in which the model says what it chose.
fn decisions(notes: &Notes<'_>) -> String {
    let said = notes
        .turns
        .iter()
        .flat_map(|turn| turn.said.iter().map(|(_, text)| *text));
    let sentences = said.flat_map(super::text::sentences);
    let mut found: Vec<String> = Vec::new();
    for sentence in sentences.filter(|sentence| super::span::decides(sentence)) {
        let line = format!("The assistant said: {}.", quoted(sentence, 240));
        if !found.contains(&line) {
            found.push(line);
        }
    }
    let skip = found.len().saturating_sub(10);
    found.split_off(skip).join("\n\n")
}

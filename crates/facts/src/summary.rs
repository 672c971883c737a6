//! The sections of a compaction summary that is written without a model.

use palimpsest_types::memory::SectionKind;
use palimpsest_types::policy::SummaryStyle;
use palimpsest_types::summary::{SummaryDocument, SummarySection};

use super::facts::Facts;
use super::memory::fact::MemoryFact;
use super::memory::{
    MemoryContent, block_quote, brief, render, root_of, shortened_for, state_lines, update,
    without_answers,
};
use super::phrases::phrases;
use super::shell;
use super::text::{code, first_sentences, list, paragraphs, quoted, truncate};
use super::timeline::Timeline;
use super::tool_action::ActionKind;
use super::user_guidance::find_guidance;
use super::user_messages::user_messages;

/// The maximum size of a section that is copied from session memory, in tokens.
const MAX_SECTION_TOKENS: u32 = 2_400;
const MAX_REQUEST: usize = 1_600;
/// The maximum length of the first request in characters. The user's messages contain it as well.
const MAX_FIRST: usize = 700;
const MAX_CORRECTIONS: usize = 12;
const MAX_DECISIONS: usize = 10;
const LATEST_REQUEST_FOLLOWS: &str = "The latest request follows word for word after this summary.";

/// The beginnings of lines that list file types and programs.
pub(super) const FILE_KINDS_PREFIX: &str = "The work is on files of the kinds ";
pub(super) const PROGRAMS_PREFIX: &str = "It is done with ";

/// The user inputs of a session, including those before earlier compactions.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserInputs<'a> {
    /// All inputs in order.
    pub all: &'a [&'a str],
    /// True if the last input remains in the view. A reader then sees it verbatim after the summary.
    pub is_last_visible: bool,
    /// The maximum size of all inputs, in tokens.
    pub max_tokens: u32,
}

impl<'a> UserInputs<'a> {
    /// Returns the inputs that the summary must contain, and the latest input if it follows the
    /// summary.
    fn split(self) -> (&'a [&'a str], Option<&'a str>) {
        match self.all.split_last() {
            Some((last, before)) if self.is_last_visible => (before, Some(last)),
            _ => (self.all, None),
        }
    }
}

/// Writes a summary from facts. `previous` contains the content of an earlier summary or of session
/// memory, on which the new summary builds.
pub fn build_summary(
    style: SummaryStyle,
    previous: &MemoryContent,
    facts: &Facts,
    said: UserInputs<'_>,
) -> SummaryDocument {
    let (inputs, latest) = said.split();
    let content = brief(&update(previous, facts).fit(MAX_SECTION_TOKENS, u32::MAX));
    // Paths in the new sections must be relative to the same directory as those in the files
    // section.
    let timeline = Timeline::of(facts, root_of(content.facts(SectionKind::Files)));
    let mut document = SummaryDocument::new(style);
    let memory = content.document();
    let body = |kind| memory.body(kind);
    let (mut pending, mut state) = (Vec::new(), Vec::new());
    for line in state_lines(&content, latest) {
        let lines = if line.is_pending {
            &mut pending
        } else {
            &mut state
        };
        lines.push(line.text);
    }
    let messages = || user_messages(inputs.iter().copied(), said.max_tokens);
    match style {
        SummaryStyle::NineSections => {
            document.set(
                SummarySection::Request,
                &request(inputs, latest, body(SectionKind::Task)),
            );
            document.set(SummarySection::Concepts, &concepts(&timeline, &content));
            document.set(SummarySection::Files, body(SectionKind::Files));
            document.set(SummarySection::Errors, body(SectionKind::Errors));
            document.set(SummarySection::Problems, &problems(&content));
            document.set(SummarySection::UserMessages, &messages());
            document.set(SummarySection::Pending, &paragraphs(pending));
            document.set(SummarySection::Current, &current_work(&timeline, state));
            document.set(SummarySection::Next, &next_step(&timeline, latest));
        }
        SummaryStyle::Brief => {
            document.set(SummarySection::Done, &completed_work(&content));
            document.set(SummarySection::Doing, &current_work(&timeline, state));
            document.set(SummarySection::BriefFiles, body(SectionKind::Files));
            pending.push(next_step(&timeline, latest));
            document.set(SummarySection::BriefNext, &pending.join("\n\n"));
            document.set(
                SummarySection::Constraints,
                &constraints(inputs, &messages()),
            );
            document.set(SummarySection::Decisions, &decisions(&timeline, &content));
        }
    }
    document
}

/// Writes the first request, the user's corrections and the latest request. The section of user
/// messages contains all other inputs. `latest` is the latest input if it follows the summary.
fn request(inputs: &[&str], latest: Option<&str>, task: &str) -> String {
    let Some((first, rest)) = inputs.split_first() else {
        return latest.map_or_else(|| task.to_owned(), |_| LATEST_REQUEST_FOLLOWS.to_owned());
    };
    let mut parts = vec![format!(
        "The user asked:\n{}",
        block_quote(&truncate(first, MAX_FIRST))
    )];
    let set_right = rest.iter().flat_map(|words| find_guidance(words));
    let set_right: Vec<String> = set_right
        .map(|(_, sentence)| quoted(sentence, 300))
        .collect();
    if !set_right.is_empty() {
        // Later corrections supersede earlier ones, so the latest are kept.
        let skip = set_right.len().saturating_sub(MAX_CORRECTIONS);
        parts.push(format!(
            "On the way the user said: {}.",
            set_right[skip..].join("; ")
        ));
    }
    match (latest, rest.last()) {
        (Some(_), _) => parts.push(LATEST_REQUEST_FOLLOWS.to_owned()),
        (None, Some(latest)) => parts.push(format!(
            "The latest request is:\n{}",
            block_quote(&truncate(latest, MAX_REQUEST))
        )),
        (None, None) => {}
    }
    parts.join("\n\n")
}

/// Lists the programs and file types in use, the model's explanations and the commands of the work.
fn concepts(timeline: &Timeline<'_>, content: &MemoryContent) -> String {
    let mut programs: Vec<String> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for action in timeline.actions() {
        let target = &*action.call.target;
        let (found, name) = match action.call.kind {
            // Read-only commands reveal nothing about the tools of the project.
            ActionKind::Run if !shell::is_read_only(target) => {
                let family = shell::family(target);
                (
                    &mut programs,
                    family.split(' ').next().unwrap_or_default().to_owned(),
                )
            }
            ActionKind::Read | ActionKind::Edit | ActionKind::Write => {
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
        parts.push(format!("{FILE_KINDS_PREFIX}{}.", named(&kinds)));
    }
    if !programs.is_empty() {
        parts.push(format!("{PROGRAMS_PREFIX}{}.", named(&programs)));
    }
    parts.push(text_of(content, SectionKind::Documentation));
    parts.push(commands_beside(content, &story_of(content)));
    paragraphs(parts)
}

fn text_of(content: &MemoryContent, kind: SectionKind) -> String {
    let lines: Vec<String> = content.facts(kind).map(render).collect();
    lines.join("\n")
}

fn story_of(content: &MemoryContent) -> String {
    without_answers(content.facts(SectionKind::Worklog))
}

fn commands_beside(content: &MemoryContent, story: &str) -> String {
    shortened_for(content.facts(SectionKind::Workflow), story)
}

fn problems(content: &MemoryContent) -> String {
    // The errors section reports how a failing command was fixed, so fixes are omitted here.
    let learnings = content.facts(SectionKind::Learnings);
    let learnings = learnings.filter(|fact| !matches!(fact, MemoryFact::Fix(_)));
    let learnings = paragraphs(learnings.map(render));
    let results = text_of(content, SectionKind::Results);
    paragraphs([learnings, results, story_of(content)])
}

/// Returns the current state without the lines that the section `Pending Tasks` contains.
fn current_work(timeline: &Timeline<'_>, mut parts: Vec<String>) -> String {
    // All lines of the state can be pending work, which another section contains.
    if parts.iter().all(|part| part.trim().is_empty()) {
        let actions: Vec<_> = timeline.actions().collect();
        let steps = phrases(&actions, timeline.path_style(), 6);
        if !steps.is_empty() {
            parts.push(format!("The assistant {}.", steps.join("; ")));
        }
    }
    paragraphs(parts)
}

/// Quotes the latest request and the latest statement. The next step follows from these alone.
fn next_step(timeline: &Timeline<'_>, latest: Option<&str>) -> String {
    if latest.is_some() {
        return "Go on with the latest request, which follows word for word after this summary."
            .into();
    }
    let Some(asked) = timeline.inputs().next_back() else {
        return String::new();
    };
    let asked = quoted(&asked.words, 600);
    let turn = timeline.turns.last();
    if let Some(answer) = turn.and_then(super::timeline::TurnFacts::answer) {
        format!(
            "The user's latest request was: {asked}. It was answered, ending with {}. Wait for what the user says next, \
         unless something of it is still to be done.",
            quoted(&last_of(answer), 300)
        )
    } else {
        let said = turn.and_then(super::timeline::TurnFacts::last_words);
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
    first_sentences(
        // A short last paragraph says too little without the ones before it.
        if last.chars().count() < 20 {
            words
        } else {
            last
        },
        300,
    )
}

fn completed_work(content: &MemoryContent) -> String {
    let results = text_of(content, SectionKind::Results);
    let story = story_of(content);
    let commands = commands_beside(content, &story);
    paragraphs([results, story, commands])
}

/// Lists all user messages and the rules in them.
fn constraints(inputs: &[&str], messages: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    if !messages.is_empty() {
        lines.push(format!("The user said, one after another:\n\n{messages}"));
    }
    for words in inputs {
        for (_, sentence) in find_guidance(words) {
            lines.push(format!("The user said: {}.", quoted(sentence, 300)));
        }
    }
    lines.join("\n\n")
}

/// Lists the sentences in which the model states a decision, after the verbatim lines of the learnings,
/// which contain the decisions of an earlier summary.
fn decisions(timeline: &Timeline<'_>, content: &MemoryContent) -> String {
    let said = timeline
        .turns
        .iter()
        .flat_map(|turn| turn.statements.iter().map(|(_, text)| *text));
    let sentences = said.flat_map(super::text::sentences);
    let learnings = content.facts(SectionKind::Learnings);
    let mut found: Vec<String> = learnings
        .filter_map(|fact| match fact {
            MemoryFact::Verbatim(line) if !line.trim().is_empty() => Some(line.to_string()),
            _ => None,
        })
        .collect();
    for sentence in sentences.filter(|sentence| super::span::states_decision(sentence)) {
        let line = format!("The assistant said: {}.", quoted(sentence, 240));
        if !found.contains(&line) {
            found.push(line);
        }
    }
    // The latest decisions are kept if there are too many.
    let skip = found.len().saturating_sub(MAX_DECISIONS);
    found.split_off(skip).join("\n\n")
}

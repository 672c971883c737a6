//! The sections written as sentences: documentation, learnings and results.

use super::content::body;
use super::fact::{Answer, FailedActionKind, Fix, MemoryFact, Source};
use super::render::render;
use super::section::join;
use super::task::{is_going_on, name_of};
use crate::action_outcome::ActionOutcome;
use crate::facts::Facts;
use crate::lessons::{Lesson, lessons};
use crate::notes::{Timeline, TurnFacts};
use crate::steps::short;
use crate::text::{gist, label, one_line, quote, sentences, without_label};
use crate::tool_action::Act;

/// The maximum number of lines that one update adds to each of these sections.
const MAX_SENTENCES: usize = 6;
const MAX_RULES: usize = 12;
const MAX_RESULTS: usize = 12;
const MAX_RESULT: usize = 700;
/// The minimum length of an answer in characters. A shorter answer only confirms completion.
const MIN_RESULT: usize = 50;

/// The beginnings of sentences that announce an action or continue an earlier sentence, in lower
/// case. Such a sentence alone explains nothing.
const NOT_EXPLAINING: [&str; 69] = [
    "expected", "right", "correct", "the only", "my ", "let me", "let's", "i'll", "i’ll", "i will",
    "i need", "i should", "i can ", "i'm ", "i am ", "i see", "i have", "i've", "i think",
    "i suspect", "i want", "i must", "i also", "i still", "i ran", "i deleted", "now ", "next",
    "first", "then ", "good", "great", "perfect", "ok", "all ", "done", "we ", "would you",
    "do you", "should i", "want me", "what ", "maybe", "wait", "actually", "so ", "it ", "it's",
    "this ", "that ", "they ", "these ", "but ", "also", "however", "yes", "no ", "no,",
    "one more", "looking", "running", "here ", "here's", "since ", "if ", "because ", "therefore",
    "step ", "thus",
];

fn add(facts: Vec<MemoryFact>, new: Vec<MemoryFact>, max: usize) -> Vec<MemoryFact> {
    let known = body(&facts);
    let mut added: Vec<MemoryFact> = Vec::new();
    for fact in new {
        if !known.contains(&render(&fact)) && !added.contains(&fact) {
            added.push(fact);
        }
    }
    let skip = added.len().saturating_sub(max);
    let added = added.split_off(skip);
    join(std::iter::once(facts).chain(added.into_iter().map(|fact| vec![fact])))
}

/// Adds the model's explanations of the material it read, and the documents and pages it read.
pub(super) fn documentation(facts: Vec<MemoryFact>, notes: &Timeline<'_>) -> Vec<MemoryFact> {
    let mut new = Vec::new();
    for turn in &notes.turns {
        explained(turn, &mut new);
    }
    for deed in notes.deeds() {
        let said = match &deed.outcome {
            ActionOutcome::Passed(said) if !said.is_empty() => &**said,
            _ => continue,
        };
        let source = |max| Source {
            name: label(short(&deed.call.target, notes.root), 200).into(),
            text: quote(said, max).into(),
        };
        match deed.call.act {
            // A document that is read in parts is described by its first part.
            Act::Read => {
                let source = source(240);
                let is_it = |fact: &MemoryFact| matches!(fact, MemoryFact::Document(known) if known.name == source.name);
                if !facts.iter().chain(&new).any(is_it) {
                    new.push(MemoryFact::Document(source));
                }
            }
            // The result of a web search repeats the query and adds nothing.
            Act::Fetch if said.contains(&*deed.call.target) => {
                new.push(MemoryFact::Lookup(Source {
                    text: Box::default(),
                    ..source(160)
                }));
            }
            Act::Fetch => new.push(MemoryFact::Lookup(source(160))),
            _ => {}
        }
    }
    add(facts, new, MAX_SENTENCES)
}

/// Adds sentences that explain a named item, if the model read something before.
fn explained(turn: &TurnFacts<'_>, new: &mut Vec<MemoryFact>) {
    for (done, text) in &turn.said {
        let has_read = turn.deeds[..*done].iter().any(|deed| {
            matches!(
                deed.call.act,
                Act::Read | Act::Search | Act::Fetch | Act::Run
            )
        });
        if !has_read || turn.answer() == Some(text) {
            continue;
        }
        let of_text = sentences(without_label(text))
            .filter(|sentence| explains(sentence))
            .take(2);
        new.extend(of_text.map(|sentence| {
            let sentence = one_line(sentence.trim_start_matches(['-', '*', ' ', '>']));
            MemoryFact::Explanation(sentence.into())
        }));
    }
}

fn explains(sentence: &str) -> bool {
    let chars = sentence.chars().count();
    let lower = sentence
        .trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`')
        .to_lowercase();
    let names_something = sentence.matches('`').count() >= 2;
    let is_announcing = NOT_EXPLAINING.iter().any(|begin| lower.starts_with(begin));
    let is_whole = sentence.ends_with(['.', '。'])
        && !sentence.starts_with(['#', '|', '('])
        && !sentence.starts_with(|c: char| c.is_ascii_digit());
    // Statements in the first person describe the model's work and not the code base.
    let is_of_itself = [" I ", " I've", " I'll", " I'm", "— I"]
        .iter()
        .any(|word| sentence.contains(word));
    (40..=300).contains(&chars) && names_something && !is_announcing && !is_of_itself && is_whole
}

/// Adds the user's rules and the changes that fixed failures.
pub(super) fn learnings(
    known: Vec<MemoryFact>,
    facts: &Facts,
    notes: &Timeline<'_>,
) -> Vec<MemoryFact> {
    let mut new = Vec::new();
    for asked in facts.old_inputs().chain(notes.inputs().collect::<Vec<_>>()) {
        for (lesson, sentence) in lessons(&asked.words) {
            if lesson == Lesson::Rule {
                new.push(MemoryFact::Rule(quote(sentence, 300).into()));
            }
        }
    }
    for deed in notes
        .deeds()
        .filter(|deed| deed.call.tool.to_lowercase().contains("question"))
    {
        // The user's answer arrived through a tool, so it is attributed to the tool.
        if let ActionOutcome::Passed(said) = &deed.outcome {
            new.push(MemoryFact::ToolAnswer(Source {
                name: label(&deed.call.tool, 60).into(),
                text: quote(said, 500).into(),
            }));
        }
    }
    for failure in notes.failures.iter().filter(|failure| failure.mended) {
        // A success without a change in between teaches nothing.
        let is_command = failure.action.kind == FailedActionKind::Run;
        let Some(change) = failure.change.as_ref().filter(|_| is_command) else {
            continue;
        };
        // One line per command is enough. The errors section lists every failure.
        let is_it = |fact: &MemoryFact| matches!(fact, MemoryFact::Fix(fix) if fix.action == failure.action);
        if !known.iter().chain(&new).any(is_it) {
            new.push(MemoryFact::Fix(Fix {
                action: failure.action.clone(),
                why: quote(failure.why, 120).into(),
                change: change.as_str().into(),
            }));
        }
    }
    add(known, new, MAX_RULES)
}

/// Adds the model's answers at the end of turns. `asked` is the last request before these notes.
pub(super) fn results(
    facts: Vec<MemoryFact>,
    notes: &Timeline<'_>,
    asked: Option<&str>,
) -> Vec<MemoryFact> {
    let mut new = Vec::new();
    let mut request = asked.filter(|words| !is_going_on(words));
    for turn in &notes.turns {
        let words = turn.asked.map(|asked| &*asked.words);
        request = words.filter(|words| !is_going_on(words)).or(request);
        let Some(answer) = turn.answer() else {
            continue;
        };
        let text = gist(answer, MAX_RESULT);
        let is_short = text.chars().count() < MIN_RESULT && text.is_ascii();
        if is_short || text.is_empty() {
            continue;
        }
        new.push(MemoryFact::Answer(Answer {
            request: request.map(|words| quote(&name_of(words), 90).into()),
            text: text.into(),
        }));
    }
    add(facts, new, MAX_RESULTS)
}

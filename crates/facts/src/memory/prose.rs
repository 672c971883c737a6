//! The sections written as sentences: documentation, learnings and results.

use crate::action_outcome::ActionOutcome;
use crate::facts::Facts;
use crate::lessons::{Lesson, lessons};
use crate::lines::join;
use crate::memory::task::{is_going_on, name_of};
use crate::notes::{Timeline, TurnFacts};
use crate::steps::short;
use crate::text::{code, gist, one_line, quoted, sentences, without_label};
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
    "expected",
    "right",
    "correct",
    "the only",
    "my ",
    "let me",
    "let's",
    "i'll",
    "i’ll",
    "i will",
    "i need",
    "i should",
    "i can ",
    "i'm ",
    "i am ",
    "i see",
    "i have",
    "i've",
    "i think",
    "i suspect",
    "i want",
    "i must",
    "i also",
    "i still",
    "i ran",
    "i deleted",
    "now ",
    "next",
    "first",
    "then ",
    "good",
    "great",
    "perfect",
    "ok",
    "all ",
    "done",
    "we ",
    "would you",
    "do you",
    "should i",
    "want me",
    "what ",
    "maybe",
    "wait",
    "actually",
    "so ",
    "it ",
    "it's",
    "this ",
    "that ",
    "they ",
    "these ",
    "but ",
    "also",
    "however",
    "yes",
    "no ",
    "no,",
    "one more",
    "looking",
    "running",
    "here ",
    "here's",
    "since ",
    "if ",
    "because ",
    "therefore",
    "step ",
    "thus",
];

fn add(body: &str, lines: Vec<String>, max: usize) -> String {
    let mut new: Vec<String> = Vec::new();
    for line in lines {
        if !body.contains(&line) && !new.contains(&line) {
            new.push(line);
        }
    }
    let skip = new.len().saturating_sub(max);
    let new = new.split_off(skip);
    join(std::iter::once(body.to_owned()).chain(new))
}

/// Adds the model's explanations of the material it read, and the documents and pages it read.
pub(super) fn documentation(body: &str, notes: &Timeline<'_>) -> String {
    let mut lines = Vec::new();
    for turn in &notes.turns {
        explained(turn, &mut lines);
    }
    for deed in notes.deeds() {
        let said = match &deed.outcome {
            ActionOutcome::Passed(said) if !said.is_empty() => &**said,
            _ => continue,
        };
        let name = code(short(&deed.call.target, notes.root), 200);
        match deed.call.act {
            // A document that is read in parts is described by its first part.
            Act::Read => {
                let begin = format!("{name} has the sections ");
                if !body.contains(&begin) && !lines.iter().any(|line| line.starts_with(&begin)) {
                    lines.push(format!("{begin}{}.", quoted(said, 240)));
                }
            }
            // The result of a web search repeats the query and adds nothing.
            Act::Fetch if said.contains(&*deed.call.target) => {
                lines.push(format!("Looked up {name}."));
            }
            Act::Fetch => lines.push(format!(
                "Looked up {name}, which begins: {}.",
                quoted(said, 160)
            )),
            _ => {}
        }
    }
    add(body, lines, MAX_SENTENCES)
}

/// Adds sentences that explain a named item, if the model read something before.
fn explained(turn: &TurnFacts<'_>, lines: &mut Vec<String>) {
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
        lines.extend(
            of_text.map(|sentence| one_line(sentence.trim_start_matches(['-', '*', ' ', '>']))),
        );
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
pub(super) fn learnings(body: &str, facts: &Facts, notes: &Timeline<'_>) -> String {
    let mut lines = Vec::new();
    for asked in facts.old_inputs().chain(notes.inputs().collect::<Vec<_>>()) {
        for (lesson, sentence) in lessons(&asked.words) {
            if lesson == Lesson::Rule {
                lines.push(format!("The user's rule: {}.", quoted(sentence, 300)));
            }
        }
    }
    for deed in notes
        .deeds()
        .filter(|deed| deed.call.tool.to_lowercase().contains("question"))
    {
        // The user's answer arrived through a tool, so it is attributed to the tool.
        if let ActionOutcome::Passed(said) = &deed.outcome {
            lines.push(format!(
                "{} returned {}.",
                code(&deed.call.tool, 60),
                quoted(said, 500)
            ));
        }
    }
    for failure in notes.failures.iter().filter(|failure| failure.mended) {
        // A success without a change in between teaches nothing.
        let Some(change) = failure
            .change
            .as_ref()
            .filter(|_| failure.what.starts_with('`'))
        else {
            continue;
        };
        // One line per command is enough. The errors section lists every failure.
        let begin = format!("{} failed with ", failure.what);
        if !body.contains(&begin) && !lines.iter().any(|line| line.starts_with(&begin)) {
            let why = quoted(failure.why, 120);
            lines.push(format!("{begin}{why} until the assistant {change}."));
        }
    }
    add(body, lines, MAX_RULES)
}

/// Adds the model's answers at the end of turns. `asked` is the last request before these notes.
pub(super) fn results(body: &str, notes: &Timeline<'_>, asked: Option<&str>) -> String {
    let mut lines = Vec::new();
    let mut request = asked.filter(|words| !is_going_on(words));
    for turn in &notes.turns {
        let words = turn.asked.map(|asked| &*asked.words);
        request = words.filter(|words| !is_going_on(words)).or(request);
        let Some(answer) = turn.answer() else {
            continue;
        };
        let said = gist(answer, MAX_RESULT);
        let is_short = said.chars().count() < MIN_RESULT && said.is_ascii();
        if is_short || said.is_empty() {
            continue;
        }
        lines.push(match request {
            Some(words) => format!("On {}: {said}", quoted(&name_of(words), 90)),
            None => format!("On the request before: {said}"),
        });
    }
    add(body, lines, MAX_RESULTS)
}

//! The sections written as sentences: documentation, learnings and results.

use super::content::body;
use super::fact::{Answer, FailedActionKind, Fix, MemoryFact, Source};
use super::render::render;
use super::section::join;
use super::task::{is_continuation, short_name};
use crate::action_outcome::ActionOutcome;
use crate::facts::Facts;
use crate::paths::relative_path;
use crate::text::{
    first_sentences, label, one_line, quote, sentences, whole_sentences, without_label,
};
use crate::timeline::{Timeline, TurnFacts};
use crate::tool_action::ActionKind;
use crate::user_guidance::{GuidanceKind, find_guidance};

/// The maximum number of lines that one update adds to each of these sections.
const MAX_SENTENCES: usize = 6;
const MAX_RULES: usize = 12;
const MAX_RESULTS: usize = 12;
const MAX_RESULT: usize = 700;
/// The number of answers that are not shortened, and the maximum length of each earlier one in characters.
const WHOLE_RESULTS: usize = 4;
const MAX_EARLY_RESULT: usize = 280;
/// The minimum length of an answer in characters. A shorter answer only confirms completion.
const MIN_RESULT: usize = 50;

/// The beginnings of sentences that announce an action or continue an earlier sentence, in lower
/// case. Such a sentence alone explains nothing.
const NOT_EXPLAINING: [&str; 68] = [
    "expected", "right", "correct", "the only", "my ", "let me", "let's", "i'll", "i will",
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
    // The latest lines are kept if there are too many.
    let skip = added.len().saturating_sub(max);
    let added = added.split_off(skip);
    join(std::iter::once(facts).chain(added.into_iter().map(|fact| vec![fact])))
}

/// Adds the model's explanations of the material it read, and the documents and pages it read.
pub(super) fn documentation(facts: Vec<MemoryFact>, timeline: &Timeline<'_>) -> Vec<MemoryFact> {
    let mut new = Vec::new();
    for turn in &timeline.turns {
        collect_explanations(turn, &mut new);
    }
    for action in timeline.actions() {
        let said = match &action.outcome {
            ActionOutcome::Passed(said) if !said.is_empty() => &**said,
            _ => continue,
        };
        let source = |max| Source {
            name: label(relative_path(&action.call.target, timeline.root), 200).into(),
            text: quote(said, max).into(),
        };
        match action.call.kind {
            // A document that is read in parts is described by its first part.
            ActionKind::Read => {
                let source = source(240);
                let is_it = |fact: &MemoryFact| matches!(fact, MemoryFact::Document(known) if known.name == source.name);
                if !facts.iter().chain(&new).any(is_it) {
                    new.push(MemoryFact::Document(source));
                }
            }
            // The result of a web search repeats the query and adds nothing.
            ActionKind::Fetch if said.contains(&*action.call.target) => {
                new.push(MemoryFact::Lookup(Source {
                    text: Box::default(),
                    ..source(160)
                }));
            }
            ActionKind::Fetch => new.push(MemoryFact::Lookup(source(160))),
            _ => {}
        }
    }
    add(facts, new, MAX_SENTENCES)
}

/// Adds sentences that explain a named item, if the model read something before.
fn collect_explanations(turn: &TurnFacts<'_>, new: &mut Vec<MemoryFact>) {
    for (done, text) in &turn.statements {
        // `done` is the number of calls before the statement, so the range is valid.
        let has_read = turn.actions[..*done].iter().any(|action| {
            matches!(
                action.call.kind,
                ActionKind::Read | ActionKind::Search | ActionKind::Fetch | ActionKind::Run
            )
        });
        // The results section contains the answer of a turn.
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
        .to_lowercase()
        .replace('’', "'");
    let names_something = sentence.matches('`').count() >= 2;
    let is_announcing = NOT_EXPLAINING.iter().any(|begin| lower.starts_with(begin));
    let is_whole = sentence.ends_with(['.', '。'])
        && !sentence.starts_with(['#', '|', '('])
        && !sentence.starts_with(|c: char| c.is_ascii_digit());
    // Statements in the first person describe the model's work and not the code base.
    let is_of_itself = [
        " I ", " I've", " I'll", " I'm", " I’ve", " I’ll", " I’m", "— I",
    ]
    .iter()
    .any(|word| sentence.contains(word));
    (40..=300).contains(&chars) && names_something && !is_announcing && !is_of_itself && is_whole
}

/// Adds the user's rules and the changes that fixed failures.
pub(super) fn learnings(
    known: Vec<MemoryFact>,
    facts: &Facts,
    timeline: &Timeline<'_>,
) -> Vec<MemoryFact> {
    let mut new = Vec::new();
    for asked in facts
        .old_inputs()
        .chain(timeline.inputs().collect::<Vec<_>>())
    {
        for (lesson, sentence) in find_guidance(&asked.words) {
            if lesson == GuidanceKind::Rule {
                new.push(MemoryFact::Rule(quote(sentence, 300).into()));
            }
        }
    }
    // Tools such as `AskUserQuestion` return the user's answer as their result.
    for action in timeline
        .actions()
        .filter(|action| action.call.tool.to_lowercase().contains("question"))
    {
        // The user's answer arrived through a tool, so it is attributed to the tool.
        if let ActionOutcome::Passed(said) = &action.outcome {
            new.push(MemoryFact::ToolAnswer(Source {
                name: label(&action.call.tool, 60).into(),
                text: quote(said, 500).into(),
            }));
        }
    }
    for failure in timeline.failures.iter().filter(|failure| failure.resolved) {
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
                why: quote(failure.reason, 120).into(),
                change: change.as_str().into(),
            }));
        }
    }
    add(known, new, MAX_RULES)
}

/// Adds the model's answers at the end of turns. `asked` is the last request before these turns.
pub(super) fn results(
    facts: Vec<MemoryFact>,
    timeline: &Timeline<'_>,
    asked: Option<&str>,
) -> Vec<MemoryFact> {
    let mut new = Vec::new();
    let mut request = asked.filter(|words| !is_continuation(words));
    for turn in &timeline.turns {
        let words = turn.asked.map(|asked| &*asked.words);
        // A continuation such as `go on` has no subject, so its answer belongs to the request before it.
        request = words.filter(|words| !is_continuation(words)).or(request);
        let Some(answer) = turn.answer() else {
            continue;
        };
        let text = first_sentences(answer, MAX_RESULT);
        // Scripts such as Chinese need fewer characters, so only ASCII text counts as short.
        let is_short = text.chars().count() < MIN_RESULT && text.is_ascii();
        if is_short || text.is_empty() {
            continue;
        }
        new.push(MemoryFact::Answer(Answer {
            request: request.map(|words| quote(&short_name(words), 90).into()),
            text: text.into(),
        }));
    }
    let mut results = add(facts, new, MAX_RESULTS);
    shorten_earlier(&mut results);
    results
}

/// Shortens all answers except the latest ones, because later requests build on these.
fn shorten_earlier(facts: &mut [MemoryFact]) {
    let answers = facts.iter_mut().rev().filter_map(|fact| match fact {
        MemoryFact::Answer(answer) => Some(answer),
        _ => None,
    });
    for answer in answers.skip(WHOLE_RESULTS) {
        answer.text = whole_sentences(&answer.text, MAX_EARLY_RESULT).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narration_explains_nothing() {
        assert!(explains(
            "The `parse` function in `parser.rs` reads one token."
        ));
        for sentence in [
            "I’m creating the draft of `parser.rs` now, targeting the branch `main`.",
            "I'm creating the draft of `parser.rs` now, targeting the branch `main`.",
            "The file `parser.rs` is next, so I’ll read it and then `lexer.rs`.",
        ] {
            assert!(!explains(sentence), "{sentence}");
        }
    }

    #[test]
    fn earlier_answers_are_shortened() {
        let answer = |n: usize| {
            MemoryFact::Answer(Answer {
                request: None,
                text: format!("Answer {n}. {}", "It has a long sentence. ".repeat(20)).into(),
            })
        };
        let mut facts: Vec<MemoryFact> = (0..6).map(answer).collect();
        shorten_earlier(&mut facts);
        // The four latest of the six answers stay whole.
        let lengths: Vec<bool> = facts
            .iter()
            .map(|fact| render(fact).chars().count() > MAX_EARLY_RESULT + 40)
            .collect();
        assert_eq!(lengths, [false, false, true, true, true, true]);
        // Every update shortens again, so a shortened answer must stay as it is.
        let once = facts.clone();
        shorten_earlier(&mut facts);
        assert_eq!(facts, once);
    }
}

//! Placeholder text for a span of old rounds, and the features with which a span is rated before its
//! collapse.

use std::collections::HashMap;

use palimpsest_types::message::Message;
use palimpsest_types::tokens::estimate_text;

use super::facts::{CompletedAction, Fact, Facts};
use super::memory::action;
use super::phrases::{ActionSignature, PathStyle, phrases};
use super::text::{first_sentences, quoted, sentences, truncate};
use super::timeline::Timeline;
use super::user_guidance::find_guidance;

/// The maximum size of a placeholder text, in tokens.
const MAX_TOKENS: u32 = 120;
/// The maximum size of a model's summary of a span, in tokens.
const MAX_WRITTEN_TOKENS: u32 = 200;
/// The maximum distance at which a call counts as a repetition, in calls.
const MAX_COMPARED: usize = 400;

/// Phrases with which a model states a decision, in lower case.
const DECISION_WORDS: [&str; 14] = [
    "decided", "i'll go with", "i will go with", "let's go with", "going with",
    "the best approach", "i chose", "instead of", "rather than", "the plan is", "we should use",
    "the fix is", "root cause", "the right approach",
];

/// The features of a span that the risk scorer uses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanFeatures {
    /// The number of tool calls.
    pub calls: usize,
    /// The number of failed calls.
    pub errors: usize,
    /// The number of sentences that state a decision, plus the user's corrections and rules.
    pub decisions: usize,
    /// The share of calls that repeat an earlier call of the span, in thousandths.
    pub repetition_milli: u32,
}

/// Returns true if a sentence states a decision of the model.
pub(super) fn states_decision(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    (20..=400).contains(&sentence.len()) && DECISION_WORDS.iter().any(|words| lower.contains(words))
}

/// Summarizes a span in one paragraph of at most 120 tokens: the request, the actions, the failures
/// and the decisions. The least important parts are dropped to fit.
pub fn describe_span<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let facts = Facts::without_names(messages);
    let timeline = Timeline::of(&facts, facts.root());
    let actions: Vec<&CompletedAction> = timeline.actions().collect();
    let naming = PathStyle {
        root: facts.root(),
        brief: true,
    };
    // Each row is a smaller configuration: lengths of the request, number of steps, length of the
    // quote, number of failures. Quotes shrink before steps are dropped.
    let rungs = [
        (110, 6, 160, 2),
        (80, 6, 90, 1),
        (60, 5, 60, 1),
        (60, 5, 0, 0),
        (45, 4, 0, 0),
        (40, 3, 0, 0),
        (40, 2, 0, 0),
    ];
    for (asked, done, said, failures) in rungs {
        let mut parts = Vec::new();
        let inputs: Vec<_> = timeline.inputs().collect();
        if let Some(first) = inputs.first() {
            let more = match inputs.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            parts.push(format!(
                "The user asked {}{more}.",
                quoted(&first.words, asked)
            ));
        }
        let steps = phrases(&actions, naming, done);
        if !steps.is_empty() {
            parts.push(format!("The assistant {}.", steps.join("; ")));
        }
        let unmended = timeline
            .failures
            .iter()
            .filter(|failure| !failure.resolved)
            .take(failures);
        for failure in unmended {
            parts.push(format!("{} has not passed.", action(&failure.action)));
        }
        if said > 0 {
            parts.extend(conclusion(&timeline, said));
        }
        let text = parts.join(" ");
        if estimate_text(&text) <= MAX_TOKENS {
            return text;
        }
    }
    shortened(&format!(
        "The assistant {}.",
        phrases(&actions, naming, 1).join("; ")
    ))
}

/// Returns a decision of the span, or its last statement if there is no decision.
fn conclusion(timeline: &Timeline<'_>, max: usize) -> Option<String> {
    let said = || {
        timeline
            .turns
            .iter()
            .flat_map(|turn| turn.statements.iter().map(|(_, text)| *text))
    };
    let decision = said()
        .flat_map(sentences)
        .filter(|sentence| states_decision(sentence))
        .last();
    if let Some(sentence) = decision {
        Some(format!("It decided: {}.", quoted(sentence, max)))
    } else {
        let last = first_sentences(said().next_back()?, max);
        (!last.is_empty()).then(|| format!("It ended with {}.", quoted(&last, max)))
    }
}

/// Returns a model's summary of a span as one paragraph of at most 200 tokens.
pub fn fit_span_summary(text: &str) -> String {
    let paragraph: Vec<&str> = text.split_whitespace().collect();
    shortened_to(&paragraph.join(" "), 1_200, MAX_WRITTEN_TOKENS)
}

fn shortened(text: &str) -> String {
    shortened_to(text, 300, MAX_TOKENS)
}

/// Shortens a text to `max` characters, and further until it has at most `most` tokens.
fn shortened_to(text: &str, mut max: usize, most: u32) -> String {
    loop {
        let text = truncate(text, max);
        if estimate_text(&text) <= most || max == 0 {
            return text;
        }
        max /= 2;
    }
}

/// Computes the features of a span.
pub fn span_features<'a>(messages: impl IntoIterator<Item = &'a Message>) -> SpanFeatures {
    let mut features = SpanFeatures::default();
    let facts = Facts::without_names(messages);
    // The index of the last call with the same content. A map keeps the comparison linear.
    let mut last: HashMap<ActionSignature<'_>, usize> = HashMap::new();
    let mut repeated = 0_usize;
    for fact in facts.iter() {
        match fact {
            Fact::UserInput(asked) => features.decisions += find_guidance(&asked.words).len(),
            Fact::AssistantText(text) => {
                features.decisions += sentences(text)
                    .filter(|sentence| states_decision(sentence))
                    .count();
            }
            Fact::Action(action) => {
                let earlier = last.insert(ActionSignature::of(action), features.calls);
                let is_near = |at: usize| features.calls - at <= MAX_COMPARED;
                repeated += usize::from(earlier.is_some_and(is_near));
                features.calls += 1;
                features.errors += usize::from(action.has_failed());
            }
        }
    }
    let share = (repeated * 1_000)
        .checked_div(features.calls)
        .unwrap_or_default();
    features.repetition_milli = u32::try_from(share).unwrap_or(1_000);
    features
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use palimpsest_types::ids::MessageId;
    use palimpsest_types::json::UnknownFields;
    use palimpsest_types::message::{Block, Role, ToolInput, ToolUse};

    fn run(command: &str) -> Message {
        let call = Block::ToolUse(ToolUse {
            id: "id".into(),
            name: "Bash".into(),
            input: ToolInput::parse(&serde_json::json!({ "command": command }).to_string()),
            extra: UnknownFields::default(),
        });
        Message::new(MessageId::new(Uuid::nil()), Role::Assistant, vec![call])
    }

    #[test]
    fn the_summary_of_a_model_becomes_one_short_paragraph() {
        assert_eq!(
            fit_span_summary(" Both\n\nfiles are  empty. "),
            "Both files are empty."
        );
        for word in ["word ", "字", "x"] {
            let text = fit_span_summary(&word.repeat(5_000));
            assert!(
                text.ends_with('…') && estimate_text(&text) <= MAX_WRITTEN_TOKENS,
                "{text}"
            );
        }
    }

    /// Counts the calls that repeat one of the preceding calls, by comparing all pairs.
    fn repeated(commands: &[String]) -> usize {
        let is_repeated = |at: &usize| {
            let before = &commands[at.saturating_sub(MAX_COMPARED)..*at];
            before.contains(&commands[*at])
        };
        (0..commands.len()).filter(is_repeated).count()
    }

    fn share(commands: &[String]) -> u32 {
        span_features(
            &commands
                .iter()
                .map(|command| run(command))
                .collect::<Vec<_>>(),
        )
        .repetition_milli
    }

    #[test]
    fn repeated_calls_are_detected_within_the_compared_range() {
        let with = |between: usize| {
            let mut commands = vec!["make all".to_owned()];
            commands.extend((0..between).map(|n| format!("make part-{n}")));
            commands.push("cd /work && make all".to_owned());
            share(&commands)
        };
        // One of two calls repeats the other. With 399 calls between them, their distance is the maximum of 400.
        assert_eq!(with(0), 500);
        assert_eq!(with(MAX_COMPARED - 1), 1_000 / 401);
        assert_eq!(with(MAX_COMPARED), 0);
    }

    proptest! {
        #[test]
        fn repetition_equals_a_comparison_of_all_pairs(numbers in prop::collection::vec(0..600_u16, 0..1_200)) {
            let commands: Vec<String> = numbers.iter().map(|n| format!("make part-{n}")).collect();
            let share_of_all = repeated(&commands) * 1_000 / commands.len().max(1);
            prop_assert_eq!(u64::from(share(&commands)), share_of_all as u64);
        }
    }
}

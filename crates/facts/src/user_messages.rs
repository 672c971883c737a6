//! The section of user messages within a token limit. The oldest messages are shortened first, and
//! omissions are stated.

use palimpsest_types::tokens::estimate_text;

use super::memory::block_quote;
use super::text::truncate;

/// The lengths to which an input is shortened step by step, in characters.
const STEPS: [usize; 4] = [1_200, 400, 160, 60];

/// Quotes all inputs in order with at most `max_tokens` tokens. Inputs are shortened from the oldest
/// on. If that is not enough, the oldest are dropped, and a line states their number. The last input
/// is changed last.
pub fn user_messages<'a>(inputs: impl IntoIterator<Item = &'a str>, max_tokens: u32) -> String {
    let inputs: Vec<&str> = inputs.into_iter().collect();
    let mut shown: Vec<String> = inputs.iter().map(|words| block_quote(words)).collect();
    let mut costs: Vec<u32> = shown
        .iter()
        .map(|quote| tokens_with_separator(quote))
        .collect();
    let mut total: u64 = costs.iter().copied().map(u64::from).sum();
    // The costs leave out the constant part of an estimate, so the limit is reduced by it.
    let max = u64::from(max_tokens.saturating_sub(estimate_text("")));
    // The first pass shortens all inputs moderately. The last step of 60 characters is used only if
    // that was not enough.
    for steps in [&STEPS[..3], &STEPS[3..]] {
        for (at, words) in inputs.iter().enumerate() {
            for step in steps {
                if total > max && words.chars().nth(*step).is_some() {
                    shown[at] = block_quote(&truncate(words, *step));
                    let now = tokens_with_separator(&shown[at]);
                    total = total - u64::from(costs[at]) + u64::from(now);
                    costs[at] = now;
                }
            }
        }
    }
    let mut gone = 0;
    let note = |gone: usize| match gone {
        0 => None,
        1 => Some("(1 older message is left out; it is in the transcript.)".to_owned()),
        _ => Some(format!(
            "({gone} older messages are left out; they are in the transcript.)"
        )),
    };
    // The note about omitted messages needs space too, so it is part of each comparison.
    while gone < shown.len()
        && total + note(gone).map_or(0, |note| u64::from(tokens_with_separator(&note))) > max
    {
        total -= u64::from(costs[gone]);
        gone += 1;
    }
    let kept = shown.split_off(gone);
    let note = note(gone).filter(|note| u64::from(tokens_with_separator(note)) <= max);
    note.into_iter()
        .chain(kept)
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Returns the tokens that a text adds, including the blank line after it. Each text is rounded up,
/// so the sum is never too low. The constant overhead of an estimate counts once.
fn tokens_with_separator(text: &str) -> u32 {
    estimate_text(text) - estimate_text("") + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_messages_are_shortened_first() {
        let old = "old words ".repeat(300);
        let new = "new words ".repeat(60);
        let all = user_messages([&*old, "short", &*new], 400);
        assert!(all.contains(new.trim()) && all.contains("> short"), "{all}");
        assert!(!all.contains(old.trim()) && all.contains("> old words"));
        let few = user_messages([&*old, "short", &*new], 64);
        assert!(few.starts_with("(2 older messages"), "{few}");
        assert_eq!(
            user_messages(["a", "b\n\n# c"], 1_000),
            "> a\n\n> b\n>\n> # c"
        );
    }

    #[test]
    fn the_token_budget_is_never_exceeded() {
        let inputs: Vec<String> = (0..40)
            .map(|n| format!("Bitte {n} 修复 {}", "wörter ".repeat(n * 7)))
            .collect();
        for max in [0, 5, 30, 100, 500, 2_000] {
            let text = user_messages(inputs.iter().map(|words| &**words), max);
            assert!(
                text.is_empty() || estimate_text(&text) <= max,
                "{max}: {text}"
            );
        }
    }
}

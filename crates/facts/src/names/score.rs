//! The estimate whether an agent will use a name again.
//!
//! The score is the logarithm of the odds that one of the next 60 tool calls uses the name, fitted by logistic
//! regression on compactions of transcripts. A name that the rest of the summary shows was left out. For paths, a
//! statement of the model lowers the score: the model is often done with a file that it wrote about, and the summary
//! shows the others.

use super::NameKind;

/// The number of messages after which the value of a mention is halved.
const HALF_LIFE: i64 = 20;

/// The weights of one kind, in thousandths.
struct Weights {
    base: i64,
    /// The weight of the logarithm of the model's messages with the name.
    said: i64,
    /// The weight of a mention in the last message. It decreases with the number of messages since.
    recent: i64,
}

const PATH: Weights = Weights {
    base: -1_100,
    said: -1_000,
    recent: 1_300,
};

const IDENTIFIER: Weights = Weights {
    base: -6_900,
    said: 1_400,
    recent: 2_100,
};

/// The natural logarithm of 1 to 9, in thousandths. A table, because the logarithm of a processor may differ in its last
/// digits.
const LOGARITHMS: [i64; 9] = [0, 693, 1_099, 1_386, 1_609, 1_792, 1_946, 2_079, 2_197];

/// Returns the score of a name. `said` is the number of the model's messages with the name, and `age` the number of
/// messages since its last mention. A higher score means a more probable use.
pub(super) fn score(kind: NameKind, said: u32, age: u32) -> i64 {
    let weights = match kind {
        NameKind::Path => PATH,
        NameKind::Identifier => IDENTIFIER,
    };
    let said = LOGARITHMS[(said as usize).min(LOGARITHMS.len() - 1)];
    // The result has millionths.
    let recent = 1_000 * HALF_LIFE / (HALF_LIFE + i64::from(age));
    weights.base * 1_000 + weights.said * said + weights.recent * recent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_names_and_paths_have_higher_scores() {
        let (path, identifier) = (NameKind::Path, NameKind::Identifier);
        assert!(score(path, 0, 1) > score(path, 0, 2));
        assert!(score(path, 0, 1_000) > score(identifier, 1, 0));
        assert!(score(identifier, 2, 9) > score(identifier, 1, 9));
        assert_eq!(score(identifier, 8, 9), score(identifier, u32::MAX, 9));
    }
}

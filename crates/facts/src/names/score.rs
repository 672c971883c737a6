//! The estimate whether an agent will use a name again.
//!
//! The score is the logarithm of the odds that one of the next 60 tool calls uses the name, fitted by logistic
//! regression on compactions of transcripts: the example `fit_names` of `palimpsest-transcripts` prints the weights. A name that the rest of the summary shows was left out. For paths, a
//! statement of the model lowers the score: the model is often done with a file that it wrote about, and the summary
//! shows the others.

use super::NameKind;

/// The number of messages after which the value of a mention is halved.
const HALF_LIFE: i32 = 20;

/// The weights of one kind, in thousandths.
struct Weights {
    base: i32,
    /// The weight of the logarithm of the model's messages with the name.
    said: i32,
    /// The weight of a mention in the last message. It decreases with the number of messages since.
    recent: i32,
}

const PATH: Weights = Weights {
    base: -4_300,
    said: -800,
    recent: 2_800,
};

const IDENTIFIER: Weights = Weights {
    base: -6_900,
    said: 1_200,
    recent: 1_900,
};

/// The natural logarithm of 1 to 9, in thousandths. A table, because the logarithm of a processor may differ in its last
/// digits.
const LOGARITHMS: [i32; 9] = [0, 693, 1_099, 1_386, 1_609, 1_792, 1_946, 2_079, 2_197];

/// Returns the logarithm of one more than a number, in thousandths. Larger numbers than 8 count as 8.
pub fn logarithm(number: u32) -> i32 {
    LOGARITHMS[(number as usize).min(LOGARITHMS.len() - 1)]
}

/// Returns the weight of a mention in thousandths: 1,000 in the last message, and half of it after 20 messages.
pub fn recency(age: u32) -> i32 {
    let age = i32::try_from(age).unwrap_or(i32::MAX - HALF_LIFE);
    1_000 * HALF_LIFE / (HALF_LIFE + age.min(i32::MAX - HALF_LIFE))
}

/// Returns the score of a name in millionths. `said` is the number of the model's messages with the name, and `age` the
/// number of messages since its last mention. A higher score means a more probable use.
pub(super) fn score(kind: NameKind, said: u32, age: u32) -> i32 {
    let weights = match kind {
        NameKind::Path => PATH,
        NameKind::Identifier => IDENTIFIER,
    };
    weights.base * 1_000 + weights.said * logarithm(said) + weights.recent * recency(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_names_and_paths_have_higher_scores() {
        let (path, identifier) = (NameKind::Path, NameKind::Identifier);
        assert!(score(path, 0, 1) > score(path, 0, 2));
        assert!(score(path, 0, 100) > score(identifier, 1, 100));
        assert!(score(identifier, 2, 9) > score(identifier, 1, 9));
        assert_eq!(score(identifier, 8, 9), score(identifier, u32::MAX, 9));
    }
}

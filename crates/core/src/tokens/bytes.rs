//! The `bytes` estimator: tokens from the kind of content and its length.
//!
//! Bytes over four is 1.6 to 2.3 times too low on real agent sessions, which are mostly code, JSON
//! and tool output; so each kind has a ratio of its own, characters of CJK scripts count as they are
//! tokenised, and the sum is padded by a third. A session's calibration then corrects what is left.

/// What a text is, as far as that says how many tokens it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// What people and models say to each other.
    Prose,
    /// Code, JSON, and what programs print.
    Code,
}

impl Nature {
    /// Characters to a token, in tenths.
    const fn tenths_of_chars_per_token(self) -> u64 {
        match self {
            Self::Prose => 40,
            Self::Code => 32,
        }
    }
}

/// The tokens of a text, by its bytes.
pub(super) fn count(text: &str, nature: Nature) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let mut tenths = ascii * 100 / nature.tenths_of_chars_per_token();
    if ascii < text.len() as u64 {
        tenths += text
            .chars()
            .filter(|c| !c.is_ascii())
            .map(wide)
            .sum::<u64>();
    }
    (tenths * 4).div_ceil(3 * 10)
}

/// Tenths of a token that a character beyond ASCII takes.
fn wide(c: char) -> u64 {
    match c {
        '\u{2E80}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{3FFFF}' => 9,
        '\u{1F000}'..='\u{1FFFF}' => 20,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_ratio() {
        assert_eq!(count("", Nature::Prose), 0);
        assert_eq!(count(&"a".repeat(300), Nature::Prose), 100);
        assert_eq!(count(&"a".repeat(240), Nature::Code), 100);
        // 100 CJK characters are 300 bytes, and more tokens than 300 ASCII characters.
        assert_eq!(count(&"字".repeat(100), Nature::Prose), 120);
    }
}

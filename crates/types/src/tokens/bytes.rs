//! The `bytes` estimator: tokens from the kind of content and its length.
//!
//! Bytes over four is 1.6 to 2.3 times too low on real agent sessions, which are mostly code, JSON
//! and tool output; so each kind has a ratio of its own, characters of CJK scripts count as they are
//! tokenised, and the sum is padded by a third. A session's calibration then corrects what is left.

/// What a text is, as far as that says how many tokens it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
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
    let mut read = CharCounts::default();
    for part in parts(text) {
        read.add(part);
    }
    read.tokens(nature)
}

/// The length of the longest beginning of a text that has no more tokens than these.
pub(super) fn within(text: &str, nature: Nature, max: u64) -> usize {
    let (mut read, mut length) = (CharCounts::default(), 0);
    for part in parts(text) {
        let mut next = read;
        next.add(part);
        if next.tokens(nature) <= max {
            (read, length) = (next, length + part.len());
            continue;
        }
        for c in part.chars() {
            read.add(c.encode_utf8(&mut [0; 4]));
            if read.tokens(nature) > max {
                return length;
            }
            length += c.len_utf8();
        }
    }
    length
}

/// A text in short parts. Most of them are ASCII alone, which shows without looking at each character.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    const PART: usize = 64;
    let mut rest = text;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rest.floor_char_boundary(PART));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// What was read of a text.
#[derive(Debug, Clone, Copy, Default)]
struct CharCounts {
    ascii: u64,
    /// Tenths of tokens of everything else.
    wide: u64,
}

impl CharCounts {
    fn add(&mut self, part: &str) {
        if part.is_ascii() {
            self.ascii += part.len() as u64;
            return;
        }
        let mut rest = part;
        loop {
            let ascii = ascii_before(rest.as_bytes());
            self.ascii += ascii as u64;
            let mut others = rest[ascii..].chars();
            let Some(c) = others.next() else {
                return;
            };
            self.wide += wide(c);
            rest = others.as_str();
        }
    }

    fn tokens(self, nature: Nature) -> u64 {
        let tenths = self.ascii * 100 / nature.tenths_of_chars_per_token() + self.wide;
        (tenths * 4).div_ceil(3 * 10)
    }
}

/// How many bytes come before the first that is not ASCII, looked at eight at a time: between the arrows
/// and dashes of what programs print there is much of it.
fn ascii_before(bytes: &[u8]) -> usize {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let others = u64::from_le_bytes(*word) & HIGH;
        if others != 0 {
            return at * 8 + others.trailing_zeros() as usize / 8;
        }
    }
    let ascii = rest.iter().take_while(|byte| byte.is_ascii());
    words.len() * 8 + ascii.count()
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_longest_beginning_fits_and_a_longer_one_does_not(
            text in "([ -~]{0,90}|[→字🦀é]{0,40}){0,6}", max in 0_u64..150, is_code in any::<bool>()
        ) {
            let nature = if is_code { Nature::Code } else { Nature::Prose };
            let length = within(&text, nature, max);
            prop_assert!(count(&text[..length], nature) <= max);
            if let Some(next) = text[length..].chars().next() {
                let longer = length + next.len_utf8();
                prop_assert!(count(&text[..longer], nature) > max);
            }
        }

        #[test]
        fn a_count_is_that_of_its_characters(text in "([ -~]{0,90}|[→字🦀é]{0,40}){0,6}") {
            let ascii = text.chars().filter(char::is_ascii).count() as u64;
            let others = text.chars().filter(|c| !c.is_ascii()).map(wide).sum::<u64>();
            let tenths = ascii * 100 / 32 + others;
            prop_assert_eq!(count(&text, Nature::Code), (tenths * 4).div_ceil(30));
        }
    }

    #[test]
    fn each_kind_has_its_ratio() {
        assert_eq!(count("", Nature::Prose), 0);
        assert_eq!(count(&"a".repeat(300), Nature::Prose), 100);
        assert_eq!(count(&"a".repeat(240), Nature::Code), 100);
        // 100 CJK characters are 300 bytes, and more tokens than 300 ASCII characters.
        assert_eq!(count(&"字".repeat(100), Nature::Prose), 120);
    }
}

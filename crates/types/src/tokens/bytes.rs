//! The `bytes` estimator: tokens from the kind and length of a text.
//!
//! One token per four bytes underestimates real agent sessions by a factor of 1.6 to 2.3, because
//! they are mostly code, JSON and tool output. Each kind therefore has its own ratio, CJK characters
//! are weighted separately, and the sum is padded by a third. The session's calibration corrects the
//! remaining error.

/// The kind of a text, which determines its ratio of characters to tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Natural language by people and models.
    Prose,
    /// Code, JSON and program output.
    Code,
}

impl TextKind {
    /// Returns the characters per token, in tenths.
    const fn tenths_of_chars_per_token(self) -> u64 {
        match self {
            Self::Prose => 40,
            Self::Code => 32,
        }
    }
}

/// Estimates the tokens of a text.
pub(super) fn count(text: &str, nature: TextKind) -> u64 {
    let mut read = CharCounts::default();
    for part in parts(text) {
        read.add(part);
    }
    read.tokens(nature)
}

/// Returns the length in bytes of the longest prefix with at most `max` tokens.
pub(super) fn prefix_within(text: &str, nature: TextKind, max: u64) -> usize {
    let (mut read, mut length) = (CharCounts::default(), 0);
    for part in parts(text) {
        let mut next = read;
        next.add(part);
        if next.tokens(nature) <= max {
            (read, length) = (next, length + part.len());
            continue;
        }
        // The part exceeds the limit, so its characters are added one at a time.
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

/// Splits a text into short parts. Most parts are pure ASCII, which is cheap to detect.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    const PART: usize = 64;
    let mut rest = text;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rest.floor_char_boundary(PART));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// The character counts of the text read so far.
#[derive(Debug, Clone, Copy, Default)]
struct CharCounts {
    ascii: u64,
    /// The tokens of all non-ASCII characters, in tenths.
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

    fn tokens(self, nature: TextKind) -> u64 {
        let tenths = self.ascii * 100 / nature.tenths_of_chars_per_token() + self.wide;
        // The factor 4/3 adds the padding of a third. The division by ten converts tenths.
        (tenths * 4).div_ceil(3 * 10)
    }
}

/// Returns the number of bytes before the first non-ASCII byte. Checks eight bytes at a time,
/// because program output has long ASCII runs between its symbols.
fn ascii_before(bytes: &[u8]) -> usize {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let others = u64::from_le_bytes(*word) & HIGH;
        if others != 0 {
            // The word is read in little-endian order, so its lowest byte is the first one of the text.
            return at * 8 + others.trailing_zeros() as usize / 8;
        }
    }
    let ascii = rest.iter().take_while(|byte| byte.is_ascii());
    words.len() * 8 + ascii.count()
}

/// Returns the tokens of a non-ASCII character, in tenths.
fn wide(c: char) -> u64 {
    match c {
        // Chinese, Japanese and Korean characters.
        '\u{2E80}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{3FFFF}' => 9,
        // Emoji and other pictographs.
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
        fn the_longest_prefix_within_a_limit_is_found(
            text in "([ -~]{0,90}|[→字🦀é]{0,40}){0,6}", max in 0_u64..150, is_code in any::<bool>()
        ) {
            let nature = if is_code { TextKind::Code } else { TextKind::Prose };
            let length = prefix_within(&text, nature, max);
            prop_assert!(count(&text[..length], nature) <= max);
            if let Some(next) = text[length..].chars().next() {
                let longer = length + next.len_utf8();
                prop_assert!(count(&text[..longer], nature) > max);
            }
        }

        #[test]
        fn a_count_equals_the_sum_of_its_characters(text in "([ -~]{0,90}|[→字🦀é]{0,40}){0,6}") {
            let ascii = text.chars().filter(char::is_ascii).count() as u64;
            let others = text.chars().filter(|c| !c.is_ascii()).map(wide).sum::<u64>();
            let tenths = ascii * 100 / 32 + others;
            prop_assert_eq!(count(&text, TextKind::Code), (tenths * 4).div_ceil(30));
        }
    }

    #[test]
    fn each_kind_of_text_has_its_own_token_ratio() {
        assert_eq!(count("", TextKind::Prose), 0);
        assert_eq!(count(&"a".repeat(300), TextKind::Prose), 100);
        assert_eq!(count(&"a".repeat(240), TextKind::Code), 100);
        // 100 CJK characters are 300 bytes, and more tokens than 300 ASCII characters.
        assert_eq!(count(&"字".repeat(100), TextKind::Prose), 120);
    }
}

//! JSON in the parts in which it was received.

use std::ops::Range;

use bytes::Bytes;

/// The step of a search for the first difference, in bytes.
const STEP: usize = 4096;

/// A JSON text in parts. A copy shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonParts {
    parts: Vec<Bytes>,
    length: usize,
}

impl JsonParts {
    /// Creates a text from its parts, in order.
    pub fn new(parts: Vec<Bytes>) -> Self {
        Self {
            length: parts.iter().map(Bytes::len).sum(),
            parts,
        }
    }

    /// Returns the length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the text has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the parts, in order.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Returns the whole text. A text of several parts is copied.
    pub fn whole(&self) -> Bytes {
        match &self.parts[..] {
            [only] => only.clone(),
            parts => parts.concat().into(),
        }
    }

    /// Returns a section of the text, which shares the bytes. A range beyond the end is cut.
    #[must_use]
    pub fn section(&self, range: Range<usize>) -> Self {
        let mut begin = 0;
        let parts = self.parts.iter().filter_map(|part| {
            let (from, to) = (range.start.max(begin), range.end.min(begin + part.len()));
            let section = (from < to).then(|| part.slice(from - begin..to - begin));
            begin += part.len();
            section
        });
        Self::new(parts.collect())
    }

    /// Adds a copy of bytes at the end.
    ///
    /// A part has more than twice the size of the next one, because parts of similar sizes are merged. Their number and
    /// the copies of a byte therefore grow with the logarithm of the length.
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.length += bytes.len();
        let mut first = self.parts.len();
        let mut size = bytes.len();
        while first > 0 && self.parts[first - 1].len() / 2 <= size {
            first -= 1;
            size += self.parts[first].len();
        }
        let mut merged = Vec::with_capacity(size);
        for part in self.parts.drain(first..) {
            merged.extend_from_slice(&part);
        }
        merged.extend_from_slice(bytes);
        self.parts.push(merged.into());
    }

    /// Returns the number of bytes at the start that both texts have in common.
    pub(super) fn common_prefix(&self, other: &Self) -> usize {
        let (mut ours, mut others) = (self.parts.iter(), other.parts.iter());
        let (mut our, mut their): (&[u8], &[u8]) = (&[], &[]);
        let mut common = 0;
        loop {
            while our.is_empty() {
                let Some(next) = ours.next() else {
                    return common;
                };
                our = next;
            }
            while their.is_empty() {
                let Some(next) = others.next() else {
                    return common;
                };
                their = next;
            }
            let length = our.len().min(their.len()).min(STEP);
            let (our_step, our_rest) = our.split_at(length);
            let (their_step, their_rest) = their.split_at(length);
            if our_step != their_step {
                let both = our_step.iter().zip(their_step);
                return common + both.take_while(|(one, other)| one == other).count();
            }
            common += length;
            (our, their) = (our_rest, their_rest);
        }
    }
}

impl From<Bytes> for JsonParts {
    fn from(whole: Bytes) -> Self {
        Self::new(vec![whole])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Splits a text at these positions.
    fn split(text: &[u8], at: &[usize]) -> JsonParts {
        let mut ends: Vec<usize> = at.iter().map(|at| at % (text.len() + 1)).collect();
        ends.extend([0, text.len()]);
        ends.sort_unstable();
        let parts = ends.windows(2);
        JsonParts::new(
            parts
                .map(|ends| Bytes::copy_from_slice(&text[ends[0]..ends[1]]))
                .collect(),
        )
    }

    proptest! {
        #[test]
        fn parts_are_compared_and_cut_like_the_whole_text(
            text in prop::collection::vec(any::<u8>(), 0..10_000),
            ours in prop::collection::vec(any::<usize>(), 0..5),
            others in prop::collection::vec(any::<usize>(), 0..5),
            (at, end) in (any::<usize>(), any::<usize>()),
        ) {
            let mut other = text.clone();
            let at = at % (text.len() + 1);
            if let Some(byte) = other.get_mut(at) {
                *byte ^= 1;
            }
            let (our, their) = (split(&text, &ours), split(&other, &others));
            prop_assert_eq!(our.common_prefix(&their), at);
            prop_assert_eq!(&our.whole()[..], &text[..]);
            let end = at + end % (text.len() - at + 1);
            let section = our.section(at..end);
            prop_assert_eq!(section.len(), end - at);
            prop_assert_eq!(&section.whole()[..], &text[at..end]);
        }
    }

    #[test]
    fn appended_bytes_make_few_parts() {
        let mut text = JsonParts::default();
        let mut expected = Vec::new();
        for number in 0..1000_u32 {
            let bytes = number.to_string();
            text.push(bytes.as_bytes());
            expected.extend_from_slice(bytes.as_bytes());
            assert!(text.parts().len() < 12, "{number}");
        }
        assert_eq!(text.len(), expected.len());
        assert_eq!(&text.whole()[..], &expected[..]);
    }
}

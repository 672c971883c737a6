//! Tips: digests of arrays that a caller really sent. A conversation without a name is found by them.
//!
//! An array without a name begins with an earlier array of its conversation, so a tip of the conversation equals the
//! digest of one of its beginnings. Results count in the order of their calls, because a caller can change their order.

use super::call_order::in_call_order;
use super::links::{Element, Incoming};
use crate::message::{CANONICAL_VERSION, Digest, Role};

/// Maximum number of tips of a session. After an undo of more requests than this, a conversation is not found.
pub const MAX_TIPS: usize = 16;
/// Maximum number of beginnings of an array that are looked up.
pub const MAX_BEGINNINGS: usize = 64;
/// Maximum number of summaries of an array that are looked up.
const MAX_SUMMARIES: usize = 4;

/// The latest tips of a session that is found by content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArrayTips {
    /// The scope in which the session is found, such as a digest of the credential. `None` if the session is found by
    /// its name only. Such a session has no tips.
    pub scope: Option<Digest>,
    /// The tips, oldest first. At most [`MAX_TIPS`].
    pub digests: Vec<Digest>,
}

impl ArrayTips {
    /// Returns the tips of a new session.
    pub fn new(scope: Option<Digest>) -> Self {
        Self {
            scope,
            digests: Vec::new(),
        }
    }

    /// Returns true if the session is found by content and does not have this tip.
    pub fn lacks(&self, tip: Digest) -> bool {
        self.scope.is_some() && !self.digests.contains(&tip)
    }

    /// Adds a tip, and drops the oldest one if there are too many.
    pub fn push(&mut self, tip: Digest) {
        if self.lacks(tip) {
            let excess = (self.digests.len() + 1).saturating_sub(MAX_TIPS);
            self.digests.drain(..excess);
            self.digests.push(tip);
        }
    }
}

impl Incoming<'_> {
    /// Returns the tip of the array: the digest of the operator messages and of all elements with content. `None` if the
    /// conversation has no element with content.
    pub fn tip(&self) -> Option<Digest> {
        with_content(self.rest).next()?;
        Some(self.tip_from(begin(&self.lead_digests())))
    }

    /// Returns the tip of an array that begins with a summary of the service. `self` does not contain the summary.
    pub(super) fn tip_after(&self, summary: &str) -> Digest {
        self.tip_from(summary_tip(&self.lead_digests(), summary))
    }

    fn tip_from(&self, begin: Digest) -> Digest {
        let ordered = in_call_order(self.rest);
        with_content(&ordered).map(Element::key).fold(begin, then)
    }

    /// Returns the digests of the beginnings of the array that were possibly sent before, the longest first: the whole
    /// array, then the ends before each response, then the summaries of sessions that the array contains, the last one
    /// first. At most [`MAX_BEGINNINGS`].
    pub fn beginnings(&self) -> Vec<Digest> {
        let mut ends = Vec::new();
        if with_content(self.rest).next().is_some() {
            ends = self.ends_from(begin(&self.lead_digests()));
        }
        ends.reverse();
        let summaries = self.rest.iter().rev();
        let summaries = summaries.filter(|element| element.is_summary());
        let summaries = summaries.map(|element| own_summary_tip(element.key()));
        let summaries: Vec<Digest> = summaries.take(MAX_SUMMARIES).collect();
        // There are at most `MAX_SUMMARIES` summaries, so the difference is positive. The shortest beginnings are
        // dropped.
        ends.truncate(MAX_BEGINNINGS - summaries.len());
        ends.extend(summaries);
        ends
    }

    /// Returns the beginnings of an array that begins with a summary of the service, the longest first.
    pub(super) fn beginnings_after(&self, summary: &str) -> Vec<Digest> {
        let mut ends = self.ends_from(summary_tip(&self.lead_digests(), summary));
        ends.reverse();
        ends
    }

    /// Returns the ends before each response, in order, and then the end of the whole array.
    fn ends_from(&self, begin: Digest) -> Vec<Digest> {
        let mut ends = Vec::new();
        let mut end = begin;
        // A request ends with an input, so a beginning ends where a response follows an input.
        let mut is_after_input = false;
        for element in with_content(&in_call_order(self.rest)) {
            let is_response = element.message.role == Role::Assistant;
            if is_response && is_after_input {
                ends.push(end);
            }
            is_after_input = !is_response;
            end = then(end, element.key());
        }
        ends.push(end);
        ends
    }
}

fn with_content(elements: &[Element]) -> impl Iterator<Item = &Element> {
    let elements = elements.iter();
    elements.filter(|element| !element.digests.is_optional())
}

/// Returns the tip of a summary that a session gave to its caller as a message. A caller can combine it with any messages,
/// so the tip depends on nothing else. Its text contains the facts of one conversation.
pub fn own_summary_tip(summary: Digest) -> Digest {
    let version = Digest::of_bytes(&[CANONICAL_VERSION]);
    then(version.chain(b"summary"), summary)
}

/// Returns the digest of the operator messages. They are a part of every tip, so conversations with different system
/// prompts never meet, even if all other messages are equal.
fn begin(lead: &[Digest]) -> Digest {
    // Digests of two canonical versions are not comparable.
    let version = Digest::of_bytes(&[CANONICAL_VERSION]);
    let lead = lead.iter().copied().fold(version, then);
    // The mark separates an operator message before the conversation from an equal element of the conversation. All
    // other parts of the chain have the length of a digest.
    lead.chain(b"conversation")
}

/// Returns the tip of an array that contains only a summary of the service, after these operator messages. An array that
/// begins with the summary is found by it.
pub fn summary_tip(lead: &[Digest], summary: &str) -> Digest {
    let summary = Digest::of_bytes(summary.as_bytes());
    // Without the mark, an array that begins with an element of this digest would be found too.
    begin(lead).chain(b"summary").chain(summary.as_bytes())
}

fn then(end: Digest, next: Digest) -> Digest {
    end.chain(next.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;
    use crate::message::{Block, Message};
    use crate::summary::{SummaryFrame, frame};

    /// Returns an array. The first letter of a word is the role.
    fn elements(words: &[&str]) -> Vec<Element> {
        let element = |word: &&str| {
            let role = match &word[..1] {
                "s" => Role::System,
                "a" => Role::Assistant,
                _ => Role::User,
            };
            let blocks = vec![Block::text(*word)];
            let message = Message::new(MessageId::new(Uuid::nil()), role, blocks);
            Element::new(Arc::new(message))
        };
        words.iter().map(element).collect()
    }

    fn tip(words: &[&str]) -> Digest {
        Incoming::new(&elements(words), true).tip().unwrap()
    }

    fn beginnings(words: &[&str]) -> Vec<Digest> {
        Incoming::new(&elements(words), true).beginnings()
    }

    #[test]
    fn beginnings_are_the_arrays_that_were_sent_before() {
        let words = ["s", "u1", "a1", "a2", "u2", "u3", "a3", "u4"];
        // A request ended before `a3` (6 elements) and before `a1` (2). `a2` follows a response, so none ended before
        // it.
        let expected = [8, 6, 2].map(|length| tip(&words[..length]));
        assert_eq!(beginnings(&words), expected);
        assert!(beginnings(&["s"]).is_empty());
        assert_eq!(beginnings(&["a1"]), [tip(&["a1"])]);
    }

    #[test]
    fn operator_messages_are_a_part_of_a_tip() {
        let all = [
            tip(&["u1"]),
            tip(&["s1", "u1"]),
            tip(&["s2", "u1"]),
            tip(&["s1", "s2", "u1"]),
            tip(&["u1", "s1"]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one), "{index}");
        }
    }

    #[test]
    fn a_summary_of_a_session_is_looked_up_after_the_beginnings() {
        let text = |number| {
            let summary = format!("summary {number}");
            format!("u{}", frame(&summary, SummaryFrame::default()))
        };
        let texts: Vec<String> = (1..=6).map(text).collect();
        // The first letter is the role, which is no part of the text.
        let summary = |text: &String| {
            let message = Message::new(
                MessageId::new(Uuid::nil()),
                Role::User,
                vec![Block::text(&text[1..])],
            );
            Element::new(Arc::new(message))
        };
        let mut all = elements(&["s", "u1", "a1"]);
        let without = Incoming::new(&all, true).beginnings();
        all.extend(texts.iter().map(summary));
        let found = Incoming::new(&all, true).beginnings();
        let expected = texts[2..].iter().rev();
        let expected: Vec<Digest> = expected
            .map(|it| own_summary_tip(summary(it).key()))
            .collect();
        assert_eq!(found[found.len() - 4..], expected);
        assert_eq!(found[1..found.len() - 4], without[1..]);
        let long = all.iter().cycle().take(900).cloned().collect::<Vec<_>>();
        let found = Incoming::new(&long, true).beginnings();
        assert_eq!(found.len(), MAX_BEGINNINGS);
        assert_eq!(found[MAX_BEGINNINGS - 4..], expected);
    }

    #[test]
    fn the_number_of_tips_and_beginnings_is_limited() {
        let digest = |number: u8| Digest::of_bytes(&[number]);
        let mut tips = ArrayTips::new(Some(digest(0)));
        (0..40).for_each(|number| tips.push(digest(number)));
        tips.push(digest(39));
        // Of 40 tips, the last 16 stay. The tip 39 was pushed twice and is stored once.
        assert_eq!(tips.digests, (24..40).map(digest).collect::<Vec<_>>());
        let mut named = ArrayTips::default();
        named.push(digest(1));
        assert!(named.digests.is_empty());
        let long: Vec<&str> = ["u", "a"].into_iter().cycle().take(201).collect();
        assert_eq!(beginnings(&long).len(), MAX_BEGINNINGS);
        assert_eq!(beginnings(&long)[0], tip(&long));
    }
}

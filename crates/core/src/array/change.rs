//! The steps of a plan, and the caller's array after them.

use std::ops::Range;
use std::sync::Arc;

use super::hints::KnownContent;
use super::links::{CallerArray, ChainHead, Incoming, Link, LinkKind, MAX_ABANDONED};
use super::response::ResponseUse;
use crate::ids::Ordinal;
use crate::message::{CANONICAL_VERSION, Digest, Message, Role};
use crate::session::ContentNotLoaded;

/// The relation of an array to the known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayOutcome {
    /// No array was known.
    New,
    /// The array equals the known one.
    Equal,
    /// The array continues the known one.
    Extended,
    /// The array continues the known one with another form of the last response.
    ResponseReplaced,
    /// The caller left out or shortened earlier elements. The view keeps them.
    Trimmed,
    /// The caller replaced earlier elements by a summary: its own one, or that of the session.
    Adopted,
    /// The known array was a side request, which came first.
    Displaced,
    /// The array leaves the known one. The later messages are rewound.
    Rewound,
}

/// The plan for one array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncPlan {
    /// The session takes the array.
    Change(PlannedChange),
    /// A fork of the session takes the array. The fork is planned again, as a named session.
    Fork {
        /// Number of links that the fork shares.
        links: usize,
    },
    /// The array belongs to another conversation. Nothing in this session changes.
    OtherArray {
        /// The end that a rewind left and that the array continues, if two branches alternate under one name.
        abandoned: Option<ChainHead>,
    },
}

/// The steps that make a session's array equal to the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// The relation of the arrays.
    pub outcome: ArrayOutcome,
    /// The links at the start that stay as they are.
    pub keep: usize,
    /// True if the messages after the kept links are rewound.
    pub rewinds: bool,
    /// The summary that replaces links.
    pub adoption: Option<Adoption>,
    /// The recorded response that the array repeats.
    pub response: ResponseUse,
    /// The links after the kept ones.
    pub links: Vec<NewLink>,
}

/// A summary of the caller in place of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// The element that contains the summary.
    pub summary: usize,
    /// The links that the summary replaces.
    pub leaving: Range<usize>,
}

/// A link of the array after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLink {
    /// The digest by which the element is compared.
    pub digest: Digest,
    /// The author.
    pub role: Role,
    /// The relation of the message to its element.
    pub kind: LinkKind,
    /// The origin of the message.
    pub source: LinkSource,
}

/// The origin of the messages of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkSource {
    /// The messages of an earlier link.
    Known(usize),
    /// A message that the session has: of a confirmed response, or of its own compaction.
    Recorded(Ordinal),
    /// The adopted summary.
    Summary,
    /// An element that is appended.
    Appended(usize),
    /// An element that is appended, and that the caller's program added beside a summary. It is no input of the user.
    Added(usize),
    /// The further blocks of an element, which are appended as a message.
    Part {
        /// The element.
        element: usize,
        /// Index of the first further block.
        from_block: usize,
    },
}

/// The first ordinals of the messages that the steps of a plan append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedMessages {
    /// The adopted summary.
    pub summary: Ordinal,
    /// The first message of the conversation.
    pub appended: Ordinal,
}

impl PlannedChange {
    /// Returns true if the plan has no step, so that nothing is written.
    pub fn is_empty(&self) -> bool {
        !self.rewinds
            && self.adoption.is_none()
            && self.response == ResponseUse::Unused
            && self.links.is_empty()
    }

    /// Returns the messages of the conversation that the plan appends, in order. Messages in place of a recorded response
    /// have its ids, model and usage.
    ///
    /// # Errors
    ///
    /// Returns an error if the recorded response is not in memory.
    pub fn messages(
        &self,
        array: &CallerArray,
        incoming: &Incoming<'_>,
        known: &dyn KnownContent,
    ) -> Result<Vec<Arc<Message>>, ContentNotLoaded> {
        let mut messages = self.elements(incoming);
        if let ResponseUse::Replaced { response, elements } = self.response {
            // A caller's form has no usage and no id of the provider, so both are taken from the record.
            let items = array.responses.get(response).into_iter().flatten();
            let recorded: Vec<Arc<Message>> = items
                .map(|item| known.message(item.message))
                .collect::<Result<_, _>>()?;
            let end = elements.min(messages.len());
            add_metadata(&mut messages[..end], &recorded);
        }
        Ok(messages)
    }

    fn elements(&self, incoming: &Incoming<'_>) -> Vec<Arc<Message>> {
        let message = |link: &NewLink| match link.source {
            LinkSource::Appended(element) => Some(Arc::clone(&incoming.rest[element].message)),
            LinkSource::Added(element) => {
                let mut message = (*incoming.rest[element].message).clone();
                message.machine_generated = true;
                Some(Arc::new(message))
            }
            LinkSource::Part {
                element,
                from_block,
            } => {
                let mut message = (*incoming.rest[element].message).clone();
                // The session has the earlier blocks of the element as its first message.
                message.blocks.drain(..from_block);
                Some(Arc::new(message))
            }
            _ => None,
        };
        self.links.iter().filter_map(message).collect()
    }

    /// Returns the caller's array after the plan was carried out.
    #[must_use]
    pub fn apply(
        &self,
        array: &CallerArray,
        incoming: &Incoming<'_>,
        placed: &PlacedMessages,
    ) -> CallerArray {
        // Without a step nothing is written, so the recorded responses stay too.
        if self.is_empty() {
            return array.clone();
        }
        let mut after = array.clone();
        after.version = u32::from(CANONICAL_VERSION);
        after.format = incoming.format();
        // Only the first array can be a side request that came before the conversation.
        after.is_provisional = array.is_empty() && !incoming.has_tools;
        // Recorded responses wait at the old end. The plan has used one of them, or the array continues without them.
        after.responses.clear();
        if self.rewinds {
            // A later array that reaches this end continues the branch that was left.
            after.abandoned.push(array.head());
            let excess = after.abandoned.len().saturating_sub(MAX_ABANDONED);
            after.abandoned.drain(..excess);
        }
        after.lead = incoming.lead_digests();
        after.links.truncate(self.keep);
        // The messages are appended in the order of their links, so their ordinals are consecutive.
        let mut appended = (placed.appended.get()..).map(Ordinal::new);
        let links = self.links.iter().map(|new| {
            let message = match new.source {
                LinkSource::Known(link) => array.links[link].message,
                LinkSource::Recorded(message) => message,
                LinkSource::Summary => placed.summary,
                LinkSource::Appended(_) | LinkSource::Added(_) | LinkSource::Part { .. } => {
                    // The range of ordinals has no end, so the default is never used.
                    appended.next().unwrap_or(placed.appended)
                }
            };
            Link {
                digest: new.digest,
                role: new.role,
                message,
                kind: new.kind,
            }
        });
        after.links.extend(links);
        after
    }
}

/// Adds the metadata of a response to the caller's version of it.
pub(super) fn add_metadata(given: &mut [Arc<Message>], recorded: &[Arc<Message>]) {
    let Some(first) = recorded.first() else {
        return;
    };
    let usage = recorded.iter().rev().find_map(|message| message.usage);
    let last = given.len().saturating_sub(1);
    for (index, message) in given.iter_mut().enumerate() {
        let message = Arc::make_mut(message);
        message
            .provider_message_id
            .clone_from(&first.provider_message_id);
        message.model.clone_from(&first.model);
        // The usage covers the whole response, so the last message has it.
        message.usage = usage.filter(|_| index == last);
    }
}

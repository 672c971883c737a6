//! The array as the caller has it.

use std::sync::Arc;

use crate::ids::Ordinal;
use crate::message::{Block, CanonicalDigests, Digest, Message, MessageOrigin, Role};
use crate::summary::is_framed;

/// Maximum number of responses that are recorded for one end of an array.
pub const MAX_RESPONSES: usize = 4;
/// Maximum number of abandoned ends that are recorded.
pub const MAX_ABANDONED: usize = 8;

/// One element of an array that a caller sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The element as a message.
    pub message: Arc<Message>,
    /// The digests of the message.
    pub digests: CanonicalDigests,
}

impl Element {
    /// Returns the digest by which the element is compared.
    pub(super) fn key(&self) -> Digest {
        self.digests.key()
    }

    /// Returns true if the element has the form of a summary of the service.
    pub(super) fn is_summary(&self) -> bool {
        match &*self.message.blocks {
            [Block::Text { text, .. }] => self.message.role == Role::User && is_framed(text),
            _ => false,
        }
    }

    /// Creates an element from its message.
    pub fn new(message: Arc<Message>) -> Self {
        let digests = CanonicalDigests::of(&message);
        Self { message, digests }
    }
}

/// An array that a caller sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// The operator messages before the conversation. They are compared and never appended.
    pub lead: &'a [Element],
    /// The conversation.
    pub rest: &'a [Element],
    /// True if the request defines tools.
    pub has_tools: bool,
}

impl Incoming<'_> {
    /// Returns the digests of the operator messages before the conversation. Those without content do not count.
    pub(super) fn lead_digests(&self) -> Vec<Digest> {
        // A caller can leave out an element without content, so a comparison must not depend on it.
        let counted = |element: &&Element| !element.digests.is_optional();
        let lead = self.lead.iter().filter(counted);
        lead.map(Element::key).collect()
    }

    /// Returns the API format of the elements.
    pub(super) fn format(&self) -> MessageOrigin {
        let first = self.lead.first().or(self.rest.first());
        first.map_or_else(MessageOrigin::default, |element| element.message.origin)
    }
}

impl<'a> Incoming<'a> {
    /// Separates the operator messages at the start from the conversation.
    pub fn new(elements: &'a [Element], has_tools: bool) -> Self {
        let is_operator = |element: &&Element| element.message.role.is_system();
        let (lead, rest) = elements.split_at(elements.iter().take_while(is_operator).count());
        Self {
            lead,
            rest,
            has_tools,
        }
    }
}

/// A message of the array that a caller has. Almost every element of an array is one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The digest by which the element is compared: the loose one, or the strict one if the element has no content.
    pub digest: Digest,
    /// The author.
    pub role: Role,
    /// The message.
    pub message: Ordinal,
    /// The relation of the message to its element.
    pub kind: LinkKind,
}

/// The relation of a message to its element of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// An element with content.
    Content,
    /// An element without content, such as a response that contains only thinking. A caller may leave it out.
    Empty,
    /// A further message of the element before it, which the caller extended later.
    Part,
}

impl LinkKind {
    /// Returns the kind of an element.
    pub fn of(digests: &CanonicalDigests) -> Self {
        if digests.is_optional() {
            Self::Empty
        } else {
            Self::Content
        }
    }
}

impl Link {
    /// Returns true if the comparison of arrays leaves out the link.
    pub(super) fn is_skipped(&self) -> bool {
        self.kind != LinkKind::Content
    }
}

/// Returns the number of further messages of the element before `links`.
pub(super) fn parts(links: &[Link]) -> usize {
    let is_part = |link: &&Link| link.kind == LinkKind::Part;
    links.iter().take_while(is_part).count()
}

/// A message of a response that the caller has not sent back yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedItem {
    /// The digests of the element: those of the message, unless the caller gets only a part of it.
    pub digests: CanonicalDigests,
    /// The message.
    pub message: Ordinal,
    /// The relation of the message to its element.
    pub kind: LinkKind,
}

impl RecordedItem {
    /// Returns true if the message is an element of its own, or the first message of one.
    pub(super) fn is_element(&self) -> bool {
        self.kind != LinkKind::Part
    }
}

/// The digest of an array up to one of its ends. Elements that a caller may leave out are not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainHead {
    /// The chained loose digests.
    pub chain: Digest,
    /// Number of elements.
    pub length: u32,
}

impl ChainHead {
    /// Returns the end after one more element with content.
    #[must_use]
    pub fn then(self, digest: Digest) -> Self {
        Self {
            chain: self.chain.chain(digest.as_bytes()),
            length: self.length + 1,
        }
    }
}

/// The array as the caller has it. Empty if the session never received a whole array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallerArray {
    /// The version of the digests: [`CANONICAL_VERSION`](crate::message::CANONICAL_VERSION) of the release that computed
    /// them. 0 if the array is unknown.
    pub version: u32,
    /// The API format of the array.
    pub format: MessageOrigin,
    /// The digests of the operator messages before the conversation. They are a part of the prompt prefix, as a system
    /// prompt beside the array is: each request brings its own, and no view contains them.
    pub lead: Vec<Digest>,
    /// The conversation, in the order of the array. After an adopted summary, ordinals have another order.
    pub links: Vec<Link>,
    /// True if the session received one array so far, and the request had no tools. It can be a side request.
    pub is_provisional: bool,
    /// The responses at the current end that the caller has not sent back yet, oldest first. At most
    /// [`MAX_RESPONSES`]. Their messages have the visibility `Unconfirmed`. Only messages of compactions can follow them
    /// in the view, because any other message ends the wait.
    pub responses: Vec<Vec<RecordedItem>>,
    /// The ends that rewinds left, oldest first. At most [`MAX_ABANDONED`].
    pub abandoned: Vec<ChainHead>,
}

impl CallerArray {
    /// Returns true if no element is known.
    pub fn is_empty(&self) -> bool {
        self.lead.is_empty() && self.links.is_empty()
    }

    /// Returns the current end of the conversation.
    pub fn head(&self) -> ChainHead {
        let links = self.links.iter().filter(|link| !link.is_skipped());
        links
            .map(|link| link.digest)
            .fold(ChainHead::default(), ChainHead::then)
    }

    /// Returns the end that a rewind left and that the elements after the first `shared` ones reach. An end within the
    /// shared elements is part of the current array too.
    pub(super) fn abandoned_end(&self, elements: &[Element], shared: usize) -> Option<ChainHead> {
        let mut end = ChainHead::default();
        let elements = elements.iter().enumerate();
        let mut elements = elements.filter(|(_, element)| !element.digests.is_optional());
        elements.find_map(|(at, element)| {
            end = end.then(element.key());
            // The digest is computed from the first element on, because an end stands for the whole array before it.
            (at >= shared && self.abandoned.contains(&end)).then_some(end)
        })
    }
}

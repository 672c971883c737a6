//! A session that receives whole arrays: the plans are carried out on a list of messages.

use std::sync::Arc;

use palimpsest_core::array::{
    ArrayOutcome, CallerArray, Element, Hints, Identity, Incoming, KnownContent, LinkKind,
    OwnCompaction, PlacedMessages, PlannedChange, RecordedItem, ResponseUse, SyncPlan,
    in_known_order, plan,
};
use palimpsest_core::ids::{MessageId, Ordinal};
use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_core::message::{
    Block, CanonicalDigests, Message, ResultContent, Role, Thinking, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::session::ContentNotLoaded;
use uuid::Uuid;

/// Creates an element from a line: the role (`user`, `model` or `system`), then blocks with `|` between them. `~` begins
/// thinking, `!` the id of a call, `=` the id of a result and its text, `?` an opaque block.
pub(crate) fn element(line: &str) -> Element {
    let (role, blocks) = line.split_once(": ").unwrap_or((line, ""));
    let role = match role.trim_end_matches(':') {
        "user" => Role::User,
        "model" => Role::Assistant,
        "system" => Role::System,
        other => panic!("no role: {other}"),
    };
    let blocks = blocks.split('|').filter(|block| !block.is_empty());
    let blocks = blocks.map(block).collect();
    Element::new(Arc::new(Message::new(
        MessageId::new(Uuid::nil()),
        role,
        blocks,
    )))
}

fn block(text: &str) -> Block {
    let extra = UnknownFields::default();
    if let Some(thinking) = text.strip_prefix('~') {
        return Block::Thinking(Thinking::Plain {
            thinking: thinking.into(),
            signature: Some("s".into()),
            extra,
        });
    }
    if let Some(id) = text.strip_prefix('!') {
        return Block::ToolUse(ToolUse {
            id: id.into(),
            name: "t".into(),
            input: ToolInput::parse("{}"),
            extra,
        });
    }
    if let Some(result) = text.strip_prefix('=') {
        let (id, output) = result.split_once(' ').unwrap();
        return Block::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content: ResultContent::Text(output.into()),
            is_error: None,
            extra,
        });
    }
    match text.strip_prefix('?') {
        Some(kind) => Block::Opaque {
            kind: kind.into(),
            json: RawJson::parse(&format!("{{\"type\":\"{kind}\"}}")).unwrap(),
        },
        None => Block::text(text),
    }
}

/// One request: an array and the facts beside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) lines: Vec<String>,
    pub(crate) has_tools: bool,
    pub(crate) caller_compacted: bool,
    pub(crate) side_requests: bool,
    pub(crate) side_responses: Vec<Arc<Message>>,
    pub(crate) own_compaction: Option<OwnCompaction>,
}

impl Request {
    pub(crate) fn new(lines: &[impl AsRef<str>]) -> Self {
        Self {
            lines: lines.iter().map(|line| line.as_ref().to_owned()).collect(),
            has_tools: true,
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) array: CallerArray,
    /// The transcript.
    pub(crate) messages: Vec<Arc<Message>>,
    /// The messages of the view, in order.
    pub(crate) view: Vec<Ordinal>,
}

impl KnownContent for World {
    fn message(&self, ordinal: Ordinal) -> Result<Arc<Message>, ContentNotLoaded> {
        Ok(Arc::clone(&self.messages[ordinal.index()]))
    }
}

impl World {
    /// Returns the elements of an array as they are planned.
    pub(crate) fn elements(&self, lines: &[String]) -> Vec<Element> {
        let elements: Vec<Element> = lines.iter().map(|line| element(line)).collect();
        let ordered = in_known_order(elements.into(), &self.array, self);
        ordered.unwrap().into_owned()
    }

    pub(crate) fn plan(&self, request: &Request, identity: Identity) -> SyncPlan {
        let elements = self.elements(&request.lines);
        let incoming = Incoming::new(&elements, request.has_tools);
        let hints = Hints {
            caller_compacted: request.caller_compacted,
            side_requests: request.side_requests,
            side_responses: &request.side_responses,
            own_compaction: request.own_compaction.as_ref(),
        };
        plan(&self.array, &incoming, identity, &hints, self).unwrap()
    }

    /// Records a response at the current end.
    pub(crate) fn respond(&mut self, lines: &[impl AsRef<str>]) {
        let items = lines.iter().map(|line| {
            let element = element(line.as_ref());
            let digests = element.digests;
            let message = self.push(element.message);
            RecordedItem {
                digests,
                message,
                kind: LinkKind::of(&digests),
            }
        });
        let items = items.collect();
        self.array.responses.push(items);
    }

    /// Returns a session that shares the first links.
    pub(crate) fn fork(&self, links: usize) -> Self {
        let mut fork = self.clone();
        fork.array.links.truncate(links);
        // Recorded responses wait at the end of the array, which a shorter fork does not share.
        if links < self.array.links.len() {
            fork.array.responses.clear();
        }
        fork.view = fork.array.links.iter().map(|link| link.message).collect();
        fork
    }

    fn push(&mut self, message: Arc<Message>) -> Ordinal {
        self.messages.push(message);
        Ordinal::new(u32::try_from(self.messages.len() - 1).unwrap())
    }

    fn next(&self) -> Ordinal {
        Ordinal::new(u32::try_from(self.messages.len()).unwrap())
    }

    /// Carries out a plan, and checks the array and the view after it.
    pub(crate) fn change(&mut self, request: &Request, change: &PlannedChange) {
        let elements = self.elements(&request.lines);
        let incoming = Incoming::new(&elements, request.has_tools);
        if change.rewinds {
            let kept: Vec<Ordinal> = self.array.links[..change.keep]
                .iter()
                .map(|link| link.message)
                .collect();
            self.view.retain(|at| kept.contains(at));
        }
        let summary = self.next();
        if let Some(adoption) = &change.adoption {
            self.push(Arc::clone(&incoming.rest[adoption.summary].message));
            let leaving = &self.array.links[adoption.leaving.clone()];
            let leaving: Vec<Ordinal> = leaving.iter().map(|link| link.message).collect();
            let place = self
                .view
                .iter()
                .position(|at| leaving.contains(at))
                .unwrap();
            // The summary takes the place of the first message that leaves.
            self.view.insert(place, summary);
            self.view.retain(|at| !leaving.contains(at));
        }
        if let ResponseUse::Confirmed { response } = change.response {
            let items = &self.array.responses[response];
            self.view.extend(items.iter().map(|item| item.message));
        }
        let appended = self.next();
        for message in change.messages(&self.array, &incoming, self).unwrap() {
            let at = self.push(message);
            self.view.push(at);
        }
        let placed = PlacedMessages { summary, appended };
        self.array = change.apply(&self.array, &incoming, &placed);
        self.check_links(&incoming, change);
    }

    fn check_links(&self, incoming: &Incoming<'_>, change: &PlannedChange) {
        let linked: Vec<Ordinal> = self.array.links.iter().map(|link| link.message).collect();
        assert_eq!(self.view, linked, "the view equals the links\n{change:#?}");
        assert!(
            self.has_exactly(incoming) || change.outcome == ArrayOutcome::Trimmed,
            "the links equal the array\n{change:#?}"
        );
    }

    /// Returns true if the links equal the conversation. After a trimmed array, there are more links.
    pub(crate) fn has_exactly(&self, incoming: &Incoming<'_>) -> bool {
        let known = self
            .array
            .links
            .iter()
            .filter(|link| link.kind == LinkKind::Content);
        let given = incoming.rest.iter().map(|element| element.digests.loose);
        let given = given.filter(|digest| *digest != CanonicalDigests::EMPTY);
        known.map(|link| link.digest).eq(given)
    }
}

//! Whole arrays of callers in random histories.

use crate::{BlockDraft, MessageDraft, SessionHarness};
use std::sync::Arc;

use palimpsest_core::array::{CallerArray, Link, LinkKind};
use palimpsest_core::command::{
    Append, AppendSource, Command, ConfirmResponse, ReplacedResponse, SyncArray,
};
use palimpsest_core::event::Visibility;
use palimpsest_core::message::{
    CANONICAL_VERSION, CanonicalDigests, Digest, Message, MessageOrigin, Role,
};

impl SessionHarness {
    /// Records an array of the visible messages, or of some of them. The caller has left a part of the array before.
    pub(super) fn sync(&mut self, which: u8) {
        self.load_content();
        let entries = self.session.transcript().entries();
        let links = entries.filter_map(|(message, entry)| {
            let content = entry.content.as_deref()?;
            let digests = CanonicalDigests::of(content);
            Some(Link {
                digest: digests.key(),
                role: entry.role,
                message,
                kind: LinkKind::of(&digests),
            })
        });
        let mut links: Vec<Link> = links.collect();
        links.truncate(links.len().saturating_sub(usize::from(which % 3)));
        // System messages at the beginning belong to the prompt prefix. No view contains them, so digests suffice.
        let lead = links.iter().take_while(|link| link.role.is_system());
        let lead = links.drain(..lead.count()).map(|link| link.digest);
        let lead = lead.collect();
        let before = self.session.array();
        let mut abandoned = before.abandoned.clone();
        if which.is_multiple_of(5) {
            abandoned.push(before.head());
        }
        let array = CallerArray {
            version: CANONICAL_VERSION.into(),
            format: MessageOrigin::Anthropic,
            lead,
            links,
            is_provisional: which.is_multiple_of(7),
            responses: Vec::new(),
            abandoned,
        };
        self.run(Command::SyncArray(SyncArray {
            array: array.clone(),
            tip: Some(Digest::of_bytes(&[which % 4])),
        }));
        assert_eq!(*self.session.array(), array);
        let revision = self.session.revision();
        self.run(Command::SyncArray(SyncArray { array, tip: None }));
        assert_eq!(
            revision,
            self.session.revision(),
            "an equal array is a change"
        );
        for response in 0..which % 3 {
            self.record_response(which.wrapping_add(response));
        }
    }

    /// Records a response to the current end of the array.
    fn record_response(&mut self, which: u8) {
        let call = BlockDraft::Call(which % 6);
        let draft = MessageDraft::Assistant {
            response: which % 4,
            parts: vec![
                BlockDraft::Thought { signed: true },
                BlockDraft::Words(which),
                call,
            ],
        };
        let message = Arc::new(self.message(&draft));
        self.appended.push(Arc::clone(&message));
        let (pending, calls) = (
            self.session.pending().len(),
            self.session.calls().iter().len(),
        );
        let before = self.session.ledger().all.total();
        self.run(Command::Append(Append {
            messages: vec![message],
            source: AppendSource::Response {
                after: self.session.array().head(),
            },
            ..Append::default()
        }));
        // A recorded response is unconfirmed: not pending, without open calls, and without tokens in the view.
        assert_eq!(self.session.pending().len(), pending);
        assert_eq!(self.session.calls().iter().len(), calls);
        assert_eq!(self.session.ledger().all.total(), before);
    }

    /// Decides about the recorded responses before an append: the caller has sent one of them back as it is or in another
    /// form, or none of them. Returns the source of the append.
    pub(super) fn echo(&mut self, messages: &[Arc<Message>]) -> AppendSource {
        let responses = &self.session.array().responses;
        let Some(recorded) = responses.first().and_then(|items| items.first()) else {
            return AppendSource::Messages;
        };
        let recorded = recorded.message;
        match messages {
            [first, ..] if first.role == Role::Assistant => AppendSource::Array {
                replaced: Some(ReplacedResponse {
                    recorded,
                    messages: 1,
                }),
            },
            [_] => AppendSource::Messages,
            _ => {
                self.run(Command::ConfirmResponse(ConfirmResponse {
                    response: Some(0),
                }));
                let entry = self.session.transcript().get(recorded).unwrap();
                assert_eq!(entry.visibility, Visibility::Visible);
                assert!(self.session.array().responses.is_empty());
                AppendSource::Messages
            }
        }
    }

    /// Checks that the caller's array never contains a message that a rewind removed, and that exactly the recorded
    /// responses wait.
    pub(super) fn check_array(&self) {
        let array = self.session.array();
        let recorded = array.responses.iter().flatten().map(|item| item.message);
        let entries = self.session.transcript().entries();
        let waiting = entries.filter(|(_, entry)| entry.visibility == Visibility::Unconfirmed);
        assert!(recorded.eq(waiting.map(|(message, _)| message)));
        for link in &array.links {
            let entry = self.session.transcript().get(link.message).unwrap();
            assert!(!matches!(
                entry.visibility,
                Visibility::Rewound | Visibility::Withdrawn
            ));
        }
    }
}

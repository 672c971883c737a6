//! Whole arrays of callers in random histories.

use crate::SessionHarness;
use palimpsest_core::array::{CallerArray, Link, LinkKind};
use palimpsest_core::command::{Command, SyncArray};
use palimpsest_core::event::Visibility;
use palimpsest_core::message::{CANONICAL_VERSION, CanonicalDigests, MessageOrigin};

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
        let lead = links.iter().take_while(|link| link.role.is_system());
        let lead: Vec<Link> = links.drain(..lead.count()).collect();
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
        }));
        assert_eq!(*self.session.array(), array);
        let revision = self.session.revision();
        self.run(Command::SyncArray(SyncArray { array }));
        assert_eq!(
            revision,
            self.session.revision(),
            "an equal array is a change"
        );
    }

    /// Checks that the caller's array never contains a message that a rewind removed.
    pub(super) fn check_array(&self) {
        let array = self.session.array();
        for link in array.lead.iter().chain(&array.links) {
            let entry = self.session.transcript().get(link.message).unwrap();
            assert!(!matches!(
                entry.visibility,
                Visibility::Rewound | Visibility::Withdrawn
            ));
        }
    }
}

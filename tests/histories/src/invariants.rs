//! Checks the guarantees of views along a history:
//!
//! - Served views are sealed.
//! - A caller that follows `keep_messages` has the full view.
//! - A sendable view is valid for its provider.
//! - Every block is accounted for.
//! - A replay results in the same session.

use std::collections::{HashMap, HashSet};

use crate::{Operation, SessionHarness, serving};
use palimpsest_core::codec;
use palimpsest_core::command::{Command, ServeView};
use palimpsest_core::event::{Event, Visibility, only_text};
use palimpsest_core::ids::{Ordinal, Revision};
use palimpsest_core::message::{Block, MessageKind};
use palimpsest_core::session::AwaitedParty;
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Etag, PieceForm, Provider, Target, WireMessage, WireRole};

/// The number of targets that a history can serve.
const SERVED: u8 = 5;
/// The target that takes system messages. It is shown whenever the first one is served.
const WITH_SYSTEM: u8 = 5;

fn targets() -> [Target; 6] {
    let target = |provider, model: &str, thinking| Target {
        provider,
        model: model.into(),
        thinking,
        system_messages: false,
    };
    [
        target(Provider::Anthropic, "model-a", true),
        target(Provider::Anthropic, "model-b", true),
        target(Provider::Anthropic, "model-a", false),
        target(Provider::OpenAi, "model-c", false),
        target(Provider::OpenAiResponses, "model-a", false),
        Target {
            system_messages: true,
            ..target(Provider::Anthropic, "model-a", true)
        },
    ]
}

/// A caller that keeps the prefix named by each reply and appends the returned messages.
#[derive(Debug, Default)]
struct NaiveCaller {
    array: Vec<Vec<u8>>,
    etag: Option<Etag>,
    flat: Vec<(WireRole, Vec<u8>)>,
    epoch: u32,
}

/// A history with the callers that follow it.
#[derive(Debug, Default)]
pub struct InvariantChecker {
    world: SessionHarness,
    callers: HashMap<u8, NaiveCaller>,
    /// The served views, by revision and target.
    served: HashMap<(Revision, u8), Flat>,
}

type Flat = Vec<(WireRole, Vec<u8>)>;

impl InvariantChecker {
    /// Plays a history and checks all guarantees after each step.
    pub fn play(operations: &[Operation]) {
        let mut stage = Self::default();
        for operation in operations {
            stage.step(operation);
        }
        // Open calls are interrupted at the end, so that the final views can be validated.
        for target in 0..SERVED {
            stage.serve(target, true);
        }
        stage.check_replay();
    }

    fn step(&mut self, operation: &Operation) {
        // The state before the step is recorded, because the checks compare it with the outcome.
        let mark = self.world.session.memory().version.as_ref();
        let mark = mark.and_then(|version| version.covered_through);
        let pinned = self.pinned();
        self.world.step(operation);
        self.check_pins(operation, &pinned);
        self.check_attachments();
        self.check_memory(operation, mark);
        self.check_undo();
        self.check_folds();
        self.check_promises();
        if let Operation::Serve { target, interrupt } = operation {
            self.serve(*target, *interrupt);
        }
    }

    fn serve(&mut self, which: u8, interrupt: bool) {
        let target = targets()[usize::from(which)].clone();
        self.world.run(Command::ServeView(ServeView {
            target: target.clone(),
            interrupt_open_calls: interrupt,
            ..serving()
        }));
        self.check_served_tokens();
        self.follow(which);
        if which == 0 {
            self.follow(WITH_SYSTEM);
        }
        self.check_accounting();
    }

    /// Shows the view to the caller with this target, and checks what the caller has afterwards.
    fn follow(&mut self, which: u8) {
        let target = targets()[usize::from(which)].clone();
        let caller = self.callers.entry(which).or_default();
        // A session with few loaded contents must show the same view as a session with all contents.
        let of_little = self.world.session.view(&target, caller.etag);
        let of_little = of_little.map(|view| (view.keep, flatten(&target, &view.messages)));
        self.world.load_content();
        let delta = self.world.session.view(&target, caller.etag).unwrap();
        let full = self.world.session.view(&target, None).unwrap();
        if let Ok((keep, flat)) = of_little {
            assert_eq!(
                (keep, flat),
                (delta.keep, flatten(&target, &delta.messages))
            );
        }
        let json = |messages: &[_]| -> Vec<Vec<u8>> {
            messages
                .iter()
                .map(|message| {
                    let mut out = Vec::new();
                    codec::write(target.provider, message, &mut out);
                    out
                })
                .collect()
        };
        // A caller that follows the protocol has the full view.
        caller.array.truncate(delta.keep as usize);
        assert_eq!(
            caller.array.len(),
            delta.keep as usize,
            "the delta keeps more messages than the caller has"
        );
        caller.array.extend(json(&delta.messages));
        assert_eq!(
            caller.array,
            json(&full.messages),
            "delta and full view differ"
        );
        assert_eq!(delta.etag, full.etag);
        assert_eq!(full.length as usize, full.messages.len());
        // Within an epoch, each served view is a prefix of the next one. System messages move to the end of their turn.
        let mut flat = flatten(&target, &full.messages);
        let settled = flat
            .iter()
            .rposition(|(role, _)| *role != WireRole::Operator);
        let epoch = self.world.session.sealed().epoch().get();
        if caller.epoch == epoch {
            assert!(flat.starts_with(&caller.flat), "a served view changed");
        }
        // A repeated read changes nothing and returns no messages.
        let again = self.world.session.view(&target, Some(full.etag)).unwrap();
        assert_eq!((again.keep, again.messages.len()), (full.length, 0));
        if full.not_sendable.is_none() {
            let violations = validate(&target, &caller.array);
            assert!(
                violations.is_empty(),
                "{violations:#?}\n{}",
                show(&caller.array)
            );
        }
        // System messages at the end can still move. Only the part before them must stay.
        flat.truncate(settled.map_or(0, |last| last + 1));
        let at = (self.world.session.revision(), which);
        self.served.insert(at, flat.clone());
        (caller.flat, caller.epoch, caller.etag) = (flat, epoch, Some(full.etag));
    }

    /// Checks that the recorded size of a served view equals the count after it.
    fn check_served_tokens(&self) {
        let Some(Event::ViewServed(served)) = self.world.log.last().map(|last| &last.event) else {
            return;
        };
        let session = &self.world.session;
        let count = session.ledger().count(served.overhead_tokens);
        assert_eq!(served.tokens, count.tokens);
        assert_eq!(served.parts, session.request_parts(None));
    }

    /// Checks that an undo restores the view byte for byte. Later messages follow it.
    fn check_undo(&mut self) {
        let Some(Event::ContextRestored(event)) = self.world.log.last().map(|last| &last.event)
        else {
            return;
        };
        let to = event.to;
        self.world.load_content();
        for which in 0..=WITH_SYSTEM {
            let target = &targets()[usize::from(which)];
            let Some(before) = self.served.get(&(to, which)) else {
                continue;
            };
            let view = self.world.session.view(target, None).unwrap();
            let after = flatten(target, &view.messages);
            assert!(after.starts_with(before), "an undo restored another view");
        }
    }

    /// Checks that every block of a visible message has exactly one piece or is pending.
    fn check_accounting(&self) {
        let mut seen = HashSet::new();
        for piece in self.world.session.sealed().pieces() {
            if piece.form.represents_block() {
                assert!(
                    seen.insert((piece.message, piece.block)),
                    "{piece:?} is in the layout twice"
                );
            }
        }
        for item in self.world.session.pending() {
            for (block, _) in &item.blocks {
                assert!(
                    seen.insert((item.message, *block)),
                    "a message is both pending and sealed"
                );
            }
        }
        for (ordinal, entry) in self.world.session.transcript().entries() {
            if entry.visibility != Visibility::Visible {
                continue;
            }
            let blocks = entry
                .content
                .as_ref()
                .map_or(0, |message| message.blocks.len());
            for block in (0_u16..).take(blocks) {
                assert!(
                    seen.remove(&(ordinal, block)),
                    "block {block} of message {ordinal} has no piece"
                );
            }
        }
        assert!(
            seen.is_empty(),
            "pieces of messages that are not visible: {seen:?}"
        );
    }

    /// Checks that every collapsed message has one placeholder, and that the token count matches the shown content.
    fn check_folds(&self) {
        // Each span must have one placeholder, and the spans of collapsed messages must equal the shown ones.
        let session = &self.world.session;
        let shown: Vec<_> = session
            .sealed()
            .pieces()
            .iter()
            .filter_map(|piece| match piece.form {
                PieceForm::Placeholder(span) => Some(span),
                _ => None,
            })
            .collect();
        let distinct: HashSet<_> = shown.iter().copied().collect();
        assert_eq!(distinct.len(), shown.len(), "a placeholder is shown twice");
        let mut told = HashSet::new();
        let mut tokens = 0;
        for (ordinal, entry) in session.transcript().entries() {
            if entry.visibility == Visibility::Collapsed {
                let span = session.placeholder_of(ordinal).map(|one| one.span.key);
                told.insert(span.expect("a folded message has a placeholder"));
            }
            if entry.visibility.is_in_view() {
                tokens += u64::from(entry.size.tokens);
            }
        }
        assert_eq!(told, distinct, "a placeholder has no collapsed messages");
        assert_eq!(
            session.ledger().all.total(),
            tokens,
            "a count of something else"
        );
    }

    /// Checks that each returned reference leads to its file permanently: through the stored result, or through the
    /// persist decision until the result arrives. A result that was appended as its replacement must show exactly that
    /// text.
    fn check_promises(&self) {
        let session = &self.world.session;
        for recorded in &self.world.log {
            let Event::PersistDecided(event) = &recorded.event else {
                continue;
            };
            let Some(kept) = &event.decision.stored else {
                continue;
            };
            let stored = session.stored_results().find_by_file(&kept.file);
            let offer = session.persist_decisions().find_by_file(&kept.file);
            let sha256 = stored.map(|stored| stored.sha256);
            let sha256 = sha256.or(offer.and_then(|offer| offer.stored.as_ref().map(|k| k.sha256)));
            assert_eq!(
                sha256,
                Some(kept.sha256),
                "{} resolves to no result",
                kept.file
            );
        }
        for piece in session.sealed().pieces() {
            let stored = session.stored_results().at(piece.message, piece.block);
            if let (PieceForm::Stored(_), None) = (piece.form, stored) {
                panic!("{piece:?} has no stored result");
            }
        }
        for (message, block, stored) in session
            .stored_results()
            .iter()
            .filter(|(.., s)| s.original_only_in_file)
        {
            let content = session.transcript().content(message);
            let block = content.and_then(|content| content.blocks.get(usize::from(block)));
            let Some(Block::ToolResult(result)) = block else {
                continue;
            };
            assert_eq!(only_text(&result.content), Some(&*stored.replacement));
        }
    }

    /// Checks session memory. Its coverage is within the read part and advances only while no call is open. Session
    /// memory is stale exactly if a message at its coverage or at the end of its read part has left the view.
    fn check_memory(&self, operation: &Operation, before: Option<Ordinal>) {
        let session = &self.world.session;
        let Some(version) = &session.memory().version else {
            return;
        };
        assert!(
            version.covered_through <= version.read_through,
            "{version:?}"
        );
        let takes_part = |at: Ordinal| {
            let entry = session.transcript().get(at);
            entry.is_some_and(|entry| entry.visibility.is_in_view())
        };
        let reaches = [version.covered_through, version.read_through]
            .into_iter()
            .flatten();
        let has_left = reaches.into_iter().any(|at| !takes_part(at));
        assert_eq!(session.is_memory_stale(), has_left);
        // Other operations run several commands, so the state after them does not show the state of the update.
        let is_one_step = matches!(operation, Operation::Append(_) | Operation::Note(_));
        if is_one_step && version.covered_through > before {
            assert_ne!(session.info().awaits, AwaitedParty::Tools, "{version:?}");
        }
        if let (Operation::Note(_), Some(last)) = (operation, self.world.log.last())
            && matches!(last.event, Event::MemoryUpdated(_))
        {
            let later = session.transcript().entries().filter(|(at, entry)| {
                version.read_through.is_none_or(|read| *at > read)
                    && entry.visibility.is_in_view()
                    && entry.kind == MessageKind::Ordinary
            });
            let tokens: u64 = later.map(|(_, entry)| u64::from(entry.size.tokens)).sum();
            assert_eq!(
                session.memory().since_tokens,
                tokens,
                "growth must count from the coverage"
            );
            assert!(session.memory().is_known_text(version.text().as_bytes()));
        }
    }

    /// Returns the forms of pinned blocks in the view. Thinking is excluded, because invalid thinking is removed
    /// anyway.
    fn pinned(&self) -> Vec<((Ordinal, u16), PieceForm)> {
        let session = &self.world.session;
        let pieces = session.sealed().pieces().iter();
        let pinned = pieces.filter(|piece| {
            let content = session.transcript().content(piece.message);
            let block = content.and_then(|content| content.blocks.get(usize::from(piece.block)));
            piece.form.represents_block()
                && session
                    .pins()
                    .pin_of_block(piece.message, piece.block)
                    .is_some()
                && block.is_some_and(|block| !block.is_thinking())
        });
        pinned
            .map(|piece| ((piece.message, piece.block), piece.form))
            .collect()
    }

    /// Checks that pinned blocks keep their form, whatever the levels do.
    fn check_pins(&self, operation: &Operation, before: &[((Ordinal, u16), PieceForm)]) {
        let may_take = matches!(
            operation,
            Operation::Rewind(_) | Operation::Restore(_) | Operation::Work { .. }
        );
        if may_take {
            return;
        }
        let pieces = self.world.session.sealed().pieces().iter();
        let now: HashMap<_, _> = pieces
            .filter(|piece| piece.form.represents_block())
            .map(|piece| ((piece.message, piece.block), piece.form))
            .collect();
        for (place, form) in before {
            let after = now.get(place).copied();
            // System text is shown identically in both forms.
            let is_same = after == Some(*form)
                || (*form == PieceForm::Operator && after == Some(PieceForm::Block));
            assert!(
                is_same,
                "{place:?} is pinned and was {form:?}, is {after:?}"
            );
        }
    }

    /// Checks that the visible attachments are those of a single compaction.
    fn check_attachments(&self) {
        let session = &self.world.session;
        let attached = session.transcript().entries().filter(|(at, entry)| {
            entry.kind == MessageKind::Attachment
                && entry.visibility == Visibility::Visible
                && session.is_framing(*at)
                && session.pins().pin_of_message(*at).is_none()
        });
        let revisions: HashSet<_> = attached.map(|(_, entry)| entry.revision).collect();
        assert!(revisions.len() <= 1, "attachments of several compactions");
    }

    /// Checks that the transcript contains all appended messages in order and unchanged, and that the log contains
    /// them.
    fn check_transcript(&self) {
        let mut entries = self.world.session.transcript().entries();
        let logged: HashMap<_, _> = self.world.contents().map(|(_, m)| (m.id, m)).collect();
        for original in &self.world.appended {
            let id = original.id;
            let (_, entry) = entries
                .find(|(_, entry)| entry.id == id)
                .unwrap_or_else(|| panic!("{id} is lost, or out of order"));
            let held = entry.content.as_ref().unwrap_or(&logged[&id]);
            assert_eq!(held.blocks, original.blocks, "{id} changed");
        }
    }

    fn check_replay(&mut self) {
        self.world.load_content();
        self.check_transcript();
        self.world.check_array();
        let replayed = self.world.at(self.world.session.revision());
        assert_eq!(replayed, self.world.session, "replay differs");
        let loaded = self.world.loaded();
        let whole = std::mem::replace(&mut self.world.session, loaded);
        self.world.load_content();
        assert_eq!(self.world.session, whole, "the snapshot differs");
    }
}

fn show(array: &[Vec<u8>]) -> String {
    array
        .iter()
        .map(|message| String::from_utf8_lossy(message).into_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the view as prompt caches see it: a sequence of roles and block bytes. Views are compared in this form.
pub fn flatten(target: &Target, messages: &[WireMessage<'_>]) -> Vec<(WireRole, Vec<u8>)> {
    let mut flat = Vec::new();
    for message in messages {
        for block in &message.blocks {
            let mut bytes = Vec::new();
            codec::write_block(target.provider, block, &mut bytes);
            flat.push((message.role, bytes));
        }
    }
    flat
}

//! What comes back after a compaction without any model: files, the plan, tasks and whatever else the
//! working state holds, each only when it has something to say, within the limits of the policy.
//!
//! Everything is said anew each time: what an earlier compaction attached leaves with the next.

mod candidate;
mod files;
mod fit;
mod numbered;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Builder;

use self::candidate::AttachmentCandidate;
pub use self::files::{ReconstructedFile, rebuilt};
use self::files::{TrackedFile, files};
pub(crate) use self::fit::{Room, fit};
use crate::event::Visibility;
pub use crate::event::{AttachmentKind, AttachmentRecord};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::{Digest, Message, MessageKind};
use crate::session::{ContentNotLoaded, Session};
use crate::working::{CapabilityKind, PinTarget, Skill, WorkingState};

/// How many things that found no room one compaction tells of.
const MAX_OMITTED: usize = 100;

/// The id of an attachment, named after the message that marks its compaction: as many as are needed
/// come of the one that was given.
pub(crate) fn id(mark: MessageId, index: usize) -> MessageId {
    let name = format!("{mark} attachment {index}");
    let digest = Digest::of_bytes(name.as_bytes());
    MessageId::new(Builder::from_custom_bytes(*digest.as_bytes()).into_uuid())
}

/// Whether a message was attached by a compaction, and leaves with the next.
pub(crate) fn is_attachment(session: &Session, message: Ordinal) -> bool {
    let entry = session.transcript().get(message);
    entry.is_some_and(|entry| entry.kind == MessageKind::Attachment) && session.is_framing(message)
}

/// Everything that there is to attach when some messages leave, in the order in which it is attached.
pub(crate) fn candidates(
    session: &Session,
    leaving: &BTreeSet<Ordinal>,
) -> Result<Vec<AttachmentCandidate>, ContentNotLoaded> {
    let state = &*session.working().state;
    let policy = &session.policy().attachments;
    let counter = session.counter();
    let sized = |one: AttachmentCandidate| one.counted(counter);
    let mut all = of_files(session, &files(session)?, leaving);
    all.extend(state.plan.as_ref().map(words::plan).map(sized));
    all.extend(skills(session, state));
    let mode = state.plan_mode.as_ref();
    all.extend(
        mode.filter(|mode| mode.active)
            .map(words::plan_mode)
            .map(sized),
    );
    if policy.tasks && !state.tasks.is_empty() {
        all.push(sized(words::tasks(&state.tasks)));
    }
    if policy.capabilities {
        all.extend(capabilities(session, state).into_iter().map(sized));
    }
    if policy.permissions {
        let permissions = state.permissions.as_ref();
        all.extend(permissions.and_then(words::permissions).map(sized));
    }
    if policy.notes && !state.notes.is_empty() {
        all.push(sized(words::notes(&state.notes)));
    }
    for pin in &state.pins {
        if let PinTarget::Text(text) = &pin.target {
            let texts = vec![text.clone()];
            let pin = AttachmentCandidate::new(AttachmentKind::Pin, &pin.id, texts);
            all.push(sized(pin));
        }
    }
    limit_omitted(&mut all);
    Ok(all)
}

/// Files that were read recently, and instruction files; not those that the view still shows.
fn of_files(
    session: &Session,
    known: &[TrackedFile],
    leaving: &BTreeSet<Ordinal>,
) -> Vec<AttachmentCandidate> {
    let (policy, counter) = (&session.policy().attachments, session.counter());
    let mut all = Vec::new();
    let (mut count, mut room) = (0, u64::from(policy.max_files_tokens));
    let hidden = |file: &&TrackedFile| !file.is_instructions && !file.is_shown(session, leaving);
    for file in known.iter().filter(hidden) {
        if policy.max_files == 0 || policy.max_file_tokens == 0 || policy.max_files_tokens == 0 {
            break;
        }
        let Some(candidate) = words::file(file, policy.max_file_tokens) else {
            continue;
        };
        let mut candidate = candidate.counted(counter);
        let tokens = u64::from(candidate.size.tokens);
        candidate.edited = file.is_edited;
        candidate.omitted = count >= policy.max_files || tokens > room;
        if !candidate.omitted {
            count += 1;
            room -= tokens;
        }
        all.push(candidate);
    }
    let instructions = known.iter().filter(|file| file.is_instructions);
    let hidden = instructions.filter(|file| !file.is_shown(session, leaving));
    let instructions = hidden.filter_map(words::instructions);
    all.extend(instructions.map(|one| one.counted(counter)));
    all
}

/// Skills, the last that were invoked first.
fn skills(session: &Session, state: &WorkingState) -> Vec<AttachmentCandidate> {
    let policy = &session.policy().attachments;
    if policy.max_skill_tokens == 0 || policy.max_skills_tokens == 0 {
        return Vec::new();
    }
    let mut skills: Vec<&Skill> = state.skills.iter().collect();
    skills.sort_by_key(|skill| std::cmp::Reverse(skill.invoked));
    let mut room = u64::from(policy.max_skills_tokens);
    let one = |skill: &Skill| {
        let candidate = words::skill(skill, policy.max_skill_tokens);
        let mut candidate = candidate.counted(session.counter());
        let tokens = u64::from(candidate.size.tokens);
        candidate.omitted = tokens > room;
        if !candidate.omitted {
            room -= tokens;
        }
        candidate
    };
    skills.into_iter().map(one).collect()
}

/// The capabilities, whole: what an earlier announcement said has left the view, or leaves with the next
/// compaction, so a difference alone would leave the model without the rest. What is gone since the
/// last compaction is named beside it, because the summary may still speak of it.
fn capabilities(session: &Session, state: &WorkingState) -> Vec<AttachmentCandidate> {
    let boundaries = session.compactions().boundaries.iter().rev();
    let mut standing = boundaries.filter(|boundary| {
        let mark = session.transcript().get(boundary.mark);
        mark.is_some_and(|entry| entry.standing == Visibility::TranscriptOnly)
            && boundary
                .summary
                .is_none_or(|summary| session.transcript().is_visible(summary))
    });
    let since = standing.next().map(|boundary| boundary.revision);
    let since = since.unwrap_or(Revision::ZERO);
    let of_kind = |kind: CapabilityKind| {
        let gone = session.working().delisted_since(kind, since);
        words::capabilities(kind, state.capabilities(kind), &gone)
    };
    CapabilityKind::ALL
        .into_iter()
        .filter_map(of_kind)
        .collect()
}

/// Of what found no room, the first are told.
fn limit_omitted(all: &mut Vec<AttachmentCandidate>) {
    let mut omitted = 0;
    all.retain(|candidate| {
        omitted += usize::from(candidate.omitted);
        !candidate.omitted || omitted <= MAX_OMITTED
    });
}

/// A message to attach, shared.
pub(crate) fn shared(candidate: &AttachmentCandidate, id: MessageId) -> Arc<Message> {
    Arc::new(candidate.message(id))
}

//! Attachments after a compaction, created without a model: files, the plan, tasks and the rest of the working state.
//! Empty parts are skipped, and the limits of the policy apply.
//!
//! Attachments are created again each time. Those of an earlier compaction leave with the next one.

mod candidate;
mod file_excerpt;
mod files;
mod wording;

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Builder;

use self::candidate::AttachmentCandidate;
pub(crate) use self::candidate::{AttachmentBudget, omit_to_fit};
pub use self::files::{ReconstructedFile, reconstructed_files};
use self::files::{TrackedFile, tracked_files};
use crate::event::Visibility;
pub use crate::event::{AttachmentKind, AttachmentRecord};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::{Digest, Message, MessageKind};
use crate::session::{ContentNotLoaded, Session};
use crate::working::{CapabilityKind, PinTarget, Skill, WorkingState};

/// Maximum number of omitted candidates that a compaction reports.
const MAX_OMITTED: usize = 100;

/// Returns the id of an attachment, derived from the id of the compaction's boundary message and the index. One given
/// id is therefore sufficient for any number of attachments.
pub(crate) fn attachment_id(mark: MessageId, index: usize) -> MessageId {
    let name = format!("{mark} attachment {index}");
    let digest = Digest::of_bytes(name.as_bytes());
    MessageId::new(Builder::from_custom_bytes(*digest.as_bytes()).into_uuid())
}

/// Returns true if a compaction attached a message that leaves with the next compaction.
pub(crate) fn is_attachment(session: &Session, message: Ordinal) -> bool {
    let entry = session.transcript().get(message);
    entry.is_some_and(|entry| entry.kind == MessageKind::Attachment) && session.is_framing(message)
}

/// Returns all candidates for attachment when some messages leave, in the order of attachment.
pub(crate) fn candidates(
    session: &Session,
    leaving: &BTreeSet<Ordinal>,
) -> Result<Vec<AttachmentCandidate>, ContentNotLoaded> {
    let state = &*session.working().state;
    let policy = &session.policy().attachments;
    let counter = session.counter();
    let sized = |one: AttachmentCandidate| one.with_size(counter);
    let mut all = file_candidates(session, &tracked_files(session)?, leaving);
    all.extend(state.plan.as_ref().map(wording::plan).map(sized));
    all.extend(skills(session, state));
    let mode = state.plan_mode.as_ref();
    all.extend(
        mode.filter(|mode| mode.active)
            .map(wording::plan_mode)
            .map(sized),
    );
    if policy.tasks && !state.tasks.is_empty() {
        all.push(sized(wording::tasks(&state.tasks)));
    }
    if policy.capabilities {
        all.extend(capabilities(session, state).into_iter().map(sized));
    }
    if policy.permissions {
        let permissions = state.permissions.as_ref();
        all.extend(permissions.and_then(wording::permissions).map(sized));
    }
    if policy.notes && !state.notes.is_empty() {
        all.push(sized(wording::notes(&state.notes)));
    }
    // Pins of messages and blocks protect content in the view. Only a text pin needs an attachment.
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

/// Returns files with recent access, and instruction files. Files that the view still shows are skipped.
fn file_candidates(
    session: &Session,
    known: &[TrackedFile],
    leaving: &BTreeSet<Ordinal>,
) -> Vec<AttachmentCandidate> {
    let (policy, counter) = (&session.policy().attachments, session.counter());
    let mut all = Vec::new();
    let (mut count, mut free_tokens) = (0, u64::from(policy.max_files_tokens));
    let hidden = |file: &&TrackedFile| !file.is_instructions && !file.is_shown(session, leaving);
    // A limit of 0 turns file attachments off. Otherwise files that do not fit are recorded as omitted.
    for file in known.iter().filter(hidden) {
        if policy.max_files == 0 || policy.max_file_tokens == 0 || policy.max_files_tokens == 0 {
            break;
        }
        let Some(candidate) = wording::file(file, policy.max_file_tokens) else {
            continue;
        };
        let mut candidate = candidate.with_size(counter);
        let tokens = u64::from(candidate.size.tokens);
        candidate.edited = file.is_edited;
        // A smaller file further down can still fit, so the loop continues after a file that does not.
        candidate.omitted = count >= policy.max_files || tokens > free_tokens;
        if !candidate.omitted {
            count += 1;
            free_tokens -= tokens;
        }
        all.push(candidate);
    }
    let instructions = known.iter().filter(|file| file.is_instructions);
    let hidden = instructions.filter(|file| !file.is_shown(session, leaving));
    let instructions = hidden.filter_map(wording::instructions);
    all.extend(instructions.map(|one| one.with_size(counter)));
    all
}

/// Returns the skills, latest invocation first. Skills that exceed the token limit are marked as omitted.
fn skills(session: &Session, state: &WorkingState) -> Vec<AttachmentCandidate> {
    let policy = &session.policy().attachments;
    if policy.max_skill_tokens == 0 || policy.max_skills_tokens == 0 {
        return Vec::new();
    }
    let mut skills: Vec<&Skill> = state.skills.iter().collect();
    skills.sort_by_key(|skill| std::cmp::Reverse(skill.invoked));
    let mut free_tokens = u64::from(policy.max_skills_tokens);
    let one = |skill: &Skill| {
        let candidate = wording::skill(skill, policy.max_skill_tokens);
        let mut candidate = candidate.with_size(session.counter());
        let tokens = u64::from(candidate.size.tokens);
        candidate.omitted = tokens > free_tokens;
        if !candidate.omitted {
            free_tokens -= tokens;
        }
        candidate
    };
    skills.into_iter().map(one).collect()
}

/// Returns the complete lists of capabilities. Earlier announcements have left the view or leave with the next
/// compaction, so a difference would be incomplete. Capabilities that were removed since the last compaction are named
/// too, because the summary may still mention them.
fn capabilities(session: &Session, state: &WorkingState) -> Vec<AttachmentCandidate> {
    let boundaries = session.compactions().boundaries.iter().rev();
    let mut in_effect = boundaries.filter(|boundary| {
        let mark = session.transcript().get(boundary.message);
        mark.is_some_and(|entry| entry.visibility == Visibility::TranscriptOnly)
            && boundary
                .summary
                .is_none_or(|summary| session.transcript().is_in_view(summary))
    });
    let since = in_effect.next().map(|boundary| boundary.revision);
    let since = since.unwrap_or(Revision::ZERO);
    // Only a compaction that is still in force counts. An undone one announced nothing.
    let of_kind = |kind: CapabilityKind| {
        let gone = session.working().delisted_since(kind, since);
        wording::capabilities(kind, state.capabilities(kind), &gone)
    };
    CapabilityKind::ALL
        .into_iter()
        .filter_map(of_kind)
        .collect()
}

/// Keeps only the first omitted candidates.
fn limit_omitted(all: &mut Vec<AttachmentCandidate>) {
    let mut omitted = 0;
    // The event lists every candidate, and a session can know any number of files.
    all.retain(|candidate| {
        omitted += usize::from(candidate.omitted);
        !candidate.omitted || omitted <= MAX_OMITTED
    });
}

/// Returns the message of a candidate in an `Arc`.
pub(crate) fn shared_message(candidate: &AttachmentCandidate, id: MessageId) -> Arc<Message> {
    Arc::new(candidate.message(id))
}

//! Recovery reports that read the log: the content that left the view over the whole session, and the content that an
//! undo returned.

use palimpsest_core::command::Rejection;
use palimpsest_core::event::Event;
use palimpsest_core::ids::{MessageId, Revision, SessionKey};
use palimpsest_core::levels::recovery::RecoveryIndex;
use palimpsest_core::session::Session;
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert;
use crate::errors::ServiceError;

/// The maximum number of view-changing events that one report covers.
const MAX_EVENTS: usize = 200;

/// Returns all content that is no longer in the view, for the target used last. With a message, only the content that
/// contains the message or belongs to it.
pub(super) async fn whole(
    service: &Service,
    key: &SessionKey,
    message: Option<MessageId>,
) -> Result<v1::RecoveryReport, ServiceError> {
    let changes = |session: &Session| {
        // The latest changes come first, so the limit of `read` omits the oldest events.
        let changes = session.view_changes().iter().rev();
        let revisions = changes.map(|change| change.revision);
        revisions.collect::<Vec<_>>()
    };
    let revisions = service.sessions.read(key, changes).await?;
    let events = read(service, key, &revisions).await?;
    // Content may be removed several times. The latest removal is reported, so events are read in reverse order.
    let look = |session: &Session| {
        let find = |id| {
            let found = session.transcript().find(id);
            found.ok_or(Rejection::MessageNotFound { id })
        };
        let message = message.map(find).transpose()?;
        let target = &session.last_served().target;
        let recovery = RecoveryIndex::new(session, target);
        let removed = events
            .iter()
            .flat_map(|(revision, event)| recovery.removed_by(event, *revision).into_iter().rev());
        // The model saw only a preview of such a result, also before its message left the view.
        let replaced = match message {
            Some(message) => recovery.replaced_results_of(message),
            None => recovery.replaced_results(),
        };
        let all = removed.chain(replaced.into_iter().rev());
        let mut gone = recovery.deduplicate(all.flat_map(|it| recovery.parts(it, true)));
        // The search started with the latest removal, and the report starts with the oldest.
        gone.reverse();
        if let Some(message) = message {
            gone.retain(|removed| recovery.is_of_message(removed.content, message));
        }
        Ok(v1::RecoveryReport {
            incomplete: revisions.len() > events.len(),
            ..convert::recovery_report(session, &recovery, &gone)
        })
    };
    let report: Result<_, Rejection> = service.sessions.read_full(key, look).await?;
    Ok(report?)
}

/// Returns the content that an undo returned to the view. `would` is true for a dry run.
pub(super) async fn returned(
    service: &Service,
    key: &SessionKey,
    undone: &[v1::UndoneEvent],
    would: bool,
) -> Result<v1::RecoveryReport, ServiceError> {
    let revisions: Vec<_> = undone
        .iter()
        .map(|event| Revision::new(event.revision))
        .collect();
    let events = read(service, key, &revisions).await?;
    let look = |session: &Session| {
        let target = &session.last_served().target;
        let recovery = RecoveryIndex::new(session, target);
        let removed = events
            .iter()
            .flat_map(|(revision, event)| recovery.removed_by(event, *revision).into_iter().rev());
        let mut back = recovery.deduplicate(removed.flat_map(|it| recovery.parts(it, would)));
        back.reverse();
        let mut report = v1::RecoveryReport {
            incomplete: revisions.len() > events.len(),
            ..v1::RecoveryReport::default()
        };
        convert::returned(&mut report, session, &recovery, &back);
        report
    };
    Ok(service.sessions.read_full(key, look).await?)
}

/// Reads the events with these revisions, at most the first [`MAX_EVENTS`].
async fn read(
    service: &Service,
    key: &SessionKey,
    revisions: &[Revision],
) -> Result<Vec<(Revision, Event)>, ServiceError> {
    let mut events = Vec::new();
    for revision in revisions.iter().take(MAX_EVENTS) {
        // Each call reads the log, so `MAX_EVENTS` bounds the cost of a report.
        let recorded = service.sessions.event(key, *revision).await?;
        events.extend(recorded.map(|recorded| (*revision, recorded.event)));
    }
    Ok(events)
}

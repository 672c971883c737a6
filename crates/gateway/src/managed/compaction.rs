//! Compacts a conversation for a client that takes the compacted conversation in place of its own.
//!
//! The session takes the conversation as for a request to a model. Then a manual compaction runs. The answer contains the
//! view: the summary, and the messages beside it in the form that the client knows.

use std::collections::BTreeSet;

use palimpsest_core::array::own_summary_tip;
use palimpsest_core::command::{
    Command, ExternalSummary, Rejection, SkipReason, StartCompaction, SummarySource,
};
use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest};
use palimpsest_core::event::{CompactionFailureReason, Event, Trigger};
use palimpsest_core::ids::{MessageId, Ordinal, SessionKey};
use palimpsest_core::json::RawJson;
use palimpsest_core::levels::compaction::summary_input;
use palimpsest_core::message::{Block, CanonicalDigests, Digest, Message, Role, Usage};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::summary::{SummaryFrame, frame};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::compaction::{self, CompactionCall};
use palimpsest_engine::sessions::{MissingSession, Transaction};
use palimpsest_engine::turn::{CompactionMode, SyncInput, TurnCall, add_tip};

use super::EngineContext;
use super::compacted_items::{CompactedItems, content, own_summary};
use super::session::{place, reason};
use crate::context::{
    CompactedConversation, ManagedRequest, ModelBody, ModelOptions, ModelRequest, Purpose,
    Unmanaged,
};

impl EngineContext {
    /// Takes the conversation of a request, compacts it, and returns the compacted conversation.
    pub(super) async fn compact(
        &self,
        request: &ModelRequest,
        (key, offer): (Option<SessionKey>, Option<&RawJson>),
        (mut call, input): (TurnCall, &SyncInput),
    ) -> Result<ManagedRequest, Unmanaged> {
        let model = call.target.model.as_deref().map(str::to_owned);
        // The request has no tools and no limit of the output, so it states nothing about the next prompt.
        call.prefix = None;
        call.target.window = None;
        // The manual compaction follows.
        call.compaction_mode = CompactionMode::Never;
        let syncing = self.sync(request, (key, offer), (&call, input), |_, _| Ok(()));
        let (key, _) = syncing.await?;
        let compaction = CompactionCall::waiting(CompactionRequest::new(Trigger::Manual));
        let rounds = compaction::compact_repeatedly(&self.engine, &key, &compaction);
        let rounds = rounds.await.map_err(|error| reason(&error))?;
        let usage = usage_of(&key, &rounds)?;
        let mut next_id = self.engine.next_id();
        // `decide` runs again if another writer commits first, so its ids are chosen before it.
        let (id, ids) = (next_id(), [next_id(), next_id()]);
        let requires_summary = request.purpose
            == Purpose::Compaction {
                requires_summary: true,
            };
        let decide = |transaction: &mut Transaction<'_>| {
            let session = transaction.session();
            let lacks_summary = session.map(lacks_summary).transpose()?.unwrap_or(false);
            if requires_summary && lacks_summary {
                quote_all(transaction, ids)?;
            }
            add_tip(transaction, summary_tip)
        };
        let (body, name) = (request.body.whole(), id.to_string());
        let items = CompactedItems::new(&body, &input.elements, &name);
        let finish = |session: &Session, (): &()| Ok((place(session), items.of(session)?));
        let (sessions, missing) = (&self.engine.sessions, MissingSession::Reject);
        let written = sessions.write(&key, &missing, decide, finish).await;
        let (place, (items, summary)) = written.map_err(|error| reason(&error.into()))?;
        let conversation = CompactedConversation {
            id: name,
            created_at_seconds: sessions.clock().now().as_millis() / 1000,
            items,
            summary,
            usage,
        };
        Ok(ManagedRequest {
            body: ModelBody::Compacted(Box::new(conversation)),
            model,
            options: ModelOptions::default(),
            place,
            offered: None,
            edits: None,
        })
    }
}

/// Returns the tokens of the models that wrote the summaries. Fails if the conversation could not be compacted. That
/// nothing can be summarized is no failure.
fn usage_of(key: &SessionKey, rounds: &[CompactionOutcome]) -> Result<Usage, Unmanaged> {
    let mut usage = Usage::default();
    for round in rounds {
        let failure = match round {
            CompactionOutcome::Event(event, _) => match &**event {
                Event::CompactionFinished(finished) => {
                    usage = add(usage, finished.usage);
                    continue;
                }
                // A summary would not shorten the view, so the client gets the view as it is.
                Event::CompactionFailed(failed)
                    if failed.reason == CompactionFailureReason::NotSmaller =>
                {
                    continue;
                }
                Event::CompactionFailed(failed) => format!("{:?}", failed.reason),
                _ => "it did not end".to_owned(),
            },
            CompactionOutcome::Skipped(
                SkipReason::NothingEligible
                | SkipReason::TooLittleGain
                | SkipReason::TooLittleInput,
            )
            | CompactionOutcome::Answered(_) => continue,
            CompactionOutcome::Skipped(skip) => format!("{skip:?}"),
            CompactionOutcome::Running(_) => "it waits for another model".to_owned(),
        };
        tracing::warn!(session = %key, failure, "cannot compact a conversation for its client; the request is forwarded");
        return Err(Unmanaged::Rejected);
    }
    Ok(usage)
}

fn add(one: Usage, other: Usage) -> Usage {
    Usage {
        input_tokens: one.input_tokens + other.input_tokens,
        cache_read_tokens: one.cache_read_tokens + other.cache_read_tokens,
        cache_write_tokens: one.cache_write_tokens + other.cache_write_tokens,
        output_tokens: one.output_tokens + other.output_tokens,
    }
}

fn lacks_summary(session: &Session) -> Result<bool, Rejection> {
    Ok(own_summary(session)?.is_none())
}

/// Replaces a conversation in which nothing can be summarized by its own text. The client of such a request drops the
/// messages of the model in any case, so the summary must contain them.
fn quote_all(
    transaction: &mut Transaction<'_>,
    [summary, mark]: [MessageId; 2],
) -> Result<(), Rejection> {
    let Some(session) = transaction.session() else {
        return Ok(());
    };
    let pieces = session.sealed().pieces().iter();
    let shown: Vec<Ordinal> = pieces.map(|piece| piece.message).collect();
    let quoted = summary_input(session, &shown, &BTreeSet::new())?
        .into_iter()
        .map(|message| {
            let author = match message.role {
                Role::Assistant => "Assistant",
                _ => "User",
            };
            format!("{author}: {}", message.text)
        });
    let quoted = quoted.collect::<Vec<_>>().join("\n\n");
    let text = frame(&quoted, SummaryFrame::default());
    let external = ExternalSummary {
        summary: Message::new(summary, Role::User, vec![Block::text(text)]).into(),
        first: None,
        last: None,
        kept: Vec::new(),
        before_tokens: None,
        mark,
    };
    let source = SummarySource::External(Box::new(external));
    transaction.run_served(&TargetOverride::default(), None, |expected_revision| {
        Command::StartCompaction(StartCompaction {
            expected_revision,
            ..StartCompaction::new(Trigger::Manual, source)
        })
    })?;
    Ok(())
}

/// Returns the tip of the last summary of the view. The client combines the summary with messages of its choice.
fn summary_tip(session: &Session) -> Result<Option<Digest>, ContentNotLoaded> {
    let summary = own_summary(session)?;
    let summary = summary.map(|at| content(session, at)).transpose()?;
    Ok(summary.map(|message| own_summary_tip(CanonicalDigests::of(message).key())))
}

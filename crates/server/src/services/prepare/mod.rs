//! `PrepareContext`: runs a turn and returns the delta for the caller's array.

mod render;

use palimpsest_core::command::SkipReason;
use palimpsest_core::compaction::CompactionOutcome;
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, Session, View};
use palimpsest_core::view::{BreakpointRequest, Target, breakpoints};
use palimpsest_engine::call::SPANS;
use palimpsest_engine::sessions::Transaction;
use palimpsest_engine::turn::{
    CompactionMode, OmittedCompaction, Overflow, TurnCall, TurnOutcome, turn,
};
use palimpsest_proto::context::v1::{self, PrepareContextRequest, PrepareContextResponse};
use palimpsest_store::error_chain;

use self::render::{management, put_messages};
pub(super) use self::render::{messages_json, typed};
use super::append::AppendCall;
use super::cache_control::{cache_control_dropped, messages_have_cache_control};
use super::commit_summary::gap_tokens;
use super::overrides::Overrides;
use super::view_report::{budget, budget_warnings, prepared_cache_ledger, removed, tokens};
use super::{Service, delegation, etag};
use crate::convert::{self, BreakpointOptions, MessageForm};
use crate::errors::ServiceError;

/// A validated request. Options that depend on the session are resolved later.
pub(super) struct PrepareCall {
    append: AppendCall,
    pub(super) turn: TurnCall,
    form: MessageForm,
    breakpoints: Option<BreakpointOptions>,
    /// True if the messages have markers of the prompt cache, and the call requests none.
    drops_cache_control: bool,
    max_reply_bytes: usize,
}

pub(super) async fn prepare(
    service: &Service,
    request: PrepareContextRequest,
) -> Result<PrepareContextResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let call = read_call(service, request)?;
    let missing = service.create_if_missing(&key.project);
    let intake = |transaction: &mut Transaction<'_>| call.append.input.run(transaction);
    let finish = |session: &Session, outcome: &TurnOutcome| call.respond(service, session, outcome);
    let done = turn(service, &key, &missing, &call.turn, intake, finish).await?;
    let mut response = done.answer;
    report_omitted(service, &key, done.omitted, &mut response).await?;
    response.delegated_request = call.delegated_request(service, &key).await;
    // A repeat returns the recorded result of its append.
    if let Some(original) = done.original {
        let result = |session: &Session| call.append.result(session, &original);
        response.append = Some(service.sessions.read(&key, result).await?);
    }
    Ok(response)
}

/// Reports a compaction that was due and whose effect is not in the reply.
pub(super) async fn report_omitted(
    service: &Service,
    key: &SessionKey,
    omitted: Option<OmittedCompaction>,
    response: &mut PrepareContextResponse,
) -> Result<(), ServiceError> {
    match omitted {
        None => {}
        Some(OmittedCompaction::NotPermitted) => response.level_reports.push(not_permitted()),
        Some(OmittedCompaction::Running) => response.level_reports.push(compaction_started()),
        Some(OmittedCompaction::NothingLeft) => {
            // The turn was committed before this error, so the appended messages stay.
            let report = |session: &Session| {
                let compacts = session.policy().autocompact.enabled;
                (tokens(session, None), compacts)
            };
            let (tokens, compacts) = service.sessions.read(key, report).await?;
            return Err(ServiceError::prompt_too_long(&tokens, compacts));
        }
    }
    Ok(())
}

/// Reads a request. A rejected request has changed nothing.
pub(super) fn read_call(
    service: &Service,
    request: PrepareContextRequest,
) -> Result<PrepareCall, ServiceError> {
    let form = convert::form(request.form, "form")?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let (expected, mode) = (request.expected_revision, request.compaction_mode());
    let converting = tracing::debug_span!(target: SPANS, "convert");
    let format = convert::last_format(&request.messages);
    let drops_cache_control =
        request.cache_breakpoints.is_none() && messages_have_cache_control(&request.messages);
    let read = || AppendCall::read(service, request.messages, None, expected, stamp);
    let append = converting.in_scope(read)?;
    // An invalid target is rejected before anything is committed.
    let mut target = convert::target_override(request.target, &service.model_table)?;
    target.format = format;
    let asked = request.cache_breakpoints.as_ref();
    let breakpoints = convert::breakpoint_options(asked, request.prompt_prefix.as_ref())?;
    let overrides = request.compaction_overrides.as_ref();
    let overrides = Overrides::read(service, "compaction_overrides", overrides)?;
    if request.delegate_summary && overrides.model.is_some() {
        return Err(ServiceError::invalid(
            "compaction_overrides.model",
            "has no effect with delegate_summary, because the caller chooses the model: omit it",
        ));
    }
    // An invalid etag counts as unknown, so the reply contains the whole view. An etag is valid for its form only.
    // The domain checks its target.
    let known = etag::read(&request.known_etag).filter(|named| named.form == form);
    Ok(PrepareCall {
        append,
        turn: TurnCall {
            compact_at: None,
            clear: None,
            target,
            known_etag: known.map(|named| named.etag),
            prefix: convert::prompt_prefix(request.prompt_prefix)?,
            interrupt_open_calls: request.interrupt_open_calls,
            cache_edits: request.cache_edits_supported,
            compaction_mode: match mode {
                v1::CompactionMode::Unspecified | v1::CompactionMode::Wait => CompactionMode::Wait,
                v1::CompactionMode::Background => CompactionMode::Background,
                v1::CompactionMode::Never => CompactionMode::Never,
            },
            model: overrides.model,
            instructions: overrides.instructions,
            delegates_summary: request.delegate_summary,
            overflow: request.prompt_too_long.as_ref().map(|told| Overflow {
                gap_tokens: gap_tokens(told),
            }),
            dry_run: request.dry_run,
            before_commit: None,
        },
        form,
        breakpoints,
        drops_cache_control,
        max_reply_bytes: service.limits().max_reply_bytes,
    })
}

/// Returns the level report for a compaction that the call does not permit.
fn not_permitted() -> v1::LevelReport {
    let mut report = convert::skipped(v1::Level::Compaction, SkipReason::Disabled);
    report.set_skip_reason(v1::SkipReason::DisabledByCaller);
    report
}

/// Returns the level report for a compaction that continues while the caller gets the current view.
fn compaction_started() -> v1::LevelReport {
    v1::LevelReport {
        level: v1::Level::Compaction.into(),
        action: v1::LevelAction::Started.into(),
        ..v1::LevelReport::default()
    }
}

/// Returns the reports of all levels that acted or were skipped.
fn level_reports(session: &Session, outcome: &TurnOutcome, dry_run: bool) -> Vec<v1::LevelReport> {
    let report = |(_, event): &(Revision, Event)| convert::stage(event, session, dry_run);
    let skipped =
        |level: v1::Level, skip: Option<SkipReason>| skip.map(|skip| convert::skipped(level, skip));
    let compacted = match &outcome.compacted {
        Some(CompactionOutcome::Event(event, _)) => convert::stage(event, session, dry_run),
        Some(CompactionOutcome::Skipped(skip)) => skipped(v1::Level::Compaction, Some(*skip)),
        // The compaction waits for the summary of the caller's model.
        Some(CompactionOutcome::Running(_)) => Some(compaction_started()),
        Some(CompactionOutcome::Answered(_)) | None => None,
    };
    let mut reports: Vec<_> = outcome.levels.iter().filter_map(report).collect();
    reports.extend(skipped(v1::Level::Microcompact, outcome.clear_skip));
    reports.extend(skipped(v1::Level::Collapse, outcome.collapse_skip));
    reports.extend(compacted);
    reports.extend(outcome.dropped.as_ref().and_then(report));
    reports
}

impl PrepareCall {
    /// Returns the request for the caller's model if a delegated compaction awaits its summary. The view is valid
    /// without it, so an error is logged and the next call tries again.
    pub(super) async fn delegated_request(
        &self,
        service: &Service,
        key: &SessionKey,
    ) -> Option<v1::DelegatedRequest> {
        if !self.turn.delegates_summary || self.turn.dry_run {
            return None;
        }
        let options = (&self.turn.target, self.form);
        let request = Box::pin(delegation::request(service, key, None, options)).await;
        request.unwrap_or_else(|error| {
            let error = error_chain(&error);
            tracing::warn!(session = %key, error, "failed to write the request for a summary; the next call tries again");
            None
        })
    }

    /// Builds the reply with its cache ledger.
    pub(super) fn respond(
        &self,
        service: &Service,
        session: &Session,
        outcome: &TurnOutcome,
    ) -> Result<PrepareContextResponse, ContentNotLoaded> {
        let mut response = self.answer(session, outcome)?;
        let (target, _) = self.turn.target(session);
        let ledger = prepared_cache_ledger(service, session, &target, &response)?;
        response.cache_ledger = Some(ledger);
        Ok(response)
    }

    fn answer(
        &self,
        session: &Session,
        outcome: &TurnOutcome,
    ) -> Result<PrepareContextResponse, ContentNotLoaded> {
        let (target, _) = self.turn.target(session);
        // `keep` refers to the caller's array only if the etag matches. Without an etag the whole view is returned.
        let view = session.view(&target, self.turn.known_etag)?;
        let mut response = PrepareContextResponse {
            keep_messages: view.keep,
            etag: etag::write(view.etag, self.form, &target).into(),
            view_messages: view.length,
            sendable: view.not_sendable.is_none(),
            not_sendable_reason: convert::not_sendable(view.not_sendable.as_ref()).into(),
            open_calls: convert::open_calls(session, view.not_sendable.as_ref()),
            revision: session.revision().get(),
            epoch: session.sealed().epoch().get().into(),
            repairs: convert::repairs(session, &view.repairs),
            tokens: Some(tokens(session, self.turn.prefix_tokens(session))),
            budget: Some(budget(session, &self.turn.target)),
            warnings: self.warnings(session, outcome, &view),
            level_reports: level_reports(session, outcome, self.turn.dry_run),
            cache_edits: self.edits(session, &target, view.length, &outcome.levels)?,
            cache_breakpoints: self.cache_breakpoints(session, &target, view.length)?,
            context_management_json: management(session, &target),
            recovery: removed(session, &self.turn.target, outcome.removed()),
            ..PrepareContextResponse::default()
        };
        if !self.append.input.is_empty() {
            let appended = outcome.appended.now();
            let result = appended.map(|appended| self.append.result(session, appended));
            response.append = Some(result.unwrap_or_default());
        }
        let form = (&view, self.form, self.max_reply_bytes);
        put_messages(&mut response, session, &target, form)?;
        Ok(response)
    }

    /// Returns the warnings of the reply.
    fn warnings(
        &self,
        session: &Session,
        outcome: &TurnOutcome,
        view: &View<'_>,
    ) -> Vec<v1::Warning> {
        let mut warnings = convert::warnings(&outcome.appended.warnings(session));
        warnings.extend(convert::repair_warnings(session, &view.repairs));
        let compaction = match &outcome.compacted {
            Some(CompactionOutcome::Event(event, _)) => convert::CompactionResult::of(event),
            Some(CompactionOutcome::Skipped(skip)) => convert::CompactionResult::of_skip(*skip),
            _ => convert::CompactionResult::None,
        };
        warnings.extend(budget_warnings(session, &self.turn.target, compaction));
        if self.drops_cache_control {
            warnings.push(cache_control_dropped());
        }
        warnings
    }

    /// Returns the cache edits for the next request, or `None` if they are not supported or not needed.
    fn edits(
        &self,
        session: &Session,
        target: &Target,
        length: u32,
        events: &[(Revision, Event)],
    ) -> Result<Option<v1::CacheEdits>, ContentNotLoaded> {
        let batches = session.cache_edits().batches();
        if batches.is_empty() || !self.turn.edits_cache(target) {
            return Ok(None);
        }
        // Each request repeats all earlier edits. `newly_added` marks those of this call.
        let new = events.iter().find_map(|(_, event)| match event {
            Event::CacheEditsIssued(event) => Some(event.message),
            _ => None,
        });
        let mut all = v1::CacheEdits::default();
        let positions = session.edit_positions(target, length)?;
        for (batch, position) in batches.iter().zip(positions) {
            // An edit without a position in the current array is left out.
            let Some(position) = position else {
                continue;
            };
            all.edits.push(convert::cache_edit(
                session,
                batch,
                position,
                new == Some(batch.message),
            ));
            all.freed_tokens += convert::edited_tokens(session, batch);
        }
        Ok(Some(all))
    }

    /// Returns the positions for cache breakpoints if the caller requested them.
    fn cache_breakpoints(
        &self,
        session: &Session,
        target: &Target,
        length: u32,
    ) -> Result<Vec<v1::CacheBreakpoint>, ContentNotLoaded> {
        let Some(asked) = &self.breakpoints else {
            return Ok(Vec::new());
        };
        let wanted = BreakpointRequest {
            length,
            max_breakpoints: asked.most,
            caller_system: asked.own_system.as_deref(),
        };
        let found = breakpoints(session, target, wanted)?;
        Ok(convert::cache_breakpoints(&found, target.provider, asked))
    }
}

//! `PrepareContext`: appends messages, runs the levels, serves the view and returns the delta for the caller's
//! array.

mod done;
mod render;

use palimpsest_core::command::{
    CheckThresholds, Clear, Clearing, Collapse, Collapsing, Command, Rejection, ServeView,
    SkipReason,
};
use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest};
use palimpsest_core::effect::FollowUp;
use palimpsest_core::event::{Event, Trigger};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::{ContentNotLoaded, Session, View};
use palimpsest_core::view::{
    BreakpointRequest, Etag, Provider, Target, TargetOverride, breakpoints,
};
use palimpsest_proto::context::v1::{
    self, CompactionMode, PrepareContextRequest, PrepareContextResponse,
};

use self::done::{PrepareOutcome, folds, is_of_a_level};
use self::render::{management, put_messages};
pub(super) use self::render::{messages_json, typed};
use palimpsest_engine::call::{Deadline, SPANS};
use palimpsest_engine::compaction::{self, RejectedPrompt};
use palimpsest_engine::sessions::{Changed, CommandOutcome, MissingSession, Transaction};
use palimpsest_engine::staging;

use super::append::{AppendInput, AppendStatus, budget, tokens};
use super::commit_summary::gap_tokens;
use super::overrides::Overrides;
use super::recovery::removed;
use super::{Service, cache_ledger, etag};
use crate::convert::{self, BreakpointOptions, MessageForm, PrefixTokens, PromptPrefix};
use crate::errors::ServiceError;

/// The provider's rejection of a prompt as too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Overflow {
    /// The number of tokens above the limit, if known.
    gap_tokens: Option<u64>,
}

/// A validated request. Options that depend on the session are resolved later.
struct PrepareCall {
    incoming: AppendInput,
    target: TargetOverride,
    known: Option<etag::ViewName>,
    form: MessageForm,
    prefix: Option<PromptPrefix>,
    interrupt_open_calls: bool,
    cache_edits: bool,
    mode: CompactionMode,
    overrides: Overrides,
    breakpoints: Option<BreakpointOptions>,
    /// Set if the provider rejected the last view as too long.
    overflow: Option<Overflow>,
    dry_run: bool,
    max_reply_bytes: usize,
}

pub(super) async fn prepare(
    service: &Service,
    request: PrepareContextRequest,
) -> Result<PrepareContextResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let dry_run = request.dry_run;
    let call = read_call(service, request)?;
    let missing = service.create_if_missing(&key.project);
    let decide = |transaction: &mut Transaction<'_>| call.decide(transaction);
    let finish = |session: &Session, done: &PrepareOutcome| call.respond(service, session, done);
    let changed = service
        .sessions
        .run_with_follow_ups(&key, &missing, dry_run, decide, finish)
        .await;
    let Changed {
        decided: done,
        answer: mut response,
        follow_ups,
    } = changed?;
    for follow_up in follow_ups {
        match follow_up {
            FollowUp::Compact(trigger) => {
                match Box::pin(call.compact(service, &key, trigger, &done)).await? {
                    ViewUpdate::Served(served) => response = *served,
                    ViewUpdate::Report(report) => response.level_reports.push(report),
                }
            }
            FollowUp::StageSpans => staging::begin(service, &key),
            FollowUp::PrepareSummary => compaction::prepare_ahead(service, &key),
        }
    }
    // A repeat returns the recorded result of its append.
    if let AppendStatus::Before(revision) = done.appended {
        response.append = Some(call.incoming.earlier(service, &key, revision).await?);
    }
    Ok(response)
}

/// Reads a request. A rejected request has changed nothing.
fn read_call(
    service: &Service,
    request: PrepareContextRequest,
) -> Result<PrepareCall, ServiceError> {
    let form = convert::form(request.form, "form")?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let (expected, mode) = (request.expected_revision, request.compaction_mode());
    let converting = tracing::debug_span!(target: SPANS, "convert");
    let read = || AppendInput::read(service, request.messages, expected, stamp);
    let incoming = converting.in_scope(read)?;
    // An invalid target is rejected before anything is committed.
    let target = convert::target_override(request.target)?;
    let asked = request.cache_breakpoints.as_ref();
    let breakpoints = convert::asked_breakpoints(asked, request.prompt_prefix.as_ref())?;
    let overrides = request.compaction_overrides.as_ref();
    let overrides = Overrides::read(service, "compaction_overrides", overrides)?;
    Ok(PrepareCall {
        incoming,
        overrides,
        target,
        // An invalid etag counts as unknown, so the reply contains the whole view.
        known: etag::read(&request.known_etag),
        form,
        prefix: convert::prompt_prefix(request.prompt_prefix)?,
        interrupt_open_calls: request.interrupt_open_calls,
        cache_edits: request.cache_edits_supported,
        mode,
        breakpoints,
        overflow: request.prompt_too_long.as_ref().map(|told| Overflow {
            gap_tokens: gap_tokens(told),
        }),
        dry_run: request.dry_run,
        max_reply_bytes: service.limits().max_reply_bytes,
    })
}

/// Returns the level report for a compaction that continues while the caller gets the current view.
fn started() -> v1::LevelReport {
    v1::LevelReport {
        level: v1::Level::Compaction.into(),
        action: v1::LevelAction::Started.into(),
        ..v1::LevelReport::default()
    }
}

/// The effect of a compaction on the reply.
enum ViewUpdate {
    /// The compaction has ended. The reply contains the new view.
    Served(Box<PrepareContextResponse>),
    /// The reply keeps its view and reports this about the compaction.
    Report(v1::LevelReport),
}

impl PrepareCall {
    /// Compacts the view, as far as the mode of the call permits.
    async fn compact(
        &self,
        service: &Service,
        key: &SessionKey,
        trigger: Trigger,
        done: &PrepareOutcome,
    ) -> Result<ViewUpdate, ServiceError> {
        match self.mode {
            CompactionMode::Never => {
                let mut report = convert::skipped(v1::Level::Compaction, SkipReason::Disabled);
                report.set_skip_reason(v1::SkipReason::DisabledByCaller);
                return Ok(ViewUpdate::Report(report));
            }
            CompactionMode::Background => {
                compaction::begin_in_background(service, key, self.wanted(trigger));
                return Ok(ViewUpdate::Report(started()));
            }
            CompactionMode::Wait | CompactionMode::Unspecified => {}
        }
        let overflow = self.overflow.filter(|_| trigger == Trigger::PromptTooLong);
        let rejected = overflow.map(|overflow| RejectedPrompt {
            view_tokens: done.before_tokens,
            gap_tokens: overflow.gap_tokens,
        });
        let report: fn(&Session) -> _ = |session| Box::new(tokens(session, None));
        let wanted = (self.wanted(trigger), rejected);
        let deadline = Deadline::current();
        let made = compaction::make_room(service, key, wanted, deadline, report).await?;
        let Some(made) = made else {
            return Ok(ViewUpdate::Report(started()));
        };
        let done = done.clone().with(made)?;
        // The compaction has committed and may have changed the view, so the view is served again. Its thresholds are
        // not checked again.
        let serve = |transaction: &mut Transaction<'_>| {
            self.serve(transaction)?;
            Ok(done.clone())
        };
        let finish =
            |session: &Session, done: &PrepareOutcome| self.respond(service, session, done);
        let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
        let again = sessions.run(key, missing, false, serve, finish).await?;
        Ok(ViewUpdate::Served(Box::new(again)))
    }

    /// Returns the compaction that this call starts.
    fn wanted(&self, asked: Trigger) -> CompactionRequest {
        CompactionRequest {
            model: self.overrides.model.clone(),
            instructions: self.overrides.instructions.clone(),
            ..CompactionRequest::new(asked)
        }
    }

    fn decide(&self, transaction: &mut Transaction<'_>) -> Result<PrepareOutcome, Rejection> {
        // Measured before the append: this is the size of the view that the provider may have rejected.
        let before_tokens = transaction
            .session()
            .map_or(0, |session| session.tokens().tokens);
        let appended = if self.incoming.is_empty() {
            AppendStatus::Now {
                event: None,
                persisted: None,
                created: false,
            }
        } else {
            self.incoming.run(transaction)?
        };
        let mut done = PrepareOutcome {
            appended,
            levels: Vec::new(),
            skipped: Vec::new(),
            compacted: None,
            dropped: None,
            before_tokens,
        };
        if transaction.session().is_none() {
            return Ok(done);
        }
        self.serve(transaction)?;
        let session = transaction.session();
        // Cache edits are issued only if both the caller and the provider support them.
        let target = session.map(|session| self.target(session).0);
        let cache_edits = self.cache_edits && target.as_ref().is_some_and(takes_edits);
        let session = session.filter(|_| cache_edits);
        let last = session
            .zip(target.as_ref())
            .and_then(|(session, target)| session.last_place(target, self.known_etag()));
        let clear = Clear {
            clearing: Clearing::Auto { cache_edits, last },
            expected_revision: None,
            request: None,
        };
        if let CommandOutcome::Skipped(skip) = transaction.run(Command::ClearResults(clear))? {
            done.skipped.push((v1::Level::Microcompact, skip));
        }
        let prompt_was_rejected = self.prompt_was_rejected(&done.appended);
        let collapse = Collapse {
            collapsing: if prompt_was_rejected {
                Collapsing::Overflow
            } else {
                Collapsing::Auto
            },
            expected_revision: None,
            request: None,
        };
        match transaction.run(Command::CollapseSpans(collapse))? {
            CommandOutcome::Skipped(skip) => done.skipped.push((v1::Level::Collapse, skip)),
            // Staging selects spans for a later collapse and does not change the view.
            CommandOutcome::Done(_) if !transaction.events().last().is_some_and(folds) => {
                done.skipped
                    .push((v1::Level::Collapse, SkipReason::NothingEligible));
            }
            CommandOutcome::Done(_) | CommandOutcome::Answered(_) => {}
        }
        transaction.run(Command::CheckThresholds(CheckThresholds {
            prompt_was_rejected,
        }))?;
        let revisions = transaction.revision_before().get() + 1..;
        let events = revisions.zip(transaction.events());
        done.levels = events
            .filter(|(_, recorded)| is_of_a_level(&recorded.event))
            .map(|(revision, recorded)| (Revision::new(revision), recorded.event.clone()))
            .collect();
        Ok(done)
    }

    /// Serves the view: its pending messages get pieces and are sealed.
    fn serve(&self, transaction: &mut Transaction<'_>) -> Result<(), Rejection> {
        let Some(session) = transaction.session() else {
            return Ok(());
        };
        let (target, window) = self.target(session);
        transaction.run(Command::ServeView(ServeView {
            target,
            window,
            overhead_tokens: self.prefix_tokens(session).map(PrefixTokens::total),
            interrupt_open_calls: self.interrupt_open_calls,
        }))?;
        Ok(())
    }

    /// Returns the size of the prompt prefix, counted with the session's estimator.
    fn prefix_tokens(&self, session: &Session) -> Option<PrefixTokens> {
        let prefix = self.prefix.as_ref()?;
        Some(prefix.tokens(session.counter()))
    }

    /// Returns true if this call handles a rejected prompt. An idempotent repeat does not handle it again.
    fn prompt_was_rejected(&self, appended: &AppendStatus) -> bool {
        self.overflow.is_some() && matches!(appended, AppendStatus::Now { .. })
    }

    /// Returns the target of the view. Omitted parts are those of the last call that served the view.
    fn target(&self, session: &Session) -> (Target, WindowHint) {
        session.last_served().overridden(&self.target)
    }

    /// Returns the etag of the caller's array. An etag is valid only for its form and target. The domain checks the
    /// target.
    fn known_etag(&self) -> Option<Etag> {
        let known = self.known.as_ref();
        let known = known.filter(|named| named.form == self.form)?;
        Some(known.etag)
    }

    /// Builds the reply with its cache ledger.
    fn respond(
        &self,
        service: &Service,
        session: &Session,
        done: &PrepareOutcome,
    ) -> Result<PrepareContextResponse, ContentNotLoaded> {
        let mut response = self.answer(session, done)?;
        let (target, _) = self.target(session);
        let ledger = cache_ledger::prepared(service, session, &target, &response)?;
        response.cache_ledger = Some(ledger);
        Ok(response)
    }

    fn answer(
        &self,
        session: &Session,
        done: &PrepareOutcome,
    ) -> Result<PrepareContextResponse, ContentNotLoaded> {
        let appended = &done.appended;
        let (target, _) = self.target(session);
        // `keep` refers to the caller's array only if the etag matches. Without an etag the whole view is returned.
        let view = session.view(&target, self.known_etag())?;
        let mut response = PrepareContextResponse {
            keep_messages: view.keep,
            etag: etag::write(view.etag, self.form, &target).into(),
            view_messages: view.length,
            sendable: view.unsendable.is_none(),
            not_sendable_reason: convert::not_sendable(view.unsendable.as_ref()).into(),
            open_calls: convert::open_calls(session, view.unsendable.as_ref()),
            revision: session.revision().get(),
            epoch: session.sealed().epoch().get().into(),
            repairs: convert::repairs(session, &view.repairs),
            tokens: Some(tokens(session, self.prefix_tokens(session))),
            budget: Some(budget(session, &self.target)),
            warnings: self.warnings(session, done, &view),
            level_reports: done.level_reports(session, self.dry_run),
            cache_edits: self.edits(session, &target, view.length, &done.levels)?,
            cache_breakpoints: self.cache_breakpoints(session, &target, view.length)?,
            context_management_json: management(session, &target),
            recovery: removed(session, &self.target, done.changes()),
            ..PrepareContextResponse::default()
        };
        if !self.incoming.is_empty() {
            response.append = Some(self.incoming.result(session, appended));
        }
        let form = (&view, self.form, self.max_reply_bytes);
        put_messages(&mut response, session, &target, form)?;
        Ok(response)
    }

    /// Returns the warnings of the reply.
    fn warnings(
        &self,
        session: &Session,
        done: &PrepareOutcome,
        view: &View<'_>,
    ) -> Vec<v1::Warning> {
        let mut warnings = convert::warnings(&done.appended.warnings(session));
        warnings.extend(convert::repair_warnings(session, &view.repairs));
        let (_, window) = self.target(session);
        let outcome = match &done.compacted {
            Some(CompactionOutcome::Event(event, _)) => convert::CompactionResult::of(event),
            Some(CompactionOutcome::Skipped(skip)) => convert::CompactionResult::of_skip(*skip),
            _ => convert::CompactionResult::None,
        };
        warnings.extend(convert::budget_warnings(session, window, outcome));
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
        let pins = session.cache_edits().pins();
        if !self.cache_edits || pins.is_empty() || !takes_edits(target) {
            return Ok(None);
        }
        // Each request repeats all earlier edits. `newly_added` marks those of this call.
        let new = events.iter().find_map(|(_, event)| match event {
            Event::CacheEditsIssued(event) => Some(event.message),
            _ => None,
        });
        let mut all = v1::CacheEdits::default();
        let places = session.edit_places(target, length)?;
        for (pin, place) in pins.iter().zip(places) {
            // An edit without a position in the current array is left out.
            let Some(place) = place else {
                continue;
            };
            all.edits.push(convert::cache_edit(
                session,
                pin,
                place,
                new == Some(pin.message),
            ));
            all.freed_tokens += convert::edited_tokens(session, pin);
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
            most: asked.most,
            own_system: asked.own_system.as_deref(),
        };
        let found = breakpoints(session, target, wanted)?;
        Ok(convert::cache_breakpoints(&found, target.provider, asked))
    }
}

/// Returns true if the provider's API supports cache edits.
fn takes_edits(target: &Target) -> bool {
    target.provider == Provider::Anthropic
}

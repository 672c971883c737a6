//! `Compact`: clears old tool results, collapses old rounds, or compacts the view, by level.

use palimpsest_core::command::{ClearTrigger, CollapseTrigger, CompactionScope, SkipReason};
use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest, Purpose};
use palimpsest_core::event::{CompactionFailureReason, Event, Trigger};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, RequestStamp, Session, Strategy};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::change::{ChangeCall, ChangeOutcome, Reduction};
use palimpsest_engine::compaction::{self, CompactionCall};
use palimpsest_proto::context::v1::compact_request::Range;
use palimpsest_proto::context::v1::{
    self, CompactRequest, CompactResponse, CompactionMode, CompactionStrategy, Level,
};

use super::overrides::{NO_MODEL, Overrides};
use super::view_report::{budget, budget_warnings, cache_ledger, removed, tokens};
use super::{Service, delegation};
use crate::convert::{self, MessageForm};
use crate::errors::ServiceError;

pub(super) async fn compact(
    service: &Service,
    request: CompactRequest,
) -> Result<CompactResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let by_hand = match v1::Trigger::try_from(request.trigger) {
        Ok(v1::Trigger::Unspecified | v1::Trigger::Manual) => true,
        Ok(v1::Trigger::Auto) => false,
        _ => return Err(ServiceError::invalid("trigger", "must be MANUAL or AUTO")),
    };
    let target_tokens = request.target_tokens.map(u64::from);
    let reduction = match Level::try_from(request.level) {
        Ok(Level::Microcompact) => Reduction::Clear(if by_hand {
            ClearTrigger::Manual { target_tokens }
        } else {
            // A `CompactRequest` states neither support for cache edits nor an array.
            ClearTrigger::Auto {
                cache_edits: false,
                last: None,
            }
        }),
        Ok(Level::Collapse) => Reduction::Collapse(if by_hand {
            CollapseTrigger::Manual { target_tokens }
        } else {
            CollapseTrigger::Auto
        }),
        Ok(Level::Unspecified | Level::Compaction) => {
            return autocompact(service, &key, request, by_hand).await;
        }
        // Levels 1 and 2 have their own rpcs.
        Ok(Level::ToolResultBudget | Level::Snip) | Err(_) => {
            return Err(ServiceError::invalid(
                "level",
                "must be MICROCOMPACT, COLLAPSE or COMPACTION",
            ));
        }
    };
    // An invalid target is rejected before anything is committed.
    let target = convert::target_override(request.target.clone(), &service.model_table)?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let revision = request.expected_revision.map(Revision::new);
    let change = ChangeCall {
        engine: service,
        key: &key,
        dry_run: request.dry_run,
    };
    let answer = |session: &Session, outcome: &ChangeOutcome, dry_run| {
        let level = level(reduction);
        let response = answer(service, session, (level, outcome), &target, dry_run)?;
        Ok((outcome.skip(), response))
    };
    let outcome = change.reduce(reduction, &target, (revision, stamp), answer);
    match outcome.await? {
        (None, response) => Ok(response),
        // A manual call without effect is rejected. For an automatic one, an unreached threshold is the normal
        // case.
        (_, response) if !by_hand => Ok(response),
        // A manual collapse does not depend on `collapse.enabled`, so only level 3 can be disabled.
        (Some(SkipReason::Disabled), _) => {
            Err(ServiceError::disabled_by_policy("microcompact.enabled"))
        }
        (Some(skip), _) => Err(ServiceError::nothing_to_compact(convert::skip_reason(skip))),
    }
}

const fn level(reduction: Reduction) -> Level {
    match reduction {
        Reduction::Clear(_) => Level::Microcompact,
        Reduction::Collapse(_) => Level::Collapse,
    }
}

fn answer(
    service: &Service,
    session: &Session,
    (level, outcome): (Level, &ChangeOutcome),
    target: &TargetOverride,
    dry_run: bool,
) -> Result<CompactResponse, ContentNotLoaded> {
    let stage = match (outcome, outcome.skip()) {
        (_, Some(skip)) => Some(convert::skipped(level, skip)),
        (ChangeOutcome::Event(event, _), None) => convert::stage(event, session, dry_run),
        (ChangeOutcome::Nothing | ChangeOutcome::Skipped(_), None) => None,
    };
    Ok(CompactResponse {
        level_reports: stage.into_iter().collect(),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(cache_ledger(service, session, target)?),
        warnings: budget_warnings(session, target, convert::CompactionResult::None),
        recovery: removed(session, target, outcome.event()),
        ..CompactResponse::default()
    })
}

/// Runs a compaction (level 5).
async fn autocompact(
    service: &Service,
    key: &SessionKey,
    request: CompactRequest,
    by_hand: bool,
) -> Result<CompactResponse, ServiceError> {
    // An invalid target is rejected before anything is committed.
    let target = convert::target_override(request.target.clone(), &service.model_table)?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let wanted = wanted(service, &request, target.clone(), (by_hand, stamp))?;
    let call = Autocompact {
        service,
        key,
        call: wanted,
        form: convert::form(request.form, "form")?,
        target,
    };
    // The futures of compactions are too large for the stack.
    Box::pin(call.run()).await
}

/// A `Compact` call for level 5.
struct Autocompact<'a> {
    service: &'a Service,
    key: &'a SessionKey,
    call: CompactionCall,
    form: MessageForm,
    target: TargetOverride,
}

/// The outcome, the reply, and the error that is returned in place of the reply, if any.
type CompactReply = (CompactionOutcome, CompactResponse, Option<ServiceError>);

impl Autocompact<'_> {
    async fn run(&self) -> Result<CompactResponse, ServiceError> {
        let (service, key) = (self.service, self.key);
        let render = |session: &Session, ended: &CompactionOutcome| self.reply(session, ended);
        let mut reply = Box::pin(compaction::compact(service, key, &self.call, render)).await?;
        // An idempotent repeat returns the outcome of the compaction that the original call started.
        if let CompactionOutcome::Answered(revision) = reply.0 {
            loop {
                let ended = compaction::outcome(service, key, &self.call, revision);
                let ended = Box::pin(ended).await?;
                reply = Box::pin(compaction::render_now(service, key, &ended, render)).await?;
                // The compaction may end between the read of its outcome and the reply. The reply then has no
                // compaction, and the outcome is read again.
                let has_ended = matches!(reply.0, CompactionOutcome::Running(_))
                    && reply.1.compaction.is_none();
                if !has_ended {
                    break;
                }
            }
        }
        let (ended, mut response, refused) = reply;
        if let Some(refused) = refused {
            return Err(refused);
        }
        let rounds = Box::pin(compaction::compact_rest(service, key, &self.call, &ended)).await?;
        // `autocompact.max_input_tokens` can split the compaction. The reply then covers all of its parts.
        if !rounds.is_empty() {
            let all = |session: &Session, _: &CompactionOutcome| {
                self.reply_for_series(session, &ended, &rounds)
            };
            response = Box::pin(compaction::render_now(service, key, &ended, all)).await?;
        }
        if let CompactionOutcome::Running(which) = ended {
            let options = (&self.target, self.form);
            let delegated = delegation::request(service, key, Some(which), options).await?;
            if delegated.is_some() {
                response.delegated_request = delegated;
                // The request may have dropped rounds to fit the window, so the running compaction is read again.
                let running = |session: &Session| convert::running_compaction(session);
                let running = service.sessions.read(key, running).await?;
                response.compaction = running.or(response.compaction);
            }
        }
        Ok(response)
    }

    fn reply(
        &self,
        session: &Session,
        ended: &CompactionOutcome,
    ) -> Result<CompactReply, ContentNotLoaded> {
        let (service, target) = (self.service, &self.target);
        let response = compacted(
            service,
            session,
            ended,
            target,
            self.call.request.is_dry_run,
        )?;
        // Only manual calls are rejected. Automatic calls report the reason in the reply.
        let by_hand = self.call.request.trigger == Trigger::Manual;
        let refused = by_hand.then(|| self.refusal(session, ended)).flatten();
        Ok((ended.clone(), response, refused))
    }

    /// Builds the reply for a compaction in several parts. It contains the last successful part and the level
    /// reports of all parts.
    fn reply_for_series(
        &self,
        session: &Session,
        first: &CompactionOutcome,
        rest: &[CompactionOutcome],
    ) -> Result<CompactResponse, ContentNotLoaded> {
        let target = &self.target;
        let render = |ended| compacted(self.service, session, ended, target, false);
        let (mut response, mut reports) = (CompactResponse::default(), Vec::new());
        for ended in std::iter::once(first).chain(rest) {
            let mut reply = render(ended)?;
            reports.append(&mut reply.level_reports);
            let succeeded = matches!(ended, CompactionOutcome::Event(event, _)
                if matches!(**event, Event::CompactionFinished(_)));
            // The reply describes the last part that took effect. A part that failed appears in the reports only.
            if succeeded {
                response = reply;
            }
        }
        let events = std::iter::once(first)
            .chain(rest)
            .filter_map(CompactionOutcome::event);
        response.level_reports = reports;
        response.recovery = removed(session, target, events);
        Ok(response)
    }

    fn refusal(&self, session: &Session, ended: &CompactionOutcome) -> Option<ServiceError> {
        let failed = match ended {
            CompactionOutcome::Event(event, _) => match &**event {
                Event::CompactionFailed(failed) => failed,
                _ => return None,
            },
            CompactionOutcome::Skipped(SkipReason::AlreadyRunning) => {
                let running = session.compactions().running.as_ref()?;
                return Some(ServiceError::compaction_running(running.key));
            }
            CompactionOutcome::Skipped(SkipReason::Disabled) => {
                return Some(ServiceError::disabled_by_policy(
                    "autocompact.manual_enabled",
                ));
            }
            CompactionOutcome::Skipped(skip) => {
                return Some(ServiceError::nothing_to_compact(convert::skip_reason(
                    *skip,
                )));
            }
            CompactionOutcome::Answered(_) | CompactionOutcome::Running(_) => return None,
        };
        match failed.reason {
            CompactionFailureReason::RangeChanged => {
                Some(ServiceError::range_changed(failed.key, session.revision()))
            }
            // For the caller, a summary that frees nothing is equivalent to a skip.
            CompactionFailureReason::NotSmaller => Some(ServiceError::nothing_to_compact(
                convert::skip_reason(SkipReason::TooLittleGain),
            )),
            // The hook's own reason is returned to the caller.
            CompactionFailureReason::HookVetoed | CompactionFailureReason::HookFailed => {
                compaction::refusal(&failed.hooks).map(ServiceError::from)
            }
            why => Some(ServiceError::no_summary(
                convert::failure_reason(why),
                &failed.detail,
                &self.model(session),
            )),
        }
    }

    /// Returns the name of the model for the summary: that of the call, the policy or the server, in this order.
    fn model(&self, session: &Session) -> String {
        let of_policy = session.policy().summary.model.as_deref();
        let of_server = self.service.models.as_ref().map(|models| models.main());
        let model = self
            .call
            .request
            .model
            .as_deref()
            .or(of_policy)
            .or(of_server);
        model.unwrap_or_default().to_owned()
    }
}

fn wanted(
    service: &Service,
    request: &CompactRequest,
    view: TargetOverride,
    (by_hand, stamp): (bool, Option<RequestStamp>),
) -> Result<CompactionCall, ServiceError> {
    let strategy = match CompactionStrategy::try_from(request.strategy) {
        Ok(CompactionStrategy::Unspecified) => None,
        Ok(CompactionStrategy::SessionMemory) => Some(Strategy::SessionMemory),
        Ok(CompactionStrategy::Extractive) => Some(Strategy::Extractive),
        // Rejected here, because the compaction would otherwise fail only after its start.
        Ok(CompactionStrategy::Model) if service.models.is_none() => {
            return Err(ServiceError::invalid("strategy", NO_MODEL));
        }
        Ok(CompactionStrategy::Model) => Some(Strategy::Model),
        Ok(CompactionStrategy::Delegated) => Some(Strategy::Delegated),
        Ok(CompactionStrategy::DropOldest) | Err(_) => {
            return Err(ServiceError::invalid(
                "strategy",
                "must be SESSION_MEMORY, MODEL, EXTRACTIVE or DELEGATED",
            ));
        }
    };
    let scope = match &request.range {
        None => CompactionScope::Whole,
        Some(Range::UpToMessageId(id)) => {
            CompactionScope::UpTo(convert::message_id(id, "up_to_message_id")?)
        }
        Some(Range::FromMessageId(id)) => {
            CompactionScope::From(convert::message_id(id, "from_message_id")?)
        }
    };
    let Overrides {
        model,
        instructions,
    } = Overrides::read(service, "overrides", request.overrides.as_ref())?;
    check_effect(request, strategy, (&model, &instructions))?;
    let waits = match CompactionMode::try_from(request.compaction_mode) {
        Ok(CompactionMode::Unspecified | CompactionMode::Wait) => true,
        Ok(CompactionMode::Background) => false,
        Ok(CompactionMode::Never) | Err(_) => {
            let what = "must be WAIT or BACKGROUND";
            return Err(ServiceError::invalid("compaction_mode", what));
        }
    };
    Ok(CompactionCall {
        request: CompactionRequest {
            max_memory_view_tokens: None,
            trigger: if by_hand {
                Trigger::Manual
            } else {
                Trigger::Auto
            },
            purpose: Purpose::Replace,
            strategy,
            is_delegated: false,
            scope,
            model,
            instructions,
            expected_revision: request.expected_revision.map(Revision::new),
            request: stamp,
            is_dry_run: request.dry_run,
        },
        waits,
        view: Some(view),
    })
}

/// Rejects parts of a request that the strategy would ignore.
fn check_effect(
    request: &CompactRequest,
    strategy: Option<Strategy>,
    (model, instructions): (&Option<Box<str>>, &Option<Box<str>>),
) -> Result<(), ServiceError> {
    let range = match &request.range {
        None => "",
        Some(Range::UpToMessageId(_)) => "up_to_message_id",
        Some(Range::FromMessageId(_)) => "from_message_id",
    };
    let parts = [
        (model.is_some(), "overrides.model"),
        (instructions.is_some(), "overrides.instructions"),
        (request.range.is_some(), range),
    ];
    // Session memory is written before the call and covers a part of the view that the call cannot choose.
    let (ignored, what): (&[_], _) = match strategy {
        Some(Strategy::SessionMemory) => (
            &parts,
            "has no effect with SESSION_MEMORY: omit it, or choose another strategy",
        ),
        Some(Strategy::Extractive) => (
            &parts[..2],
            "has no effect with EXTRACTIVE, which calls no model: omit it, or choose MODEL",
        ),
        Some(Strategy::Delegated) => (
            &parts[..1],
            "has no effect with DELEGATED, because the caller chooses the model: omit it",
        ),
        _ => (&[], ""),
    };
    match ignored.iter().find(|(is_set, _)| *is_set) {
        Some((_, field)) => Err(ServiceError::invalid(*field, what)),
        None => Ok(()),
    }
}

fn compacted(
    service: &Service,
    session: &Session,
    ended: &CompactionOutcome,
    target: &TargetOverride,
    dry_run: bool,
) -> Result<CompactResponse, ContentNotLoaded> {
    let mut stage = match ended {
        CompactionOutcome::Event(event, _) => convert::stage(event, session, dry_run),
        CompactionOutcome::Skipped(skip) => Some(convert::skipped(Level::Compaction, *skip)),
        CompactionOutcome::Answered(_) | CompactionOutcome::Running(_) => None,
    };
    // The compaction is a field of the reply, so it is moved out of the level report.
    let detail = stage.as_mut().and_then(|stage| stage.detail.take());
    let compaction = match detail {
        Some(v1::level_report::Detail::Compaction(compaction)) => Some(*compaction),
        _ if matches!(ended, CompactionOutcome::Running(_)) => convert::running_compaction(session),
        _ => None,
    };
    // A running compaction has no event yet, so its report is built here.
    if matches!(ended, CompactionOutcome::Running(_)) {
        stage = Some(v1::LevelReport {
            level: Level::Compaction.into(),
            action: v1::LevelAction::Started.into(),
            ..v1::LevelReport::default()
        });
    }
    let outcome = match ended {
        CompactionOutcome::Event(event, _) => convert::CompactionResult::of(event),
        CompactionOutcome::Skipped(skip) => convert::CompactionResult::of_skip(*skip),
        _ => convert::CompactionResult::None,
    };
    let event = ended.event();
    Ok(CompactResponse {
        level_reports: stage.into_iter().collect(),
        compaction,
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(cache_ledger(service, session, target)?),
        warnings: budget_warnings(session, target, outcome),
        recovery: removed(session, target, event),
        ..CompactResponse::default()
    })
}

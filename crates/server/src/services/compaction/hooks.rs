//! The hooks of a compaction: one before the summary is written, and those after the result is computed but before
//! it is committed.
//!
//! No lock on the session is held during a hook call. The hook receives a result that was computed on a copy. The
//! commit decides again on the current session. New messages stay in the view. If content left the view meanwhile,
//! the compaction fails.

use palimpsest_core::command::{
    AdvanceCompaction, Command, CompactionInput, StartCompaction, SummarySource,
};
use palimpsest_core::event::{CompactionFailureReason, Event, Trigger};
use palimpsest_core::ids::{CompactionKey, SessionKey};
use palimpsest_core::session::{
    CompactionHooks, Hook, HookCall, HookResult, RunningCompaction, Session,
};
use palimpsest_engine::sessions::{MissingSession, Transaction};
use palimpsest_proto::context::v1::{PostCompactRequest, SessionStartRequest, SessionStartSource};
use palimpsest_summarize::redact;

use super::prompt::standing;
use super::{
    CompactionJob, CompactionOutcome, CompactionRequest, StartOutcome, begun, compaction_messages,
    ended, repeat, usual, wait_for_memory,
};
use crate::convert;
use crate::errors::ServiceError;
use crate::services::Service;
use crate::services::append::budget;
use crate::services::hooks::{HookDecision, are_on, ask};

/// Returns true if hooks apply to the compaction. Dry runs call no hooks.
pub(super) async fn have_a_say(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
) -> Result<bool, ServiceError> {
    if wanted.dry_run {
        return Ok(false);
    }
    let look = |session: &Session| are_on(service, session);
    Ok(service.sessions.read(key, look).await?)
}

/// Starts a compaction with an existing summary. Returns `None` if no usable summary exists.
pub(super) async fn begin_ready(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
) -> Result<Option<StartOutcome>, ServiceError> {
    // Session memory comes before a prepared summary if the policy says so, or if the caller chose this strategy.
    if wanted.takes_memory() {
        wait_for_memory::wait_for_memory(service, key).await?;
        let only = wanted.strategy.is_some();
        let policy = |session: &Session| session.policy().autocompact.session_memory_first;
        let first = service.sessions.read(key, policy).await?;
        if first || only {
            match start(service, key, wanted, true).await? {
                StartOutcome::Ended(ended) if ended.is_of_no_use() && !only => {}
                begun => return Ok(Some(begun)),
            }
        }
    }
    if !wanted.takes_any() || wanted.strategy.is_some() {
        return Ok(None);
    }
    if wanted.trigger != Trigger::Manual {
        repeat::ahead_ends(service, key).await?;
    }
    match start(service, key, wanted, false).await? {
        StartOutcome::Ended(ended) if ended.is_of_no_use() => Ok(None),
        begun => Ok(Some(begun)),
    }
}

async fn start(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    memory: bool,
) -> Result<StartOutcome, ServiceError> {
    let made = compaction_messages(service, key).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        let outcome = wanted.run(transaction, |expected| {
            let source = if memory {
                SummarySource::SessionMemory(made.clone())
            } else {
                SummarySource::Prepared(made.clone())
            };
            Command::StartCompaction(StartCompaction {
                // Without this flag, a compaction with an existing summary would end in the same commit.
                awaits_hooks: true,
                expected_revision: expected,
                request: wanted.request.clone(),
                ..StartCompaction::new(wanted.trigger, source)
            })
        })?;
        Ok(ended(outcome, transaction))
    };
    let finish = |session: &Session, ended: &CompactionOutcome| begun(session, ended, None, true);
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    Ok(sessions.write(key, missing, decide, finish).await?)
}

/// Calls the `PreCompact` hook and commits its answer. Returns the call if it ends the compaction.
pub(super) async fn before(
    service: &Service,
    key: &SessionKey,
    job: &mut CompactionJob,
) -> Result<Option<HookCall>, ServiceError> {
    let Some(running) = job.session.compactions().running.as_ref() else {
        return Ok(None);
    };
    // The first answer is durable. A restart or another replica must not call the hook again.
    if job.hooks.is_asked() || !are_on(service, &job.session) {
        return Ok(None);
    }
    let policy = job.session.policy();
    let own = job.instructions.as_deref().map(str::to_owned);
    let instructions: Vec<String> = standing(&job.session).into_iter().chain(own).collect();
    let budget = budget(&job.session, None);
    let question = convert::pre_compact(&job.session, running, budget, instructions.join("\n\n"));
    let read = |answer: palimpsest_proto::context::v1::PreCompactResponse| match answer.veto_reason
    {
        Some(reason) => Ok(HookDecision::Veto(reason)),
        None => convert::wishes(answer).map(HookDecision::Continue),
    };
    let whom = (key, &policy.hooks);
    let asked = ask(service, whom, running.expires, question, read).await;
    let Some((call, wishes)) = asked else {
        return Ok(None);
    };
    if call.result.stops() {
        return Ok(Some(call));
    }
    // Hook texts become part of stored events, so secrets are redacted first.
    let (wishes, redacts) = (wishes.unwrap_or_default(), service.redacts(&job.session));
    let stored = |text: String| -> Box<str> {
        if redacts {
            redact(&text).text.into()
        } else {
            text.into()
        }
    };
    let answered = CompactionInput::HookAnswered {
        call,
        instructions: wishes.instructions.map(stored),
        must_keep: wishes.must_keep.into_iter().map(stored).collect(),
    };
    let answer = AdvanceCompaction::new(job.key, answered);
    job.hooks = record(service, key, answer).await?;
    // An existing summary was written without the hook's instructions, so a new one is written.
    if job.hooks.instructions.is_some() && job.ready.take().is_some() {
        job.strategy = usual(service);
    }
    Ok(None)
}

/// Commits a hook's answer. If several processes commit one, the first is kept.
async fn record(
    service: &Service,
    key: &SessionKey,
    answer: AdvanceCompaction,
) -> Result<CompactionHooks, ServiceError> {
    let decide = |transaction: &mut Transaction<'_>| {
        transaction.run(Command::AdvanceCompaction(answer.clone()))?;
        Ok(())
    };
    let finish = |session: &Session, (): &()| {
        let running = session.compactions().running.as_ref();
        // Another compaction may be running by now.
        let running = running.filter(|running| running.key == answer.key);
        Ok(running.map(|running| running.hooks.clone()))
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    let hooks = sessions.write(key, missing, decide, finish).await?;
    hooks.ok_or(ServiceError::CompactionNotFound { key: answer.key })
}

/// Calls the `PostCompact` and `SessionStart` hooks. Returns the command to run: the end with the hooks' additions,
/// or a failure.
pub(super) async fn end(
    service: &Service,
    key: &SessionKey,
    job: &CompactionJob,
    mut finish: AdvanceCompaction,
) -> Result<AdvanceCompaction, ServiceError> {
    if matches!(finish.input, CompactionInput::Failed { .. }) {
        return Ok(finish);
    }
    let running = job.session.compactions().running.as_ref();
    let rules = &job.session.policy().hooks;
    let any = rules.post_compact.enabled || rules.session_start.enabled;
    // A prepared summary changes no view, so these hooks run when it is used.
    let is_asked = |ahead: bool| any && !ahead && are_on(service, &job.session);
    let Some(running) = running.filter(|running| is_asked(running.ahead)) else {
        return Ok(finish);
    };
    // A result that would not take effect is not sent to the hooks.
    let Some(question) = foreseen(service, key, &finish).await? else {
        return Ok(finish);
    };
    let (policy, attributes) = (job.session.policy(), question.attributes.clone());
    let whom = (key, &policy.hooks);
    let read =
        |answer: palimpsest_proto::context::v1::PostCompactResponse| match answer.reject_reason {
            Some(reason) => Ok(HookDecision::Veto(reason)),
            None => Ok(HookDecision::Continue(())),
        };
    if let Some((call, _)) = ask(service, whom, running.expires, question, read).await {
        let stops = call.result.stops();
        add(&mut finish, call);
        if stops {
            return Ok(stopped(finish));
        }
    }
    let question = SessionStartRequest {
        session: key.to_string(),
        source: SessionStartSource::Compact.into(),
        compaction_id: job.key.to_string(),
        attributes,
    };
    // The messages of a hook have the same limits as those of a caller.
    let limits = service.limits().narrowed_by(&policy.limits);
    let read = |answer| {
        let mut next_id = service.next_id();
        convert::hook_messages(answer, &limits, &mut next_id).map(HookDecision::Continue)
    };
    if let Some((mut call, messages)) = ask(service, whom, running.expires, question, read).await {
        let messages = messages.unwrap_or_default();
        call.messages = messages.iter().map(|message| message.id).collect();
        let stops = call.result.stops();
        add(&mut finish, call);
        if stops {
            return Ok(stopped(finish));
        }
        if let CompactionInput::Summary { made, .. } = &mut finish.input {
            made.attached.extend(messages);
        }
    }
    Ok(finish)
}

fn add(finish: &mut AdvanceCompaction, call: HookCall) {
    finish.took_ms = finish.took_ms.saturating_add(call.took_ms);
    finish.hooks.push(call);
}

/// Computes the result of a compaction on a copy. Returns `None` if it would not take effect.
async fn foreseen(
    service: &Service,
    key: &SessionKey,
    finish: &AdvanceCompaction,
) -> Result<Option<PostCompactRequest>, ServiceError> {
    let decide = |transaction: &mut Transaction<'_>| {
        let outcome = transaction.run(Command::AdvanceCompaction(finish.clone()))?;
        Ok(ended(outcome, transaction))
    };
    let tell = |session: &Session, ended: &CompactionOutcome| {
        let CompactionOutcome::Event(event, _) = ended else {
            return Ok(None);
        };
        Ok(
            matches!(**event, Event::Compacted(_)).then(|| PostCompactRequest {
                session: session.key().to_string(),
                compaction: convert::compaction(event, session),
                budget: Some(budget(session, None)),
                attributes: convert::hook_attributes(session).collect(),
            }),
        )
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    Ok(sessions.run(key, missing, true, decide, tell).await?)
}

/// Turns the end of a compaction into the failure that a hook caused.
fn stopped(mut finish: AdvanceCompaction) -> AdvanceCompaction {
    let (why, detail) = finish.hooks.last().map_or_else(
        || (CompactionFailureReason::HookFailed, String::new()),
        |call| (why(call), detail(call)),
    );
    let detail = detail.into();
    finish.input = CompactionInput::Failed { why, detail };
    finish
}

/// Returns the command that fails a compaction because of a hook, before a summary exists.
pub(super) fn stop(
    key: CompactionKey,
    running: Option<&RunningCompaction>,
    call: HookCall,
) -> Command {
    let failed = CompactionInput::Failed {
        why: why(&call),
        detail: detail(&call).into(),
    };
    Command::AdvanceCompaction(AdvanceCompaction {
        attempt: running.map_or(0, |running| running.attempt),
        took_ms: call.took_ms,
        hooks: vec![call],
        ..AdvanceCompaction::new(key, failed)
    })
}

fn why(call: &HookCall) -> CompactionFailureReason {
    if call.result == HookResult::Vetoed {
        CompactionFailureReason::HookVetoed
    } else {
        CompactionFailureReason::HookFailed
    }
}

fn detail(call: &HookCall) -> String {
    let (hook, detail) = (name(call.hook), &call.detail);
    match call.result {
        HookResult::Vetoed => format!("the hook {hook} does not want it: {detail}"),
        _ => format!("the hook {hook} failed, and its rule says to stop: {detail}"),
    }
}

const fn name(hook: Hook) -> &'static str {
    match hook {
        Hook::PreCompact => "PreCompact",
        Hook::PostCompact => "PostCompact",
        Hook::SessionStart => "SessionStart",
    }
}

/// Returns the error for a manual call whose compaction a hook stopped.
pub(in crate::services) fn refusal(calls: &[HookCall]) -> Option<ServiceError> {
    let call = calls.last().filter(|call| call.result.stops())?;
    let (hook, detail) = (name(call.hook), call.detail.to_string());
    Some(match call.result {
        HookResult::Vetoed => ServiceError::HookVetoed {
            hook,
            reason: detail,
        },
        _ => ServiceError::HookFailed { hook, detail },
    })
}

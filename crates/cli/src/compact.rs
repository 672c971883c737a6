//! `palimpsest compact`: compacts the view of a session now.

use std::time::Duration;

use clap::{Args, ValueEnum};
use palimpsest_proto::context::v1::{
    CompactRequest, CompactResponse, Compaction, CompactionOverrides, CompactionState,
    CompactionStrategy, LevelEffect,
};
use tonic::Request;

use super::change_report::{ChangeReport, fact, print_removed};
use super::client::{Remote, block_on, reply_of};
use super::event_text::summary_source;
use super::output::{count, number, print_line};
use super::reply_json::ReplyJson;

/// The maximum wait for a compaction, which can call a model several times.
const MAX_WAIT: Duration = Duration::from_mins(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyArg {
    /// Session memory, without a model
    SessionMemory,
    /// The model for summaries of the server
    Model,
    /// Text from the messages, without a model
    Extractive,
}

impl From<StrategyArg> for CompactionStrategy {
    fn from(strategy: StrategyArg) -> Self {
        match strategy {
            StrategyArg::SessionMemory => Self::SessionMemory,
            StrategyArg::Model => Self::Model,
            StrategyArg::Extractive => Self::Extractive,
        }
    }
}

/// Replace old messages of a session's view by a summary now
#[derive(Debug, Args)]
#[command(
    after_help = "The transcript keeps all messages, and `palimpsest undo` restores the view. With --json, the output is the \
reply of the rpc `Compact` in the form of the REST API.

Examples:
  palimpsest compact my-session --dry-run
  palimpsest compact my-session --strategy extractive      needs no model
  palimpsest compact my-session --instructions 'Keep every decision about the schema.'"
)]
pub(super) struct Compact {
    /// Id or full name of the session
    session: String,
    /// Source of the summary [default: by the policy of the session]
    #[arg(long, value_enum)]
    strategy: Option<StrategyArg>,
    /// Instructions for this summary, in addition to those of the policy
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    instructions: String,
    /// Model that writes the summary [default: by the policy of the session]
    #[arg(long, default_value = "", hide_default_value = true)]
    model: String,
    /// Print the effect and change nothing; calls no model
    #[arg(long)]
    dry_run: bool,
    /// Print the reply as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Compact {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let reply = block_on(self.call(&session))?;
        if self.json {
            return ReplyJson::of("CompactResponse")?.print(&reply);
        }
        print(&session, &reply)
    }

    async fn call(&self, session: &str) -> anyhow::Result<CompactResponse> {
        let mut clients = self.remote.connect().await?;
        let overrides = CompactionOverrides {
            model: self.model.clone(),
            instructions: self.instructions.clone(),
        };
        let has_overrides = overrides != CompactionOverrides::default();
        let strategy = self.strategy.map(CompactionStrategy::from);
        let mut request = Request::new(CompactRequest {
            session: session.to_owned(),
            strategy: strategy.unwrap_or_default().into(),
            overrides: has_overrides.then_some(overrides),
            dry_run: self.dry_run,
            ..CompactRequest::default()
        });
        // Without a deadline, the server ends the wait after the time-out of usual calls.
        request.set_timeout(MAX_WAIT);
        reply_of(clients.context.compact(request).await)
    }
}

fn print(session: &str, reply: &CompactResponse) -> anyhow::Result<()> {
    let compaction = reply.compaction.clone().unwrap_or_default();
    print_line(&headline(session, &compaction))?;
    let source = summary_source(compaction.strategy(), &compaction.model);
    fact("summary", &source)?;
    if let Some(boundary) = &compaction.boundary {
        let kept = count(boundary.kept_message_ids.len(), "message");
        fact("kept", &format!("{kept} verbatim"))?;
    }
    // The report also lists attachments that did not fit. They are not in the view.
    let attached = compaction.attachments.iter().filter(|it| !it.omitted);
    let attached = attached.count();
    if attached > 0 {
        fact("attached", &count(attached, "text of the working state"))?;
    }
    if let Some(dropped) = &compaction.dropped {
        let messages = count(dropped.messages as usize, "message");
        let tokens = number(dropped.tokens.into());
        fact(
            "dropped",
            &format!("{messages} without a summary, {tokens} tokens"),
        )?;
    }
    print_removed(reply.recovery.as_ref())?;
    // The boundary has the tokens of this compaction, also if other changes followed.
    let effect = compaction.boundary.as_ref().map(|boundary| LevelEffect {
        before_tokens: boundary.before_tokens,
        after_tokens: boundary.after_tokens,
        ..LevelEffect::default()
    });
    ChangeReport {
        effect: effect.as_ref(),
        cache_ledger: reply.cache_ledger.as_ref(),
        warnings: &reply.warnings,
        revision: reply.revision,
        epoch: reply.epoch,
    }
    .print()
}

fn headline(session: &str, compaction: &Compaction) -> String {
    let boundary = compaction.boundary.as_ref();
    let messages = boundary.map_or(0, |boundary| boundary.summarized_messages);
    let messages = count(messages as usize, "message");
    match compaction.state() {
        CompactionState::DryRun => format!("{session}: {messages} would be replaced by a summary"),
        CompactionState::Running | CompactionState::AwaitingSummary => {
            format!("{session}: the compaction still runs; `palimpsest watch` shows its outcome")
        }
        _ => format!("{session}: {messages} replaced by a summary"),
    }
}

//! Palimpsest in this process: a warm session of the core, driven like the server drives it before a model call.
//!
//! The measured time includes recording the new messages, all levels of the work's policy, and storing results. It also
//! includes rendering the delta into the caller's array as JSON. It excludes parsing the conversation's JSON, as for
//! all participants. There is no log and no disk; `wire` measures those.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use palimpsest_core::codec;
use palimpsest_core::command::{
    AdvanceCompaction, Append, ClearResults, ClearTrigger, Command, CompactionInput,
    CompactionMessages, CreateSession, Decided, DecisionContext, Rejection, ServeView,
    StartCompaction, SummarySource, SummarySpec, WrittenSummary, create_session, decide,
};
use palimpsest_core::event::{CompactionFailureReason, Event, RecordedEvent, Trigger as Asker};
use palimpsest_core::ids::{MessageId, Ordinal, SessionKey, Timestamp};
use palimpsest_core::levels::results::{StoredResult, file_content};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, Usage};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::{Session, Strategy};
use palimpsest_core::session_summary::{summary_inputs, summary_of};
use palimpsest_core::summary::SummaryPart;
use palimpsest_core::view::{Etag, Provider, Target};
use palimpsest_facts::user_text;
use serde_json::json;
use uuid::Uuid;

use crate::conversation::{Conversation, Step};
use crate::player::{Asked, Played, Watch, serve};
use crate::views::Writer;
use crate::works;

/// The fixed text in place of a model's summary, repeated forty times. Other participants get the same text.
const SUMMARY: &str =
    "The work so far: what was asked, what was read and changed, and what is left to do. ";

/// The steps of a conversation, decoded once for all rounds.
pub(crate) enum Decoded {
    /// A new message.
    Message(Arc<Message>),
    /// A model call.
    Call,
}

/// A session in memory with the caller's array.
pub(crate) struct Live {
    session: Session,
    target: Target,
    etag: Option<Etag>,
    /// The caller's array, one entry per message.
    pub(crate) array: Vec<Vec<u8>>,
    /// All messages of the session.
    log: Vec<Arc<Message>>,
    /// The stored results, by file name.
    files: HashMap<Box<str>, String>,
    now: Timestamp,
    limits: Limits,
    way: Way,
}

/// The variants in which Palimpsest plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// The caller has the previous view, and a fixed text replaces the summary, as for other participants
    Delta,
    /// Like delta, but the caller requests the complete view at every call, as if it had none
    Whole,
    /// The summary is extracted from the messages, without a model
    Structure,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Delta => "Palimpsest",
            Self::Whole => "Palimpsest, whole view",
            Self::Structure => "Palimpsest, own summary",
        }
    }

    /// Returns the works in which this way differs. Only one work has summaries.
    fn works(self) -> &'static [&'static str] {
        match self {
            Self::Delta | Self::Whole => &works::WORKS,
            Self::Structure => &["budget"],
        }
    }
}

/// Plays the requests from standard input.
pub(crate) fn play(way: Way) -> anyhow::Result<()> {
    let hello = json!({ "peer": way.name(), "works": way.works() });
    let mut known: HashMap<PathBuf, Vec<Decoded>> = HashMap::new();
    serve(&hello, |line| {
        let asked: Asked = serde_json::from_str(line)?;
        if !known.contains_key(&asked.conversation) {
            let read = decode(&Conversation::read(&asked.conversation)?)?;
            known.insert(asked.conversation.clone(), read);
        }
        let steps = &known[&asked.conversation];
        Ok(serde_json::to_value(played(steps, &asked, way)?)?)
    })
}

/// Decodes the messages of a conversation.
pub(crate) fn decode(conversation: &Conversation) -> anyhow::Result<Vec<Decoded>> {
    let mut number = 0;
    let mut next = || {
        number += 1;
        MessageId::new(Uuid::from_u128(number))
    };
    let mut steps = Vec::new();
    for step in &conversation.steps {
        let Step::Message(raw) = step else {
            steps.push(Decoded::Call);
            continue;
        };
        let messages = codec::read(Provider::Anthropic, raw.get().as_bytes(), &mut next);
        let messages = messages.with_context(|| format!("in {}", conversation.name))?;
        steps.extend(
            messages
                .into_iter()
                .map(|message| Decoded::Message(Arc::new(message))),
        );
    }
    Ok(steps)
}

fn played(steps: &[Decoded], asked: &Asked, way: Way) -> anyhow::Result<Played> {
    let mut live = Live::new(works::policy(&asked.work)?, way)?;
    let mut writer = asked.views.as_deref().map(Writer::create).transpose()?;
    let mut call_ns = Vec::new();
    let mut new = Vec::new();
    for step in steps {
        match step {
            Decoded::Message(message) => new.push(Arc::clone(message)),
            Decoded::Call => {
                let watch = Watch::start();
                live.call(std::mem::take(&mut new))?;
                call_ns.push(watch.own_ns());
                if let Some(writer) = &mut writer {
                    writer.write(&live.array)?;
                }
            }
        }
    }
    writer.map(Writer::finish).transpose()?;
    Ok(Played { call_ns })
}

impl Live {
    /// Creates a new session.
    pub(crate) fn new(policy: Policy, way: Way) -> anyhow::Result<Self> {
        let limits = Limits::default();
        let context = DecisionContext {
            now: Timestamp::default(),
            limits: &limits,
            can_store: true,
            file_salt: 0,
        };
        let command = CreateSession {
            policy: Arc::new(policy),
            ..CreateSession::default()
        };
        let event = create_session(command, context)?;
        let key = SessionKey::parse("projects/peers/sessions/one")?;
        let at = context.now;
        Ok(Self {
            session: Session::replay(
                key,
                [RecordedEvent {
                    at,
                    by: None,
                    event,
                }],
            )?,
            target: Target::default(),
            etag: None,
            array: Vec::new(),
            log: Vec::new(),
            files: HashMap::new(),
            now: at,
            limits,
            way,
        })
    }

    /// Runs the steps before a model call, after these messages arrived.
    pub(crate) fn call(&mut self, messages: Vec<Arc<Message>>) -> anyhow::Result<()> {
        self.now = self.now.plus_millis(1_000);
        let append = Command::Append(Append {
            messages,
            ..Append::default()
        });
        // The follow-up of an append stores large results (level 1).
        let then = append.then(&self.session);
        self.run(append)?;
        if let Some(command) = then {
            self.run(command)?;
        }
        // Levels act on the sealed layout, so the pending messages are served before.
        self.serve()?;
        self.run(Command::ClearResults(ClearResults {
            trigger: ClearTrigger::Auto {
                cache_edits: false,
                last: None,
            },
            expected_revision: None,
            request: None,
        }))?;
        if self.compact()? {
            self.serve()?;
        }
        self.render()
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        self.run(Command::ServeView(ServeView {
            target: self.target.clone(),
            ..ServeView::default()
        }))
    }

    /// Applies the delta of the view to the caller's array.
    fn render(&mut self) -> anyhow::Result<()> {
        let known = self.etag.filter(|_| self.way != Way::Whole);
        let view = self.session.view(&self.target, known);
        let view = view
            .ok()
            .context("a session that was never unloaded holds its messages")?;
        self.array.truncate(view.keep as usize);
        for message in &view.messages {
            let mut json = Vec::new();
            codec::write(self.target.provider, message, &mut json);
            self.array.push(json);
        }
        self.etag = Some(view.etag);
        Ok(())
    }

    fn run(&mut self, command: Command) -> anyhow::Result<()> {
        let context = DecisionContext {
            now: self.now,
            limits: &self.limits,
            can_store: true,
            file_salt: 0,
        };
        let decided = match decide(&self.session, command, context) {
            Ok(decided) => decided,
            Err(Rejection::ContentNotLoaded) => {
                bail!("a session that was never unloaded holds its messages")
            }
            Err(rejection) => return Err(rejection.into()),
        };
        let Decided::Now(decision) = decided else {
            return Ok(());
        };
        for event in decision.events {
            let recorded = RecordedEvent {
                at: self.now,
                by: None,
                event,
            };
            self.session.apply(&recorded)?;
            self.keep(&recorded.event)?;
            let new = recorded.event.messages().iter();
            self.log
                .extend(new.map(|appended| Arc::clone(&appended.message)));
        }
        Ok(())
    }

    /// Stores the results that an event names.
    fn keep(&mut self, event: &Event) -> anyhow::Result<()> {
        let stored: &[StoredResult] = match event {
            Event::ResultsPersisted(event) => &event.results,
            Event::ResultsCleared(event) => &event.stored,
            _ => &[],
        };
        for stored in stored {
            let result = self.session.result(stored.call);
            let result = result
                .ok()
                .context("a result that was just stored is held")?;
            let content = file_content(result).into_owned();
            self.files.insert(stored.file.clone(), content);
        }
        Ok(())
    }

    /// Compacts the view if it has reached its threshold. Returns true if the view changed.
    fn compact(&mut self) -> anyhow::Result<bool> {
        let is_due = self.session.tokens().tokens >= self.session.thresholds().compact;
        if !self.session.policy().autocompact.enabled || !is_due {
            return Ok(false);
        }
        let strategy = match self.way {
            Way::Delta | Way::Whole => Strategy::Model,
            Way::Structure => Strategy::Extractive,
        };
        self.run(Command::StartCompaction(StartCompaction::new(
            Asker::Auto,
            SummarySource::Write(SummarySpec::new(strategy)),
        )))?;
        let Some(running) = &self.session.compactions().running else {
            return Ok(false);
        };
        let (key, leaving) = (running.key, running.leaving.clone());
        let summary = match self.way {
            Way::Delta | Way::Whole => SUMMARY.repeat(40),
            Way::Structure => self.summarize(&leaving),
        };
        // An extractive summary can be empty, and a compaction must not replace messages by nothing.
        if summary.trim().is_empty() {
            let failed = CompactionInput::Failed {
                why: CompactionFailureReason::Empty,
                detail: "the summary is empty".into(),
            };
            self.run(Command::AdvanceCompaction(AdvanceCompaction::new(
                key, failed,
            )))?;
            return Ok(false);
        }
        let epoch = self.session.sealed().epoch();
        let made = self.made();
        let summary = WrittenSummary {
            text: summary.into(),
            strategy,
            model: "".into(),
            usage: Usage::default(),
            dropped: None,
        };
        let end = CompactionInput::Summary { summary, made };
        self.run(Command::AdvanceCompaction(AdvanceCompaction::new(key, end)))?;
        // A summary that is not smaller ends the compaction without a change of the view.
        Ok(self.session.sealed().epoch() != epoch)
    }

    /// Returns an extractive summary of the leaving messages.
    fn summarize(&self, leaving: &[Ordinal]) -> String {
        let part = SummaryPart::Whole;
        let said: Vec<String> = summary_inputs(&self.session, part, leaving)
            .iter()
            .filter_map(|at| user_text(self.log.get(at.index())?))
            .collect();
        summary_of(&self.session, part, leaving, &said, None).render()
    }

    /// Returns ids that no message of a conversation has.
    fn made(&self) -> CompactionMessages {
        // Messages of conversations have ids from 1 upwards, so ids from the maximum downwards are free.
        let number = self.log.len() as u128;
        let id = |what: u128| MessageId::new(Uuid::from_u128(u128::MAX - number * 2 - what));
        CompactionMessages {
            boundary_id: id(0),
            summary_id: id(1),
            request_message: None,
            hook_messages: Vec::new(),
        }
    }
}

//! The driver that replays a recorded session and prepares the view at the points where an agent
//! would.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::command::{
    Append, ClearResults, ClearTrigger, CollapseSpans, CollapseTrigger, Command, CreateSession,
    Decided, Decision, DecisionContext, Rejection, RestoreContext, Rewind, ServeView, SkipReason,
    StageSpans, create_session, decide,
};
use palimpsest_core::event::{ClearMode, Event, RecordedEvent};
use palimpsest_core::ids::{MessageId, Ordinal, Revision, SessionKey, Timestamp};
use palimpsest_core::levels::collapse::{choose, is_due};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, Role, Usage};
use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::session::{Session, Strategy, Visibility};
use palimpsest_core::tokens::Calibration;
use palimpsest_core::view::{Provider, Target};

use super::caller::{SimulatedCaller, ViewCheck};
use super::compaction::ReplayCompaction;
use super::options::{PrepareFrequency, ReplayOptions, no_levels};
use super::recorded_session::{RecordedSession, RecordedStep};
use crate::import::ImportDefect;

/// A session in progress and the simulated caller that follows it.
pub(super) struct Driver {
    pub(super) session: Session,
    pub(super) caller: SimulatedCaller,
    pub(super) counters: ReplayCounters,
    /// The clock of the transcript.
    pub(super) now: Timestamp,
    /// The line of the latest message.
    pub(super) line: usize,
    /// All messages of the session with their lines.
    pub(super) log: Vec<(usize, Arc<Message>)>,
    pub(super) levels: bool,
    pub(super) calibration: Calibration,
    window: WindowHint,
    /// True if the view differs from the one for which the transcript's usage was reported.
    pub(super) diverged: bool,
    /// The size of the system prompt and the tools, in tokens, derived from the usage before the
    /// views diverged.
    prefix: Option<u64>,
    limits: Limits,
    pub(super) events: Vec<RecordedEvent>,
    last_response: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct ReplayCounters {
    pub(super) messages: usize,
    pub(super) reemissions: usize,
    pub(super) duplicates: usize,
    /// The number of view-changing events by trigger.
    pub(super) changes: BTreeMap<&'static str, usize>,
    /// The number of results that level 1 stored.
    pub(super) stored: usize,
    /// The number of results that level 3 cleared.
    pub(super) cleared: usize,
    /// The number of messages that level 4 collapsed.
    pub(super) collapsed: usize,
    pub(super) defects: Vec<ImportDefect>,
    pub(super) compactions: Vec<ReplayCompaction>,
}

/// Replays a recorded session. Calls `prepared` for every view.
pub(super) fn replay(
    tape: &RecordedSession,
    setup: ReplayOptions,
    mut prepared: impl FnMut(&Driver, ViewCheck),
) -> Driver {
    let pace = setup.frequency;
    let mut driver = Driver::new(tape, setup);
    let mut prepare = |driver: &mut Driver| {
        let look = driver.prepare();
        prepared(driver, look);
    };
    for step in &tape.steps {
        let (line, message) = match step {
            RecordedStep::Rewind(to) => {
                driver.rewind(*to);
                continue;
            }
            RecordedStep::Compacted(compacted) => {
                driver.adopt(compacted);
                continue;
            }
            RecordedStep::Removed { line, messages } => {
                driver.remove(*line, messages);
                continue;
            }
            RecordedStep::Message { line, message } => (*line, message),
        };
        driver.set_time(message);
        if pace == PrepareFrequency::PerResponse && driver.begins_response(message) {
            prepare(&mut driver);
        }
        driver.append(line, message);
        if pace == PrepareFrequency::PerLine {
            prepare(&mut driver);
        }
    }
    // The view after the last message is checked too.
    prepare(&mut driver);
    driver
}

/// Returns the average calibration over the responses of a recorded session. One factor is used for
/// the whole session and for all policies. The session's own factor changes with each response,
/// which would change the size of everything sent before.
pub(super) fn calibration(tape: &RecordedSession) -> Calibration {
    let setup = ReplayOptions {
        provider: Provider::default(),
        policy: Arc::new(no_levels()),
        window: WindowHint::default(),
        frequency: PrepareFrequency::PerResponse,
        levels: false,
        calibration: Calibration::default(),
    };
    let mut driver = Driver::new(tape, setup);
    let (mut sum, mut responses) = (0_u64, 0_u64);
    for step in &tape.steps {
        match step {
            RecordedStep::Rewind(to) => driver.rewind(*to),
            // Later usage was measured on a different view.
            RecordedStep::Compacted(_) | RecordedStep::Removed { .. } => break,
            RecordedStep::Message { line, message } => {
                if driver.begins_response(message) {
                    sum += u64::from(driver.session.ledger().calibration.milli());
                    responses += 1;
                }
                driver.append(*line, message);
            }
        }
    }
    let mean = sum
        .checked_div(responses)
        .and_then(|mean| u32::try_from(mean).ok());
    mean.map_or_else(Calibration::default, Calibration::from_milli)
}

/// Returns the options of a replay in which the levels run, and the view is prepared before every response.
pub(super) fn agent_options(
    tape: &RecordedSession,
    provider: Provider,
    policy: Arc<Policy>,
    window: WindowHint,
) -> ReplayOptions {
    ReplayOptions {
        provider,
        policy,
        window,
        frequency: PrepareFrequency::PerResponse,
        levels: true,
        calibration: calibration(tape),
    }
}

impl Driver {
    pub(super) fn new(tape: &RecordedSession, setup: ReplayOptions) -> Self {
        let limits = Limits::default();
        // The session names are arbitrary: a replay stores nothing.
        let name =
            |name| SessionKey::parse(name).expect("the name is legal because it is written here");
        let at = Timestamp::default();
        let create_it = CreateSession {
            policy: setup.policy,
            parent: tape
                .subagent
                .then(|| name("projects/replay/sessions/parent")),
            ..CreateSession::default()
        };
        let context = DecisionContext {
            now: at,
            limits: &limits,
            can_store: true,
            file_salt: 0,
        };
        let created = create_session(create_it, context).expect("nothing is over a limit");
        let Event::SessionCreated(created) = created else {
            unreachable!("a creation makes its own event");
        };
        let counter = created.policy.counter();
        let target = Target {
            provider: setup.provider,
            model: tape.model.clone(),
            thinking: setup.provider.is_anthropic(),
            system_messages: false,
        };
        Self {
            session: Session::create(name("projects/replay/sessions/replay"), at, &created),
            caller: SimulatedCaller::new(target, counter),
            counters: ReplayCounters {
                defects: tape.defects.clone(),
                ..ReplayCounters::default()
            },
            now: at,
            line: 0,
            log: Vec::new(),
            levels: setup.levels,
            calibration: setup.calibration,
            window: setup.window,
            diverged: false,
            prefix: None,
            limits,
            events: vec![RecordedEvent {
                at,
                by: None,
                event: Event::SessionCreated(created),
            }],
            last_response: None,
        }
    }

    /// Sets the clock to the time of a message. A message without a time keeps the clock of the preceding message.
    pub(super) fn set_time(&mut self, message: &Message) {
        self.now = message.at.unwrap_or(self.now);
    }

    /// Returns true if the message is the first fragment of a model response.
    pub(super) fn begins_response(&self, message: &Message) -> bool {
        message.role == Role::Assistant
            && (message.provider_message_id.is_none()
                || message.provider_message_id != self.last_response)
    }

    pub(super) fn append(&mut self, line: usize, message: &Arc<Message>) {
        self.line = line;
        if message.role == Role::Assistant {
            self.last_response.clone_from(&message.provider_message_id);
        }
        if self.diverged && self.prefix.is_none() {
            let (ledger, tokens) = (self.session.ledger(), self.session.tokens().tokens);
            self.prefix = ledger
                .reset_for_view(tokens, 0)
                .basis
                .map(|basis| basis.prefix);
        }
        let message = self.with_known_parent(self.with_usage(message));
        let append = Command::Append(Append {
            messages: vec![message],
            ..Append::default()
        });
        // The command names the first appended message by the next ordinal, so it is built before the append.
        let then = append.then(&self.session);
        self.run(append);
        if self.levels {
            if let Some(command) = then {
                self.run(command);
            }
            self.update_memory();
        }
    }

    /// Returns the message without its parent if the session does not contain the parent. The parent
    /// may be another program's summary, which is skipped when Palimpsest's levels run.
    fn with_known_parent(&self, message: Arc<Message>) -> Arc<Message> {
        let transcript = self.session.transcript();
        let is_unknown = |parent: MessageId| transcript.find(parent).is_none();
        if !message.parent.is_some_and(is_unknown) {
            return message;
        }
        let mut message = Arc::unwrap_or_clone(message);
        message.parent = None;
        Arc::new(message)
    }

    /// Returns the message with the usage that a provider would report for the current view. The
    /// recorded usage applies to a different view as soon as a level has changed this one.
    fn with_usage(&self, message: &Arc<Message>) -> Arc<Message> {
        let Some(usage) = message.usage.filter(|_| self.diverged) else {
            return Arc::clone(message);
        };
        let mut message = Message::clone(message);
        let sent = self.caller.tokens(self.caller.flat(), self.calibration);
        message.usage = Some(Usage {
            input_tokens: sent + self.prefix.unwrap_or_default(),
            output_tokens: usage.output_tokens,
            ..Usage::default()
        });
        Arc::new(message)
    }

    pub(super) fn rewind(&mut self, to: Option<MessageId>) {
        // A rewind to a collapsed message requires that its span is restored first.
        if let Some(shown) = to.and_then(|to| self.session.last_revision_showing(to)) {
            let past = self.session_at(shown);
            self.run(Command::Restore(RestoreContext {
                past: Box::new(past),
                later: self
                    .log
                    .iter()
                    .map(|(_, message)| Arc::clone(message))
                    .collect(),
                // The agent of the transcript continued from there, so no threshold may prevent it.
                force: true,
                expected_revision: None,
                request: None,
            }));
        }
        self.run(Command::Rewind(Rewind {
            to,
            ..Rewind::default()
        }));
    }

    /// Returns the session at an earlier revision.
    fn session_at(&self, at: Revision) -> Session {
        // A revision counts events, so it is also the length of the log at that time.
        let events = usize::try_from(at.get()).unwrap_or(usize::MAX);
        let log = self.events.iter().take(events).cloned();
        let mut past = Session::replay(self.session.key().clone(), log)
            .expect("the log begins with the creation");
        past.load_content(self.log.iter().map(|(_, message)| Arc::clone(message)));
        past
    }

    pub(super) fn prepare(&mut self) -> ViewCheck {
        self.serve_with_levels();
        if self.levels && self.compact() {
            self.serve();
        }
        self.caller.check_view(&self.session)
    }

    /// Prepares the view as [`Self::prepare`], but never compacts it.
    pub(super) fn prepare_without_compaction(&mut self) -> ViewCheck {
        self.serve_with_levels();
        self.caller.check_view(&self.session)
    }

    fn serve_with_levels(&mut self) {
        self.serve();
        if self.levels {
            self.run_levels();
        }
    }

    pub(super) fn serve(&mut self) {
        self.run(Command::ServeView(ServeView {
            target: self.caller.target().clone(),
            window: self.window,
            ..ServeView::default()
        }));
    }

    /// Runs the levels before a view is sent, in the server's order. Level 1 already ran when
    /// messages were appended and when the view was served.
    fn run_levels(&mut self) {
        self.run(Command::ClearResults(ClearResults {
            trigger: ClearTrigger::Auto {
                cache_edits: false,
                last: None,
            },
            expected_revision: None,
            request: None,
        }));
        self.run(Command::CollapseSpans(CollapseSpans {
            trigger: CollapseTrigger::Auto,
            expected_revision: None,
            request: None,
        }));
        // A server stages spans in the background after its reply.
        if is_due(&self.session)
            && let Ok(spans) = choose(&self.session)
        {
            self.run(Command::StageSpans(StageSpans { spans }));
        }
    }

    /// Decides a command and applies its events. Returns the reason if the command was skipped.
    pub(super) fn run(&mut self, command: Command) -> Option<SkipReason> {
        let context = DecisionContext {
            now: self.now,
            limits: &self.limits,
            can_store: true,
            file_salt: 0,
        };
        // The command may have to be decided twice, and a decision consumes it.
        let mut decided = decide(&self.session, command.clone(), context);
        // The decision is repeated after the content is loaded, as a server does.
        if decided == Err(Rejection::ContentNotLoaded) {
            let contents = self.log.iter().map(|(_, message)| Arc::clone(message));
            self.session.load_content(contents);
            decided = decide(&self.session, command, context);
        }
        let events = match decided {
            Ok(Decided::Now(decision)) => {
                check_files(&decision);
                decision.events
            }
            Ok(Decided::Answered(_)) => Vec::new(),
            Ok(Decided::Skipped(skip)) => return Some(skip),
            Err(rejection) => {
                self.counters.defects.push(ImportDefect {
                    line: self.line,
                    problem: rejection.to_string(),
                });
                Vec::new()
            }
        };
        for event in events {
            self.counters.count(&event);
            let recorded = RecordedEvent {
                at: self.now,
                by: None,
                event,
            };
            self.session
                .apply(&recorded)
                .expect("an event applies to the session that it was decided upon");
            let new = recorded.event.messages().iter();
            let new = new.map(|appended| (self.line, Arc::clone(&appended.message)));
            self.log.extend(new);
            // A rewind comes from the transcript, so later usage was reported for the same view.
            self.diverged |=
                recorded.event.changes_view() && trigger(&recorded.event) != REWIND_REQUEST;
            if let Event::CompactionFinished(event) = &recorded.event {
                self.record_compaction(event);
            }
            self.events.push(recorded);
        }
        None
    }

    /// Returns the working directory of the session.
    pub(super) fn root(&self) -> Option<&str> {
        let found = self.log.iter().find_map(|(_, message)| {
            let mut attributes = message.attributes.iter();
            attributes.find(|(name, _)| &**name == "cwd")
        });
        found.map(|(_, path)| &**path)
    }

    pub(super) fn line_of(&self, message: Ordinal) -> usize {
        self.log.get(message.index()).map_or(0, |(line, _)| *line)
    }
}

/// Checks that a decision stores exactly the files that its events name. A replay makes no persist decisions, so every
/// file is new.
fn check_files(decision: &Decision) {
    let stored = decision.files().map(|file| &*file.file);
    let named = decision.events.iter().flat_map(Event::files);
    assert!(
        stored.eq(named.map(|(file, _)| file)),
        "files to store and named files differ"
    );
}

impl ReplayCounters {
    fn count(&mut self, event: &Event) {
        if event.changes_view() {
            *self.changes.entry(trigger(event)).or_default() += 1;
        }
        match event {
            Event::MessagesAppended(event) => {
                self.messages += event.messages.len();
                self.duplicates += event.duplicates.len();
                let standings = event.messages.iter().map(|appended| appended.visibility);
                self.reemissions += standings
                    .filter(|standing| matches!(standing, Visibility::Reemission(_)))
                    .count();
            }
            Event::ResultsPersisted(event) => self.stored += event.results.len(),
            Event::ResultsCleared(event) => self.cleared += event.calls.len(),
            Event::SpansCollapsed(event) => self.collapsed += event.messages.len(),
            _ => {}
        }
    }
}

/// The trigger name of a rewind, the only view change that originates in the transcript itself.
pub(super) const REWIND_REQUEST: &str = "rewound by the user";

/// Returns the name of the trigger of a view-changing event.
fn trigger(event: &Event) -> &'static str {
    match event {
        Event::SessionRewound(_) => REWIND_REQUEST,
        Event::ContentSnipped(_) => "snipped",
        Event::ResultsCleared(event) => match event.mode {
            ClearMode::Time => "results cleared by time",
            ClearMode::Size => "results cleared by size",
            ClearMode::Prune => "results cleared by pruning",
        },
        Event::SpansCollapsed(_) => "spans collapsed",
        Event::CompactionFinished(event) => match event.strategy {
            Strategy::SessionMemory => "compacted with session memory",
            _ => "compacted from structure",
        },
        Event::ContextRestored(_) => "restored",
        Event::PolicyChanged(_) => "policy changed",
        _ => "other",
    }
}

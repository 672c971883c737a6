//! Plays a story through two sessions and follows what the service says about them.

use std::time::Duration;

use anyhow::{bail, ensure};
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{
    AutocompactPolicy, CreateSessionRequest, Format, GetSessionMemoryRequest, ListToolsRequest,
    MicrocompactPolicy, Policy, PrepareContextResponse, PromptPrefix, Session, SessionEvent,
    SessionMemoryPolicy, SnipPolicy, ToolResultPolicy, WatchSessionRequest,
};
use prost_types::Duration as ProtoDuration;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::transport::Channel;

use super::happened::{Actor, Happened, count};
use super::house::{Ahead, House};
use super::picture::Picture;
use super::player::Player;
use super::readback::{ReadBack, read_back};
use super::stage::Stage;
use super::story::{Own, Step, Story};
use crate::cli::client::said;
use crate::cli::output::one_line;

const PROJECT: &str = "projects/demo";
const WITH: &str = "projects/demo/sessions/with-palimpsest";
const WITHOUT: &str = "projects/demo/sessions/without";
/// How many events may wait to be shown.
const WAITING: usize = 1_024;
/// How long the summary may take to follow a turn.
const MEMORY_WAIT: Duration = Duration::from_secs(10);
/// How long the events of the last change may take to arrive.
const LAST_EVENTS: Duration = Duration::from_millis(200);
/// How much of what is said now is shown.
const NOW_CHARS: usize = 300;

/// What came of it.
pub(super) struct Outcome {
    pub(super) picture: Picture,
    /// How many views were checked by the provider's rules; each of them was valid.
    pub(super) checked: usize,
    pub(super) read_back: ReadBack,
    /// Undoing the last compaction: how many messages are as they were sent, of how many.
    pub(super) undone: Option<(usize, usize)>,
}

impl Outcome {
    /// An error when a promise was not kept.
    pub(super) fn judge(&self) -> anyhow::Result<()> {
        let back = &self.read_back;
        ensure!(
            back.same == back.messages,
            "{} of {} messages did not come back as they were: please report it, with the seed",
            back.messages - back.same,
            back.messages
        );
        if let Some((same, all)) = self.undone {
            ensure!(
                same == all,
                "the undo brought back {same} of {all} messages: please report it, with the seed"
            );
        }
        Ok(())
    }
}

/// Both sessions under way.
pub(super) struct Play<'h> {
    clock: &'h Ahead,
    channel: Channel,
    stage: Stage,
    picture: Picture,
    /// How long it shall take; as fast as it can without.
    time: Option<Duration>,
    began: Instant,
    system: String,
    agent_tools: Vec<Value>,
    own_calls: usize,
}

impl<'h> Play<'h> {
    pub(super) fn new(
        house: &'h House,
        stage: Stage,
        story: &Story,
        seed: u64,
        time: Option<Duration>,
    ) -> Self {
        Self {
            clock: &house.clock,
            channel: house.channel.clone(),
            stage,
            picture: Picture::new(seed, story.requests(), story.asks(), house.prices),
            time,
            began: Instant::now(),
            system: story.system.clone(),
            agent_tools: story.tools.clone(),
            own_calls: 0,
        }
    }

    /// Plays it to its end.
    pub(super) async fn run(mut self, story: &Story) -> anyhow::Result<Outcome> {
        let mut sessions = SessionServiceClient::new(self.channel.clone());
        let own = self.create(&mut sessions).await?;
        let tools = self.agent_tools.iter().chain(&own).collect::<Vec<_>>();
        let mut with = Player::new(self.channel.clone(), WITH, self.prefix(&json!(tools)));
        let bare = self.prefix(&json!(self.agent_tools));
        let mut without = Player::new(self.channel.clone(), WITHOUT, bare);
        let (mut events, watch) = watch(sessions.clone()).await?;
        for step in &story.steps {
            self.step(step, &mut with, &mut without).await?;
            self.follow(&mut events, &with, &without);
        }
        sleep(LAST_EVENTS).await;
        self.picture.done = true;
        self.picture.now = ("", String::new());
        self.follow(&mut events, &with, &without);
        watch.abort();
        let read_back = read_back(&mut with, self.channel.clone()).await?;
        let undone = with.undo().await?;
        self.stage.close();
        Ok(Outcome {
            checked: with.tally.sent.len() + without.tally.sent.len() + usize::from(undone.is_some()),
            picture: self.picture,
            read_back,
            undone,
        })
    }

    /// Creates both sessions; returns the service's own tools for the model.
    async fn create(
        &self,
        sessions: &mut SessionServiceClient<Channel>,
    ) -> anyhow::Result<Vec<Value>> {
        for (name, policy) in [(WITH, None), (WITHOUT, Some(no_levels()))] {
            let session = Session {
                policy_overrides: policy,
                ..Session::default()
            };
            let request = CreateSessionRequest {
                parent: PROJECT.to_owned(),
                session_id: name.rsplit('/').next().unwrap_or(name).to_owned(),
                session: Some(session),
                ..CreateSessionRequest::default()
            };
            let created = sessions.create_session(request).await;
            created.map_err(|status| said(&status))?;
        }
        let mut player = Player::new(self.channel.clone(), WITH, PromptPrefix::default());
        let request = ListToolsRequest {
            session: WITH.to_owned(),
            format: Format::AnthropicMessages.into(),
        };
        let listed = player.context.list_tools(request).await;
        let listed = listed.map_err(|status| said(&status))?.into_inner();
        let tools = listed.tools.iter();
        Ok(tools
            .map(|tool| serde_json::from_slice(&tool.definition_json))
            .collect::<Result<_, _>>()?)
    }

    fn prefix(&self, tools: &Value) -> PromptPrefix {
        PromptPrefix {
            system_json: json!(self.system).to_string().into(),
            tools_json: tools.to_string().into(),
            ..PromptPrefix::default()
        }
    }

    async fn step(
        &mut self,
        step: &Step,
        with: &mut Player,
        without: &mut Player,
    ) -> anyhow::Result<()> {
        match step {
            Step::Ask(text) => {
                self.picture.asked += 1;
                self.say("user", text);
                with.hear(text);
                without.hear(text);
            }
            Step::Say { text, calls } => {
                let (reply, bare) = tokio::try_join!(with.prepare(), without.prepare())?;
                self.picture.without_at.push(with.tally.sent.len());
                drop(bare);
                self.take(reply);
                match calls.first() {
                    Some(call) => self.say("model", &format!("{text} → {}", call.tool)),
                    None => self.say("model", text),
                }
                with.answered(text, calls);
                without.answered(text, calls);
                self.rest(with).await;
                if calls.is_empty() {
                    tokio::try_join!(with.flush(), without.flush())?;
                    self.remember(with).await?;
                }
            }
            Step::Own { text, tool } => {
                let reply = with.prepare().await?;
                self.take(reply);
                self.own(with, text, tool).await?;
                self.rest(with).await;
            }
            Step::Pause(time) => {
                self.clock.advance(*time);
                self.tell(Happened {
                    request: with.tally.sent.len(),
                    actor: Actor::Time,
                    text: format!("{} minutes pass without a word", time.as_secs() / 60),
                    freed: None,
                });
            }
        }
        Ok(())
    }

    /// The model calls one of the service's tools.
    async fn own(&mut self, with: &mut Player, text: &str, tool: &Own) -> anyhow::Result<()> {
        self.own_calls += 1;
        let (name, input) = match tool {
            Own::Snip { ask, reason } => {
                let Some(turn) = with.turns.get(*ask) else {
                    bail!("the turn {ask} has no id yet");
                };
                ("Snip", json!({"ids": [turn], "reason": reason}))
            }
            Own::Grep { call, pattern } => (
                "ReadToolResult",
                json!({"tool_use_id": call, "pattern": pattern}),
            ),
            Own::Read { call } => ("ReadToolResult", json!({"tool_use_id": call})),
        };
        self.say("model", &format!("{text} → {name}"));
        let id = format!("toolu_own_{:04}", self.own_calls);
        let answer = with.call_own(text, &id, name, &input).await?;
        if name != "Snip" {
            let lines = count(answer.lines().count(), "line");
            let of = input["tool_use_id"].as_str().unwrap_or_default();
            self.tell(Happened {
                request: with.tally.sent.len(),
                actor: Actor::Model,
                text: format!("the model read {lines} of {of} again"),
                freed: None,
            });
        }
        Ok(())
    }

    fn say(&mut self, who: &'static str, text: &str) {
        self.picture.now = (who, one_line(text, NOW_CHARS));
    }

    fn tell(&mut self, happened: Happened) {
        self.stage.tell(&happened);
        self.picture.add(happened);
    }

    /// Takes what a reply says about the window.
    fn take(&mut self, reply: PrepareContextResponse) {
        if let Some(budget) = reply.budget {
            self.picture.budget = budget;
        }
        if let Some(breakdown) = reply.tokens.and_then(|tokens| tokens.breakdown) {
            self.picture.breakdown = breakdown;
        }
    }

    /// Waits until the summary has followed the turn, so that the same seed gives the same session.
    async fn remember(&mut self, with: &mut Player) -> anyhow::Result<()> {
        let request = GetSessionMemoryRequest {
            session: WITH.to_owned(),
            wait: Some(ProtoDuration {
                seconds: i64::try_from(MEMORY_WAIT.as_secs()).unwrap_or(i64::MAX),
                nanos: 0,
            }),
            known_version: self.picture.memory.version,
        };
        let reply = with.context.get_session_memory(request).await;
        let reply = reply.map_err(|status| said(&status))?.into_inner();
        if let (Some(memory), false) = (reply.memory, reply.unchanged) {
            self.picture.memory = memory;
        }
        Ok(())
    }

    /// Takes the events that came, and draws.
    fn follow(&mut self, events: &mut Receiver<SessionEvent>, with: &Player, without: &Player) {
        self.picture.with = with.tally.clone();
        self.picture.without = without.tally.clone();
        self.picture.messages = with.sent.len();
        let request = with.tally.sent.len();
        while let Ok(event) = events.try_recv() {
            if let Some(happened) = Happened::of(request, &event) {
                self.tell(happened);
            }
        }
        self.stage.show(&self.picture);
    }

    /// Waits until the next request is due, when somebody looks on.
    async fn rest(&self, with: &Player) {
        let Some(time) = self.time else {
            return;
        };
        let done = u32::try_from(with.tally.sent.len()).unwrap_or(u32::MAX);
        let all = u32::try_from(self.picture.requests.max(1)).unwrap_or(u32::MAX);
        sleep_until(self.began + time * done / all).await;
    }
}

/// The service's own events of the first session, as they happen.
async fn watch(
    mut sessions: SessionServiceClient<Channel>,
) -> anyhow::Result<(Receiver<SessionEvent>, JoinHandle<()>)> {
    let (sender, received) = channel(WAITING);
    let request = WatchSessionRequest {
        session: WITH.to_owned(),
        ..WatchSessionRequest::default()
    };
    let stream = sessions.watch_session(request).await;
    let mut stream = stream.map_err(|status| said(&status))?.into_inner();
    let task = tokio::spawn(async move {
        // It ends with the server, or when nobody listens any more.
        while let Ok(Some(element)) = stream.message().await {
            if let Some(event) = element.event
                && sender.send(event).await.is_err()
            {
                return;
            }
        }
    });
    Ok((received, task))
}

/// What leaves everything as it came.
fn no_levels() -> Policy {
    Policy {
        tool_results: Some(ToolResultPolicy {
            enabled: Some(false),
            ..ToolResultPolicy::default()
        }),
        snip: Some(SnipPolicy {
            tag_turns: Some(false),
            ..SnipPolicy::default()
        }),
        microcompact: Some(MicrocompactPolicy {
            enabled: Some(false),
            ..MicrocompactPolicy::default()
        }),
        autocompact: Some(AutocompactPolicy {
            enabled: Some(false),
            ..AutocompactPolicy::default()
        }),
        session_memory: Some(SessionMemoryPolicy {
            enabled: Some(false),
            ..SessionMemoryPolicy::default()
        }),
        ..Policy::default()
    }
}

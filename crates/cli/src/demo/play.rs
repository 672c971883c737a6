//! Plays a story through two sessions and collects the events and figures of the service.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use palimpsest_inspector::session_path;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{
    AutocompactPolicy, CreateSessionRequest, Format, GetSessionMemoryRequest, ListToolsRequest,
    MicrocompactPolicy, Policy, PrepareContextResponse, PromptPrefix, Session, SessionMemoryPolicy,
    SnipPolicy, ToolResultPolicy,
};
use prost_types::Duration as ProtoDuration;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tonic::transport::Channel;

use super::picture::Picture;
use super::player::{Player, session_id};
use super::readback::{ReadBack, read_back};
use super::server::{DemoServer, OffsetClock};
use super::stage::Display;
use super::story::{ServiceToolCall, Story, StoryStep};
use super::timeline::{Actor, TimelineEntry};
use super::watch::Events;
use crate::client::reply_of;
use crate::output::{count, one_line};

const PROJECT: &str = "projects/demo";
const WITH: &str = "projects/demo/sessions/with-palimpsest";
const WITHOUT: &str = "projects/demo/sessions/without";
/// The fork in which the last compaction is undone.
const FORK: &str = "projects/demo/sessions/undone";

/// Returns the text that leads to the pages of the played session.
pub(super) fn keep_text(address: SocketAddr) -> String {
    let page = |session| session_path(session).unwrap_or_default();
    format!(
        "\nThe session: http://{address}{}\nWith every level off: http://{address}{}\nA fork with the last compaction \
         undone: http://{address}{}\n\nThe times of the events are those of the story, with its pauses.\nPress Ctrl-C \
         to end the server.\n",
        page(WITH),
        page(WITHOUT),
        page(FORK)
    )
}

/// The time-out of an update of session memory, in seconds. Only a hang takes as long.
const MEMORY_WAIT_SECONDS: i64 = 60;
/// The duration of one answer of the model, on the clock of the demo.
///
/// Updates of session memory are at least one second apart. Without this time, session memory would lag in a demo
/// without pauses, and its compactions would differ from those of a watched demo.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The maximum length of the shown message, in characters.
const NOW_CHARS: usize = 300;

pub(super) struct DemoOutcome {
    pub(super) picture: Picture,
    /// The number of views that were checked with the rules of the provider. All of them are valid.
    pub(super) checked: usize,
    pub(super) read_back: ReadBack,
    /// The result of undoing the last compaction: the equal messages, and all messages of the view before it.
    pub(super) undone: Option<(usize, usize)>,
}

impl DemoOutcome {
    /// Returns the results of the final checks on one line.
    fn verdict(&self) -> String {
        let back = &self.read_back;
        let undone = self.undone.map_or_else(String::new, |(same, all)| {
            format!(" · undo restored {same} of {all}")
        });
        format!(
            "{} views valid · {} of {} messages read back byte for byte{undone}",
            self.checked, back.same, back.messages
        )
    }

    /// Fails if a message was not read back or an undo was not exact.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let back = &self.read_back;
        ensure!(
            back.same == back.messages,
            "{} of {} messages were not read back byte for byte: report this as a defect, with the seed",
            back.messages - back.same,
            back.messages
        );
        if let Some((same, all)) = self.undone {
            ensure!(
                same == all,
                "the undo restored {same} of {all} messages: report this as a defect, with the seed"
            );
        }
        Ok(())
    }
}

/// A running demo with both sessions.
pub(super) struct DemoRun<'s> {
    clock: &'s OffsetClock,
    channel: Channel,
    stage: Display,
    picture: Picture,
    /// The planned duration. Without it, the demo does not pause.
    time: Option<Duration>,
    began: Instant,
    /// The session with the levels.
    with: Player,
    /// The session with every level off.
    without: Player,
    events: Events,
    service_calls: usize,
}

impl<'s> DemoRun<'s> {
    /// Creates both sessions and watches the events of the first one.
    pub(super) async fn new(
        server: &'s DemoServer,
        stage: Display,
        story: &Story,
        seed: u64,
        time: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let mut sessions = SessionServiceClient::new(server.channel.clone());
        create(&mut sessions, WITH, None).await?;
        create(&mut sessions, WITHOUT, Some(no_levels())).await?;
        let mut tools = story.tools.clone();
        // The session without levels gets no tools of the service, as an agent without Palimpsest would not have them.
        let bare = prefix(story, &tools);
        tools.extend(service_tools(server.channel.clone()).await?);
        Ok(Self {
            clock: &server.clock,
            channel: server.channel.clone(),
            stage,
            picture: Picture::new(seed, story.requests(), story.asks(), server.prices),
            time,
            began: Instant::now(),
            with: Player::new(server.channel.clone(), WITH, prefix(story, &tools)),
            without: Player::new(server.channel.clone(), WITHOUT, bare),
            events: Events::of(&mut sessions, WITH).await?,
            service_calls: 0,
        })
    }

    /// Plays the story and runs the final checks.
    pub(super) async fn run(mut self, story: &Story) -> anyhow::Result<DemoOutcome> {
        for step in &story.steps {
            self.step(step).await?;
            self.follow().await?;
            self.wait_until_due().await;
        }
        // Without results of the checks, this frame has the text `Reading all removed messages back…`.
        self.picture.done = true;
        self.follow().await?;
        let Self {
            channel,
            mut with,
            without,
            ..
        } = self;
        // The read-back is first, because `undo_in_fork` turns `with` into the player of the fork.
        let read_back = read_back(&mut with, channel).await?;
        let undone = with.undo_in_fork(FORK).await?;
        let mut outcome = DemoOutcome {
            checked: with.checked + without.checked,
            picture: self.picture,
            read_back,
            undone,
        };
        outcome.picture.verdict = outcome.verdict();
        self.stage.close(&outcome.picture)?;
        Ok(outcome)
    }

    async fn step(&mut self, step: &StoryStep) -> anyhow::Result<()> {
        self.clock.advance(ANSWER_TIME);
        match step {
            StoryStep::Ask(text) => {
                self.picture.asked += 1;
                self.say("user", text);
                self.with.add_user_message(text);
                self.without.add_user_message(text);
            }
            StoryStep::Say { text, calls } => {
                let (reply, _) = tokio::try_join!(self.with.prepare(), self.without.prepare())?;
                // Calls of tools of the service are requests of `with` only. The chart needs the request of `with` at
                // the same time.
                self.picture.without_at.push(self.with.totals.sent.len());
                self.update_window(reply);
                self.wait_for_memory().await?;
                let tools: Vec<&str> = calls.iter().map(|call| call.tool).collect();
                self.say("model", &called(text, &tools));
                self.with.add_model_turn(text, calls);
                self.without.add_model_turn(text, calls);
                if calls.is_empty() {
                    // The turn is over, so no request appends this answer before the next user message.
                    tokio::try_join!(self.with.flush(), self.without.flush())?;
                    self.wait_for_memory().await?;
                }
            }
            StoryStep::ServiceTool { text, tool } => {
                let reply = self.with.prepare().await?;
                self.update_window(reply);
                self.wait_for_memory().await?;
                // The events of this request precede the tool call in the timeline.
                self.follow().await?;
                self.call_service_tool(text, tool).await?;
            }
            StoryStep::Pause(time) => {
                self.clock.advance(*time);
                let text = format!("idle for {} minutes", time.as_secs() / 60);
                self.add_entry(Actor::Time, text)?;
            }
        }
        Ok(())
    }

    /// Plays a call of the model to a tool of the service.
    async fn call_service_tool(
        &mut self,
        text: &str,
        tool: &ServiceToolCall,
    ) -> anyhow::Result<()> {
        self.service_calls += 1;
        let (name, input) = match tool {
            ServiceToolCall::Snip { ask, reason } => {
                // The id of a turn is known when its message was appended, so the story cannot contain it.
                let Some(turn) = self.with.turns.get(*ask) else {
                    bail!("the turn {ask} has no id yet");
                };
                ("Snip", json!({"ids": [turn], "reason": reason}))
            }
            ServiceToolCall::Grep { call, pattern } => (
                "ReadToolResult",
                json!({"tool_use_id": call, "pattern": pattern}),
            ),
            ServiceToolCall::Read { call } => ("ReadToolResult", json!({"tool_use_id": call})),
        };
        self.say("model", &called(text, &[name]));
        // Calls of the story have ids such as `toolu_0007`, so these ids need another prefix.
        let id = format!("toolu_own_{:04}", self.service_calls);
        let tool_use = self
            .with
            .append_service_call(text, &id, name, &input)
            .await?;
        self.wait_for_memory().await?;
        let answer = self.with.answer_service_call(&tool_use).await?;
        self.wait_for_memory().await?;
        // A snip is an action of level 2, which the events of the session add to the timeline.
        if name != "Snip" {
            let lines = count(answer.lines().count(), "line");
            self.add_entry(Actor::Model, format!("read {lines} back"))?;
        }
        Ok(())
    }

    fn say(&mut self, who: &'static str, text: &str) {
        self.picture.now = (who, one_line(text, NOW_CHARS));
    }

    fn add_entry(&mut self, actor: Actor, text: String) -> anyhow::Result<()> {
        let entry = TimelineEntry {
            request: self.with.totals.sent.len(),
            actor,
            text,
            freed: None,
        };
        self.stage.print_entry(&entry)?;
        self.picture.add(entry);
        Ok(())
    }

    /// Updates the picture with the context window of a reply.
    fn update_window(&mut self, reply: PrepareContextResponse) {
        if let Some(budget) = reply.budget {
            self.picture.budget = budget;
        }
        if let Some(breakdown) = reply.tokens.and_then(|tokens| tokens.breakdown) {
            self.picture.breakdown = breakdown;
        }
    }

    /// Waits for the update of session memory, so that the same seed gives the same session.
    async fn wait_for_memory(&mut self) -> anyhow::Result<()> {
        let request = GetSessionMemoryRequest {
            session: WITH.to_owned(),
            wait: Some(ProtoDuration {
                seconds: MEMORY_WAIT_SECONDS,
                nanos: 0,
            }),
            known_version: self.picture.memory.version,
            ..GetSessionMemoryRequest::default()
        };
        let reply = reply_of(self.with.context.get_session_memory(request).await)?;
        // A reply without changes omits the text, and must not replace it.
        if let (Some(memory), false) = (reply.memory, reply.unchanged) {
            self.picture.memory = memory;
        }
        Ok(())
    }

    /// Adds new events to the picture and shows the picture.
    async fn follow(&mut self) -> anyhow::Result<()> {
        self.picture.with.clone_from(&self.with.totals);
        self.picture.without.clone_from(&self.without.totals);
        self.picture.messages = self.with.sent.len();
        let request = self.with.totals.sent.len();
        for event in self.events.until(self.with.revision).await? {
            if let Some(entry) = TimelineEntry::of(request, &event) {
                self.stage.print_entry(&entry)?;
                self.picture.add(entry);
            }
        }
        self.stage.show(&self.picture)
    }

    /// Waits until the next request is due, if the demo has a duration.
    async fn wait_until_due(&self) {
        let Some(time) = self.time else {
            return;
        };
        let done = u32::try_from(self.with.totals.sent.len()).unwrap_or(u32::MAX);
        let all = u32::try_from(self.picture.requests.max(1)).unwrap_or(u32::MAX);
        // The time is counted from the beginning, so slow requests do not prolong the demo.
        sleep_until(self.began + time * done / all).await;
    }
}

fn called(text: &str, tools: &[&str]) -> String {
    match tools {
        [] => text.to_owned(),
        tools => format!("{text} → {}", tools.join(", ")),
    }
}

async fn create(
    sessions: &mut SessionServiceClient<Channel>,
    name: &str,
    policy_overrides: Option<Policy>,
) -> anyhow::Result<()> {
    let request = CreateSessionRequest {
        parent: PROJECT.to_owned(),
        session_id: session_id(name).to_owned(),
        session: Some(Session {
            policy_overrides,
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    // A policy makes the future large, so it is on the heap.
    reply_of(Box::pin(sessions.create_session(request)).await)?;
    Ok(())
}

async fn service_tools(channel: Channel) -> anyhow::Result<Vec<Value>> {
    let request = ListToolsRequest {
        session: WITH.to_owned(),
        format: Format::AnthropicMessages.into(),
    };
    let listed = reply_of(ContextServiceClient::new(channel).list_tools(request).await)?;
    let tools = listed.tools.iter();
    let tools = tools.map(|tool| serde_json::from_slice(&tool.definition_json));
    Ok(tools.collect::<Result<_, _>>()?)
}

/// Returns the system prompt and the tool definitions of each request.
fn prefix(story: &Story, tools: &[Value]) -> PromptPrefix {
    PromptPrefix {
        system_json: json!(story.system).to_string().into(),
        tools_json: json!(tools).to_string().into(),
        ..PromptPrefix::default()
    }
}

/// Returns a policy with every level off.
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

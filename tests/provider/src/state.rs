//! The state between requests. All of it is bounded.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use serde_json::Value;

use crate::anthropic::Threads;
use crate::billing::Billing;
use crate::named::named;
use crate::plan::Plan;
use crate::resources::Resources;
use crate::responses::Stored;
use crate::script::{Agent, Asked, Match, Script, Scripts};

/// A recorded request, valid or not.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The request path.
    pub path: String,
    /// The query of the request, without the question mark. Empty if it has none.
    pub query: String,
    /// The response status. Zero if the connection was reset.
    pub status: u16,
    /// The body. Null if it was not JSON.
    pub body: Value,
    /// The names and values of the headers, without the key.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body.
    pub raw: Bytes,
    /// The bytes of the request line and the headers, with the key. At most 64 KiB.
    pub head: Bytes,
}

impl Recorded {
    /// Returns the approximate memory in bytes. Parsed JSON needs about three times its text.
    fn size(&self) -> usize {
        self.head.len() + 4 * self.raw.len()
    }
}

const MAX_RECORDED: usize = 2_000;
const MAX_RECORDED_BYTES: usize = 256 * 1024 * 1024;
const MAX_MODELS: usize = 10_000;

#[derive(Default)]
pub(crate) struct State {
    plans: HashMap<String, VecDeque<Plan>>,
    scripts: Scripts,
    asked: HashMap<String, u64>,
    recorded: VecDeque<Recorded>,
    recorded_bytes: usize,
    /// The requests for models, files and batches.
    of_resources: VecDeque<Recorded>,
    pub(crate) billing: Billing,
    pub(crate) stored: Stored,
    pub(crate) threads: Threads,
    pub(crate) resources: Resources,
    ids: u64,
}

impl State {
    pub(crate) fn plans(&mut self, model: &str, plans: impl IntoIterator<Item = Plan>) {
        self.plans
            .entry(model.to_owned())
            .or_default()
            .extend(plans);
    }

    /// Adds a script whose JSON has this size.
    pub(crate) fn add_script(&mut self, script: Script, bytes: usize) -> Result<(), String> {
        self.scripts.add(script, bytes)
    }

    /// Returns the plan for this request: the next one of its model, otherwise that of a script, otherwise that of the
    /// model's name.
    pub(crate) fn plan(&mut self, asked: &Asked<'_>) -> Result<Plan, String> {
        let model = asked.model;
        if self.asked.len() >= MAX_MODELS {
            // All state is bounded. Clearing restarts the counts of `times=N`.
            self.asked.clear();
        }
        // Scripted answers count too, so `times=N` in a name means the first N requests with it.
        let count = self.asked.entry(model.to_owned()).or_default();
        let before = *count;
        *count += 1;
        if let Some(plan) = self.plans.get_mut(model).and_then(VecDeque::pop_front) {
            return Ok(plan);
        }
        if let Some(plan) = self.scripts.plan(asked) {
            return Ok(plan);
        }
        let named = named(model, before)?;
        let Some(agent) = named.agent else {
            return Ok(named.plan);
        };
        self.start_agent(asked, agent, named.plan)
    }

    /// Adds a script for an agent that the model's name defines, because its rounds last for several requests.
    fn start_agent(
        &mut self,
        asked: &Asked<'_>,
        mut agent: Agent,
        named: Plan,
    ) -> Result<Plan, String> {
        agent.pace = named.pace;
        let script = Script {
            matches: Match {
                model: Some(asked.model.to_owned()),
                ..Match::default()
            },
            window: named.window,
            agent: Some(agent),
            ..Script::default()
        };
        // No existing script has an answer for this request, so the new script is the first that matches.
        self.scripts.add(script, 0)?;
        let none = || "no script matches the model of this request".to_owned();
        self.scripts.plan(asked).ok_or_else(none)
    }

    pub(crate) fn record(&mut self, recorded: Recorded) {
        self.recorded_bytes += recorded.size();
        self.recorded.push_back(recorded);
        while self.recorded.len() > MAX_RECORDED || self.recorded_bytes > MAX_RECORDED_BYTES {
            let Some(oldest) = self.recorded.pop_front() else {
                break;
            };
            self.recorded_bytes -= oldest.size();
        }
    }

    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.recorded.iter().cloned().collect()
    }

    /// Records a request for a model, a file or a batch.
    pub(crate) fn record_resource(&mut self, recorded: Recorded) {
        self.of_resources.push_back(recorded);
        if self.of_resources.len() > MAX_RECORDED {
            self.of_resources.pop_front();
        }
    }

    pub(crate) fn recorded_resources(&self) -> Vec<Recorded> {
        self.of_resources.iter().cloned().collect()
    }

    pub(crate) fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}{:024}", self.ids)
    }
}

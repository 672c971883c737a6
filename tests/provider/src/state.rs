//! The state between requests. All of it is bounded.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::cache::{Block, Cache, Cached};
use crate::script::{Plan, named};

/// A recorded request, valid or not.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The request path.
    pub path: String,
    /// The response status.
    pub status: u16,
    /// The body. Null if it was not JSON.
    pub body: Value,
    /// The names and values of the headers, without the key.
    pub headers: Vec<(String, String)>,
}

const MAX_RECORDED: usize = 256;
const MAX_RECORDED_BYTES: usize = 256 * 1024 * 1024;
const MAX_MODELS: usize = 10_000;

#[derive(Default)]
pub(crate) struct State {
    scripts: HashMap<String, VecDeque<Plan>>,
    asked: HashMap<String, u64>,
    recorded: VecDeque<(usize, Recorded)>,
    recorded_bytes: usize,
    cache: Cache,
    ids: u64,
}

impl State {
    pub(crate) fn script(&mut self, model: &str, plans: impl IntoIterator<Item = Plan>) {
        self.scripts
            .entry(model.to_owned())
            .or_default()
            .extend(plans);
    }

    /// Returns the plan for this request: the next scripted one, otherwise that of the name.
    pub(crate) fn plan(&mut self, model: &str) -> Result<Plan, String> {
        if self.asked.len() >= MAX_MODELS {
            self.asked.clear();
        }
        let asked = self.asked.entry(model.to_owned()).or_default();
        let before = *asked;
        *asked += 1;
        let scripted = self.scripts.get_mut(model).and_then(VecDeque::pop_front);
        scripted.map_or_else(|| named(model, before), Ok)
    }

    pub(crate) fn cached(&mut self, model: &str, blocks: &[Block]) -> Cached {
        self.cache.look_up(model, blocks)
    }

    pub(crate) fn record(&mut self, recorded: Recorded, bytes: usize) {
        self.recorded_bytes += bytes;
        self.recorded.push_back((bytes, recorded));
        while self.recorded.len() > MAX_RECORDED || self.recorded_bytes > MAX_RECORDED_BYTES {
            let Some((bytes, _)) = self.recorded.pop_front() else {
                break;
            };
            self.recorded_bytes -= bytes;
        }
    }

    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.recorded
            .iter()
            .map(|(_, recorded)| recorded.clone())
            .collect()
    }

    pub(crate) fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}{:024}", self.ids)
    }
}

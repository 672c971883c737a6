//! Scripts of conversations, as JSON.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use axum::http::HeaderMap;
use serde::Deserialize;

use crate::agent::{Round, shell};
use crate::credential::Credential;
use crate::faults::Fault;
use crate::plan::{Behaviour, Plan};
use crate::stream::pace::Pace;
use crate::turn::{Call, Prompt, Turn, Usage};

/// The maximum number of scripts, and of their bytes as JSON.
const MAX_SCRIPTS: usize = 1_000;
const MAX_SCRIPT_BYTES: usize = 256 * 1024 * 1024;

/// A script for the requests that match it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The conditions. All given ones must hold.
    #[serde(rename = "match")]
    pub matches: Match,
    /// The answers to the next requests, in order. Each is used once.
    pub turns: VecDeque<ScriptedTurn>,
    /// The work after the turns. `None`: another script or the model's name decides.
    pub agent: Option<Agent>,
    /// The context window, in tokens. `None` for the default.
    pub window: Option<u64>,
}

/// The conditions of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// The name of the model.
    pub model: Option<String>,
    /// The API key.
    pub key: Option<String>,
    /// Names and values of headers.
    pub headers: BTreeMap<String, String>,
    /// A part of any text in the conversation.
    pub text: Option<String>,
    /// True for requests with tools, false for requests without.
    pub tools: Option<bool>,
}

/// One scripted answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedTurn {
    /// As in [`Turn`].
    pub thinking: String,
    /// As in [`Turn`].
    pub text: String,
    /// As in [`Turn`].
    pub citations: Vec<String>,
    /// As in [`Turn`].
    pub calls: Vec<Call>,
    /// As in [`Turn`].
    pub usage: Option<Usage>,
    /// The delay before the head of the response, in milliseconds.
    pub delay_ms: u64,
    /// The pace.
    pub pace: Pace,
    /// The failure of this answer.
    pub fault: Option<Fault>,
}

/// An agent's work: rounds that each call the first shell-like tool, then a text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// The number of rounds.
    pub rounds: u64,
    /// The smallest and the largest output of a command, in bytes.
    pub output_bytes: (u64, u64),
    /// The text after the last round.
    pub text: String,
    /// The pace of all answers.
    pub pace: Pace,
    /// Failures by the number of the request, from 1. A failed request is no round.
    pub faults: BTreeMap<u64, Fault>,
    /// Rounds so far.
    #[serde(skip)]
    done: u64,
    /// Requests so far.
    #[serde(skip)]
    asked: u64,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            rounds: 0,
            output_bytes: (2_000, 20_000),
            text: "All rounds are done.".to_owned(),
            pace: Pace::default(),
            faults: BTreeMap::new(),
            done: 0,
            asked: 0,
        }
    }
}

/// A request, as scripts see it.
pub(crate) struct Asked<'a> {
    pub(crate) model: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) prompt: &'a Prompt<'a>,
}

impl Match {
    fn holds(&self, asked: &Asked<'_>) -> bool {
        let header = |(name, value): (&String, &String)| {
            asked
                .headers
                .get(name)
                .is_some_and(|given| given.as_bytes() == value.as_bytes())
        };
        let key = |key: &String| Credential::of(asked.headers) == Credential::of_key(key);
        let text = |part: &String| {
            asked
                .prompt
                .texts
                .iter()
                .any(|text| text.contains(part.as_str()))
        };
        self.model.as_ref().is_none_or(|model| model == asked.model)
            && self.key.as_ref().is_none_or(key)
            && self.headers.iter().all(header)
            && self.text.as_ref().is_none_or(text)
            && self
                .tools
                .is_none_or(|tools| tools != asked.prompt.tools.is_empty())
    }
}

impl ScriptedTurn {
    fn plan(self) -> Plan {
        let turn = Turn {
            thinking: self.thinking,
            text: self.text,
            citations: self.citations,
            calls: self.calls,
            usage: self.usage,
        };
        Plan {
            behaviour: Behaviour::Turn(turn),
            delay: Duration::from_millis(self.delay_ms),
            pace: self.pace,
            fault: self.fault,
            ..Plan::default()
        }
    }
}

impl Agent {
    fn plan(&mut self, prompt: &Prompt<'_>) -> Plan {
        self.asked += 1;
        let fault = self.faults.get(&self.asked).cloned();
        let asks_summary = prompt
            .texts
            .last()
            .is_some_and(|text| text.contains("<summary>"));
        let behaviour = if shell(&prompt.tools).is_none() || asks_summary {
            // A title or a summary for the agent itself.
            Behaviour::Echo
        // A failed request takes no round, so that its retry gets the same one.
        } else if self.done < self.rounds && fault.is_none() {
            self.done += 1;
            let (least, most) = self.output_bytes;
            // A prime step spreads the sizes, and each run has the same ones.
            let above = self.done * 7_919 % (most.saturating_sub(least) + 1);
            Behaviour::Round(Round {
                number: self.done,
                output_bytes: least + above,
            })
        } else {
            Behaviour::Say(self.text.clone())
        };
        Plan {
            behaviour,
            pace: self.pace.clone(),
            fault,
            ..Plan::default()
        }
    }
}

/// The scripts of a provider.
#[derive(Default)]
pub(crate) struct Scripts(Vec<(usize, Script)>);

impl Scripts {
    /// Adds a script of this size. Finished scripts are removed.
    pub(crate) fn add(&mut self, script: Script, bytes: usize) -> Result<(), String> {
        self.0
            .retain(|(_, script)| script.agent.is_some() || !script.turns.is_empty());
        let total: usize = self.0.iter().map(|(bytes, _)| bytes).sum();
        if self.0.len() >= MAX_SCRIPTS || total + bytes > MAX_SCRIPT_BYTES {
            return Err(format!(
                "Cannot add the script: {} scripts with {total} bytes exist. Start another provider.",
                self.0.len()
            ));
        }
        self.0.push((bytes, script));
        Ok(())
    }

    /// Returns the plan of the first script that matches and has an answer.
    pub(crate) fn plan(&mut self, asked: &Asked<'_>) -> Option<Plan> {
        for (_, script) in &mut self.0 {
            if !script.matches.holds(asked) {
                continue;
            }
            let turn = script.turns.pop_front().map(ScriptedTurn::plan);
            let agent = || script.agent.as_mut().map(|agent| agent.plan(asked.prompt));
            if let Some(plan) = turn.or_else(agent) {
                // The window belongs to the script and applies to all its turns.
                return Some(Plan {
                    window: script.window,
                    ..plan
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use serde_json::{Value, json};

    use super::{Asked, MAX_SCRIPT_BYTES, MAX_SCRIPTS, Script, Scripts};
    use crate::plan::{Behaviour, Plan};
    use crate::turn::{Offered, Prompt};

    fn scripts(all: &[Value]) -> Scripts {
        let mut scripts = Scripts::default();
        for script in all {
            let script: Script = serde_json::from_value(script.clone()).unwrap();
            scripts.add(script, 1).unwrap();
        }
        scripts
    }

    fn plan(scripts: &mut Scripts, key: &str, text: &str, has_shell: bool) -> Option<Plan> {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", key.parse().unwrap());
        let shell = Offered::new("Bash", &Value::Null);
        let prompt = Prompt {
            texts: vec![text.to_owned()],
            tools: if has_shell { vec![shell] } else { Vec::new() },
            array: &Value::Null,
            max_output: 1,
            thinks: false,
        };
        let asked = Asked {
            model: "m",
            headers: &headers,
            prompt: &prompt,
        };
        scripts.plan(&asked)
    }

    #[test]
    fn turns_are_used_once_by_matching_requests() {
        let mut scripts = scripts(&[
            json!({"match": {"key": "a", "text": "left"}, "turns": [{"text": "1"}, {"text": "2"}]}),
            json!({"match": {"tools": true}, "turns": [{"text": "3"}]}),
        ]);
        let mut text = |key, text, has_shell| match plan(&mut scripts, key, text, has_shell) {
            Some(Plan {
                behaviour: Behaviour::Turn(turn),
                ..
            }) => turn.text,
            other => format!("{other:?}"),
        };
        assert_eq!(text("a", "go left", false), "1");
        assert_eq!(text("a", "go right", false), "None");
        assert_eq!(text("b", "go left", false), "None");
        assert_eq!(text("b", "go left", true), "3");
        assert_eq!(text("a", "go left", true), "2");
        assert_eq!(text("a", "go left", true), "None");
    }

    #[test]
    fn an_agent_works_in_rounds_and_then_answers() {
        let agent =
            json!({"rounds": 2, "output_bytes": [10, 10], "text": "end", "faults": {"2": "reset"}});
        let mut scripts = scripts(&[json!({"agent": agent})]);
        let mut step = |text, has_shell| {
            let plan = plan(&mut scripts, "k", text, has_shell).unwrap();
            match plan.behaviour {
                _ if plan.fault.is_some() => "fault".to_owned(),
                Behaviour::Round(round) => format!("{}: {}", round.number, round.output_bytes),
                Behaviour::Say(text) => text,
                other => format!("{other:?}"),
            }
        };
        assert_eq!(step("work", true), "1: 10");
        assert_eq!(step("work", true), "fault");
        assert_eq!(step("title", false), "Echo");
        assert_eq!(step("write a <summary>", true), "Echo");
        assert_eq!(step("work", true), "2: 10");
        assert_eq!(step("work", true), "end");
        assert_eq!(step("work", true), "end");
    }

    #[test]
    fn scripts_are_bounded() {
        let mut scripts = Scripts::default();
        let agent = || serde_json::from_value(json!({"agent": {}})).unwrap();
        for _ in 0..MAX_SCRIPTS {
            // A finished script makes room for the next one.
            scripts.add(Script::default(), MAX_SCRIPT_BYTES).unwrap();
        }
        scripts.add(agent(), MAX_SCRIPT_BYTES - 1).unwrap();
        assert!(scripts.add(agent(), 2).is_err());
        for _ in 1..MAX_SCRIPTS {
            scripts.add(agent(), 0).unwrap();
        }
        assert!(scripts.add(agent(), 0).is_err());
    }

    #[test]
    fn unknown_fields_are_rejected() {
        let script = json!({"turns": [{"txt": "misspelled"}]});
        assert!(serde_json::from_value::<Script>(script).is_err());
    }
}

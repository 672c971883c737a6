//! Conversations as files that all participants read: one JSON object per line. A line is a message in Anthropic's form
//! or a marker for a model call.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One step of a conversation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// A new message.
    Message(Box<RawValue>),
    /// A model call with all earlier messages. Calls are counted from 0.
    Call(usize),
}

impl Conversation {
    /// Creates a conversation. Adds a model call before each message of the model.
    pub(crate) fn new(name: String, messages: Vec<Value>) -> anyhow::Result<Self> {
        let mut steps = Vec::new();
        let mut calls = 0;
        for message in messages {
            if message["role"] == "assistant" {
                steps.push(Step::Call(calls));
                calls += 1;
            }
            steps.push(Step::Message(serde_json::value::to_raw_value(&message)?));
        }
        // Messages after the last model call are not part of any call.
        let last = steps.iter().rposition(|step| matches!(step, Step::Call(_)));
        steps.truncate(last.map_or(0, |last| last + 1));
        Ok(Self { name, steps })
    }

    /// Reads a conversation from its file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the conversation {}", path.display()))?;
        let steps = text.lines().map(serde_json::from_str);
        Ok(Self {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into(),
            steps: steps.collect::<Result<_, _>>()?,
        })
    }

    fn calls(&self) -> usize {
        let is_call = |step: &&Step| matches!(step, Step::Call(_));
        self.steps.iter().filter(is_call).count()
    }
}

/// Writes conversations to a folder, and removes earlier ones from it.
pub(crate) fn write(
    folder: &Path,
    conversations: Vec<Conversation>,
    min_calls: usize,
) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let all = conversations.len();
    let mut written = 0;
    for conversation in conversations {
        if conversation.calls() < min_calls {
            continue;
        }
        let path = folder.join(format!("{}.jsonl", conversation.name));
        let mut out = std::io::BufWriter::new(fs::File::create_new(path)?);
        for step in &conversation.steps {
            serde_json::to_writer(&mut out, step)?;
            writeln!(out)?;
        }
        out.flush()?;
        written += 1;
    }
    if written == 0 {
        bail!("none of {all} conversations has {min_calls} model calls or more");
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{written} of {all} conversations have {min_calls} model calls or more"
    )?;
    Ok(())
}

//! Replies of the server as JSON, in the form of the REST API.

use anyhow::Context as _;
use palimpsest_http::PlainJson;
use prost::Message;

use super::output::{print_json, print_next_json};

/// Writes messages of one type of the contract as lines of JSON.
pub(super) struct ReplyJson {
    json: PlainJson,
    name: &'static str,
}

impl ReplyJson {
    /// `name` is the name of the message in the contract.
    pub(super) fn of(name: &'static str) -> anyhow::Result<Self> {
        let json = PlainJson::new()?;
        Ok(Self { json, name })
    }

    /// Prints a message that is the whole output.
    pub(super) fn print(&self, reply: &impl Message) -> anyhow::Result<()> {
        print_json(&self.text(reply)?)
    }

    /// Prints a message of an output without an end. Returns false if the reader has closed the pipe.
    pub(super) fn print_next(&self, reply: &impl Message) -> anyhow::Result<bool> {
        print_next_json(&self.text(reply)?)
    }

    fn text(&self, reply: &impl Message) -> anyhow::Result<String> {
        let name = self.name;
        self.json
            .text(name, reply)
            .with_context(|| format!("cannot write a {name} as JSON: report this as a defect"))
    }
}

//! The file format of views. The first line is the provider's name. Each further line is a model call: the number of
//! kept messages of the previous array, and the messages after them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use palimpsest_core::view::Provider;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    /// `anthropic` or `openai`.
    pub(crate) provider: String,
}

/// A line for one model call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) keep: usize,
    pub(crate) messages: Vec<Box<RawValue>>,
}

/// Writes a file of views.
pub(crate) struct Writer {
    out: BufWriter<File>,
    last: Vec<Vec<u8>>,
}

impl Writer {
    /// Creates a file of views for Anthropic's models.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        let head = Head {
            provider: "anthropic".into(),
        };
        serde_json::to_writer(&mut out, &head)?;
        writeln!(out)?;
        Ok(Self {
            out,
            last: Vec::new(),
        })
    }

    /// Writes the array of a model call. The kept messages are determined by comparison with the previous array, and
    /// not taken from the service. A wrong count of the service is therefore detected.
    pub(crate) fn write(&mut self, array: &[Vec<u8>]) -> anyhow::Result<()> {
        let keep = self
            .last
            .iter()
            .zip(array)
            .take_while(|(a, b)| a == b)
            .count();
        let new = array[keep..].iter();
        let raw = new.map(|message| serde_json::from_slice(message));
        let line = Line {
            keep,
            messages: raw.collect::<Result<_, _>>()?,
        };
        serde_json::to_writer(&mut self.out, &line)?;
        writeln!(self.out)?;
        self.last.truncate(keep);
        self.last.extend_from_slice(&array[keep..]);
        Ok(())
    }

    /// Flushes the file.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }
}

/// Returns the provider with a name.
pub(crate) fn provider(name: &str) -> anyhow::Result<Provider> {
    match name {
        "anthropic" => Ok(Provider::Anthropic),
        "openai" => Ok(Provider::OpenAi),
        _ => anyhow::bail!("there is no provider {name:?}: it is anthropic or openai"),
    }
}

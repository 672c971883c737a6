//! Transcript files that a command is given: which ones, and in which format.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use palimpsest_core::view::Provider;
use palimpsest_transcripts::import::{self, ImportFormat};

/// Bytes of a file that tell whether it is text.
const HEAD: u64 = 8 * 1024;

/// A program's way to write transcripts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Claude Code's JSON lines, one session a file
    ClaudeCode,
    /// `OpenAI` chat messages: an array, an object that holds one, or one of these on every line
    #[value(name = "openai")]
    OpenAi,
    /// The same with Anthropic's messages
    Anthropic,
    /// What `palimpsest export` writes, one session a file
    Palimpsest,
}

impl From<Format> for ImportFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::ClaudeCode => Self::ClaudeCode,
            Format::OpenAi => Self::OpenAi,
            Format::Anthropic => Self::Anthropic,
            Format::Palimpsest => Self::Palimpsest,
        }
    }
}

impl Format {
    /// Who takes messages that are written so.
    pub(super) fn provider(self) -> Provider {
        match self {
            Self::OpenAi => Provider::OpenAi,
            Self::ClaudeCode | Self::Anthropic | Self::Palimpsest => Provider::Anthropic,
        }
    }
}

/// The files among `paths`, and those directly in the folders among them, in the order of their
/// names. None at all is an error: a check that looked at nothing has not passed.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if metadata.is_file() {
            files.push(path.clone());
            continue;
        }
        for entry in
            fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?
        {
            let entry = entry?.path();
            if entry.is_file() && is_transcript(&entry) {
                files.push(entry);
            }
        }
    }
    if files.is_empty() {
        bail!("{}", nothing_found(paths));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// The reason why folders gave no file: the transcripts of several projects lie one folder deeper.
fn nothing_found(paths: &[PathBuf]) -> String {
    let entries = paths.iter().filter_map(|path| fs::read_dir(path).ok());
    let entries = entries.flatten().flatten().map(|entry| entry.path());
    let folder = entries.filter(|path| path.is_dir()).find(|folder| {
        let inner = fs::read_dir(folder).into_iter().flatten().flatten();
        inner
            .map(|entry| entry.path())
            .any(|path| is_transcript(&path))
    });
    let expected = "no transcripts found: expected .jsonl or .json files";
    match folder {
        Some(folder) => format!(
            "{expected}, and only folders of them are there: name those, such as {}",
            folder.display()
        ),
        None => expected.to_owned(),
    }
}

/// Refuses files that are no text, by their first bytes.
pub(super) fn refuse_binary(files: &[PathBuf]) -> anyhow::Result<()> {
    for file in files {
        let reading = || format!("cannot read {}", file.display());
        let mut head = Vec::new();
        let opened = fs::File::open(file).with_context(reading)?;
        opened
            .take(HEAD)
            .read_to_end(&mut head)
            .with_context(reading)?;
        if let Some(what) = import::detect_binary(&head) {
            bail!("{} {what}", file.display());
        }
    }
    Ok(())
}

fn is_transcript(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "jsonl" || ending == "json")
}

/// A session id made of a file's name, and of what tells its sessions apart.
pub(super) fn session_id(file: &Path, suffix: &str) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut id: String = stem
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '-'
            }
        })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .collect();
    if id.is_empty() {
        id.push_str("session");
    }
    let suffix: String = suffix
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .collect();
    if !suffix.is_empty() {
        id.truncate(100);
        id.push('.');
        id.push_str(&suffix);
    }
    id.truncate(128);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_are_legal() {
        for (file, suffix, id) in [
            ("a/b__c.1.jsonl", "", "b__c.1"),
            ("-x y.jsonl", "7", "x-y.7"),
            ("..jsonl", "", "session"),
            ("ä.jsonl", "", "session"),
        ] {
            assert_eq!(session_id(Path::new(file), suffix), id, "{file}");
        }
        let long = session_id(Path::new(&"x".repeat(300)), "suffix");
        assert!(long.len() <= 128 && long.ends_with(".suffix"), "{long}");
    }
}

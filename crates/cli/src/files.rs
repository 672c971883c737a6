//! Transcript files on the command line, and their formats.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::ValueEnum;
use palimpsest_core::view::Provider;
use palimpsest_transcripts::import::{self, ImportFormat};

/// The number of bytes that are inspected to detect a binary file.
const HEAD: u64 = 8 * 1024;

/// The format of a transcript file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// JSON lines of Claude Code, one session per file
    ClaudeCode,
    /// OpenAI chat messages: an array, an object with an array, or one of these per line
    #[value(name = "openai")]
    OpenAi,
    /// Items of OpenAI's Responses API, in the same forms
    #[value(name = "openai-responses")]
    OpenAiResponses,
    /// Anthropic messages, in the same forms
    Anthropic,
    /// Exports of `palimpsest export`, one session per file
    Palimpsest,
}

impl From<Format> for ImportFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::ClaudeCode => Self::ClaudeCode,
            Format::OpenAi => Self::OpenAi,
            Format::OpenAiResponses => Self::OpenAiResponses,
            Format::Anthropic => Self::Anthropic,
            Format::Palimpsest => Self::Palimpsest,
        }
    }
}

impl Format {
    /// The provider of messages in this format.
    pub(super) fn provider(self) -> Provider {
        match self {
            Self::OpenAi => Provider::OpenAi,
            Self::OpenAiResponses => Provider::OpenAiResponses,
            Self::ClaudeCode | Self::Anthropic | Self::Palimpsest => Provider::Anthropic,
        }
    }
}

/// Returns the files of `paths`, sorted by name. A folder is replaced by the transcripts directly in it.
///
/// Fails if the result is empty, because a check of no files must not pass.
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

/// Returns the error for folders without transcripts. If transcripts are one level deeper, as those of several projects
/// are, the error names one of their folders.
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
            "{expected}. The subfolders contain such files: pass these folders, such as {}",
            folder.display()
        ),
        None => expected.to_owned(),
    }
}

/// Returns the error for files without any session. `reason` states why a file was not recognized.
pub(super) fn no_session(files: usize, reason: Option<String>) -> anyhow::Error {
    let reason = reason.map_or_else(String::new, |reason| format!(". {reason}"));
    anyhow!("no session was found in {files} files: check --format{reason}")
}

/// Fails if files were not recognized. `work` is what was not done with them, such as `replayed`.
pub(super) fn require_recognized(
    unrecognized: usize,
    files: usize,
    work: &str,
) -> anyhow::Result<()> {
    ensure!(
        unrecognized == 0,
        "{unrecognized} of {files} files were not recognized and not {work}: see the lines UNRECOGNIZED above"
    );
    Ok(())
}

/// Rejects binary files, by their first bytes.
pub(super) fn reject_binary(files: &[PathBuf]) -> anyhow::Result<()> {
    for file in files {
        let read_failed = || format!("cannot read {}", file.display());
        let mut head = Vec::new();
        let opened = fs::File::open(file).with_context(read_failed)?;
        opened
            .take(HEAD)
            .read_to_end(&mut head)
            .with_context(read_failed)?;
        if let Some(reason) = import::detect_binary(&head) {
            bail!("{} {reason}", file.display());
        }
    }
    Ok(())
}

fn is_transcript(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "jsonl" || ending == "json")
}

/// Returns a valid session id from the name of a file. The suffix distinguishes sessions of one file.
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
        // A session id has at most 128 characters, so the name leaves space for the suffix.
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
    fn session_ids_from_file_names_are_valid() {
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

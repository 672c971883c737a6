//! Transcript files on the command line, and their formats.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::ValueEnum;
use palimpsest_core::view::Provider;
use palimpsest_transcripts::import::{self, ImportFormat, Imported};

/// The number of bytes that are inspected to detect a binary file.
const HEAD: u64 = 8 * 1024;

/// The format of a transcript file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The format of each file, by its content
    Auto,
    /// JSON lines of Claude Code, one session per file
    ClaudeCode,
    /// Rollout files of Codex
    Codex,
    /// Event files of the Copilot CLI
    CopilotCli,
    /// Session files of the Gemini CLI
    GeminiCli,
    /// Exports of OpenCode: the output of `opencode export`
    #[value(name = "opencode")]
    OpenCode,
    /// Session files of pi
    Pi,
    /// OpenAI chat messages: an array, an object with an array, or one of these per line. Trajectories of SWE-agent and
    /// mini-swe-agent have this format
    #[value(name = "openai", alias = "swe-agent", alias = "mini-swe-agent")]
    OpenAi,
    /// Items of OpenAI's Responses API, in the same forms
    #[value(name = "openai-responses")]
    OpenAiResponses,
    /// Anthropic messages, in the same forms
    Anthropic,
    /// Exports of `palimpsest export`, one session per file
    Palimpsest,
}

impl Format {
    /// Reads a file of this format.
    pub(super) fn read(self, bytes: &[u8]) -> Imported<'_> {
        import::read(self.of_files(), bytes)
    }

    /// Returns `None` if the content of each file determines its format.
    pub(super) fn of_files(self) -> Option<ImportFormat> {
        Some(match self {
            Self::Auto => return None,
            Self::ClaudeCode => ImportFormat::ClaudeCode,
            Self::Codex => ImportFormat::Codex,
            Self::CopilotCli => ImportFormat::CopilotCli,
            Self::GeminiCli => ImportFormat::GeminiCli,
            Self::OpenCode => ImportFormat::OpenCode,
            Self::Pi => ImportFormat::Pi,
            Self::OpenAi => ImportFormat::OpenAi,
            Self::OpenAiResponses => ImportFormat::OpenAiResponses,
            Self::Anthropic => ImportFormat::Anthropic,
            Self::Palimpsest => ImportFormat::Palimpsest,
        })
    }
}

/// Returns the provider whose form the messages of a file have.
pub(super) fn provider_of(imported: &Imported<'_>) -> Provider {
    imported
        .format
        .map_or(Provider::Anthropic, ImportFormat::provider)
}

/// Returns the files of `paths`, sorted by name. A folder is replaced by the transcripts in it and in its subfolders,
/// without the files that an agent keeps beside its logs.
///
/// Fails if the result is empty, because a check of no files must not pass.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        // A file that the user names is read with any extension. Only folders are filtered.
        if metadata.is_file() {
            files.push(path.clone());
        } else {
            let mut of_folder = Vec::new();
            add_transcripts(path, &mut of_folder)?;
            files.extend(of_folder.into_iter().filter(|file| !is_beside_logs(file)));
        }
    }
    ensure!(
        !files.is_empty(),
        "no transcripts found: expected .jsonl, .json or .traj files"
    );
    files.sort();
    files.dedup();
    Ok(files)
}

/// Writes a file that an option of the command names.
pub(super) fn write(path: &Path, contents: &str) -> anyhow::Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// Adds the transcripts in a folder and its subfolders. Links to folders are not followed, because they may form a
/// cycle.
pub(super) fn add_transcripts(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let cannot_read = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(cannot_read)? {
        let entry = entry.with_context(cannot_read)?;
        let path = entry.path();
        // `file_type` does not follow links, so a link to a folder is no folder here. `is_file` follows a link to a
        // file.
        if entry.file_type().with_context(cannot_read)?.is_dir() {
            add_transcripts(&path, files)?;
        } else if path.is_file() && is_transcript(&path) {
            files.push(path);
        }
    }
    Ok(())
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

/// Fails if two files would become one session, because their names are equal.
pub(super) fn require_different_sessions(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut known: HashMap<String, &PathBuf> = HashMap::new();
    for file in files {
        // Two folders can have files with one name, and different names can become equal when characters are replaced.
        let id = session_id(file, "");
        if let Some(other) = known.insert(id.clone(), file) {
            bail!(
                "{} and {} would become one session, {id}: import one of them with --session",
                other.display(),
                file.display()
            );
        }
    }
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
        .is_some_and(|ending| ending == "jsonl" || ending == "json" || ending == "traj")
}

/// Returns true for a file that an agent keeps beside its logs. The rule is narrow, because any other file that is no
/// session can be a damaged transcript.
fn is_beside_logs(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new(""));
    // Claude Code describes a sub-agent beside its log, indexes the sessions of a project, and stores large results.
    let is_of_claude_code = name.starts_with("agent-") && name.ends_with(".meta.json")
        || name == "sessions-index.json"
        || folder.ends_with("tool-results");
    // The Gemini CLI has a list of all inputs beside the folder of its sessions.
    is_of_claude_code || name == "logs.json" && folder.join("chats").is_dir()
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
        // A session id begins with a letter or a digit.
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
    // All characters are ASCII, so a cut at any byte is between two characters.
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
            // These names have no letter or digit of ASCII, so the fallback replaces them.
            ("..jsonl", "", "session"),
            ("ä.jsonl", "", "session"),
        ] {
            assert_eq!(session_id(Path::new(file), suffix), id, "{file}");
        }
        let long = session_id(Path::new(&"x".repeat(300)), "suffix");
        assert!(long.len() <= 128 && long.ends_with(".suffix"), "{long}");
    }
}

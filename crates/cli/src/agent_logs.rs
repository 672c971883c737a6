//! The folders in which coding agents keep the logs of their sessions on this machine.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use palimpsest_transcripts::import::{ImportFormat, Imported};

use super::files::{self, Format};
use super::output::number;

/// The maximum number of files that the report names.
const MAX_NAMED: usize = 10;

/// A folder below the home folder, and the variables of the agent that replace a part of its path.
struct LogPlace {
    agent: &'static str,
    format: ImportFormat,
    /// Each variable with the path from its value to the folder. The first variable that is set applies.
    variables: &'static [(&'static str, &'static str)],
    /// The path from the home folder.
    default: &'static str,
}

const PLACES: [LogPlace; 5] = [
    LogPlace {
        agent: "Claude Code",
        format: ImportFormat::ClaudeCode,
        variables: &[("CLAUDE_CONFIG_DIR", "projects")],
        default: ".claude/projects",
    },
    LogPlace {
        agent: "Codex",
        format: ImportFormat::Codex,
        variables: &[("CODEX_HOME", "sessions")],
        default: ".codex/sessions",
    },
    LogPlace {
        agent: "Copilot CLI",
        format: ImportFormat::CopilotCli,
        variables: &[("COPILOT_HOME", "session-state")],
        default: ".copilot/session-state",
    },
    LogPlace {
        agent: "Gemini CLI",
        format: ImportFormat::GeminiCli,
        variables: &[("GEMINI_CLI_HOME", ".gemini/tmp")],
        default: ".gemini/tmp",
    },
    LogPlace {
        agent: "pi",
        format: ImportFormat::Pi,
        variables: &[
            ("PI_CODING_AGENT_SESSION_DIR", ""),
            ("PI_CODING_AGENT_DIR", "sessions"),
        ],
        default: ".pi/agent/sessions",
    },
];

impl LogPlace {
    /// Returns the folder. `None` if neither a variable of the agent nor the home folder is known.
    fn folder(&self, variable: &impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let of_agent = self.variables.iter().find_map(|(name, rest)| {
            let base = variable(name)?;
            // Joining an empty path would add a separator.
            Some(if rest.is_empty() {
                base
            } else {
                base.join(rest)
            })
        });
        // Windows sets `USERPROFILE` instead of `HOME`.
        let home = || variable("HOME").or_else(|| variable("USERPROFILE"));
        of_agent.or_else(|| Some(home()?.join(self.default)))
    }
}

/// The logs of one agent.
#[derive(Debug)]
struct LogFolder {
    agent: &'static str,
    format: ImportFormat,
    path: PathBuf,
    files: Vec<PathBuf>,
}

/// The transcripts of a command: the files of its arguments, or else the logs of the agents on this machine.
#[derive(Debug)]
pub(super) struct Transcripts {
    files: Vec<PathBuf>,
    format: Format,
    /// The folders of the files, if the command has no arguments.
    logs: Vec<LogFolder>,
}

/// The result of reading one file.
#[derive(Debug)]
pub(super) struct FileOutcome {
    pub(super) sessions: usize,
    pub(super) is_recognized: bool,
}

impl Transcripts {
    /// Finds the files of the paths. Without paths, it finds the logs of all agents, or of the agent with the format.
    pub(super) fn find(paths: &[PathBuf], format: Format) -> anyhow::Result<Self> {
        if !paths.is_empty() {
            return Ok(Self {
                files: files::find(paths)?,
                format,
                logs: Vec::new(),
            });
        }
        let variable = |name: &str| {
            // An empty variable counts as unset: joined with `projects`, it would name a folder of the working folder.
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let wanted = format.of_files();
        let logs = LogFolder::find_all(wanted, &variable)?;
        // The variables of two agents can name folders within each other. A file then counts once.
        let mut files: Vec<PathBuf> = logs.iter().flat_map(|it| it.files.clone()).collect();
        files.sort();
        files.dedup();
        Ok(Self {
            files,
            format,
            logs,
        })
    }

    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns true if the files are the logs of agents. Their folders also contain files that are no transcripts.
    pub(super) fn are_logs(&self) -> bool {
        !self.logs.is_empty()
    }

    /// Reads a file of the transcripts.
    pub(super) fn read<'a>(&self, file: &Path, bytes: &'a [u8]) -> Imported<'a> {
        let mut imported = self.format.read(bytes);
        // A file that an agent stored beside its logs, such as a tool result, may have the format of an API.
        let folder = self.logs.iter().find(|it| file.starts_with(&it.path));
        if let Some(folder) = folder
            && imported.unrecognized.is_none()
            && imported.format != Some(folder.format)
        {
            imported.unrecognized = Some(format!("is not a session of {}", folder.agent));
            imported.sessions.clear();
        }
        imported
    }

    /// Returns the lines about the folders of the logs: the number of sessions in each of them, and the files that are
    /// no sessions. `outcomes` has the order of the files.
    pub(super) fn report(&self, outcomes: &[FileOutcome]) -> Vec<String> {
        let read = || self.files.iter().zip(outcomes);
        let mut lines: Vec<String> = Vec::new();
        for folder in &self.logs {
            let of_folder = read().filter(|(file, _)| file.starts_with(&folder.path));
            let recognized: Vec<_> = of_folder.filter(|(_, it)| it.is_recognized).collect();
            lines.push(format!(
                "{}: {} sessions in {} files of {}",
                folder.agent,
                number(recognized.iter().map(|(_, it)| it.sessions as u64).sum()),
                number(recognized.len() as u64),
                folder.path.display()
            ));
        }
        let others = read().filter(|(_, it)| !it.is_recognized);
        let others: Vec<_> = others.map(|(file, _)| self.name_in_folder(file)).collect();
        if self.are_logs() && !others.is_empty() {
            let named = others.iter().take(MAX_NAMED).cloned();
            let mut named = named.collect::<Vec<_>>().join(", ");
            if others.len() > MAX_NAMED {
                named.push_str(", …");
            }
            lines.push(format!(
                "{} files of these folders are not sessions and were ignored: {named}",
                number(others.len() as u64)
            ));
        }
        lines
    }

    /// Fails if the folders of the agents contain no session.
    pub(super) fn require_sessions(&self, sessions: usize) -> anyhow::Result<()> {
        let places = self.logs.iter().map(|it| (it.agent, it.path.clone()));
        ensure!(
            // Files that were passed as arguments have an error of their own, which names the format.
            !self.are_logs() || sessions > 0,
            no_logs(&places.collect::<Vec<_>>())
        );
        Ok(())
    }

    /// Returns the path of a file below the folder of its agent.
    fn name_in_folder(&self, file: &Path) -> String {
        let mut folders = self.logs.iter();
        let name = folders.find_map(|it| file.strip_prefix(&it.path).ok());
        name.unwrap_or(file).display().to_string()
    }
}

impl LogFolder {
    /// Returns the folders that exist. Fails if there is none.
    fn find_all(
        wanted: Option<ImportFormat>,
        variable: &impl Fn(&str) -> Option<PathBuf>,
    ) -> anyhow::Result<Vec<Self>> {
        let is_wanted = |place: &&LogPlace| wanted.is_none_or(|wanted| wanted == place.format);
        let places: Vec<&LogPlace> = PLACES.iter().filter(is_wanted).collect();
        if let (true, Some(wanted)) = (places.is_empty(), wanted) {
            bail!(
                "no agent keeps logs in the format {} in a known folder: pass a file or a folder with transcripts",
                wanted.name()
            );
        }
        let mut looked_at = Vec::new();
        let mut found = Vec::new();
        for place in places {
            let Some(path) = place.folder(variable) else {
                continue;
            };
            if path.is_dir() {
                let mut files = Vec::new();
                files::add_transcripts(&path, &mut files)?;
                found.push(Self {
                    agent: place.agent,
                    format: place.format,
                    path: path.clone(),
                    files,
                });
            }
            // Missing folders are listed too, because the error for no logs names all places.
            looked_at.push((place.agent, path));
        }
        ensure!(
            !looked_at.is_empty(),
            "cannot find the logs of agents: set HOME, or pass a file or a folder with transcripts"
        );
        ensure!(!found.is_empty(), no_logs(&looked_at));
        Ok(found)
    }
}

fn no_logs(looked_at: &[(&str, PathBuf)]) -> String {
    let places = looked_at.iter();
    let places = places.map(|(agent, path)| format!("{} ({agent})", path.display()));
    format!(
        "no session of an agent was found in {}. Pass a file or a folder with transcripts. For OpenCode, pass the output \
         of `opencode export`",
        places.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(variables: &[(&str, &str)]) -> Vec<Option<PathBuf>> {
        let variable = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name)?;
            Some(PathBuf::from(set.1))
        };
        PLACES.iter().map(|place| place.folder(&variable)).collect()
    }

    fn paths<const N: usize>(paths: [&str; N]) -> Vec<Option<PathBuf>> {
        paths.map(|path| Some(PathBuf::from(path))).into()
    }

    #[test]
    fn variables_of_the_agents_replace_the_folders_in_the_home_folder() {
        let default = [
            "/h/.claude/projects",
            "/h/.codex/sessions",
            "/h/.copilot/session-state",
            "/h/.gemini/tmp",
            "/h/.pi/agent/sessions",
        ];
        assert_eq!(folders(&[("HOME", "/h")]), paths(default));
        assert_eq!(folders(&[("USERPROFILE", "/h")]), paths(default));
        let set = [
            ("CLAUDE_CONFIG_DIR", "/a"),
            ("CODEX_HOME", "/b"),
            ("COPILOT_HOME", "/c"),
            ("GEMINI_CLI_HOME", "/d"),
            ("PI_CODING_AGENT_DIR", "/e"),
        ];
        let expected = [
            "/a/projects", "/b/sessions", "/c/session-state", "/d/.gemini/tmp", "/e/sessions",
        ];
        assert_eq!(folders(&set), paths(expected));
        let pi = folders(&[("PI_CODING_AGENT_SESSION_DIR", "/s")]).pop();
        assert_eq!(pi, Some(Some(PathBuf::from("/s"))));
        assert!(folders(&[]).iter().all(Option::is_none));
    }
}

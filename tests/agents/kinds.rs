//! The agents: their programs, files, variables and arguments.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

/// The folder that `scripts/install-tools` installs agents to.
pub(crate) const INSTALLED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/tools/agents/node_modules"
);

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Codex, with the Responses API.
    Codex,
    /// OpenCode, with the Messages API.
    OpenCode,
    /// pi, with the Chat Completions API.
    Pi,
    /// Claude Code, with the Messages API.
    ClaudeCode,
}

/// The agents of every test run. Claude Code is not among them, because its license permits no pinned copy here.
pub(crate) const INSTALLED_KINDS: [Kind; 3] = [Kind::Codex, Kind::OpenCode, Kind::Pi];

/// The way of an agent's requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way<'a> {
    /// The program is run by `palimpsest run`, which sets the base URL.
    Run,
    /// The base URL is this address.
    To(&'a str),
}

/// A prompt of a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Prompt<'a> {
    /// Begins a conversation.
    First(&'a str),
    /// Continues the latest conversation.
    Next(&'a str),
    /// Continues the conversation with an id.
    Resume(&'a str, &'a str),
}

impl Kind {
    /// Returns the agents to test. Claude Code is tested if the machine has it and `AGENTS_CLAUDE` is set.
    pub(crate) fn all() -> Vec<Self> {
        let mut kinds = INSTALLED_KINDS.to_vec();
        if std::env::var_os("AGENTS_CLAUDE").is_none() {
            return kinds;
        }
        if claude().is_some() {
            kinds.push(Self::ClaudeCode);
        } else {
            println!("Claude Code is skipped: no program `claude` in PATH");
        }
        kinds
    }

    /// Returns the path of the requests to the model.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Codex => "/v1/responses",
            Self::OpenCode | Self::ClaudeCode => "/v1/messages",
            Self::Pi => "/v1/chat/completions",
        }
    }

    /// Returns the field of a request that contains the conversation.
    pub(crate) fn array(self) -> &'static str {
        match self {
            Self::Codex => "input",
            _ => "messages",
        }
    }

    /// Returns the program.
    pub(crate) fn program(self) -> PathBuf {
        let installed = |name: &str| {
            let program = Path::new(INSTALLED).join(".bin").join(name);
            assert!(
                program.exists(),
                "{} is missing: run scripts/install-tools",
                program.display()
            );
            program
        };
        match self {
            Self::Codex => installed("codex"),
            Self::OpenCode => installed("opencode"),
            Self::Pi => installed("pi"),
            Self::ClaudeCode => claude().expect("`all` checks that the program exists"),
        }
    }

    /// Writes the settings of the user: the models with their window, and nothing that needs a network.
    pub(crate) fn configure(self, home: &Path, window: u64) {
        let write = |file: &str, text: String| {
            let path = home.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        match self {
            Self::Codex => write(
                ".codex/config.toml",
                format!(
                    "model = \"gpt-fake\"\nmodel_context_window = {window}\nsandbox_mode = \"danger-full-access\"\n\
                     check_for_update_on_startup = false\n[analytics]\nenabled = false\n"
                ),
            ),
            Self::OpenCode => {
                let limit = json!({"context": window, "output": 16_000});
                let model = json!({"name": "fake", "tool_call": true, "limit": limit});
                let config = json!({
                    "model": "anthropic/claude-fake", "small_model": "anthropic/claude-fake-small",
                    "autoupdate": false, "share": "disabled", "snapshot": false,
                    "provider": {"anthropic": {"models": {"claude-fake": model, "claude-fake-small": model}}},
                });
                write(".config/opencode/opencode.json", config.to_string());
            }
            Self::Pi => {
                let model = json!({
                    "id": "gpt-fake", "api": "openai-completions", "contextWindow": window, "maxTokens": 16_000,
                });
                let models = json!({"providers": {"openai": {"models": [model]}}});
                write(".pi/agent/models.json", models.to_string());
            }
            Self::ClaudeCode => {}
        }
    }

    /// Returns the variables of the user: the key, and nothing that needs a network.
    fn variables(self, key: &str) -> Vec<(&'static str, &str)> {
        match self {
            Self::Codex => vec![("CODEX_API_KEY", key)],
            Self::OpenCode => vec![
                ("ANTHROPIC_API_KEY", key),
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ],
            Self::Pi => vec![
                ("OPENAI_API_KEY", key),
                ("PI_OFFLINE", "1"),
                ("PI_TELEMETRY", "0"),
            ],
            Self::ClaudeCode => vec![
                ("ANTHROPIC_API_KEY", key),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                // Claude Code rejects this option for root without a sandbox.
                ("IS_SANDBOX", "1"),
            ],
        }
    }

    /// Returns the arguments for a prompt without a terminal.
    fn arguments(self, prompt: Prompt<'_>) -> Vec<&str> {
        let (text, is_next) = match prompt {
            Prompt::First(text) => (text, false),
            Prompt::Next(text) => (text, true),
            Prompt::Resume(id, text) => return self.resume_arguments(id, text),
        };
        let mut arguments = match (self, is_next) {
            (Self::Codex, false) => vec!["exec", "--skip-git-repo-check"],
            (Self::Codex, true) => vec!["exec", "resume", "--last", "--skip-git-repo-check"],
            (Self::OpenCode, false) => vec!["run", "--auto"],
            (Self::OpenCode, true) => vec!["run", "--continue", "--auto"],
            (Self::Pi, false) => vec!["--provider", "openai", "--model", "gpt-fake", "-p"],
            (Self::Pi, true) => vec!["-c", "--provider", "openai", "--model", "gpt-fake", "-p"],
            (Self::ClaudeCode, false) => vec![
                "--dangerously-skip-permissions",
                "--model",
                "claude-fake",
                "-p",
            ],
            (Self::ClaudeCode, true) => {
                vec![
                    "--dangerously-skip-permissions",
                    "--model",
                    "claude-fake",
                    "-c",
                    "-p",
                ]
            }
        };
        arguments.push(text);
        arguments
    }

    /// Returns the arguments that continue a conversation by its id.
    fn resume_arguments<'a>(self, id: &'a str, text: &'a str) -> Vec<&'a str> {
        match self {
            Self::Codex => vec!["exec", "resume", id, "--skip-git-repo-check", text],
            Self::ClaudeCode => vec![
                "--dangerously-skip-permissions",
                "--model",
                "claude-fake",
                "--resume",
                id,
                "-p",
                text,
            ],
            Self::OpenCode | Self::Pi => panic!("no export has the format of {self:?}"),
        }
    }

    /// Returns the words that run the agent, and its variables.
    pub(crate) fn words(self, home: &Path, prompt: Prompt<'_>, way: Way<'_>) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.program().into()];
        if let Way::To(base_url) = way {
            match self {
                Self::Codex => {
                    // Codex does not read `OPENAI_BASE_URL`.
                    let setting = format!("openai_base_url=\"{base_url}/v1\"");
                    words.extend(["-c".into(), setting.into()]);
                }
                Self::Pi => {
                    let extension = home.join("base-url.mjs");
                    let provider = json!({"baseUrl": format!("{base_url}/v1")});
                    let text = format!(
                        "export default (pi) => pi.registerProvider(\"openai\", {provider});\n"
                    );
                    fs::write(&extension, text).unwrap();
                    words.extend(["-e".into(), extension.into()]);
                }
                Self::OpenCode | Self::ClaudeCode => {}
            }
        }
        words.extend(self.arguments(prompt).into_iter().map(OsString::from));
        words
    }

    /// Sets the environment of the user. No variable of this process is visible to the agent.
    pub(crate) fn set_environment(
        self,
        command: &mut Command,
        home: &Path,
        key: &str,
        way: Way<'_>,
    ) {
        let work = home.join("work");
        fs::create_dir_all(&work).unwrap();
        command
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", home)
            .env("TERM", "dumb")
            .env("LANG", "C.UTF-8")
            .envs(self.variables(key))
            .current_dir(work);
        if let Way::To(base_url) = way {
            // OpenCode reads its base URL from its configuration. This variable is merged with the file of `configure`.
            let options = json!({"options": {"baseURL": format!("{base_url}/v1")}});
            let config = json!({"provider": {"anthropic": options}}).to_string();
            command
                .env("ANTHROPIC_BASE_URL", base_url)
                .env("OPENCODE_CONFIG_CONTENT", config);
        }
    }
}

/// Returns the search path: the installed version of Node, which pi needs, and that of this process.
fn search_path() -> OsString {
    let architecture = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "x64"
    };
    let node = Path::new(INSTALLED).join(format!("node-linux-{architecture}/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([node].into_iter().chain(std::env::split_paths(&path))).unwrap()
}

/// Returns the program of Claude Code, if the machine has it.
fn claude() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("claude"));
    programs.find(|program| program.is_file())
}

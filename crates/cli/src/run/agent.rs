//! The agents that are recognized, and their way to the gateway.
//!
//! Each agent reads its base URL from another place. `docs/agents.md` lists the places and the versions that were
//! checked. No file of the user is changed.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::base_url::{
    ANTHROPIC_VARIABLE, BaseUrls, OLD_OPENAI_VARIABLE, OPENAI_VARIABLE, Upstream,
};

/// The variable with a configuration that OpenCode merges with its files.
const OPENCODE_CONFIG: &str = "OPENCODE_CONFIG_CONTENT";
/// The variable with the path of a further configuration file of OpenCode.
const OPENCODE_FILE: &str = "OPENCODE_CONFIG";
/// The names of the configuration files of OpenCode in the folders of a project. Its own folder has one more.
const OPENCODE_FILES: [&str; 2] = ["opencode.json", "opencode.jsonc"];
const OPENCODE_USER_FILE: &str = "config.json";
/// The variables of forward proxies, which an agent would use for the gateway too.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Programs that run the program or package in their arguments.
const RUNNERS: [&str; 12] = [
    "npx", "pnpx", "bunx", "pnpm", "bun", "yarn", "env", "node", "nice", "nohup", "time", "timeout",
];
/// Commands of these programs: `pnpm dlx`, `bun x`, `pnpm exec`.
const RUNNER_COMMANDS: [&str; 3] = ["dlx", "x", "exec"];
/// Options of these programs whose value can be the name of an agent's package.
const PACKAGE_OPTIONS: [&str; 2] = ["-p", "--package"];
/// The first arguments of pi that are commands and not options of a conversation.
const PI_COMMANDS: [&str; 8] = [
    "install", "remove", "uninstall", "update", "list", "config", "auth", "mcp",
];
/// The base URL of Codex after a login with ChatGPT.
const CHATGPT: &str = "https://chatgpt.com/backend-api/codex";

/// An agent that needs more than the variables of the SDKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    ClaudeCode,
    Codex,
    OpenCode,
    Pi,
}

impl Agent {
    /// Recognizes the agent of a command. Returns the position of its name too.
    pub(super) fn of(command: &[OsString]) -> Option<(usize, Self)> {
        let program = command.first()?;
        if let Some(agent) = Self::named(program) {
            return Some((0, agent));
        }
        if !RUNNERS.contains(&name(program)) {
            return None;
        }
        let mut is_value = false;
        for (position, argument) in command.iter().enumerate().skip(1) {
            let text = argument.to_str().unwrap_or_default();
            // In `npx -p @openai/codex codex`, the value of `-p` is a package. The program follows it.
            let is_package = std::mem::replace(&mut is_value, PACKAGE_OPTIONS.contains(&text));
            // The first other word is the program. `nice -n 5` and `timeout 60s` have numbers, `env` has variables.
            let is_skipped = is_package
                || text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
                || text.contains('=')
                || RUNNER_COMMANDS.contains(&text)
                || RUNNERS.contains(&name(argument));
            if !is_skipped {
                return Self::named(argument).map(|agent| (position, agent));
            }
        }
        None
    }

    /// Recognizes an agent by the name of its program or its package on npm.
    fn named(program: &OsStr) -> Option<Self> {
        match name(program) {
            "claude" | "claude-code" => Some(Self::ClaudeCode),
            "codex" => Some(Self::Codex),
            "opencode" | "opencode-ai" => Some(Self::OpenCode),
            "pi" | "pi-coding-agent" => Some(Self::Pi),
            _ => None,
        }
    }

    /// Returns the upstream that the login of the agent selects. `None` for the address of the provider.
    pub(super) fn upstream(self, environment: &Environment) -> Option<Upstream> {
        // Codex prefers the key of this variable to its login.
        if self != Self::Codex || environment.get("CODEX_API_KEY").is_some() {
            return None;
        }
        let auth = environment.json_file("CODEX_HOME", ".codex", "auth.json")?;
        // The file has the form `{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {…}}`. The mode can be
        // missing.
        let has_key = auth["OPENAI_API_KEY"].is_string();
        let mode = auth["auth_mode"].as_str();
        let is_chatgpt = mode.map_or(!has_key && auth["tokens"].is_object(), |mode| {
            mode.eq_ignore_ascii_case("chatgpt")
        });
        is_chatgpt.then(|| Upstream::openai("the login of Codex", CHATGPT))
    }
}

/// Returns the name of a program or package, without path, scope, version and extension.
fn name(program: &OsStr) -> &str {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    let name = name.unwrap_or_default();
    // `@openai/codex@0.171.0` has the file name `codex@0.171.0`.
    let name = name.split('@').next().unwrap_or_default();
    [".js", ".mjs", ".cjs", ".exe"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension))
        .unwrap_or(name)
}

/// The environment of the user.
pub(super) struct Environment<'a> {
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Environment<'_> {
    /// Returns the text of a variable that is set and not empty.
    fn get(&self, name: &str) -> Option<String> {
        let value = (self.variable)(name)?.into_string().ok()?;
        (!value.is_empty()).then_some(value)
    }

    /// Reads a JSON file in the folder that a variable names, or in `default` of the home folder.
    fn json_file(&self, variable: &str, default: &str, file: &str) -> Option<Value> {
        let text = std::fs::read(self.folder(variable, default)?.join(file)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the folder that a variable names, or `default` of the home folder.
    fn folder(&self, variable: &str, default: &str) -> Option<PathBuf> {
        let named = self.get(variable).map(PathBuf::from);
        named.or_else(|| Some(Path::new(&self.get("HOME")?).join(default)))
    }

    /// Returns the texts of the configuration files of OpenCode: the user's, those of the project, and a named one.
    fn opencode_files(&self) -> Vec<String> {
        let user = self.folder("XDG_CONFIG_HOME", ".config");
        let user = user.map(|folder| folder.join("opencode"));
        let work = std::env::current_dir().unwrap_or_default();
        // Each of these folders can have a configuration. Their order does not matter, because only the names of
        // providers are searched.
        let project = work.ancestors().map(Path::to_path_buf);
        let of_user = user.as_ref().map(|folder| folder.join(OPENCODE_USER_FILE));
        let folders = user.into_iter().chain(project);
        let files = folders.flat_map(|folder| OPENCODE_FILES.map(|file| folder.join(file)));
        let named = self.get(OPENCODE_FILE).map(PathBuf::from);
        let texts = files.chain(of_user).chain(named);
        // Most of these files do not exist, so errors are ignored.
        let texts = texts.map(std::fs::read_to_string);
        texts.filter_map(Result::ok).collect()
    }
}

/// The command of an agent, with its way to the gateway.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Launch {
    command: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
}

impl Launch {
    /// Adds the way to the gateway to a command. Files for the agent are written to `folder`.
    pub(super) fn new(
        command: &[OsString],
        environment: &Environment<'_>,
        urls: &BaseUrls,
        server: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut launch = Self {
            command: command.to_vec(),
            variables: vec![
                (ANTHROPIC_VARIABLE, urls.anthropic.clone().into()),
                (OPENAI_VARIABLE, urls.openai.clone().into()),
                (OLD_OPENAI_VARIABLE, urls.openai.clone().into()),
                ("PALIMPSEST_URL", format!("http://{server}").into()),
            ],
        };
        if PROXY_VARIABLES
            .iter()
            .any(|name| environment.get(name).is_some())
        {
            for name in NO_PROXY_VARIABLES {
                // The list of the user stays, because the agent also sends other requests.
                let others = environment.get(name).map(|others| others + ",");
                let value = others.unwrap_or_default() + "127.0.0.1";
                launch.variables.push((name, value.into()));
            }
        }
        match Agent::of(command) {
            // Claude Code reads `ANTHROPIC_BASE_URL`.
            None | Some((_, Agent::ClaudeCode)) => {}
            Some((position, Agent::Codex)) => {
                // The value is TOML. A JSON string is a string of TOML too.
                // Codex does not read `OPENAI_BASE_URL`. Its option `-c` overrides one setting and precedes a
                // subcommand such as `exec`.
                let setting = format!("openai_base_url={}", json!(urls.openai));
                launch.insert(position, ["-c".into(), setting.into()]);
            }
            Some((_, Agent::OpenCode)) => {
                let config = opencode_config(environment, urls)?;
                launch.variables.push((OPENCODE_CONFIG, config.into()));
            }
            Some((position, Agent::Pi)) => {
                // Commands such as `pi install` do not take the option `-e`.
                let first = command.get(position + 1).and_then(|first| first.to_str());
                if first.is_none_or(|first| !PI_COMMANDS.contains(&first)) {
                    let extension = write_pi_extension(folder, urls)?;
                    launch.insert(position, ["-e".into(), extension.into()]);
                }
            }
        }
        Ok(launch)
    }

    /// Inserts arguments behind the name of the agent.
    fn insert<const N: usize>(&mut self, position: usize, arguments: [OsString; N]) {
        let behind = position + 1;
        self.command.splice(behind..behind, arguments);
    }

    pub(super) fn into_command(self) -> Command {
        let mut words = self.command.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).envs(self.variables);
        command
    }
}

/// Returns the configuration for OpenCode, merged into that of the user's variable.
fn opencode_config(environment: &Environment<'_>, urls: &BaseUrls) -> anyhow::Result<String> {
    let given = environment.get(OPENCODE_CONFIG);
    let mut config: Value = given
        .map_or_else(|| Ok(json!({})), |text| serde_json::from_str(&text))
        .with_context(|| {
            format!("cannot add a base URL to {OPENCODE_CONFIG}, which is not JSON")
        })?;
    let logins = environment.get("OPENCODE_AUTH_CONTENT");
    // OpenCode stores logins as `{"openai": {"type": "api", "key": "…"}}`. The variable replaces the file.
    let logins: Value = match logins {
        Some(text) => serde_json::from_str(&text).unwrap_or_default(),
        None => environment
            .json_file("XDG_DATA_HOME", ".local/share", "opencode/auth.json")
            .unwrap_or_default(),
    };
    let files = environment.opencode_files();
    // The SDK of Anthropic in OpenCode appends `/messages` alone.
    let anthropic = format!("{}/v1", urls.anthropic);
    let providers = [
        ("anthropic", "ANTHROPIC_API_KEY", &anthropic),
        ("openai", "OPENAI_API_KEY", &urls.openai),
    ];
    for (provider, key, url) in providers {
        // OpenCode offers the models of every configured provider, so a provider without a key stays out.
        let is_given = config["provider"].get(provider).is_some()
            || files.iter().any(|text| has_member(text, provider));
        if environment.get(key).is_none() && logins.get(provider).is_none() && !is_given {
            continue;
        }
        let mut options = config.as_object_mut();
        // Creates the missing objects of `{"provider": {"openai": {"options": {}}}}`, and keeps those of the user.
        for field in ["provider", provider, "options"] {
            options = options.and_then(|object| {
                let value = object.entry(field).or_insert_with(|| json!({}));
                value.as_object_mut()
            });
        }
        let options = options.with_context(|| {
            format!("cannot add a base URL to {OPENCODE_CONFIG}: `provider.{provider}.options` is no object")
        })?;
        options.insert("baseURL".to_owned(), json!(url));
    }
    Ok(config.to_string())
}

/// Returns true if a text with JSON and comments has a member with this name.
fn has_member(text: &str, name: &str) -> bool {
    // JSON with comments cannot be parsed by `serde_json`. A member in a comment counts too, which only adds a base
    // URL.
    let quoted = format!("\"{name}\"");
    let mut behind = text.split(&quoted).skip(1);
    behind.any(|text| text.trim_start().starts_with(':'))
}

/// Writes an extension of pi that sets the base URLs of the built-in providers. Returns its path.
fn write_pi_extension(folder: &Path, urls: &BaseUrls) -> anyhow::Result<PathBuf> {
    // A runner can change the working folder, so the path is absolute.
    let path = std::path::absolute(folder.join("pi-extension.mjs"))?;
    let text = format!(
        "export default function (pi) {{\n  \
           pi.registerProvider(\"anthropic\", {{ baseUrl: {} }});\n  \
           pi.registerProvider(\"openai\", {{ baseUrl: {} }});\n\
         }}\n",
        // JSON strings are also strings of JavaScript, so quotes in a URL are escaped.
        json!(urls.anthropic),
        json!(urls.openai)
    );
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn agents_are_recognized_by_program_and_package() {
        let check = |line: &str, expected: Option<(usize, Agent)>| {
            assert_eq!(Agent::of(&words(line)), expected, "{line}");
        };
        check("claude -p hello", Some((0, Agent::ClaudeCode)));
        check("/opt/bin/codex exec x", Some((0, Agent::Codex)));
        check("npx --yes @openai/codex exec x", Some((2, Agent::Codex)));
        check("npx -y @openai/codex@0.171.0", Some((2, Agent::Codex)));
        check("npx -p @openai/codex codex exec x", Some((3, Agent::Codex)));
        check(
            "pnpm dlx opencode-ai@latest run x",
            Some((2, Agent::OpenCode)),
        );
        check("bunx @earendil-works/pi-coding-agent", Some((1, Agent::Pi)));
        check("env FOO=1 pi -p x", Some((2, Agent::Pi)));
        check("node /usr/lib/codex.js", Some((1, Agent::Codex)));
        check(
            "npx @anthropic-ai/claude-code",
            Some((1, Agent::ClaudeCode)),
        );
        check("git commit -m codex", None);
        check("python3 agent.py", None);
        // The first word after the runner is the program, so `codex` is an argument of it.
        check("npx cowsay codex", None);
        check("nice -n 5 timeout 60s codex", Some((5, Agent::Codex)));
        check("timeout 60s codex", Some((2, Agent::Codex)));
        assert_eq!(Agent::of(&[]), None);
    }

    /// Returns the command and the variable of a launch in an environment of these variables.
    fn launch(
        line: &str,
        variables: &[(&str, &str)],
        folder: &Path,
        variable: &str,
    ) -> (String, String) {
        let variable_of = |name: &str| {
            let found = variables.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let environment = Environment {
            variable: &variable_of,
        };
        let urls = BaseUrls {
            anthropic: "http://127.0.0.1:7".to_owned(),
            openai: "http://127.0.0.1:7/v1".to_owned(),
        };
        let server = SocketAddr::from(([127, 0, 0, 1], 8));
        let launch = Launch::new(&words(line), &environment, &urls, server, folder).unwrap();
        let text = |text: &OsString| text.to_str().unwrap().to_owned();
        let command: Vec<_> = launch.command.iter().map(text).collect();
        let value = launch.variables.iter().find(|(name, _)| *name == variable);
        (
            command.join(" "),
            value.map(|(_, value)| text(value)).unwrap_or_default(),
        )
    }

    #[test]
    fn codex_gets_its_base_url_as_an_argument() {
        let folder = tempfile::tempdir().unwrap();
        let (command, url) = launch(
            "npx @openai/codex exec x",
            &[],
            folder.path(),
            OPENAI_VARIABLE,
        );
        let expected = r#"npx @openai/codex -c openai_base_url="http://127.0.0.1:7/v1" exec x"#;
        assert_eq!(command, expected);
        assert_eq!(url, "http://127.0.0.1:7/v1");
    }

    #[test]
    fn opencode_gets_the_base_urls_of_providers_with_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let check = |variables: &[(&str, &str)], expected: &str| {
            let (command, config) =
                launch("opencode run x", variables, folder.path(), OPENCODE_CONFIG);
            assert_eq!(command, "opencode run x");
            assert_eq!(config, expected, "{variables:?}");
        };
        // Without any key, no provider is added.
        check(&[], "{}");
        check(
            &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "")],
            r#"{"provider":{"anthropic":{"options":{"baseURL":"http://127.0.0.1:7/v1"}}}}"#,
        );
        let given = r#"{"model":"m","provider":{"openai":{"options":{"apiKey":"k"}}}}"#;
        check(
            &[(OPENCODE_CONFIG, given)],
            r#"{"model":"m","provider":{"openai":{"options":{"apiKey":"k","baseURL":"http://127.0.0.1:7/v1"}}}}"#,
        );
        // A configuration file of the user, with comments.
        let text = "{ // mine\n \"model\": \"anthropic/m\", \"provider\": {\"openai\" : {}} }";
        std::fs::write(folder.path().join("own.jsonc"), text).unwrap();
        let file = folder.path().join("own.jsonc");
        check(
            &[(OPENCODE_FILE, file.to_str().unwrap())],
            r#"{"provider":{"openai":{"options":{"baseURL":"http://127.0.0.1:7/v1"}}}}"#,
        );
        // The login of `opencode auth login`.
        let data = folder.path().join("opencode");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(
            data.join("auth.json"),
            r#"{"openai":{"type":"api","key":"k"}}"#,
        )
        .unwrap();
        check(
            &[("XDG_DATA_HOME", folder.path().to_str().unwrap())],
            r#"{"provider":{"openai":{"options":{"baseURL":"http://127.0.0.1:7/v1"}}}}"#,
        );
    }

    #[test]
    fn pi_gets_an_extension_with_the_base_urls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pi-extension.mjs");
        let (command, _) = launch("pi -p x", &[], folder.path(), "");
        assert_eq!(command, format!("pi -e {} -p x", path.display()));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains(r#"registerProvider("openai", { baseUrl: "http://127.0.0.1:7/v1" })"#)
        );
        assert_eq!(
            launch("pi install x", &[], folder.path(), "").0,
            "pi install x"
        );
    }

    #[test]
    fn the_login_of_codex_selects_its_upstream() {
        let folder = tempfile::tempdir().unwrap();
        let upstream = |text: &str, key: Option<&str>| {
            std::fs::write(folder.path().join("auth.json"), text).unwrap();
            let variable_of = |name: &str| match name {
                "CODEX_HOME" => Some(folder.path().into()),
                "CODEX_API_KEY" => key.map(OsString::from),
                _ => None,
            };
            let environment = Environment {
                variable: &variable_of,
            };
            Agent::Codex
                .upstream(&environment)
                .map(|upstream| upstream.address)
        };
        let chatgpt = r#"{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{}}"#;
        assert_eq!(upstream(chatgpt, None).as_deref(), Some(CHATGPT));
        assert_eq!(upstream(chatgpt, Some("key")), None);
        assert_eq!(upstream(r#"{"tokens":{}}"#, None).as_deref(), Some(CHATGPT));
        assert_eq!(
            upstream(r#"{"auth_mode":"apikey","OPENAI_API_KEY":"k"}"#, None),
            None
        );
        assert_eq!(upstream("no json", None), None);
    }
}

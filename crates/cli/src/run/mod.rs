//! `palimpsest run`: runs an agent with a private gateway.
//!
//! The gateway is that of `serve`, in this process and on a free loopback port. The command changes no file of the
//! agent: it sets environment variables and adds arguments (`agent`).

mod agent;
mod base_url;
mod folder;
mod process;
mod report;

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use palimpsest_edge::telemetry;
use palimpsest_engine::clock::{Clock as _, SystemClock};
use palimpsest_proto::context::v1::Session;
use palimpsest_settings::{ConfigErrors, Flags, LoadedConfig, ProcessSource, load};

use self::agent::{Agent, Environment, Launch};
use self::base_url::Upstreams;
use self::folder::RunFolder;
use self::process::ProcessError;
use self::report::Traffic;
use super::client::block_on;
use super::output::note;
use super::private_server::{ANY_PORT, PrivateServer};
use super::serve;

/// Exit codes of shells for a command that cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
/// The drain time at the end, in milliseconds. The agent has ended, so no request is of use.
const DRAIN_MS: u64 = 2_000;

/// Run an agent with a private gateway; needs no setup
#[derive(Debug, Args)]
#[command(
    after_help = "The command starts a server with the gateway in this process, on loopback ports that the system \
chooses. It runs the agent with a base URL that points to the gateway, and prints requests, tokens and sessions at the \
end. The agent uses its own keys and files. Claude Code, Codex, OpenCode and pi are recognized by the name of the program \
or package, also behind `npx`. Other programs get the variables ANTHROPIC_BASE_URL, OPENAI_BASE_URL and OPENAI_API_BASE. \
Programs in the agent, and later runs, reach the sessions through PALIMPSEST_URL, as the last example does.

Sessions are stored in $XDG_DATA_HOME/palimpsest/runs, ~/.local/share/palimpsest/runs by default. Log lines are in run.log \
beside them.

Requests go to the providers' own addresses, or to those of ANTHROPIC_BASE_URL and OPENAI_BASE_URL in the environment.

Exit codes: that of the agent; 128+N if signal N ended the agent; 127 if the program does not exist, 126 if it cannot be \
run, 1 or 64 if the gateway cannot start.

Examples:
  palimpsest run -- claude
  palimpsest run -- npx --yes @openai/codex exec \"fix the failing test\"
  palimpsest run --temporary -- opencode run \"describe this project\"
  palimpsest run -- palimpsest sessions     list the sessions of earlier runs"
)]
#[expect(clippy::doc_markdown, reason = "shown by --help as it is")]
pub(super) struct RunCommand {
    /// Folder of the sessions, which a later run with the same option uses again
    #[arg(long, value_name = "FOLDER", conflicts_with = "temporary")]
    data_dir: Option<PathBuf>,
    /// Store the sessions in a temporary folder, which is removed at the end
    #[arg(long)]
    temporary: bool,
    /// Address of the Anthropic API [default: that of ANTHROPIC_BASE_URL, or
    /// https://api.anthropic.com]
    #[arg(long, value_name = "URL")]
    upstream_anthropic: Option<String>,
    /// Address of the OpenAI API [default: that of OPENAI_BASE_URL, or https://api.openai.com/v1]
    #[arg(long, value_name = "URL")]
    upstream_openai: Option<String>,
    /// TOML file with settings; `palimpsest config` prints one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set any setting by its key, such as log.level=debug; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::settings::pair)]
    set: Vec<(String, String)>,
    /// The agent and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

impl RunCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let code = block_on(self.run_agent())?;
        // The server is closed and a temporary folder is removed, so the exit skips no cleanup.
        std::process::exit(code)
    }

    /// Runs the agent to its end. Returns its exit code.
    async fn run_agent(self) -> anyhow::Result<i32> {
        let folder = match (&self.data_dir, self.temporary) {
            (_, true) => RunFolder::temporary()?,
            (Some(path), _) => RunFolder::named(path)?,
            (None, false) => RunFolder::of_user()?,
        };
        let environment = Environment {
            variable: &|name| env::var_os(name),
        };
        let agent = Agent::of(&self.command).map(|(_, agent)| agent);
        let upstreams = self.upstreams(agent, &environment);
        let loaded = self.load(&folder, &upstreams)?;
        // The agent owns standard error, which can be a screen. Log lines therefore go to a file.
        let telemetry = telemetry::init_to(&loaded.config, folder.log()?)?;
        let metrics = telemetry.metrics();
        let (server, gateway) = serve::bind(loaded.config, metrics.clone()).await?;
        let gateway = gateway.context("the private server has no gateway")?;
        let server = PrivateServer::start(server).await?;

        // The folder can contain sessions of earlier runs. The report lists those that received messages since this
        // time. Without the counts, it lists those with any change.
        let before = report::message_counts(server.channel()).await;
        let before = before.unwrap_or_default();
        let start = SystemClock::new().now();
        let launch = Launch::new(
            &self.command,
            &environment,
            &upstreams.through(gateway),
            server.address(),
            folder.path(),
        )?;
        let ended = process::run(launch.into_command()).await;
        // The list needs the running server, so it precedes the close.
        let sessions = report::sessions_since(server.channel(), start, &before).await;
        // The exit code of the agent is returned even if the server fails. Its records are durable.
        if let Err(error) = server.close().await {
            note(&format!("palimpsest: {error:#}"));
        }
        // After the close, the metrics contain the last responses too.
        let traffic = Traffic::of(&metrics.exposition());
        telemetry.shutdown();
        if ended.is_ok() {
            print_report(agent, &traffic, sessions, &folder);
        }
        folder.close()?;
        exit_code(ended, &self.command)
    }

    /// Selects the upstreams: the flags, the environment, then the login of the agent.
    fn upstreams(&self, agent: Option<Agent>, environment: &Environment<'_>) -> Upstreams {
        let mut upstreams = Upstreams::of(
            self.upstream_anthropic.as_deref(),
            self.upstream_openai.as_deref(),
            |name| env::var(name).ok(),
        );
        // A flag or a variable is an explicit choice, so the login does not replace it.
        if upstreams.openai.is_none() {
            upstreams.openai = agent.and_then(|agent| agent.upstream(environment));
        }
        upstreams
    }

    /// Loads the settings. Those of the run replace all others.
    fn load(
        &self,
        folder: &RunFolder,
        upstreams: &Upstreams,
    ) -> Result<LoadedConfig, ConfigErrors> {
        let mut flags = Flags {
            file: self.config.clone(),
            ..Flags::default()
        };
        for (key, value) in &self.set {
            flags = flags.with("--set", key, Some(value.clone()));
        }
        let of_upstreams = [
            ("gateway.upstreams.anthropic.base_url", &upstreams.anthropic),
            ("gateway.upstreams.openai.base_url", &upstreams.openai),
        ];
        for (key, upstream) in of_upstreams {
            if let Some(upstream) = upstream {
                flags = flags.with(upstream.origin, key, Some(upstream.address.clone()));
            }
        }
        let any_port = ANY_PORT.to_string();
        // These settings follow `--set`, because the last origin of a key wins.
        let own = [
            ("role", "all"),
            ("listen", &any_port),
            ("admin.listen", &any_port),
            ("gateway.listen", &any_port),
            ("gateway.enabled", "true"),
            ("data_dir", &folder.path().display().to_string()),
        ];
        for (key, value) in own {
            flags = flags.with("run", key, Some(value.to_owned()));
        }
        let mut loaded = load(&flags, &ProcessSource)?;
        loaded.config.shutdown.drain_ms = DRAIN_MS;
        Ok(loaded)
    }
}

/// Prints the report to standard error, because programs read the output of the agent.
fn print_report(
    agent: Option<Agent>,
    traffic: &Traffic,
    sessions: anyhow::Result<Vec<Session>>,
    folder: &RunFolder,
) {
    if traffic.requests == 0 && traffic.received > 0 {
        note(
            "palimpsest: the provider answered no request. Check the network, and the address of the provider in \
             --upstream-anthropic and --upstream-openai, or in ANTHROPIC_BASE_URL and OPENAI_BASE_URL",
        );
        return;
    }
    if traffic.requests == 0 {
        // Other programs, such as `palimpsest sessions`, need not call a model.
        if agent.is_some() {
            note(
                "palimpsest: no request to a model passed the gateway. If the agent called one, its configuration \
                 contains another base URL: docs/agents.md",
            );
        }
        return;
    }
    let sessions = sessions.unwrap_or_else(|error| {
        note(&format!("palimpsest: cannot list the sessions: {error:#}"));
        Vec::new()
    });
    for line in report::lines(traffic, &sessions, folder) {
        note(&format!("palimpsest: {line}"));
    }
}

/// Returns the exit code of the agent. A program that was not started has the exit code of shells.
fn exit_code(ended: Result<i32, ProcessError>, command: &[OsString]) -> anyhow::Result<i32> {
    let error = match ended {
        Ok(code) => return Ok(code),
        Err(ProcessError::Start(error)) => error,
        Err(error) => return Err(error.into()),
    };
    let program = command.first().cloned().unwrap_or_default();
    note(&format!(
        "palimpsest: cannot run {}: {error}; check the command after `--`",
        program.display()
    ));
    Ok(if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    })
}

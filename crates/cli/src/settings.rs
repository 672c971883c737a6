//! The flags that set the most common settings; `--set` sets any.

use std::path::PathBuf;

use clap::Args;
use palimpsest_settings::{ConfigErrors, Flags, LoadedConfig, ProcessSource, load};

#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are shown by --help as they are"
)]
pub(super) struct Settings {
    /// A TOML file with settings; `palimpsest config` prints one to begin with
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What this process does: all, or server or worker where several share a store [default: all]
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Where the gRPC services listen [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where metrics and health listen, over HTTP [default: 127.0.0.1:50052]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// The folder of the embedded store [default: data]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// Where tool results and summaries are kept, such as s3://bucket/prefix [default: in the data
    /// folder]
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// How a line of the log looks: auto, pretty or json [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// What is logged: a level, or levels by module such as debug,sled=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
    /// Allow an address that other machines can reach although nothing asks callers who they are
    #[arg(long)]
    insecure_listen_anywhere: bool,
    /// Any setting by its key, such as limits.max_messages=500; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Who said the role, when no flag did.
    #[arg(skip)]
    role_from: Option<&'static str>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("must have the form KEY=VALUE, such as limits.max_messages=500")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl Settings {
    /// The same with a role that the command has.
    pub(super) fn with_role(mut self, command: &'static str, role: &str) -> Self {
        self.role = Some(role.to_owned());
        self.role_from = Some(command);
        self
    }

    /// The configuration that these flags, the environment and the file make.
    pub(super) fn load(self) -> Result<LoadedConfig, ConfigErrors> {
        let anywhere = self.insecure_listen_anywhere.then(|| "true".to_owned());
        let mut flags = Flags {
            file: self.config,
            ..Flags::default()
        };
        // The flags that have a name win over `--set`, which is less specific.
        for (key, value) in self.set {
            flags = flags.with("--set", &key, Some(value));
        }
        let flags = flags
            .with(self.role_from.unwrap_or("--role"), "role", self.role)
            .with("--listen", "listen", self.listen)
            .with("--admin-listen", "admin.listen", self.admin_listen)
            .with("--data-dir", "data_dir", self.data_dir)
            .with("--blobs", "blobs.url", self.blobs)
            .with("--log-format", "log.format", self.log_format)
            .with("--log-level", "log.level", self.log_level)
            .with(
                "--insecure-listen-anywhere",
                "insecure_listen_anywhere",
                anywhere,
            );
        load(&flags, &ProcessSource)
    }
}

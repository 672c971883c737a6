//! Flags for the most common settings. `--set` sets any setting.

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
    /// TOML file with settings; `palimpsest config` prints one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Role of the process: all, server or worker; the last two are for several processes that share
    /// a database [default: all]
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Listen address of the gRPC services [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Listen address of metrics and health over HTTP [default: 127.0.0.1:50052]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Data folder, which contains the embedded store [default: data]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// Folder or bucket of stored results and session memory, such as s3://bucket/prefix [default:
    /// in the data folder]
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// Format of log lines: auto, pretty or json [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Log level, or levels by module, such as debug,sled=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
    /// Allow a listen address that other machines can reach although no authentication is configured
    #[arg(long)]
    insecure_listen_anywhere: bool,
    /// Set any setting by its key, such as limits.max_messages=500; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// The origin of the role if the command sets it instead of `--role`.
    #[arg(skip)]
    role_from: Option<&'static str>,
}

/// Parses a value of `--set`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("write KEY=VALUE, such as limits.max_messages=500")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl Settings {
    /// Sets the role. Errors name the command as its origin.
    pub(super) fn with_role(mut self, command: &'static str, role: &str) -> Self {
        self.role = Some(role.to_owned());
        self.role_from = Some(command);
        self
    }

    /// Loads the configuration from these flags, the environment and the file.
    pub(super) fn load(self) -> Result<LoadedConfig, ConfigErrors> {
        let anywhere = self.insecure_listen_anywhere.then(|| "true".to_owned());
        let mut flags = Flags {
            file: self.config,
            ..Flags::default()
        };
        // A named flag overrides `--set`, because the last origin of a key wins.
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

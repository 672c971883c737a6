//! The binary's commands, run to their end with nothing of this environment.

use std::process::{Command, Output};

use crate::binary;

/// Runs a command.
pub fn palimpsest(args: &[&str]) -> Output {
    palimpsest_with(args, &[])
}

/// The same with variables.
pub fn palimpsest_with(args: &[&str], vars: &[(&str, &str)]) -> Output {
    // A command that hangs is killed, so that its test fails with what it has printed.
    Command::new("timeout")
        .args(["--signal=KILL", "600"])
        .arg(binary())
        .args(args)
        .env_clear()
        .envs(vars.iter().copied())
        .output()
        .unwrap()
}

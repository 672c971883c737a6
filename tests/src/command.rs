//! Runs commands of the binary in an empty environment.

use std::process::{Command, Output};

use crate::binary;

/// Runs a command to its end.
pub fn palimpsest(args: &[&str]) -> Output {
    palimpsest_with(args, &[])
}

/// Runs a command with environment variables.
pub fn palimpsest_with(args: &[&str], vars: &[(&str, &str)]) -> Output {
    // Kills a command that hangs, so that its test fails with the output so far.
    Command::new("timeout")
        .args(["--signal=KILL", "600"])
        .arg(binary())
        .args(args)
        .env_clear()
        .envs(vars.iter().copied())
        .output()
        .unwrap()
}

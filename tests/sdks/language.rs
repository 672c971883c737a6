//! The programs with the cases, and the SDKs that `scripts/install-tools` installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository.
const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A language that has SDKs of both providers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
}

/// A program that runs.
pub(crate) struct Program {
    interpreter: PathBuf,
    file: PathBuf,
}

impl Language {
    /// Returns the program with all cases.
    pub(crate) async fn build(self) -> Program {
        match self {
            Self::Python => self.program(&Path::new(TOP).join("tests/sdks/python/main.py")),
        }
    }

    /// Returns a program in one file.
    pub(crate) fn program(self, file: &Path) -> Program {
        let interpreter = match self {
            Self::Python => "target/tools/sdks/python/bin/python",
        };
        let interpreter = Path::new(TOP).join(interpreter);
        assert!(
            interpreter.exists(),
            "{} is missing: run scripts/install-tools",
            interpreter.display()
        );
        Program {
            interpreter,
            file: file.to_owned(),
        }
    }
}

impl Program {
    /// Runs the program with these variables only. Returns its standard output.
    pub(crate) async fn run(&self, variables: &[(&str, String)]) -> String {
        let mut command = Command::new(&self.interpreter);
        command
            .arg(&self.file)
            .env_clear()
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        // Runs on a blocking thread, because the providers share this runtime.
        let done = tokio::task::spawn_blocking(move || command.output().unwrap());
        let done = done.await.unwrap();
        let [stdout, stderr] =
            [&done.stdout, &done.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        assert!(
            done.status.success(),
            "{}: {}\n{stdout}\n{stderr}",
            self.file.display(),
            done.status
        );
        stdout
    }
}

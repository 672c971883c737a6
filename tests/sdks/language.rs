//! The programs with the cases, and the SDKs that `scripts/install-tools` installs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tokio::sync::OnceCell;

/// The root of the repository.
const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A language that has SDKs of both providers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    /// TypeScript, compiled and on Node.
    TypeScript,
    /// The same program on Deno.
    Deno,
}

/// A program that can run.
pub(crate) struct Program {
    /// The interpreter and its arguments.
    interpreter: Vec<PathBuf>,
    file: PathBuf,
}

impl Language {
    /// Returns the program with all cases, compiled if its language requires that.
    pub(crate) async fn program(self) -> Program {
        let file = match self {
            Self::Python => at("tests/sdks/python/main.py"),
            Self::TypeScript | Self::Deno => {
                compile().await;
                self.packages().join("js/main.js")
            }
        };
        Program {
            interpreter: self.interpreter(),
            file,
        }
    }

    /// The folder with the packages.
    pub(crate) fn packages(self) -> PathBuf {
        match self {
            Self::Python => at("target/tools/sdks/python"),
            Self::TypeScript | Self::Deno => at("target/tools/sdks/typescript"),
        }
    }

    fn interpreter(self) -> Vec<PathBuf> {
        match self {
            Self::Python => vec![self.packages().join("bin/python")],
            Self::TypeScript => vec![node()],
            Self::Deno => {
                let deno = self.packages().join("node_modules/.bin/deno");
                let args = [
                    "run",
                    "--allow-all",
                    "--no-config",
                    "--node-modules-dir=manual",
                ];
                let args = args.iter().map(PathBuf::from);
                std::iter::once(deno).chain(args).collect()
            }
        }
    }
}

/// Returns Node. The SDK of OpenAI needs a later version than that of Debian.
fn node() -> PathBuf {
    at("target/tools/agents/node_modules/.bin/node")
}

/// Compiles the cases in TypeScript if a source has changed since the last time.
async fn compile() {
    // Two tests of one process must not compile at the same time.
    static COMPILED: OnceCell<()> = OnceCell::const_new();
    let compiled = COMPILED.get_or_init(async || {
        let sources = at("tests/sdks/typescript");
        let packages = Language::TypeScript.packages();
        let now = fingerprint(&sources);
        let stamp = packages.join("compiled");
        if std::fs::read_to_string(&stamp).is_ok_and(|then| then == now) {
            return;
        }
        let mut build = Command::new(sources.join("build"));
        build.arg(&packages).arg(node());
        output(build).await;
        std::fs::write(stamp, now).unwrap();
    });
    compiled.await;
}

impl Program {
    /// Returns a program in one file.
    pub(crate) fn of(language: Language, file: &Path) -> Self {
        Self {
            interpreter: language.interpreter(),
            file: file.to_owned(),
        }
    }

    /// Runs the program with these variables only. Returns its standard output.
    pub(crate) async fn run(&self, args: &[&str], variables: &[(&str, String)]) -> String {
        let mut command = Command::new(&self.interpreter[0]);
        command
            .args(&self.interpreter[1..])
            .arg(&self.file)
            .args(args)
            .env_clear()
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("DENO_NO_UPDATE_CHECK", "1")
            .env("DENO_DIR", Path::new(TOP).join("target/tools/sdks/deno"))
            .envs(variables.iter().map(|(name, value)| (name, value)));
        let done = output(command).await;
        String::from_utf8(done.stdout).unwrap()
    }
}

/// Runs a command that must succeed.
async fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null());
    let shown = format!("{command:?}");
    // Runs on a blocking thread, because the providers share this runtime.
    let done = tokio::task::spawn_blocking(move || command.output().unwrap());
    let done = done.await.unwrap();
    let [stdout, stderr] =
        [&done.stdout, &done.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    assert!(
        done.status.success(),
        "{shown}: {}\n{stdout}\n{stderr}",
        done.status
    );
    done
}

/// Returns the path of a file of the repository.
fn at(path: &str) -> PathBuf {
    let top = Path::new(TOP).canonicalize().unwrap();
    let path = top.join(path);
    assert!(
        path.exists(),
        "{} is missing: run scripts/install-tools",
        path.display()
    );
    path
}

/// Returns a digest of all files of a folder.
fn fingerprint(folder: &Path) -> String {
    let mut files = Vec::new();
    list(folder, &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(&file).unwrap().hash(&mut hasher);
        file.hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// Adds all files of a folder to `files`, recursively.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}

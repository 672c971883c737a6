//! The supported languages: required programs, client build and execution.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::sync::OnceCell;

/// The root of the repository.
const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A language that has a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    /// Python with `grpcio`.
    Python,
    /// TypeScript with Connect on Node.
    TypeScript,
    /// Go with `grpc-go`.
    Go,
    /// Java with `grpc-java`.
    Java,
}

/// All languages, in the order of their discriminants.
pub(crate) const ALL: [Language; 4] = [
    Language::Python,
    Language::TypeScript,
    Language::Go,
    Language::Java,
];

impl Language {
    /// Returns the name, which is also the name of the folders.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::TypeScript => "typescript",
            Self::Go => "go",
            Self::Java => "java",
        }
    }

    /// Returns the programs that the build needs, and instructions to install missing ones.
    fn needs(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Python => (&["python3"], "Python 3.10 or later, with venv"),
            Self::TypeScript => (&["node", "npm"], "Node 20 or later, with npm"),
            Self::Go => (&["go"], "Go 1.21 or later (https://go.dev/dl)"),
            Self::Java => (&["java", "javac", "mvn"], "a JDK 17 or later, and Maven"),
        }
    }

    /// Builds the client if a source has changed since the last build. Returns the output folder.
    pub(crate) async fn build(self) -> PathBuf {
        // Tests of one process share the cell, because two builds must not write to one folder at the same time.
        static BUILT: [OnceCell<PathBuf>; 4] = [const { OnceCell::const_new() }; 4];
        BUILT[self as usize]
            .get_or_init(async || self.built().await)
            .await
            .clone()
    }

    async fn built(self) -> PathBuf {
        let (programs, what) = self.needs();
        for program in programs {
            assert!(
                is_there(program),
                "{program} is missing, with which the client in {} is built: run scripts/install-tools, or install {what}",
                self.name()
            );
        }
        let clients = Path::new(TOP).join("target/clients");
        std::fs::create_dir_all(&clients).unwrap();
        let clients = clients.canonicalize().unwrap();
        let (out, stamp) = (
            clients.join(self.name()),
            clients.join(format!("{}.stamp", self.name())),
        );
        let now = self.sources();
        if std::fs::read_to_string(&stamp).is_ok_and(|then| then == now) {
            return out;
        }
        // Removes the stamp first, so that an interrupted build is repeated.
        let _ = std::fs::remove_file(&stamp);
        std::fs::create_dir_all(&out).unwrap();
        self.call("build", &out, &[] as &[&str], &[]).await;
        std::fs::write(stamp, now).unwrap();
        out
    }

    /// Returns a fingerprint of the client's sources.
    fn sources(self) -> String {
        let mut files = Vec::new();
        let name = self.name();
        for folder in ["proto", &format!("tests/clients/{name}")] {
            list(&Path::new(TOP).join(folder), &mut files);
        }
        files.sort();
        let mut hasher = DefaultHasher::new();
        for file in files {
            std::fs::read(&file).unwrap().hash(&mut hasher);
            file.hash(&mut hasher);
        }
        format!("{:016x}\n", hasher.finish())
    }

    /// Runs a script of the language and returns its standard output.
    pub(crate) async fn call<A: AsRef<OsStr>>(
        self,
        script: &str,
        out: &Path,
        args: &[A],
        vars: &[(&str, &str)],
    ) -> String {
        let path = Path::new(TOP).join("tests/clients").join(self.name());
        let mut command = Command::new(path.canonicalize().unwrap().join(script));
        command.arg(out).args(args).envs(vars.iter().copied());
        command.stdin(Stdio::null());
        // Runs on a blocking thread, because the script takes long and other tests' servers share this runtime.
        let done = tokio::task::spawn_blocking(move || command.output().unwrap());
        let done = done.await.unwrap();
        let [stdout, stderr] =
            [&done.stdout, &done.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        assert!(
            done.status.success(),
            "{}/{script}: {}\n{stdout}\n{stderr}",
            self.name(),
            done.status
        );
        stdout
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
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

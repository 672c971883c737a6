//! A Kubernetes cluster with one node: the API server, its controllers, a kubelet and containerd.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use palimpsest_tests::binary;
use serde_json::Value;

use crate::helm::root;

/// The address of the node. Pods reach processes of [`Cluster::command`] there.
pub(crate) const NODE: &str = "172.31.0.1";

/// The time limit of the start, and of each later change. A loaded machine needs minutes.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(10);

/// The time between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Calls `look` until it returns a value. Panics with the text of `state` after the time limit.
pub(crate) fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    state: impl Fn() -> String,
) -> T {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(
            waited < TIMEOUT,
            "timed out waiting for {what}:\n{}",
            state()
        );
        sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}

/// Returns the output of a successful command.
#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}\n{error}");
    out.trim().to_owned()
}

/// A running cluster. It ends with this process, because its script reads the standard input until the end.
pub(crate) struct Cluster {
    folder: PathBuf,
    /// Process 1 of the namespaces of the cluster.
    init: String,
    _script: Child,
}

impl Cluster {
    /// Returns the cluster that all tests share.
    pub(crate) fn shared() -> &'static Self {
        static RUNNING: OnceLock<Cluster> = OnceLock::new();
        RUNNING.get_or_init(Self::start)
    }

    fn start() -> Self {
        assert!(
            root().join("target/tools/cluster/installed").exists(),
            "Kubernetes is missing: run scripts/install-kubernetes, or `make kubernetes`"
        );
        let scripts = root().join("tests/deploy/kubernetes");
        // The script deletes the folder.
        let folder = tempfile::Builder::new()
            .prefix("kubernetes-")
            .tempdir()
            .unwrap();
        let folder = folder.keep();
        let mut image = Command::new(scripts.join("image"));
        succeeded(&image.arg(binary()).arg(&folder).output().unwrap());
        let mut script = Command::new(scripts.join("cluster"))
            .arg(&folder)
            // Ctrl+C ends the tests, and the end of their input then ends the script, which cleans up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("script.log")).unwrap())
            .spawn()
            .unwrap();
        let state = || logs(&folder);
        let running = folder.join("running");
        until(
            "the processes of the cluster",
            || {
                let ended = script.try_wait().unwrap();
                assert!(ended.is_none(), "the cluster ended: {}", state());
                running.exists().then_some(())
            },
            state,
        );
        let init = fs::read_to_string(folder.join("init")).unwrap();
        let cluster = Self {
            folder,
            init: init.trim().to_owned(),
            _script: script,
        };
        cluster.apply(&root().join("target/tools/cluster/definitions"));
        cluster.apply(&root().join("tests/deploy/kubernetes/objects.yaml"));
        until(
            "the node to be ready",
            || cluster.try_kubectl(&["wait", "node/node", "--for=condition=Ready", "--timeout=0"]),
            || logs(&cluster.folder),
        );
        cluster
    }

    /// Returns the folder of the cluster.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that runs in the namespaces of the cluster and ends with it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init, "--mount", "--net", "--pid", "--"])
            .arg(program)
            .env("KUBECONFIG", self.folder.join("admin.conf"))
            .stdin(Stdio::null());
        command
    }

    /// Returns a command of kubectl.
    pub(crate) fn kubectl_command(&self, args: &[&str]) -> Command {
        self.kubectl_in(Path::new("/"), args)
    }

    /// Returns a command of kubectl that reads files of a folder.
    pub(crate) fn kubectl_in(&self, folder: &Path, args: &[&str]) -> Command {
        // The folder of the caller is not kept in other namespaces.
        let mut kubectl = self.command(Path::new("env"));
        kubectl.arg("--chdir").arg(folder);
        kubectl.arg(root().join("target/tools/cluster/bin/kubectl"));
        kubectl.args(args);
        kubectl
    }

    /// Runs kubectl and returns its output. Panics if it fails.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        succeeded(&self.kubectl_command(args).output().unwrap())
    }

    /// Runs kubectl and returns its output. None if it fails.
    pub(crate) fn try_kubectl(&self, args: &[&str]) -> Option<String> {
        let output = self.kubectl_command(args).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        output.status.success().then(|| out.trim().to_owned())
    }

    /// Creates or updates the objects of a file.
    pub(crate) fn apply(&self, file: &Path) {
        // Fails while the API server creates its own objects.
        until(
            "the objects of a file",
            || self.try_kubectl(&["apply", "--server-side", "--filename", file.to_str()?]),
            || file.display().to_string(),
        );
    }

    /// Returns an object, or a list of objects.
    #[track_caller]
    pub(crate) fn get(&self, args: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "--output", "json"], args].concat());
        serde_json::from_str(&text).unwrap()
    }
}

/// Returns the last lines of all logs.
fn logs(folder: &Path) -> String {
    let files = palimpsest_tests::files_below(&folder.join("log"));
    let files = files.into_iter().chain([folder.join("script.log")]);
    let mut text = String::new();
    for file in files {
        let log = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n");
        writeln!(text, "== {}\n{last}", file.display()).unwrap();
    }
    text
}

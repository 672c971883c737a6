//! Runs helm and reads the objects that it renders.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The releases of Kubernetes for which the chart is checked: the oldest that the chart allows, and the newest with
/// available schemas. `scripts/install-tools` contains the same list.
pub(crate) const KUBERNETES: [&str; 2] = ["1.30.0", "1.37.0"];

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the folder of the chart.
pub(crate) fn chart() -> PathBuf {
    root().join("deploy/helm/palimpsest")
}

fn tool(name: &str) -> Command {
    let path = root().join("target/tools/bin").join(name);
    assert!(
        path.exists(),
        "{name} is missing: run scripts/install-tools"
    );
    Command::new(path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a YAML file as JSON.
pub(crate) fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the paths of all examples, sorted by name.
pub(crate) fn examples() -> Vec<PathBuf> {
    let files = fs::read_dir(chart().join("examples")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    files
}

fn run(command: &str, example: Option<&Path>, set: &[&str], kubernetes: &str) -> Output {
    let mut helm = tool("helm");
    // `template` takes the name of a release and `lint` does not.
    helm.arg(command)
        .args((command == "template").then_some("prod"))
        .arg(chart())
        .args(["--kube-version", kubernetes, "--namespace", "agents"]);
    if let Some(example) = example {
        helm.arg("--values").arg(example);
    }
    for set in set {
        helm.args(["--set", set]);
    }
    helm.output().unwrap()
}

/// Returns helm's error for invalid values.
pub(crate) fn refusal(set: &[&str]) -> String {
    let output = run("template", None, set, KUBERNETES[0]);
    assert!(!output.status.success(), "{set:?} is taken");
    text(&output.stderr)
}

/// Returns helm's error for an example with invalid values.
pub(crate) fn refusal_of(example: &Path, set: &[&str]) -> String {
    let output = run("template", Some(example), set, KUBERNETES[0]);
    assert!(!output.status.success(), "{set:?} is taken");
    text(&output.stderr)
}

/// Returns the rendered YAML of an example with additional values.
pub(crate) fn rendered(example: Option<&Path>, set: &[&str], kubernetes: &str) -> String {
    let output = run("template", example, set, kubernetes);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs `helm lint` with all checks.
pub(crate) fn lint(example: Option<&Path>) {
    let mut all = run("lint", example, &[], KUBERNETES[0]);
    all.stdout.extend(all.stderr);
    assert!(all.status.success(), "{}", text(&all.stdout));
}

/// The objects that helm renders from an example and additional values.
pub(crate) struct Objects(pub(crate) Vec<Value>);

impl Objects {
    /// Renders an example.
    pub(crate) fn of(example: &Path) -> Self {
        Self::with(Some(example), &[])
    }

    /// Renders an example with additional values. `None` renders the default values.
    pub(crate) fn with(example: Option<&Path>, set: &[&str]) -> Self {
        let yaml = rendered(example, set, KUBERNETES[0]);
        let all: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        Self(all.into_iter().filter(|object| !object.is_null()).collect())
    }

    /// Returns all objects of a kind.
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        let all = self.0.iter();
        all.filter(|object| object["kind"] == kind).collect()
    }

    /// Returns the only object of a kind.
    pub(crate) fn one(&self, kind: &str) -> &Value {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "{kind}");
        all[0]
    }

    /// Returns the object of a kind with this name.
    pub(crate) fn named(&self, kind: &str, name: &str) -> &Value {
        let mut all = self.all(kind).into_iter();
        let found = all.find(|object| object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// Returns the specification of the server's pod.
    pub(crate) fn pod(&self) -> &Value {
        &self.one("StatefulSet")["spec"]["template"]["spec"]
    }

    /// Returns the specifications of all pods: those of the server, the deployments and the Jobs.
    pub(crate) fn pods(&self) -> Vec<&Value> {
        let kinds = ["StatefulSet", "Deployment", "Job"];
        let all = kinds.iter().flat_map(|kind| self.all(kind));
        let cron_jobs = self.all("CronJob").into_iter();
        let cron_jobs = cron_jobs.map(|of| &of["spec"]["jobTemplate"]);
        let all = all.chain(cron_jobs);
        let pods: Vec<_> = all.map(|of| &of["spec"]["template"]["spec"]).collect();
        assert!(!pods.is_empty());
        pods
    }

    /// Returns the pods that run until they are stopped, without Jobs.
    pub(crate) fn serving(&self) -> Vec<&Value> {
        let pods = self.pods().into_iter();
        pods.filter(|pod| pod["restartPolicy"].is_null()).collect()
    }

    /// Returns the server's container.
    pub(crate) fn container(&self) -> &Value {
        let containers = &self.pod()["containers"];
        assert_eq!(containers.as_array().unwrap().len(), 1);
        &containers[0]
    }

    /// Returns the server's settings file.
    pub(crate) fn toml(&self) -> &str {
        let maps = self.all("ConfigMap").into_iter();
        let mut tomls = maps.filter_map(|map| map["data"]["palimpsest.toml"].as_str());
        tomls.next().unwrap()
    }
}

/// Runs kubeconform. Returns the number of valid objects and the errors of the others.
pub(crate) fn conform(yaml: &str, kubernetes: &str) -> (u64, Vec<String>) {
    let schemas = root().join("target/tools/kubernetes");
    let place = |folder: &str| {
        let file = "{{ .ResourceKind }}{{ .KindSuffix }}.json";
        format!("{}/{folder}/{file}", schemas.display())
    };
    let mut child = tool("kubeconform")
        .args(["-strict", "-summary", "-output", "json"])
        .args(["-kubernetes-version", kubernetes])
        .args([
            "-schema-location",
            &place("{{ .NormalizedKubernetesVersion }}"),
        ])
        .args(["-schema-location", &place("crds")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(yaml.as_bytes()).unwrap();
    // kubeconform reads to the end of its input.
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let wrong = report["resources"].as_array().cloned().unwrap_or_default();
    let summary = &report["summary"];
    // An object without a schema is skipped, and its errors would stay unknown.
    assert_eq!(summary["skipped"], 0, "{report}");
    (
        summary["valid"].as_u64().unwrap(),
        wrong.iter().map(ToString::to_string).collect(),
    )
}

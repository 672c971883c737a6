//! helm as a function from values to objects.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The releases of Kubernetes that the chart is checked against: the oldest that it allows, and the newest
/// that schemas are there for. `scripts/install-tools` has the same list.
pub(crate) const KUBERNETES: [&str; 2] = ["1.30.0", "1.37.0"];

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The chart.
pub(crate) fn chart() -> PathBuf {
    root().join("deploy/helm/palimpsest")
}

fn tool(name: &str) -> Command {
    let path = root().join("target/tools/bin").join(name);
    assert!(path.exists(), "{name} is not there: scripts/install-tools");
    Command::new(path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of YAML, as JSON.
pub(crate) fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The examples by their names, and none at all among them.
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

/// What helm says against these values.
pub(crate) fn refusal(set: &[&str]) -> String {
    let output = run("template", None, set, KUBERNETES[0]);
    assert!(!output.status.success(), "{set:?} is taken");
    text(&output.stderr)
}

/// What helm says against an example with these values.
pub(crate) fn refusal_of(example: &Path, set: &[&str]) -> String {
    let output = run("template", Some(example), set, KUBERNETES[0]);
    assert!(!output.status.success(), "{set:?} is taken");
    text(&output.stderr)
}

/// The YAML that helm makes of an example and more values.
pub(crate) fn rendered(example: Option<&Path>, set: &[&str], kubernetes: &str) -> String {
    let output = run("template", example, set, kubernetes);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// `helm lint`, with everything that it can find.
pub(crate) fn lint(example: Option<&Path>) {
    let mut all = run("lint", example, &[], KUBERNETES[0]);
    all.stdout.extend(all.stderr);
    assert!(all.status.success(), "{}", text(&all.stdout));
}

/// The objects that helm makes of an example and more values.
pub(crate) struct Objects(pub(crate) Vec<Value>);

impl Objects {
    /// Of an example.
    pub(crate) fn of(example: &Path) -> Self {
        Self::with(Some(example), &[])
    }

    /// Of an example and more values.
    pub(crate) fn with(example: Option<&Path>, set: &[&str]) -> Self {
        let yaml = rendered(example, set, KUBERNETES[0]);
        let all: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        Self(all.into_iter().filter(|object| !object.is_null()).collect())
    }

    /// All of a kind.
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        let all = self.0.iter();
        all.filter(|object| object["kind"] == kind).collect()
    }

    /// The only one of a kind.
    pub(crate) fn one(&self, kind: &str) -> &Value {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "{kind}");
        all[0]
    }

    /// The specification of the server's pod.
    pub(crate) fn pod(&self) -> &Value {
        &self.one("StatefulSet")["spec"]["template"]["spec"]
    }

    /// The specifications of all pods: the only one's, or where there are several kinds, theirs.
    pub(crate) fn pods(&self) -> Vec<&Value> {
        let kinds = ["StatefulSet", "Deployment", "Job"];
        let all = kinds.iter().flat_map(|kind| self.all(kind));
        let pods: Vec<_> = all.map(|of| &of["spec"]["template"]["spec"]).collect();
        assert!(!pods.is_empty());
        pods
    }

    /// The pods that go on until they are told to end.
    pub(crate) fn serving(&self) -> Vec<&Value> {
        let pods = self.pods().into_iter();
        pods.filter(|pod| pod["restartPolicy"].is_null()).collect()
    }

    /// The server's container.
    pub(crate) fn container(&self) -> &Value {
        let containers = &self.pod()["containers"];
        assert_eq!(containers.as_array().unwrap().len(), 1);
        &containers[0]
    }

    /// The server's settings.
    pub(crate) fn toml(&self) -> &str {
        let maps = self.all("ConfigMap").into_iter();
        let mut tomls = maps.filter_map(|map| map["data"]["palimpsest.toml"].as_str());
        tomls.next().unwrap()
    }
}

/// What kubeconform says about objects: how many are valid, and what is wrong with the others.
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
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let wrong = report["resources"].as_array().cloned().unwrap_or_default();
    let summary = &report["summary"];
    assert_eq!(summary["skipped"], 0, "{report}");
    (
        summary["valid"].as_u64().unwrap(),
        wrong.iter().map(ToString::to_string).collect(),
    )
}

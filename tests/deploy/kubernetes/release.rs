//! A release of the chart in a namespace of the cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use palimpsest_tests::binary;
use palimpsest_tests::tenant::keys;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster::{Cluster, TIMEOUT, succeeded, until};
use super::services;
use crate::helm::{chart, root, yaml};

/// The name of every release.
pub(crate) const NAME: &str = "prod";

/// The name of the objects of every release.
pub(crate) const FULLNAME: &str = "prod-palimpsest";

/// The pod of a release without a database.
pub(crate) const SERVER: &str = "prod-palimpsest-0";

/// The image that the script of the cluster imports.
const IMAGE: &str = "localhost/palimpsest:test";

/// The Secret with the credentials of the bucket of the tests.
const BUCKET_SECRET: &str = "tests-bucket";

/// A public key of RFC 7517.
const JWKS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

/// A namespace with a release.
pub(crate) struct Release {
    cluster: &'static Cluster,
    namespace: String,
    /// The files of the Secrets.
    files: TempDir,
    values: Vec<PathBuf>,
    api_key: String,
}

impl Release {
    /// Creates a namespace for an example of the chart, with the Secrets that the example needs. The namespace enforces the
    /// strictest profile of Pod Security Standards.
    pub(crate) fn prepare(namespace: &str, example: &Path) -> Self {
        let cluster = Cluster::shared();
        services::start(cluster);
        let files = tempfile::tempdir().unwrap();
        let api_key = write_files(files.path(), namespace);
        let mut labels = json!({});
        for mode in ["enforce", "warn"] {
            labels[format!("pod-security.kubernetes.io/{mode}")] = "restricted".into();
        }
        let values = root().join("tests/deploy/kubernetes/values.yaml");
        let own_values = files.path().join("values.yaml");
        fs::write(&own_values, own_values_of(namespace, example)).unwrap();
        let release = Self {
            cluster,
            namespace: namespace.to_owned(),
            files,
            values: vec![example.to_owned(), values, own_values],
            api_key,
        };
        release.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
        }));
        for command in commands_of(example) {
            let args: Vec<&str> = command.split_whitespace().collect();
            let mut kubectl = cluster.kubectl_in(release.files.path(), &args);
            let output = kubectl.args(["--namespace", namespace]).output();
            succeeded(&output.unwrap());
        }
        let args = [
            "create",
            "secret",
            "generic",
            BUCKET_SECRET,
            "--from-env-file=s3.env",
        ];
        let mut kubectl = cluster.kubectl_in(release.files.path(), &args);
        let output = kubectl.args(["--namespace", namespace]).output();
        succeeded(&output.unwrap());
        release.create_volume();
        release
    }

    /// Creates a volume, because the cluster has no driver that creates the volumes of claims.
    fn create_volume(&self) {
        let folder = self.cluster.folder().join("volumes").join(&self.namespace);
        fs::create_dir_all(&folder).unwrap();
        let example = yaml(&self.values[0]);
        let claim = &example["persistence"];
        let class = claim["storageClassName"].as_str().unwrap_or("standard");
        let modes = claim["accessModes"].as_array();
        let modes = modes
            .cloned()
            .unwrap_or_else(|| vec!["ReadWriteOnce".into()]);
        let is_node =
            json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]});
        self.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.namespace},
            "spec": {
                "storageClassName": class, "capacity": {"storage": "1Ti"}, "local": {"path": folder},
                "accessModes": modes,
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [is_node]}]}},
            },
        }));
    }

    /// Creates or updates an object.
    pub(crate) fn apply(&self, object: &Value) {
        let file = self.files.path().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.cluster.apply(&file);
    }

    /// Runs helm on the release. Asserts that the API server has no warning.
    #[track_caller]
    pub(crate) fn helm(&self, command: &str, args: &[&str]) -> String {
        let mut helm = self.cluster.command(&root().join("target/tools/bin/helm"));
        helm.args([command, NAME, "--namespace", &self.namespace]);
        if ["install", "upgrade"].contains(&command) {
            helm.arg(chart());
            for values in &self.values {
                helm.arg("--values").arg(values);
            }
        }
        let timeout = format!("{}s", TIMEOUT.as_secs());
        let output = helm.args(["--timeout", &timeout]).args(args).output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let state = || format!("helm {command} {args:?}: {error}\n{}", self.state());
        assert!(output.status.success(), "{}", state());
        let has_warning = error.to_lowercase().contains("warning");
        assert!(!has_warning, "{}", state());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `helm test`.
    #[track_caller]
    pub(crate) fn passes_its_test(&self) {
        let report = self.helm("test", &[]);
        let phases = report
            .lines()
            .filter_map(|line| line.strip_prefix("Phase:"));
        let phases: Vec<_> = phases.map(str::trim).collect();
        assert!(!phases.is_empty(), "no tests: {report}");
        assert!(phases.iter().all(|of| *of == "Succeeded"), "{report}");
    }

    /// Asserts that nothing of an uninstalled release exists, except for its volume.
    #[track_caller]
    pub(crate) fn is_removed(&self) {
        let kinds = "all,configmaps,serviceaccounts,networkpolicies,poddisruptionbudgets,\
                     servicemonitors,prometheusrules";
        let left = || {
            let args = ["get", kinds, "--output", "name", "--selector"];
            self.kubectl(&[&args[..], &["app.kubernetes.io/instance=prod"]].concat())
        };
        // Replica sets and pods of removed objects are removed in the background.
        until("the removal", || left().is_empty().then_some(()), left);
    }

    /// Runs kubectl in the namespace.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let namespace = ["--namespace", &self.namespace];
        self.cluster.kubectl(&[&namespace[..], args].concat())
    }

    /// Runs a command of Palimpsest on the node, as a client of the service. Panics if it fails.
    #[track_caller]
    pub(crate) fn call(&self, args: &[&str]) -> String {
        // A service routes calls to a new pod a moment after the pod is ready.
        succeeded(&self.client(&["health", "--wait", "60"]).output().unwrap());
        succeeded(&self.client(args).output().unwrap())
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut client = self.cluster.command(binary());
        let is_tls = !yaml(&self.values[0])["tls"]["secretName"].is_null();
        let scheme = if is_tls { "https" } else { "http" };
        let server = format!("{scheme}://{}:50051", self.host());
        client.args(args);
        client.env("PALIMPSEST_URL", server);
        client.env("PALIMPSEST_API_KEY", &self.api_key);
        if is_tls {
            client.env("PALIMPSEST_TLS_CA", self.files.path().join("ca.crt"));
        }
        client
    }

    /// Waits until the pod without a database is ready and not the previous one. Returns its id.
    pub(crate) fn ready_pod(&self, previous: Option<&str>) -> String {
        let look = || {
            let pods = self.all("pods").into_iter();
            let mut pods = pods.filter(|pod| pod["metadata"]["name"] == SERVER);
            let pod = pods.find(is_ready)?;
            let id = pod["metadata"]["uid"].as_str()?.to_owned();
            (Some(id.as_str()) != previous).then_some(id)
        };
        until("a ready pod", look, || self.state())
    }

    /// Returns the number of ready pods of a component.
    pub(crate) fn ready(&self, component: &str) -> usize {
        let pods = self.all("pods").into_iter();
        let pods = pods
            .filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == component);
        pods.filter(is_ready).count()
    }

    /// Runs the job of a `CronJob` now, and returns its log.
    #[track_caller]
    pub(crate) fn run_job(&self, job: &str) -> String {
        let name = format!("now-{job}");
        let source = format!("--from=cronjob/{FULLNAME}-{job}");
        self.kubectl(&["create", "job", &name, &source]);
        let end = || {
            let job = self
                .cluster
                .get(&["job", &name, "--namespace", &self.namespace]);
            let conditions = job["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.into_iter().flatten();
            let end = conditions.find(|of| of["type"] == "Complete" || of["type"] == "Failed")?;
            Some(end["type"] == "Complete")
        };
        let log = || self.kubectl(&["logs", &format!("job/{name}")]);
        assert!(until("the end of a job", end, || self.state()), "{}", log());
        log()
    }

    /// Imports a conversation as a session.
    #[track_caller]
    pub(crate) fn import(&self, session: &str) {
        let line = json!({
            "type": "user", "uuid": "00000000-0000-4000-8000-000000000001", "parentUuid": null,
            "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": "user", "content": "hello"},
        });
        let file = self.files.path().join(format!("{session}.jsonl"));
        fs::write(&file, format!("{line}\n")).unwrap();
        self.call(&["import", "--format", "claude-code", file.to_str().unwrap()]);
    }

    /// Returns the ids of all sessions.
    #[track_caller]
    pub(crate) fn sessions(&self) -> Vec<String> {
        let lines = self.call(&["sessions", "--json"]);
        let names = lines.lines().map(|line| {
            let session: Value = serde_json::from_str(line).unwrap();
            session["name"].as_str().unwrap().to_owned()
        });
        names
            .map(|name| name.rsplit('/').next().unwrap().to_owned())
            .collect()
    }

    /// Evicts the pods of the release from the node, which admits no pods afterwards. Returns true if all pods are evicted in
    /// time.
    pub(crate) fn drain(&self, timeout: &str) -> bool {
        let selector = format!("app.kubernetes.io/instance={NAME}");
        let args = [
            "drain",
            "node",
            "--delete-emptydir-data",
            "--timeout",
            timeout,
        ];
        let mut kubectl = self.cluster.kubectl_command(&args);
        let output = kubectl
            .args(["--pod-selector", &selector])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        // A budget may stop the drain. Any other error is a defect.
        let is_stopped = error.contains("would violate the pod's disruption budget");
        assert!(output.status.success() || is_stopped, "{error}");
        output.status.success()
    }

    /// Returns true if a pod in another namespace with a label reaches the server.
    pub(crate) fn is_reached_from(&self, namespace: &str, label: &str) -> bool {
        let (key, value) = label.split_once('=').unwrap();
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {key: value}},
        }));
        let authority = self.files.path().join("ca.crt");
        let authority = fs::read_to_string(authority).unwrap();
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authority", "namespace": namespace},
            "data": {"ca.crt": authority},
        }));
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client", "namespace": namespace},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "client", "image": IMAGE, "imagePullPolicy": "Never",
                    "args": ["health", "--wait", "20"],
                    "env": [
                        {"name": "PALIMPSEST_URL", "value": format!("https://{}:50051", self.host())},
                        {"name": "PALIMPSEST_TLS_CA", "value": "/authority/ca.crt"},
                    ],
                    "volumeMounts": [{"name": "authority", "mountPath": "/authority"}],
                }],
                "volumes": [{"name": "authority", "configMap": {"name": "authority"}}],
            },
        }));
        let phase = || {
            let phase = self
                .cluster
                .get(&["pod", "client", "--namespace", namespace]);
            phase["status"]["phase"].as_str().unwrap().to_owned()
        };
        let is_ended = || {
            ["Succeeded", "Failed"]
                .contains(&phase().as_str())
                .then_some(())
        };
        until("the end of the client", is_ended, || self.state());
        let log = self
            .cluster
            .kubectl(&["logs", "client", "--namespace", namespace]);
        let is_reached = phase() == "Succeeded";
        // A client with another error proves nothing.
        assert!(is_reached || log.contains("no server answers"), "{log}");
        is_reached
    }

    /// Returns the name of the service in the cluster.
    fn host(&self) -> String {
        format!("{FULLNAME}.{}.svc", self.namespace)
    }

    /// Returns the list of objects of a kind, in the namespace.
    pub(crate) fn all(&self, kind: &str) -> Vec<Value> {
        let list = self
            .cluster
            .get(&[kind, "--namespace", self.namespace.as_str()]);
        list["items"].as_array().unwrap().clone()
    }

    /// Returns the pods, the events and the logs of the namespace.
    pub(crate) fn state(&self) -> String {
        let namespace = ["--namespace", &self.namespace];
        let of = |args: &[&str]| {
            let text = self.cluster.try_kubectl(&[&namespace[..], args].concat());
            text.unwrap_or_default()
        };
        let logs = ["logs", "--prefix", "--tail=20", "--selector"];
        let logs = of(&[&logs[..], &["app.kubernetes.io/instance=prod"]].concat());
        let pods = of(&["get", "pods", "--output", "wide"]);
        let events = of(&["get", "events", "--sort-by=.lastTimestamp"]);
        format!("{pods}\n{events}\n{logs}")
    }
}

/// Returns true if a pod is ready.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|of| of["type"] == "Ready" && of["status"] == "True")
}

/// Writes the files of all Secrets. Returns an API key with all rights.
fn write_files(folder: &Path, namespace: &str) -> String {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let create = ["create", "--label", "tests", "--project", "*"];
    let rights = ["--right", "read,write,compact,admin"];
    let api_key = keys(&folder.join("keys.toml"), &[&create[..], &rights].concat());
    write("jwks.json", JWKS);
    write("api-key", &api_key);
    let authority = services::authority();
    let (certificate, key) = authority.sign(&format!("{FULLNAME}.{namespace}.svc"));
    write("tls.crt", &certificate);
    write("tls.key", &key);
    write("ca.crt", &authority.pem());
    write("password", services::PASSWORD);
    let variables = services::bucket_variables().into_iter();
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    write("s3.env", &variables.collect::<Vec<_>>().join("\n"));
    api_key
}

/// Returns the values of a namespace: a place in the bucket, which belongs to one store. All releases on the database are
/// one store. Backups have a place and the credentials of the same bucket.
fn own_values_of(namespace: &str, example: &Path) -> String {
    let example = yaml(example);
    let mut values = json!({});
    let url = |folder: &str| format!("s3://palimpsest-blobs/{folder}{namespace}");
    if !example["config"]["blobs"].is_null() && example["scaleOut"].is_null() {
        values["config"]["blobs"]["url"] = url("").into();
    }
    if !example["backup"].is_null() {
        let backup = json!({"url": url("backups-"), "pod": {"envSecrets": [BUCKET_SECRET]}});
        values["backup"] = backup;
    }
    values.to_string()
}

/// Returns the commands of kubectl in the first lines of an example.
fn commands_of(example: &Path) -> Vec<String> {
    let text = fs::read_to_string(example).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    // A backslash continues a command in the next line.
    let comment = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let commands = comment
        .lines()
        .filter_map(|line| line.trim().strip_prefix("kubectl "));
    // A command can have a comment.
    let commands = commands.map(|line| line.split(" #").next().unwrap().trim());
    commands.map(str::to_owned).collect()
}

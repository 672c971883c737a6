//! Tests of the chart and all its examples with helm, the schemas of Kubernetes and the server.

use std::path::Path;
use std::process::Command;

use palimpsest_tests::binary;
use serde_json::Value;

use crate::helm::{KUBERNETES, Objects, chart, conform, examples, lint, refusal, rendered, root};

#[test]
fn every_example_matches_the_schemas_of_kubernetes() {
    lint(None);
    for example in examples() {
        lint(Some(&example));
        for kubernetes in KUBERNETES {
            let yaml = rendered(Some(&example), &[], kubernetes);
            let (valid, wrong) = conform(&yaml, kubernetes);
            assert!(wrong.is_empty(), "{}: {wrong:#?}", example.display());
            assert!(valid >= 8, "{}: {valid} objects", example.display());
        }
    }
}

#[test]
fn the_schemas_reject_invalid_manifests() {
    let wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1, targetport: 2}]}";
    let (valid, wrong) = conform(wrong, KUBERNETES[0]);
    assert_eq!((valid, wrong.len()), (0, 1), "{wrong:?}");
    let wrong = "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\n\
                 spec: {selector: {}, endpoints: [{intervall: 1s}]}";
    let (valid, wrong) = conform(wrong, KUBERNETES[0]);
    assert_eq!((valid, wrong.len()), (0, 1), "{wrong:?}");
}

/// Asserts that the server accepts the settings of a pod.
fn accepted(objects: &Objects, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("palimpsest.toml");
    std::fs::write(&file, objects.toml()).unwrap();
    for pod in objects.pods() {
        let container = &pod["containers"][0];
        // A check of backups has no variables.
        let variables = container["env"].as_array().into_iter().flatten();
        let variables = variables.map(|variable| {
            let text = |key: &str| variable[key].as_str().unwrap().to_owned();
            (text("name"), text("value"))
        });
        // The Job has no configuration file. All its settings are variables.
        let subcommand = container["args"][0].as_str().unwrap();
        let mut command = Command::new(binary());
        command.args(["config", "--check"]).env_clear();
        if subcommand == "serve" {
            command.arg("--config").arg(&file);
        }
        // Other commands are clients and do not read these settings.
        if matches!(subcommand, "serve" | "schema") {
            command.envs(image_variables());
        }
        let output = command.envs(variables).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{name}: {said}\n{}",
            objects.toml()
        );
    }
}

/// Returns the variables that the image sets.
fn image_variables() -> Vec<(String, String)> {
    let dockerfile = std::fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let lines = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("ENV "));
    let variables = lines.flat_map(str::split_whitespace);
    let settings = variables.filter(|variable| variable.starts_with("PALIMPSEST_"));
    let pairs = settings.filter_map(|variable| variable.split_once('='));
    let pairs: Vec<_> = pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert!(!pairs.is_empty(), "the image sets no variable");
    pairs
}

#[test]
fn the_server_accepts_the_settings_of_every_example() {
    for example in examples() {
        accepted(&Objects::of(&example), &example.display().to_string());
    }
}

#[test]
fn settings_are_rendered_unchanged() {
    let values = "{allowAnonymous: true, config: {
        limits: {max_request_bytes: 2147483648}, prices: {cache_read: 0.25},
        projects: {demo: {policy: {tool_results: {rules: {\"my.Read\": {fixed_chars: 100000}}}}}},
        log: {level: \"info,h2=<debug>\"}, worker: {enabled: false}, models: [{names: [a], cache: {ttls_s: [1, 2]}}]}}";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values).unwrap();
    let objects = Objects::of(&file);
    let wanted = [
        "admin.listen = \"0.0.0.0:50052\"",
        "admin.listen_anywhere = true",
        "insecure_listen_anywhere = true",
        "limits.max_request_bytes = 2147483648",
        "log.format = \"json\"",
        // helm's `toJson` escapes angle brackets. TOML reads the escapes as the same text.
        "log.level = \"info,h2=\\u003cdebug\\u003e\"",
        "models = [{cache = {ttls_s = [1, 2]}, names = [\"a\"]}]",
        "prices.cache_read = 0.25",
        r#"projects.demo.policy.tool_results.rules."my.Read".fixed_chars = 100000"#,
        "worker.enabled = false",
    ];
    let got: Vec<_> = objects.toml().lines().collect();
    assert_eq!(got, wanted);
}

#[track_caller]
fn refused(set: &[&str], why: &str) {
    let said = refusal(set);
    assert!(said.contains(why), "{said}");
}

#[test]
fn invalid_values_are_rejected_at_render_time() {
    refused(&[], "No authentication is configured");
    let open = "allowAnonymous=true";
    // The wording of this error differs between releases of helm.
    let unknown = refusal(&[open, "replica=1"]);
    assert!(unknown.contains("replica"), "{unknown}");
    let second = refusal(&[open, "replicas=2"]);
    assert!(second.contains("replicas"), "{second}");
    refused(
        &[open, "auth.keysSecret.name=x"],
        "allowAnonymous contradicts auth",
    );
    refused(
        &["auth.keysSecret.name=x", "tls.clientCaSecret.name=x"],
        "tls.clientCaSecret needs tls.secretName",
    );
    for secret in ["auth.keysSecret.name=x", "auth.jwksSecret.name=x"] {
        refused(
            &[secret],
            "credentials would be sent without encryption. If a service mesh",
        );
    }
    let jwks = ["auth.jwksSecret.name=x", "tls.secretName=x"];
    refused(&jwks, "needs config.auth.jwt.issuer");
    refused(
        &[&jwks[..], &["config.auth.jwt.issuer=x"]].concat(),
        "needs config.auth.jwt.audience",
    );
    let given = [
        "config.auth.jwt.issuer=x",
        "extraEnv[0].name=PALIMPSEST_AUTH_JWT_AUDIENCE",
        "extraEnv[0].value=x",
    ];
    Objects::with(None, &[&jwks[..], &given].concat());
    let plaintext = ["auth.keysSecret.name=x", "config.auth.allow_plaintext=true"];
    Objects::with(None, &plaintext);
    refused(
        &[open, "config.listen=x"],
        "config.listen is set by the chart",
    );
    refused(
        &[open, "config.admin.listen=x"],
        "config.admin.listen is set by the chart",
    );
    refused(
        &[open, "extraEnv[0].name=PALIMPSEST_SHUTDOWN_DRAIN_MS"],
        "extraEnv: the pod depends on PALIMPSEST_SHUTDOWN_DRAIN_MS",
    );
}

#[test]
fn changed_settings_and_secrets_restart_the_pod() {
    let minimal = chart().join("examples/minimal.yaml");
    let checksum = |set: &[&str]| {
        let objects = Objects::with(Some(&minimal), set);
        let template = &objects.one("StatefulSet")["spec"]["template"];
        template["metadata"]["annotations"].clone()
    };
    let config = |of: &Value| of["checksum/config"].as_str().unwrap().to_owned();
    let (before, after) = (checksum(&[]), checksum(&["config.worker.concurrency=3"]));
    assert_ne!(config(&before), config(&after));
    assert_eq!(
        config(&before),
        config(&checksum(&["resources.requests.cpu=2"]))
    );
    assert!(checksum(&["envSecrets[0]=s"])["checksum/env-secrets"].is_string());
}

#[test]
fn the_alert_rules_in_the_chart_equal_those_of_the_repository() {
    let production = chart().join("examples/production.yaml");
    let objects = Objects::of(&production);
    let rules = std::fs::read_to_string(root().join("deploy/prometheus/alerts.yaml")).unwrap();
    let address = "https://git.example.com/palimpsest/docs/operations.md";
    let rules: Value =
        serde_saphyr::from_str(&rules.replace("docs/operations.md", address)).unwrap();
    assert_eq!(objects.one("PrometheusRule")["spec"], rules);
    let dashboards = std::fs::read_dir(root().join("deploy/grafana")).unwrap();
    let dashboards = dashboards.map(|file| file.unwrap().path());
    let is_json = |path: &Path| path.extension().is_some_and(|end| end == "json");
    let maps = objects.all("ConfigMap").into_iter();
    let held = maps.filter(|map| map["metadata"]["labels"]["grafana_dashboard"] == "1");
    let held: Vec<_> = held
        .filter_map(|map| map["data"].as_object())
        .flatten()
        .collect();
    for path in dashboards.filter(|path| is_json(path)) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_there = held
            .iter()
            .any(|(key, value)| *key == name && **value == text);
        assert!(is_there, "{name}");
    }
}

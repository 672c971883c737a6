//! Tests of the values of single components: their place, their sidecars and the number of workers.

use std::path::Path;

use serde_json::{Value, json};

use crate::helm::{KUBERNETES, Objects, chart, conform, refusal_of, rendered, root};

/// Writes values to a file, because `--set` takes no lists of objects.
fn values(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

const EVERYTHING: &str = r#"
allowAnonymous: true
priorityClassName: global
nodeSelector: {pool: global}
tolerations: [{key: global, operator: Exists}]
affinity: {nodeAffinity: {}}
podAnnotations: {team: global}
podLabels: {cost: global}
extraInitContainers: [{name: proxy, image: proxy, restartPolicy: Always}]
extraContainers: [{name: agent, image: agent}]
extraEnv: [{name: AWS_REGION, value: eu}]
extraObjects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-extra'}, data: {a: b}}
config: {blobs: {url: "s3://bucket/prefix"}}
gateway: {enabled: true}
scaleOut:
  enabled: true
  database: {url: "postgres://palimpsest@db/palimpsest"}
  server:
    autoscaling: {maxReplicas: 3}
    resources: {limits: {memory: 4Gi}}
    pod: {nodeSelector: {pool: servers}, extraContainers: []}
  worker:
    autoscaling: {enabled: true, type: keda, maxReplicas: 4, keda: {serverAddress: "http://prometheus:9090"}}
    pod: {tolerations: [], podLabels: {cost: workers}, extraEnv: [{name: AWS_REGION, value: us}]}
  migration:
    pod: {priorityClassName: high, extraInitContainers: [{name: proxy, image: proxy, restartPolicy: Always}]}
backup:
  enabled: true
  check: {schedule: "@weekly"}
  pod: {affinity: {}, envSecrets: [s3], extraVolumes: [{name: a, emptyDir: {}}], extraVolumeMounts: [{name: a, mountPath: /a}]}
tests:
  pod: {podAnnotations: {team: tests}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}
ingress:
  grpc: &ingress {enabled: true, className: c, hosts: [a.example.com], annotations: {a: b}, tls: [{secretName: s, hosts: [a.example.com]}]}
  http: *ingress
  gateway: *ingress
routes:
  grpc: {enabled: true, parentRefs: [{name: gateway}], hostnames: [g.example.com]}
  http: {enabled: true, parentRefs: [{name: gateway}]}
  gateway: {enabled: true, parentRefs: [{name: gateway}], timeouts: {request: 10m}}
networkPolicy: {ingressControllers: [{namespaceSelector: {}}], egress: [{ports: [{port: 443}]}]}
serviceMonitor: {enabled: true}
"#;

/// The variants that no example has.
const VARIANTS: [&[&str]; 5] = [
    &[],
    &["scaleOut.worker.autoscaling.type=hpa"],
    &["scaleOut.enabled=false", "resources.limits.memory=4Gi"],
    &["backup.url=s3://bucket/prefix", "backup.check.schedule="],
    &[
        "backup.persistence.existingClaim=claim",
        "tests.enabled=false",
    ],
];

#[test]
fn every_variant_matches_the_schemas_of_kubernetes() {
    let file = values(EVERYTHING);
    for set in VARIANTS {
        for kubernetes in KUBERNETES {
            let yaml = rendered(Some(file.path()), set, kubernetes);
            let (valid, wrong) = conform(&yaml, kubernetes);
            assert!(wrong.is_empty(), "{set:?}: {wrong:#?}");
            assert!(valid >= 20, "{set:?}: {valid} objects");
        }
    }
}

/// Returns the pods of a release with the names of their components.
fn pods(objects: &Objects) -> Vec<(String, &Value)> {
    let deployments = objects
        .all("Deployment")
        .into_iter()
        .chain(objects.all("Job"));
    let templates = deployments.map(|object| (object, &object["spec"]["template"]));
    let cron_jobs = objects.all("CronJob").into_iter();
    let cron_jobs =
        cron_jobs.map(|object| (object, &object["spec"]["jobTemplate"]["spec"]["template"]));
    let tests = objects
        .all("Pod")
        .into_iter()
        .map(|object| (object, object));
    let all = templates.chain(cron_jobs).chain(tests);
    all.map(|(object, pod)| {
        let name = object["metadata"]["name"].as_str().unwrap();
        let name = name
            .trim_start_matches("prod-palimpsest-")
            .trim_end_matches("-1");
        (name.to_owned(), pod)
    })
    .collect()
}

#[test]
fn each_component_has_its_own_place_and_otherwise_the_global_one() {
    let file = values(EVERYTHING);
    let objects = Objects::of(file.path());
    let global = json!({
        "priorityClassName": "global",
        "nodeSelector": {"pool": "global"},
        "tolerations": [{"key": "global", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    });
    let own = [
        ("server", "nodeSelector", json!({"pool": "servers"})),
        ("worker", "tolerations", Value::Null),
        ("schema", "priorityClassName", json!("high")),
        ("backup", "affinity", Value::Null),
        ("backup-check", "affinity", Value::Null),
        ("test", "", Value::Null),
    ];
    let all = pods(&objects);
    assert_eq!(all.len(), own.len());
    for (component, key, value) in own {
        let (_, pod) = all.iter().find(|(name, _)| name == component).unwrap();
        for (name, of_all) in global.as_object().unwrap() {
            let expected = if name == key { &value } else { of_all };
            assert_eq!(pod["spec"][name], *expected, "{component}: {name}");
        }
        let team = &pod["metadata"]["annotations"]["team"];
        assert_eq!(
            *team,
            if component == "test" {
                "tests"
            } else {
                "global"
            }
        );
        let cost = &pod["metadata"]["labels"]["cost"];
        assert_eq!(
            *cost,
            if component == "worker" {
                "workers"
            } else {
                "global"
            }
        );
    }
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    let all = pod["spec"][list].as_array().into_iter().flatten();
    all.map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn sidecars_belong_to_servers_and_workers_and_never_delay_the_end_of_a_task() {
    let file = values(EVERYTHING);
    let objects = Objects::of(file.path());
    for (component, pod) in pods(&objects) {
        let (first, more): (&[_], &[&str]) = match component.as_str() {
            "server" | "schema" => (&["proxy"], &[]),
            "worker" => (&["proxy"], &["agent"]),
            _ => (&[], &[]),
        };
        assert_eq!(names(pod, "initContainers"), first, "{component}");
        assert_eq!(names(pod, "containers")[1..], *more, "{component}");
        let region = pod["spec"]["containers"][0]["env"].to_string();
        let expected =
            ["eu", "us"].map(|region| format!(r#"{{"name":"AWS_REGION","value":"{region}"}}"#));
        let has = expected.map(|variable| region.contains(&variable));
        assert_eq!(
            has,
            [component == "server", component == "worker"],
            "{component}"
        );
    }
    let maps = objects.all("ConfigMap").into_iter();
    let mut extra = maps.filter(|map| map["metadata"]["name"] == "prod-extra");
    assert_eq!(extra.next().unwrap()["data"]["a"], "b");
    // A container of a Job that does not end would keep the Job running.
    let said = refusal_of(file.path(), &["backup.pod.extraContainers[0].name=agent"]);
    assert!(said.contains("'extraContainers'"), "{said}");
}

#[test]
fn workers_scale_by_a_metric_that_the_server_has_and_the_adapter_serves() {
    let file = values(EVERYTHING);
    let metric = "palimpsest_session_memory_lag_seconds";
    let metrics = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    assert!(metrics.contains(&format!("| `{metric}` | gauge |")));

    let objects = Objects::of(file.path());
    let scaled = &objects.one("ScaledObject")["spec"];
    assert_eq!(scaled["scaleTargetRef"]["name"], "prod-palimpsest-worker");
    let trigger = &scaled["triggers"][0];
    assert_eq!(trigger["metricType"], "Value");
    let query = trigger["metadata"]["query"].as_str().unwrap();
    assert_eq!(
        query,
        format!(r#"max({metric}{{namespace="agents",service="prod-palimpsest-admin"}})"#)
    );
    promql_parser::parser::parse(query).unwrap();
    for deployment in objects.all("Deployment") {
        assert!(
            deployment["spec"]["replicas"].is_null(),
            "a fixed number overrides the scaler"
        );
    }

    let objects = Objects::with(Some(file.path()), &["scaleOut.worker.autoscaling.type=hpa"]);
    let scalers = objects.all("HorizontalPodAutoscaler").into_iter();
    let mut workers = scalers.filter(|it| it["metadata"]["name"] == "prod-palimpsest-worker");
    let external = &workers.next().unwrap()["spec"]["metrics"][0]["external"];
    assert_eq!(external["metric"]["name"], metric);
    let service = external["metric"]["selector"]["matchLabels"]["service"].as_str();
    let services = objects.all("Service");
    assert!(
        services
            .iter()
            .any(|it| it["metadata"]["name"].as_str() == service)
    );

    // The rules of the adapter serve the metrics of the examples, from series that exist.
    let adapter = crate::helm::yaml(&root().join("deploy/prometheus/adapter.yaml"));
    let rules = |kind: &str| adapter["rules"][kind].as_array().unwrap().clone();
    let example = Objects::of(&chart().join("examples/scale-out.yaml")).0;
    let text = Value::from(example).to_string();
    for rule in rules("external").into_iter().chain(rules("custom")) {
        let series = rule["seriesQuery"]
            .as_str()
            .unwrap()
            .split('{')
            .next()
            .unwrap();
        assert!(metrics.contains(&format!("| `{series}` |")), "{series}");
        let served = rule["name"]["as"].as_str().unwrap();
        assert!(text.contains(&format!("\"name\":\"{served}\"")), "{served}");
    }
}

#[track_caller]
fn refused(file: &Path, set: &str, why: &str) {
    let said = refusal_of(file, &[set]);
    assert!(said.contains(why), "{set}: {said}");
}

#[test]
fn the_connections_of_the_maximum_of_workers_are_counted() {
    let file = values(EVERYTHING);
    // 2 × (3 servers × 14 + 4 workers × 8) + 2
    Objects::with(Some(file.path()), &["scaleOut.database.maxConnections=150"]);
    refused(
        file.path(),
        "scaleOut.database.maxConnections=149",
        "need 150 connections",
    );
    refused(
        file.path(),
        "scaleOut.worker.autoscaling.minReplicas=5",
        "scaleOut.worker.autoscaling: minReplicas is 5",
    );
    refused(
        file.path(),
        "scaleOut.worker.autoscaling.keda.serverAddress=",
        "scaleOut.worker.autoscaling.keda.serverAddress is not set",
    );
    refused(
        file.path(),
        "scaleOut.worker.pod.extraEnv[0].name=PALIMPSEST_ROLE",
        "the pod depends on PALIMPSEST_ROLE",
    );
}

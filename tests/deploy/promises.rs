//! Tests of the properties that the chart documents for the pod. Properties of the server are tested on the real
//! server.

use std::process::Command;

use palimpsest_tests::{Server, binary};
use serde_json::{Value, json};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::helm::{Objects, chart, examples, refusal_of};

const PROBES: [&str; 3] = ["startupProbe", "livenessProbe", "readinessProbe"];

/// Returns the default of a setting as `palimpsest config` prints it.
pub(crate) fn default_of(key: &str) -> u64 {
    let output = Command::new(binary()).arg("config").env_clear().output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let (section, name) = key.split_once('.').unwrap();
    let mut lines = text
        .lines()
        .skip_while(|line| *line != format!("[{section}]"));
    // A setting with its default is a comment in the output.
    let line = lines.find(|line| {
        line.trim_start_matches("# ")
            .starts_with(&format!("{name} ="))
    });
    let line = line.unwrap_or_else(|| panic!("{key} is not in {text}"));
    let value = line.split('=').nth(1).unwrap();
    value.split('#').next().unwrap().trim().parse().unwrap()
}

fn set_in(toml: &str, key: &str) -> Option<u64> {
    let start = format!("{key} = ");
    let line = toml.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(line.parse().unwrap())
}

#[test]
fn no_pod_is_killed_before_its_drain_ends() {
    let (drain, worker) = (
        default_of("shutdown.drain_ms"),
        default_of("worker.shutdown_grace_ms"),
    );
    let minimal = chart().join("examples/minimal.yaml");
    let mut all: Vec<_> = examples().iter().map(|path| Objects::of(path)).collect();
    // Values that are no whole seconds show that the chart rounds up.
    for set in [
        "config.shutdown.drain_ms=900001",
        "config.worker.shutdown_grace_ms=61001",
    ] {
        all.push(Objects::with(Some(&minimal), &[set]));
    }
    for objects in all {
        let of = |key, default| set_in(objects.toml(), key).unwrap_or(default);
        let own = of("shutdown.drain_ms", drain) + of("worker.shutdown_grace_ms", worker);
        for pod in objects.serving() {
            let sleep = &pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"];
            let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
            let least = own.div_ceil(1_000) + sleep.as_u64().unwrap_or(0) + 10;
            assert_eq!(grace, least, "{}", objects.toml());
        }
    }
}

#[test]
fn the_pod_has_no_privileges() {
    for example in examples() {
        let objects = Objects::of(&example);
        let pods = objects.all("Pod").into_iter().map(|pod| &pod["spec"]);
        for pod in pods.chain(objects.pods()) {
            assert_eq!(pod["automountServiceAccountToken"], false);
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true);
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
            let container = &pod["containers"][0];
            let security = &container["securityContext"];
            let wanted = json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            });
            assert_eq!(*security, wanted);
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                let is_data = mount["name"] == "data" || mount["name"] == "backups";
                assert!(is_data || mount["readOnly"] == true, "{mount}");
                assert!(
                    mount["subPath"].is_null(),
                    "a subPath mount is never updated: {mount}"
                );
            }
        }
        for account in objects.all("ServiceAccount") {
            assert_eq!(account["automountServiceAccountToken"], false);
        }
    }
}

#[test]
fn a_single_pod_keeps_its_volume_and_allows_node_drains() {
    for example in examples() {
        let objects = Objects::of(&example);
        if objects.all("StatefulSet").is_empty() {
            continue;
        }
        let set = &objects.one("StatefulSet")["spec"];
        assert_eq!(set["replicas"], 1);
        let kept = &set["persistentVolumeClaimRetentionPolicy"]["whenDeleted"];
        assert_eq!(kept, "Retain");
        // A minimum of one available pod would block every node drain, because there is only one pod.
        let budget = &objects.one("PodDisruptionBudget")["spec"];
        assert!(budget["minAvailable"].is_null());
        let services = objects.all("Service");
        let own = services
            .iter()
            .find(|service| service["metadata"]["name"] == set["serviceName"]);
        assert_eq!(own.unwrap()["spec"]["clusterIP"], "None");
        for service in &services {
            assert_eq!(service["spec"]["selector"], set["selector"]["matchLabels"]);
        }
    }
}

#[test]
fn servers_and_workers_on_a_database_are_independent() {
    let example = chart().join("examples/scale-out.yaml");
    let objects = Objects::of(&example);
    let toml = objects.toml();
    assert!(
        toml.contains("store.postgres.auto_migrate = false"),
        "{toml}"
    );
    let mut connections = 0;
    for deployment in objects.all("Deployment") {
        let spec = &deployment["spec"];
        let component = &deployment["metadata"]["labels"]["app.kubernetes.io/component"];
        let component = component.as_str().unwrap();
        let labels = &spec["template"]["metadata"]["labels"];
        for (key, value) in spec["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(labels[key], *value, "{key}");
        }
        let rolling = &spec["strategy"]["rollingUpdate"];
        assert_eq!(*rolling, json!({"maxSurge": 1, "maxUnavailable": 0}));
        let container = &spec["template"]["spec"]["containers"][0];
        let variable = |name: &str| {
            let variables = container["env"].as_array().unwrap();
            let found = variables.iter().find(|variable| variable["name"] == name);
            found.unwrap()["value"].as_str().unwrap().to_owned()
        };
        assert_eq!(variable("PALIMPSEST_ROLE"), component);
        let own = variable("PALIMPSEST_STORE_POSTGRES_CONNECTIONS");
        let name = format!("prod-palimpsest-{component}");
        let scaler = &objects.named("HorizontalPodAutoscaler", &name)["spec"];
        assert_eq!(scaler["scaleTargetRef"]["name"], name);
        let pods = &scaler["maxReplicas"];
        connections += 2 * pods.as_u64().unwrap() * (own.parse::<u64>().unwrap() + 2);
        let spread = &spec["template"]["spec"]["topologySpreadConstraints"];
        assert_eq!(spread.as_array().unwrap().len(), 2);
        let is_its = |budget: &&&Value| {
            budget["spec"]["selector"]["matchLabels"] == spec["selector"]["matchLabels"]
        };
        let budgets = objects.all("PodDisruptionBudget");
        assert_eq!(budgets.iter().filter(is_its).count(), 1);
    }
    // Clients call servers only. Metrics are scraped from all pods.
    for service in objects.all("Service") {
        let component = &service["spec"]["selector"]["app.kubernetes.io/component"];
        let is_admin = service["spec"]["ports"][0]["name"] == "admin";
        assert_eq!(component.as_str(), (!is_admin).then_some("server"));
    }
    // The Job creates the tables before the pods start, and no service selects its pod.
    let job = objects.one("Job");
    let hook = &job["metadata"]["annotations"]["helm.sh/hook"];
    assert_eq!(hook, "pre-install,pre-upgrade");
    let name = &job["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"];
    assert_ne!(name, "palimpsest");
    let variables = &job["spec"]["template"]["spec"]["containers"][0]["env"];
    assert!(!variables.to_string().contains("owner@"));
    let owner = "scaleOut.migration.url=postgres://owner@db/palimpsest";
    let secret = "scaleOut.migration.passwordSecret.name=owner";
    let client = "config.store.postgres.client_cert_file=/certs/tls.crt";
    let objects = Objects::with(Some(&example), &[owner, secret, client]);
    let job = &objects.one("Job")["spec"]["template"]["spec"];
    let text = job.to_string();
    for needed in [
        r#""postgres://owner@db/palimpsest""#,
        r#""secretName":"owner""#,
        r#""PALIMPSEST_STORE_POSTGRES_CLIENT_CERT_FILE","value":"/certs/tls.crt""#,
    ] {
        assert!(text.contains(needed), "{needed} is not in {text}");
    }
    assert!(objects.toml().contains("/certs/tls.crt"));
    // One connection less than all pods need is rejected.
    let all = connections + 2;
    let most = |most: u64| format!("scaleOut.database.maxConnections={most}");
    Objects::with(Some(&example), &[&most(all)]);
    let said = refusal_of(&example, &[&most(all - 1)]);
    assert!(said.contains(&format!("need {all} connections")), "{said}");
    let said = refusal_of(&example, &["config.blobs.url="]);
    assert!(said.contains("scaleOut needs config.blobs.url"), "{said}");
    let password = "scaleOut.database.url=postgres://palimpsest:secret@db/palimpsest";
    let said = refusal_of(&example, &[password]);
    assert!(said.contains("url"), "{said}");
}

/// Returns the status line of the admin port's reply for a path.
fn status_of(admin: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(admin).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap().to_owned()
}

fn admin_of(server: &Server) -> String {
    let log = server.log();
    let serving: Vec<Value> = log
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let admin = serving.iter().find_map(|line| {
        let fields = line.get("fields").unwrap_or(line);
        fields["admin"].as_str()
    });
    admin.unwrap_or_else(|| panic!("{log:?}")).to_owned()
}

#[tokio::test]
async fn the_probes_use_endpoints_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut health = HealthClient::new(server.channel().await);
    let (mut over_grpc, mut over_http) = (0, 0);
    for example in examples() {
        let objects = Objects::of(&example);
        let container = &objects.serving()[0]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        let port = |name: &str| {
            let port = ports.iter().find(|port| port["name"] == name).unwrap();
            port["containerPort"].clone()
        };
        let is_private = objects.toml().contains("tls.cert_file");
        for probe in PROBES.map(|name| &container[name]) {
            if let Some(service) = probe["grpc"]["service"].as_str() {
                assert!(!is_private, "the probe does not use TLS: {probe}");
                assert_eq!(probe["grpc"]["port"], port("grpc"));
                let request = HealthCheckRequest {
                    service: service.to_owned(),
                };
                let reply = health.check(request).await.unwrap().into_inner();
                assert_eq!(reply.status(), ServingStatus::Serving, "{service}");
                over_grpc += 1;
            } else {
                let get = &probe["httpGet"];
                port(get["port"].as_str().unwrap());
                let status = status_of(&admin_of(&server), get["path"].as_str().unwrap());
                assert_eq!(status, "HTTP/1.1 200 OK", "{get}");
                over_http += 1;
            }
        }
        // Kubernetes must not restart a pod that is alive and cannot serve.
        let asks = |probe: &str| {
            let probe = &container[probe];
            let names = [&probe["grpc"]["service"], &probe["httpGet"]["path"]];
            names
                .into_iter()
                .find_map(Value::as_str)
                .unwrap()
                .to_owned()
        };
        assert_ne!(asks("livenessProbe"), asks("readinessProbe"));
        assert!(asks("readinessProbe").contains("read"), "{example:?}");
    }
    assert!(over_grpc > 0 && over_http > 0, "{over_grpc}, {over_http}");
}

#[test]
fn exactly_one_service_is_scraped_at_its_admin_port() {
    let objects = Objects::of(&chart().join("examples/production.yaml"));
    let monitor = &objects.one("ServiceMonitor")["spec"];
    let wanted = monitor["selector"]["matchLabels"].as_object().unwrap();
    let has = |service: &&&Value| {
        let labels = &service["metadata"]["labels"];
        wanted.iter().all(|(key, value)| labels[key] == *value)
    };
    let services = objects.all("Service");
    let found: Vec<_> = services.iter().filter(has).collect();
    assert_eq!(found.len(), 1, "exactly one service must match the monitor");
    let endpoint = &monitor["endpoints"][0];
    let port = &found[0]["spec"]["ports"][0];
    assert_eq!(endpoint["port"], port["name"]);
    assert_eq!(endpoint["path"], "/metrics");
    let ports = objects.container()["ports"].as_array().unwrap();
    let admin = ports
        .iter()
        .find(|own| own["name"] == port["targetPort"])
        .unwrap();
    let listen = format!("admin.listen = \"0.0.0.0:{}\"", admin["containerPort"]);
    assert!(objects.toml().contains(&listen));
    // The alerts select jobs by this label.
    let label = monitor["jobLabel"].as_str().unwrap();
    assert_eq!(found[0]["metadata"]["labels"][label], "palimpsest");
    // Pods that are not ready are scraped too, because an alert detects them.
    assert_eq!(found[0]["spec"]["publishNotReadyAddresses"], true);
}

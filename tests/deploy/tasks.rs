//! Tests of the pods that run one command: `helm test` and backups. Their commands run against a server with the settings
//! of the example, with the files of the mounted Secrets alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use palimpsest_tests::authority::Authority;
use palimpsest_tests::{binary, palimpsest};
use serde_json::{Value, json};

use crate::helm::{Objects, chart, refusal_of};
use crate::production::{Running, port_of, succeeded};

const SERVICE: &str = "prod-palimpsest.agents.svc";

/// The public key of an issuer of tokens, of RFC 8037.
const JWKS: &str = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "a",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// A server with the rendered settings of an example, and the contents of all Secrets.
struct Release {
    folder: tempfile::TempDir,
    objects: Objects,
    authority: Authority,
    key: String,
    port: u16,
    _server: Running,
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Release {
    fn start(example: &str, set: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let objects = Objects::with(Some(&chart().join(format!("examples/{example}.yaml"))), set);
        let authority = Authority::new();
        let (certificate, private) = authority.sign(SERVICE);
        for (name, text) in [
            ("jwks/jwks.json", JWKS),
            ("model/api-key", "none"),
            ("tls/tls.crt", &certificate),
            ("tls/tls.key", &private),
            ("client-ca/ca.crt", &authority.pem()),
        ] {
            write(path("secrets").join(name), text);
        }
        let keys = path("secrets/keys/keys.toml");
        fs::create_dir_all(keys.parent().unwrap()).unwrap();
        let keys = ["keys", "create", "--keys-file", keys.to_str().unwrap()];
        let created = palimpsest(&[&keys[..], &["--project", "*", "--right", "admin"]].concat());
        succeeded(&created);

        let secrets = path("secrets");
        let settings = objects
            .toml()
            .replace("/etc/palimpsest/secrets", secrets.to_str().unwrap());
        write(path("palimpsest.toml"), &settings);
        let log = path("log");
        let server = Command::new(binary())
            .args(["serve", "--admin-listen", "127.0.0.1:0", "--config"])
            .arg(path("palimpsest.toml"))
            .env_clear()
            .env("PALIMPSEST_LISTEN", "0.0.0.0:0")
            .env("PALIMPSEST_DATA_DIR", path("data"))
            .stderr(fs::File::create(&log).unwrap())
            .stdin(Stdio::null())
            .spawn();
        let mut server = Running(server.unwrap());
        let port = port_of(&mut server, &log);
        Self {
            objects,
            authority,
            key: String::from_utf8(created.stdout).unwrap(),
            port,
            _server: server,
            folder,
        }
    }

    /// Returns the content of a file of a Secret.
    fn secret(&self, key: &str) -> String {
        match key {
            "ca.crt" => self.authority.pem(),
            "tls.crt" => self.authority.sign("backup").0,
            // A certificate and its key must be of one pair, so the key is written with the certificate.
            "tls.key" => String::new(),
            "api-key" => self.key.clone(),
            other => panic!("{other} is no file of a Secret"),
        }
    }

    /// Runs the container of a pod: with its arguments, its variables and the files of its volumes.
    fn run(&self, pod: &Value, changed: &[(&str, &str)]) -> Output {
        let root = self.folder.path();
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        let container = &pod["containers"][0];
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let folder = below(mount["mountPath"].as_str().unwrap());
            fs::create_dir_all(&folder).unwrap();
            let volumes = pod["volumes"].as_array().unwrap();
            let volume = volumes
                .iter()
                .find(|it| it["name"] == mount["name"])
                .unwrap();
            for item in volume["secret"]["items"].as_array().into_iter().flatten() {
                let name = item["path"].as_str().unwrap();
                fs::write(
                    folder.join(name),
                    self.secret(item["key"].as_str().unwrap()),
                )
                .unwrap();
            }
            if folder.join("tls.key").exists() {
                let (certificate, private) = self.authority.sign("client");
                fs::write(folder.join("tls.crt"), certificate).unwrap();
                fs::write(folder.join("tls.key"), private).unwrap();
            }
        }
        // Paths of the container are below the test's folder, and the service is a port of this machine.
        let local = |text: &str| {
            let text = text
                .strip_prefix('/')
                .map_or(text.to_owned(), |_| below(text).display().to_string());
            text.replace(
                &format!("{SERVICE}:50051"),
                &format!("localhost:{}", self.port),
            )
        };
        let args = container["args"].as_array().unwrap().iter();
        // A failing pod must not wait for the 240 seconds of the values.
        let args = args.map(|arg| local(arg.as_str().unwrap()).replace("240", "20"));
        let mut command = Command::new(binary());
        command.args(args).env_clear();
        for variable in container["env"].as_array().into_iter().flatten() {
            let (name, value) = (
                variable["name"].as_str().unwrap(),
                variable["value"].as_str().unwrap(),
            );
            if value.starts_with("https://") {
                // The certificate has the name of the service, which no resolver knows here.
                command.env("PALIMPSEST_TLS_SERVER_NAME", SERVICE);
            }
            command.env(name, local(value));
        }
        for (name, value) in changed {
            command.env(name, value);
        }
        command.output().unwrap()
    }
}

fn job<'a>(objects: &'a Objects, name: &str) -> &'a Value {
    &objects.named("CronJob", name)["spec"]
}

fn pod_of(job: &Value) -> &Value {
    &job["jobTemplate"]["spec"]["template"]["spec"]
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_test_and_the_backups_succeed_with_tls_mutual_tls_and_without() {
    let claim = [
        "backup.enabled=true",
        "backup.url=",
        "backup.check.schedule=@weekly",
    ];
    let key = "backup.apiKeySecret.name=key";
    let cases: [(&str, &[&str]); 4] = [
        ("production", &claim),
        ("mutual-tls", &[&claim[..], &[key]].concat()),
        ("mesh", &[&claim[..], &[key]].concat()),
        ("minimal", &claim),
    ];
    for (example, set) in cases {
        let release = Release::start(example, set);
        let test = &release.objects.one("Pod")["spec"];
        let tested = release.run(test, &[]);
        assert!(
            tested.status.success(),
            "{example}: {}",
            text(&tested.stderr)
        );
        assert_eq!(text(&tested.stdout), "ready\n");

        let backup = pod_of(job(&release.objects, "prod-palimpsest-backup"));
        let made = release.run(backup, &[]);
        assert!(made.status.success(), "{example}: {}", text(&made.stderr));
        let check = pod_of(job(&release.objects, "prod-palimpsest-backup-check"));
        let checked = release.run(check, &[]);
        assert!(
            checked.status.success(),
            "{example}: {}",
            text(&checked.stderr)
        );
        assert!(
            text(&checked.stdout).contains("is complete"),
            "{}",
            text(&checked.stdout)
        );
    }
}

#[test]
fn the_test_fails_for_another_authority_and_another_name() {
    let release = Release::start("production", &["tests.waitSeconds=0"]);
    let test = &release.objects.one("Pod")["spec"];
    let foreign = release.folder.path().join("foreign.crt");
    fs::write(&foreign, Authority::new().pem()).unwrap();
    let foreign = [("PALIMPSEST_TLS_CA", foreign.to_str().unwrap())];
    let other = [("PALIMPSEST_TLS_SERVER_NAME", "other.example.com")];
    for (changed, why) in [(foreign, "was rejected"), (other, "another host name")] {
        let failed = release.run(test, &changed);
        assert!(!failed.status.success());
        assert!(
            text(&failed.stderr).contains(why),
            "{}",
            text(&failed.stderr)
        );
    }
}

#[test]
fn two_backups_never_run_at_once_and_failures_end() {
    let objects = Objects::of(&chart().join("examples/production.yaml"));
    for name in ["prod-palimpsest-backup", "prod-palimpsest-backup-check"] {
        let spec = job(&objects, name);
        assert_eq!(spec["concurrencyPolicy"], "Forbid");
        assert_eq!(spec["timeZone"], "Europe/Berlin");
        let spec = &spec["jobTemplate"]["spec"];
        assert_eq!(spec["podReplacementPolicy"], "Failed");
        assert_eq!(spec["activeDeadlineSeconds"], 21_600);
        let secret = &spec["template"]["spec"]["containers"][0]["envFrom"][0]["secretRef"]["name"];
        assert_eq!(secret, "palimpsest-backup-s3");
    }
    let backup = pod_of(job(&objects, "prod-palimpsest-backup"));
    let args = &backup["containers"][0]["args"];
    assert_eq!(args[2], "s3://palimpsest-backups/production");
    assert_eq!((&args[3], &args[4]), (&json!("--wait"), &json!("240")));
    assert_eq!((&args[5], &args[6]), (&json!("--keep"), &json!("14")));
    // Checks need the place alone.
    let check = pod_of(job(&objects, "prod-palimpsest-backup-check"));
    assert!(!check.to_string().contains("palimpsest-backup-key"));
    assert!(objects.all("PersistentVolumeClaim").is_empty());
    // The key leaves the pod without TLS only if the server accepts it.
    let mesh = chart().join("examples/mesh.yaml");
    let set = [
        "backup.enabled=true",
        "backup.apiKeySecret.name=key",
        "backup.keep=0",
    ];
    let objects = Objects::with(Some(&mesh), &set);
    let args = pod_of(job(&objects, "prod-palimpsest-backup"))["containers"][0]["args"].to_string();
    assert!(
        args.contains("--allow-plaintext") && !args.contains("--keep"),
        "{args}"
    );
    let claim = objects.one("PersistentVolumeClaim");
    assert_eq!(
        claim["metadata"]["annotations"]["helm.sh/resource-policy"],
        "keep"
    );
}

#[test]
fn the_network_admits_the_test_and_the_backups() {
    let objects = Objects::of(&chart().join("examples/production.yaml"));
    let policy = |name: &str| &objects.named("NetworkPolicy", name)["spec"];
    let admitted = &policy("prod-palimpsest")["ingress"][1];
    assert_eq!(admitted["ports"], json!([{"port": "grpc"}]));
    let test = objects.one("Pod")["metadata"]["labels"].clone();
    let cron = &job(&objects, "prod-palimpsest-backup")["jobTemplate"]["spec"]["template"];
    for (name, labels) in [("test", &test), ("backup", &cron["metadata"]["labels"])] {
        let fits = |selector: &Value| {
            let wanted = selector["matchLabels"].as_object().unwrap();
            wanted.iter().all(|(key, value)| labels[key] == *value)
        };
        let peers = admitted["from"].as_array().unwrap();
        assert!(
            peers.iter().any(|peer| fits(&peer["podSelector"])),
            "{name}"
        );
        let own = policy(&format!("prod-palimpsest-{name}"));
        assert!(fits(&own["podSelector"]), "{name}");
        assert_eq!(own["policyTypes"], json!(["Ingress", "Egress"]));
        assert!(own["ingress"].is_null());
        // No service and no policy of the servers selects these pods.
        assert!(!fits(&policy("prod-palimpsest")["podSelector"]), "{name}");
        let to_bucket = own["egress"].to_string().contains("443");
        assert_eq!(to_bucket, name == "backup", "{name}");
    }
}

#[test]
fn incomplete_values_of_backups_are_rejected() {
    let example = |name: &str| chart().join(format!("examples/{name}.yaml"));
    let refused = |example: &Path, set: &[&str], why: &str| {
        let said = refusal_of(example, set);
        assert!(said.contains(why), "{set:?}: {said}");
    };
    let on = "backup.enabled=true";
    refused(
        &example("mesh"),
        &[on],
        "backup.apiKeySecret.name is not set",
    );
    refused(
        &example("mutual-tls"),
        &[on, "backup.apiKeySecret.name=k", "tls.clientSecretName="],
        "backup needs tls.clientSecretName",
    );
    refused(
        &example("minimal"),
        &[on, "backup.url=gs://bucket"],
        "/backup/url",
    );
    refused(
        &example("minimal"),
        &[on, "backup.schedule=daily"],
        "/backup/schedule",
    );
    let long = "fullnameOverride=a-name-of-forty-nine-characters-which-is-very-long";
    let objects = Objects::with(Some(&example("minimal")), &[on, long]);
    let name = objects.one("CronJob")["metadata"]["name"].as_str().unwrap();
    // Kubernetes appends up to 11 characters to the name of a CronJob, and names have at most 63.
    assert!(name.len() <= 52 && name.ends_with("-backup"), "{name}");
}

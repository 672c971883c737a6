//! Tests of unusable databases: the error messages, and that no data is lost.

use std::path::Path;
use std::time::{Duration, Instant};

use palimpsest_test_servers::{Bucket, Cluster, Options};
use palimpsest_tests::authority::Authority;
use palimpsest_tests::say::{append, user, uuid, with_id};
use palimpsest_tests::{Server, name, palimpsest_with, refused};
use tempfile::TempDir;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::deployment::{at, borrowed};
use crate::replicas::database;

/// Checks the database frequently, so that the server notices changes early.
const QUICK: &str = "store.canary_every_ms=200";

fn arguments(folder: &Path, url: &str, settings: &[&str]) -> Vec<String> {
    let blobs = format!("blobs.url=file://{}", folder.join("blobs").display());
    let url = format!("store.postgres.url={url}");
    let all = [blobs.as_str(), url.as_str()]
        .into_iter()
        .chain(settings.iter().copied());
    all.flat_map(|setting| ["--set".to_owned(), setting.to_owned()])
        .collect()
}

/// Returns the error of a server that cannot start on this database.
fn said(url: &str, settings: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let arguments = arguments(folder.path(), url, settings);
    refusal(&arguments, &[("DATABASE_PASSWORD", "wrong")])
}

/// Returns the error of a server that cannot start.
fn refusal(arguments: &[String], variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let mut all = vec!["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    all.extend(["--admin-listen", "127.0.0.1:0"]);
    all.extend(arguments.iter().map(String::as_str));
    let done = palimpsest_with(&all, variables);
    assert!(!done.status.success());
    let lines = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!lines.contains("panicked"), "{lines}");
    lines
}

#[track_caller]
fn tells(said: &str, what: &[&str]) {
    for what in what {
        assert!(said.contains(what), "{what:?} is not in {said}");
    }
}

/// Starts a server on a separate database.
fn server(folder: &Path, url: &str, settings: &[&str]) -> Server {
    let arguments = arguments(folder, url, settings);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Server::start(&folder.join("data"), &arguments)
}

#[test]
fn a_start_reports_problems_of_the_database() {
    let cluster = database();
    let url = at(&[&cluster]);
    // Nothing listens on port 1.
    let nobody = "postgres://palimpsest@127.0.0.1:1/postgres";
    tells(
        &said(nobody, &[]),
        &["the database cannot be used now", "refused"],
    );
    let other = url.replace("/postgres", "/elsewhere");
    tells(
        &said(&other, &[]),
        &["database \"elsewhere\" does not exist"],
    );
    let stranger = url.replace("palimpsest@", "stranger@");
    tells(&said(&stranger, &[]), &["role \"stranger\" does not exist"]);
    let encrypted = format!("{url}?sslmode=require");
    tells(&said(&encrypted, &[]), &["TLS"]);
    let missing = ["store.postgres.ca_file=/nowhere/ca.crt"];
    tells(
        &said(&url, &missing),
        &["the authorities in /nowhere/ca.crt cannot be used"],
    );
    // An invalid address is reported together with the other invalid settings.
    tells(
        &said("db.example.com", &[]),
        &["store.postgres.url must be the address of a database"],
    );
    let password = url.replace("palimpsest@", "palimpsest:secret@");
    let told = said(&password, &[]);
    tells(&told, &["without a password in it", "password_file"]);
    assert!(!told.contains("secret"), "{told}");
}

#[test]
fn a_start_reports_problems_of_the_bucket() {
    let bucket = Bucket::start();
    let start = |url: &str, (name, value): (&'static str, &str)| {
        let mut variables = bucket.variables();
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value.to_owned()));
        let variables = borrowed(&variables);
        refusal(&["--blobs".to_owned(), url.to_owned()], &variables)
    };
    let url = bucket.url();
    let rights = ["the credentials need the right to put"];
    tells(&start(&url, ("AWS_SECRET_ACCESS_KEY", "wrong")), &rights);
    tells(&start(&url, ("AWS_ACCESS_KEY_ID", "stranger")), &rights);
    let told = start("s3://missing/blobs", ("AWS_REGION", "us-east-1"));
    tells(&told, &["s3://missing/blobs", "the bucket must exist"]);
}

/// A database with a certificate of a CA, which accepts client certificates of the same CA.
struct Encrypted {
    cluster: Cluster,
    folder: TempDir,
}

impl Encrypted {
    fn by(authority: &Authority) -> Self {
        let cluster = Cluster::start();
        cluster.append_to("postgresql.conf", "ssl = on\nssl_ca_file = 'clients.crt'\n");
        // The role of the tests enters with any connection. The role `app` needs TLS and a client certificate with its
        // name.
        let only =
            "host all palimpsest all trust\nhostssl all app all trust clientcert=verify-full\n";
        cluster.put("pg_hba.conf", only);
        cluster.psql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
        let folder = tempfile::tempdir().unwrap();
        let mut encrypted = Self { cluster, folder };
        encrypted.put_servers(authority);
        encrypted.put_clients(authority);
        encrypted.cluster.stop("fast");
        encrypted.cluster.start_again();
        encrypted
    }

    /// Replaces the database's certificate and its trusted CA.
    fn put_servers(&self, authority: &Authority) {
        let (certificate, key) = authority.sign("127.0.0.1");
        self.cluster.put("server.crt", &certificate);
        self.cluster.put("server.key", &key);
        self.cluster.put("clients.crt", &authority.pem());
    }

    /// Replaces the clients' certificate and their trusted CA.
    fn put_clients(&self, authority: &Authority) {
        // With `clientcert=verify-full`, the name of the certificate must be that of the role.
        let (certificate, key) = authority.sign("app");
        self.file("ca.crt", &authority.pem());
        self.file("client.crt", &certificate);
        self.file("client.key", &key);
    }

    fn file(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join(name), content).unwrap();
    }

    /// Returns a setting that names one of the files.
    fn setting(&self, name: &str, file: &str) -> String {
        let file = self.folder.path().join(file);
        format!("store.postgres.{name}={}", file.display())
    }
}

#[test]
fn a_connection_is_encrypted_and_verifies_the_database() {
    let (authority, stranger, later) = (Authority::new(), Authority::new(), Authority::new());
    let encrypted = Encrypted::by(&authority);
    encrypted.file("other.crt", &stranger.pem());
    let trusted = encrypted.setting("ca_file", "ca.crt");
    let other = encrypted.setting("ca_file", "other.crt");
    let certificate = encrypted.setting("client_cert_file", "client.crt");
    let key = encrypted.setting("client_key_file", "client.key");
    let url = at(&[&encrypted.cluster]).replace("palimpsest@", "app@") + "?sslmode=require";
    tells(&said(&url, &[]), &["invalid peer certificate"]);
    tells(
        &said(&url, &[&other, &certificate, &key]),
        &["invalid peer certificate"],
    );
    tells(&said(&url, &[&trusted]), &["client certificate"]);
    let plain = url.replace("require", "disable");
    tells(
        &said(&plain, &[]),
        &["no pg_hba.conf entry", "no encryption"],
    );
    let settings = [&*trusted, &certificate, &key, QUICK];
    let server = server(&encrypted.folder.path().join("server"), &url, &settings);
    // All certificates change while the server runs.
    encrypted.put_servers(&later);
    encrypted.cluster.reload();
    encrypted.cluster.end_connections();
    // The clients still trust the old authority, so the server loses its database.
    until_ready(&server, false);
    encrypted.put_clients(&later);
    until_ready(&server, true);
    // An incomplete file is ignored, and the previous certificate stays in use.
    encrypted.file("client.crt", "half of a certif");
    encrypted.cluster.end_connections();
    std::thread::sleep(Duration::from_millis(500));
    until_ready(&server, true);
    server.stop();
}

#[test]
fn database_passwords_are_checked_and_reloaded() {
    let cluster = Cluster::with(&Options {
        access: vec![
            "host all palimpsest all trust".into(),
            "host all all all scram-sha-256".into(),
        ],
        ..Options::default()
    });
    cluster.psql("CREATE ROLE app LOGIN PASSWORD 'right'");
    cluster.psql("GRANT CREATE ON DATABASE postgres TO app");
    let url = at(&[&cluster]).replace("palimpsest@", "app@");
    tells(&said(&url, &[]), &["password"]);
    let wrong = ["store.postgres.password_env=DATABASE_PASSWORD"];
    tells(&said(&url, &wrong), &["password authentication failed"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let setting = format!("store.postgres.password_file={}", file.display());
    let server = server(folder.path(), &url, &[&setting, QUICK]);
    // The password changes while the server runs. New connections need the new one.
    cluster.psql("ALTER ROLE app PASSWORD 'another'");
    // PostgreSQL checks a password only at the start of a connection.
    cluster.end_connections();
    until_ready(&server, false);
    std::fs::write(&file, "another\n").unwrap();
    until_ready(&server, true);
    server.stop();
}

fn until_ready(server: &Server, is_ready: bool) {
    let began = Instant::now();
    while server.is_ready() != is_ready {
        assert!(
            began.elapsed() < Duration::from_mins(2),
            "{:?}",
            server.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_start_reports_missing_rights() {
    let cluster = database();
    cluster.psql("CREATE ROLE limited LOGIN");
    let url = at(&[&cluster]).replace("palimpsest@", "limited@");
    let own = "store.postgres.schema=rights";
    let told = said(&url, &[own]);
    tells(
        &told,
        &[
            "its tables cannot be created",
            "permission denied",
            "palimpsest schema print",
        ],
    );
    // The owner creates the tables and grants too few rights.
    let folder = tempfile::tempdir().unwrap();
    server(folder.path(), &at(&[&cluster]), &[own]).stop();
    tells(
        &said(&url, &[own]),
        &["permission denied for schema rights"],
    );
    cluster.psql("GRANT USAGE ON SCHEMA rights TO limited; GRANT SELECT ON ALL TABLES IN SCHEMA rights TO limited");
    tells(
        &said(&url, &[own]),
        &["may not INSERT on", "GRANT INSERT ON"],
    );
    cluster.psql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rights TO limited");
    // PostgreSQL grants EXECUTE to everyone by default.
    cluster.psql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rights FROM public");
    tells(
        &said(&url, &[own]),
        &["may not EXECUTE on", "GRANT EXECUTE ON"],
    );
    cluster.psql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA rights TO limited");
    let folder = tempfile::tempdir().unwrap();
    server(folder.path(), &url, &[own]).stop();
}

#[test]
fn tables_of_another_release_are_reported() {
    let cluster = database();
    let url = at(&[&cluster]);
    let own = "store.postgres.schema=versions";
    let told = said(&url, &[own, "store.postgres.auto_migrate=false"]);
    tells(
        &told,
        &["its tables have version 0", "palimpsest schema apply"],
    );
    let folder = tempfile::tempdir().unwrap();
    server(folder.path(), &url, &[own]).stop();
    // The tables have a later version that declares this release compatible.
    cluster.psql("INSERT INTO versions.versions (version, oldest) VALUES (6, 1)");
    server(folder.path(), &url, &[own]).stop();
    // The tables have a later version that declares this release incompatible.
    cluster.psql("INSERT INTO versions.versions (version, oldest) VALUES (7, 6)");
    tells(&said(&url, &[own]), &["format 7", "use a newer one"]);
}

#[test]
fn a_database_without_durable_commits_is_rejected() {
    let cluster = Cluster::start();
    for setting in ["fsync", "full_page_writes"] {
        cluster.psql(&format!("ALTER SYSTEM SET {setting} = off"));
        cluster.reload();
        cluster.until(&format!(
            "SELECT setting = 'off' FROM pg_settings WHERE name = '{setting}'"
        ));
        let told = said(&at(&[&cluster]), &[]);
        let is_off = format!("{setting} is off");
        tells(&told, &[&is_off, "could lose acknowledged writes"]);
        cluster.psql(&format!("ALTER SYSTEM RESET {setting}"));
        cluster.reload();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_outage_makes_calls_unavailable_and_loses_nothing() {
    let mut cluster = Cluster::start();
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "store.postgres.retry_timeout_ms=300",
        "store.postgres.connections=2",
        QUICK,
    ];
    let server = server(folder.path(), &at(&[&cluster]), &settings);
    let mut client = server.context().await;
    let session = name("away");
    let say = |number: u64| append(&session, vec![with_id(&uuid(number), user("here"))]);
    client.append_messages(say(1)).await.unwrap();
    cluster.stop("fast");
    let status = client.append_messages(say(2)).await.unwrap_err();
    refused(&status, Code::Unavailable, "STORE_UNAVAILABLE");
    let retry = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
    assert!(
        retry.is_some_and(|delay| delay > Duration::ZERO),
        "{status:?}"
    );
    cluster.start_again();
    // The message keeps its id, so a repeat after a commit without an answer stores nothing twice.
    for _ in 0..50 {
        if client.append_messages(say(2)).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.append_messages(say(3)).await.unwrap();
    let listed = palimpsest_proto::context::v1::ListMessagesRequest {
        session: session.clone(),
        ..Default::default()
    };
    let listed = server.sessions().await.list_messages(listed).await.unwrap();
    let ids: Vec<_> = listed
        .into_inner()
        .messages
        .into_iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids, [uuid(1), uuid(2), uuid(3)]);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_pool_rejects_without_delay() {
    let cluster = Cluster::start();
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "store.postgres.connections=2",
        "store.postgres.pool_timeout_ms=100",
    ];
    let server = server(folder.path(), &at(&[&cluster]), &settings);
    let client = server.context().await;
    let say = |session: u64| append(&name(&format!("pool-{session}")), vec![user("here")]);
    for session in 0..8 {
        client.clone().append_messages(say(session)).await.unwrap();
    }
    // The lock blocks appends, which then occupy all connections.
    let lock = "BEGIN; LOCK TABLE palimpsest.sessions IN SHARE MODE; SELECT pg_sleep(2); COMMIT";
    let calls = std::thread::scope(|scope| {
        let held = scope.spawn(|| cluster.psql(lock));
        let runtime = tokio::runtime::Handle::current();
        let calls = tokio::task::block_in_place(|| {
            runtime.block_on(async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let calls: Vec<_> = (0..8)
                    .map(|session| {
                        let (mut client, request) = (client.clone(), say(session));
                        tokio::spawn(async move { client.append_messages(request).await.map(drop) })
                    })
                    .collect();
                let mut done = Vec::new();
                for call in calls {
                    done.push(call.await.unwrap());
                }
                done
            })
        });
        held.join().unwrap();
        calls
    });
    let refusals: Vec<_> = calls
        .iter()
        .filter_map(|call| call.as_ref().err())
        .collect();
    // Two appends hold the two connections and succeed after the lock. Others wait for one longer than 100 ms.
    assert!(
        !refusals.is_empty() && refusals.len() < calls.len(),
        "{calls:?}"
    );
    for status in refusals {
        refused(status, Code::Unavailable, "STORE_UNAVAILABLE");
    }
    server.stop();
}

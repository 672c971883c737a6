//! PostgreSQL and an S3 server, which the scale-out and S3 examples need.

use std::fs::{self, File};
use std::sync::OnceLock;

use palimpsest_test_servers::binary;
use palimpsest_tests::authority::Authority;

use super::cluster::{Cluster, NODE};
use crate::helm::root;

/// The password of the database.
pub(crate) const PASSWORD: &str = "a-password-of-tests";

/// The names of the database in the scale-out example.
const HOSTS: &str = "db-0.db.example.com db-1.db.example.com";

/// Returns the CA of all certificates.
pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(Authority::new)
}

/// Starts the servers, if they do not run.
pub(crate) fn start(cluster: &Cluster) {
    static RUNNING: OnceLock<()> = OnceLock::new();
    RUNNING.get_or_init(|| {
        let folder = cluster.folder().join("services");
        fs::create_dir(&folder).unwrap();
        let (certificate, key) = authority().sign("*.db.example.com");
        for (name, text) in [
            ("tls.crt", certificate.as_str()),
            ("tls.key", &key),
            ("password", PASSWORD),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(cluster.folder().join("hosts"), format!("{NODE} {HOSTS}\n")).unwrap();
        let log = folder.join("log");
        let status = cluster
            .command(&root().join("tests/deploy/kubernetes/services"))
            .arg(binary("postgres").parent().unwrap())
            .arg(root().join("target/tools/bin/versitygw"))
            .arg(&folder)
            // The servers inherit the standard output, and a pipe would stay open.
            .stdout(File::create(&log).unwrap())
            .stderr(File::create(&log).unwrap())
            .status()
            .unwrap();
        assert!(status.success(), "{}", fs::read_to_string(&log).unwrap());
    });
}

/// Returns the environment variables of S3 clients.
pub(crate) fn bucket_variables() -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://{NODE}:443")),
        ("AWS_ALLOW_HTTP", "true".into()),
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_ACCESS_KEY_ID", "tests".into()),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-of-tests".into()),
    ]
}

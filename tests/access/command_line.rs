//! Tests of the commands against a server that requires authentication.

use std::process::Output;

use palimpsest_tests::{palimpsest, palimpsest_with};

use crate::world::{Authority, World, id_of};

#[track_caller]
fn fails(output: &Output, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains(says), "{stderr}");
}

#[test]
fn commands_send_a_key_over_tls_and_report_missing_credentials() {
    let world = World::new();
    let key = world.key("default", "read");
    let authority = Authority::new();
    authority.write(world.folder.path());
    std::fs::write(world.at("ca.pem"), authority.pem()).unwrap();
    std::fs::write(world.at("key"), format!("{key}\n")).unwrap();
    let server = world.serve(&[
        world.setting("tls.cert_file", "tls.crt"),
        world.setting("tls.key_file", "tls.key"),
    ]);
    let port = server.address().rsplit_once(':').unwrap().1;
    let (https, http) = (
        format!("https://localhost:{port}"),
        format!("http://localhost:{port}"),
    );
    let (ca, file) = (world.at("ca.pem"), world.at("key"));
    let (ca, file) = (ca.to_str().unwrap(), file.to_str().unwrap());
    let sessions = ["sessions", "--server", &https, "--tls-ca", ca];

    let variable = [("PALIMPSEST_API_KEY", key.as_str())];
    let output = palimpsest_with(&sessions, &variable);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let with_file = [&sessions[..], &["--api-key-file", file]].concat();
    assert!(palimpsest(&with_file).status.success());

    // The key lacks the right. The error must contain the server's reason, not only the failure of the backup.
    let place = world.at("backups");
    let place = place.to_str().unwrap();
    let backup = ["backup", "--to", place, "--server", &https, "--tls-ca", ca];
    let refused = palimpsest_with(&backup, &variable);
    fails(&refused, "a call to the server failed: ");
    fails(&refused, "does not have the right admin in every project");

    fails(&palimpsest(&sessions), "PALIMPSEST_API_KEY");
    // Without `--tls-ca`, the authority of the tests is not trusted.
    fails(&palimpsest_with(&sessions[..3], &variable), "--tls-ca");
    fails(
        &palimpsest_with(&["sessions", "--server", &http], &variable),
        "https://",
    );
    // 192.0.2.1 is an address for documentation. The client must reject the URL before it connects.
    let far = ["sessions", "--server", "http://192.0.2.1:1"];
    fails(&palimpsest_with(&far, &variable), "without encryption");
    let plain = World::new().serve(&[]);
    let not_tls = format!("https://{}", plain.address());
    let output = palimpsest_with(
        &["sessions", "--server", &not_tls, "--tls-ca", ca],
        &variable,
    );
    fails(&output, "does not use TLS");
    for output in [
        output,
        palimpsest_with(&sessions, &[("PALIMPSEST_API_KEY", &key[..40])]),
    ] {
        // After a prefix of 4 bytes, an id of 16 and a separator, the secret begins at byte 21.
        assert!(!String::from_utf8_lossy(&output.stderr).contains(&key[21..40]));
    }
}

#[test]
fn the_key_file_is_private_and_contains_no_key() {
    use std::os::unix::fs::PermissionsExt as _;

    let world = World::new();
    let args = [
        "create", "--label", "a", "--project", "p,q", "--right", "read", "--json",
    ];
    let made: serde_json::Value = serde_json::from_str(&world.keys(&args)).unwrap();
    let key = made["key"].as_str().unwrap();
    assert_eq!(made["id"], id_of(key));
    assert_eq!(made["projects"], serde_json::json!(["p", "q"]));
    let path = world.at("keys.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&key[21..]) && text.contains("sha256:"));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let listed: serde_json::Value = serde_json::from_str(&world.keys(&["list", "--json"])).unwrap();
    assert_eq!(listed["keys"][0]["id"], made["id"]);
    assert!(!listed.to_string().contains("sha256"));

    let path = path.to_str().unwrap();
    let run = |args: &[&str]| palimpsest(&[&["keys"], args, &["--keys-file", path]].concat());
    fails(
        &run(&["create", "--project", "p", "--right", "all"]),
        "is not a right",
    );
    fails(
        &run(&["create", "--project", "../p", "--right", "read"]),
        "projects",
    );
    fails(&run(&["revoke", "0000000000000000"]), "no key has the id");
    let output = run(&["revoke", key]);
    fails(&output, "the id of the key is not valid");
    assert!(!String::from_utf8_lossy(&output.stderr).contains(&key[21..]));
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn a_server_does_not_start_with_unusable_keys() {
    let world = World::new();
    std::fs::write(world.at("keys.toml"), "keys = 1").unwrap();
    let file = world.setting("auth.keys_file", "keys.toml");
    let data = world.at("data");
    let args = [
        "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
    ];
    let more = ["--set", &file, "--data-dir", data.to_str().unwrap()];
    fails(
        &palimpsest(&[&args[..], &more].concat()),
        "auth.keys_file cannot be used",
    );
    assert!(!data.exists(), "the store was not opened");
    let open = ["serve", "--listen", "0.0.0.0:0", "--set", &file];
    fails(&palimpsest(&open), "auth.allow_plaintext");
}

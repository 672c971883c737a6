//! The binary as a user meets it: exit codes, what goes where, signals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::CommandFactory as _;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A server that a failed test does not leave behind.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It is gone already when all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn palimpsest(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
    // Variables of the developer, such as `PALIMPSEST_LISTEN`, are settings and would change the results.
    command.args(args).env_clear();
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = palimpsest(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn help_and_version_exit_with_zero_and_print_to_stdout() {
    for args in [&["--help"][..], &["--version"], &["help", "serve"]] {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        assert!(stdout.contains("palimpsest"), "{stdout}");
    }
}

#[test]
fn an_invalid_command_line_or_configuration_exits_with_64() {
    for args in [
        &["srve"][..],
        &["serve", "--port", "1"],
        &["config", "--set", "novalue"],
        &["config", "--listen", "50051"],
        // An address that other machines can reach needs authentication.
        &["serve", "--listen", "0.0.0.0:0"],
        &["config", "--check", "--config", "/nonexistent.toml"],
    ] {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stdout.as_str()), (64, ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
        assert!(
            !stderr.contains('\u{1b}'),
            "no colour off a terminal: {stderr}"
        );
    }
}

#[test]
fn config_prints_the_configuration_and_check_prints_nothing() {
    let (code, stdout, _) = run(&["config", "--data-dir", "/tmp/x"]);
    assert_eq!(code, 0);
    assert!(
        stdout.contains("data_dir = \"/tmp/x\" # --data-dir\n"),
        "{stdout}"
    );
    assert_eq!(
        run(&["config", "--check"]),
        (0, String::new(), String::new())
    );
}

#[test]
fn a_location_that_the_server_cannot_open_exits_with_64() {
    for (key, url) in [
        ("blobs.url", "gs://bucket/x"),
        ("blobs.url", "s3://"),
        ("retention.export_url", "file://exports"),
    ] {
        let set = format!("{key}={url}");
        for command in [&["config", "--check"][..], &["serve"]] {
            let (code, _, stderr) = run(&[command, &["--set", &set]].concat());
            assert_eq!(code, 64, "{stderr}");
            assert!(stderr.contains(key) && stderr.contains(url), "{stderr}");
        }
    }
}

#[test]
fn an_unreadable_database_password_names_its_source_and_its_setting() {
    for (setting, value, expected) in [
        (
            "store.postgres.password_file",
            "/nonexistent/password",
            "/nonexistent/password cannot be read: entity not found (store.postgres.password_file)",
        ),
        (
            "store.postgres.password_env",
            "NO_SUCH_PASSWORD",
            "the variable NO_SUCH_PASSWORD is not set (store.postgres.password_env)",
        ),
    ] {
        let set = format!("{setting}={value}");
        let (code, _, stderr) = run(&[
            "schema",
            "check",
            "--set",
            "store.postgres.url=postgres://x@127.0.0.1:9/x",
            "--blobs",
            "s3://bucket",
            "--set",
            &set,
        ]);
        assert_eq!(code, 1, "{stderr}");
        let expected = format!("the database's password cannot be read: {expected}\n");
        assert!(stderr.ends_with(&expected), "{stderr}");
    }
}

#[test]
fn a_client_key_of_another_certificate_is_reported_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("tls.crt"), path("tls.key"));
    std::fs::write(&cert, make().cert.pem()).unwrap();
    std::fs::write(&key, make().signing_key.serialize_pem()).unwrap();
    let server = ["health", "--server", "https://127.0.0.1:9"];
    let pair = ["--tls-cert", &cert, "--tls-key", &key];
    let (code, _, stderr) = run(&[&server[..], &pair].concat());
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("--tls-key is not the private key of the certificate in --tls-cert"),
        "{stderr}"
    );
}

#[test]
fn keys_list_rejects_a_missing_file() {
    for more in [&[][..], &["--json"]] {
        let args = ["keys", "list", "--keys-file", "/nonexistent/keys.toml"];
        let (code, stdout, stderr) = run(&[&args, more].concat());
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(
            stderr.contains("/nonexistent/keys.toml does not exist: check --keys-file"),
            "{stderr}"
        );
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "fish", "zsh"] {
        let (code, stdout, _) = run(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(stdout.contains("verify-store"), "{shell}: {stdout}");
    }
}

#[test]
fn every_command_has_a_manual_page_with_examples() {
    let (code, stdout, _) = run(&["man"]);
    assert_eq!(code, 0);
    assert!(stdout.contains(".TH palimpsest 1"), "{stdout}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("man");
    let written = run(&["man", "--output", path.to_str().unwrap()]);
    assert_eq!(written, (0, String::new(), String::new()));
    for command in commands() {
        let page = path.join(format!("palimpsest-{}.1", command.join("-")));
        let page = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
        assert!(page.contains("Examples:"), "{command:?}: {page}");
    }
}

/// The names of all commands, such as `keys create`.
fn commands() -> Vec<Vec<String>> {
    fn add(command: &clap::Command, path: &[String], all: &mut Vec<Vec<String>>) {
        for inner in command.get_subcommands() {
            let path = [path, &[inner.get_name().to_owned()]].concat();
            add(inner, &path, all);
            all.push(path);
        }
    }
    let mut all = Vec::new();
    add(&palimpsest_cli::Cli::command(), &[], &mut all);
    // An empty list would make every test of the commands pass.
    assert!(all.len() > 25, "{all:?}");
    all
}

#[test]
fn the_help_of_every_command_ends_with_examples_of_one_line_each() {
    for command in commands() {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        let (code, stdout, _) = run(&args);
        assert_eq!(code, 0);
        let examples = stdout.split_once("Examples:\n");
        let (_, examples) = examples.unwrap_or_else(|| panic!("{command:?}: {stdout}"));
        for line in examples.lines() {
            assert!(line.contains("palimpsest "), "{command:?}: {line}");
        }
    }
}

/// Reads from a socket until the bytes end with `end`.
fn read_until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut next = [0];
        stream.read_exact(&mut next).unwrap();
        bytes.extend(next);
    }
    bytes
}

/// A request of an agent for the API of Anthropic.
const REQUEST: &[u8] = b"POST /v1/messages HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{}";

/// Starts a server with a gateway. Returns the address of the gateway.
fn gateway(folder: &Path, upstream: &str, variables: &[(&str, &Path)]) -> (Server, String) {
    let mut server = Server(
        palimpsest(&["serve", "--listen", "127.0.0.1:0"])
            .args(["--admin-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .env("PALIMPSEST_GATEWAY_ENABLED", "true")
            .env("PALIMPSEST_GATEWAY_LISTEN", "127.0.0.1:0")
            .env("PALIMPSEST_GATEWAY_UPSTREAMS_ANTHROPIC_BASE_URL", upstream)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let log = BufReader::new(server.0.stderr.take().unwrap());
    let mut log = log.lines().map(Result::unwrap);
    let serving = log.find(|line| line.contains("\"message\":\"serving\""));
    let serving = serving.unwrap();
    let (_, address) = serving.split_once("\"gateway\":\"").unwrap();
    let (address, _) = address.split_once('"').unwrap();
    // The server must not wait for a reader of its log.
    thread::spawn(move || log.for_each(drop));
    (server, address.to_owned())
}

#[test]
fn the_gateway_forwards_over_tls_if_it_trusts_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    // The second certificate has the same name, so only its key makes the gateway reject the upstream.
    let (certified, other) = (make(), make());
    let key = PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    thread::spawn(move || {
        let tls = Arc::new(tls);
        for stream in upstream.incoming() {
            let tls = ServerConnection::new(Arc::clone(&tls)).unwrap();
            let mut stream = StreamOwned::new(tls, stream.unwrap());
            let mut request = Vec::new();
            let mut next = [0];
            // A gateway that rejects the certificate ends the handshake.
            while !request.ends_with(b"{}") && stream.read_exact(&mut next).is_ok() {
                request.extend(next);
            }
            if request.ends_with(b"{}") {
                // The gateway replaces `Host` by the name of the upstream.
                assert!(!request.windows(7).any(|word| word == b"Host: g"));
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).unwrap();
            }
        }
    });
    let url = format!("https://localhost:{port}");
    for (trusted, status) in [(certified.cert.pem(), "200"), (other.cert.pem(), "502")] {
        let authorities = folder.path().join("ca.pem");
        std::fs::write(&authorities, trusted).unwrap();
        let data = tempfile::tempdir().unwrap();
        let (_server, address) = gateway(data.path(), &url, &[("SSL_CERT_FILE", &authorities)]);
        let mut agent = TcpStream::connect(&address).unwrap();
        agent.write_all(REQUEST).unwrap();
        let head = String::from_utf8(read_until(&mut agent, b"\r\n\r\n")).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
}

#[test]
fn it_serves_the_gateway_and_drains_its_streams() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", upstream.local_addr().unwrap());
    let (go_on, waits) = mpsc::channel::<()>();
    let answering = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        let request = read_until(&mut stream, b"{}");
        assert!(request.starts_with(b"POST /v1/messages HTTP/1.1\r\n"));
        stream
            // Three of six bytes: the response stays in flight during the drain.
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
            .unwrap();
        waits.recv().unwrap();
        stream.write_all(b"two").unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let (mut server, address) = gateway(folder.path(), &url, &[]);
    let mut agent = TcpStream::connect(&address).unwrap();
    agent.write_all(REQUEST).unwrap();
    read_until(&mut agent, b"one");
    let pid = server.0.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(kill.success());
    // The port is closed at the beginning of the drain.
    while TcpStream::connect(&address).is_ok() {
        thread::sleep(Duration::from_millis(10));
    }
    // Longer than the time after which a drain without requests in flight ends.
    thread::sleep(Duration::from_secs(1));
    go_on.send(()).unwrap();
    read_until(&mut agent, b"two");
    answering.join().unwrap();
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn serve_stops_on_sigterm_and_logs_json_without_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server(
        palimpsest(&["serve", "--listen", "127.0.0.1:0"])
            .args(["--admin-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines();
    // The limits of connections are logged first. A low limit of file handles adds a warning.
    let serving = loop {
        let line = log.next().expect("the server ended").unwrap();
        assert!(line.starts_with("{\"timestamp\":"), "{line}");
        if line.contains("\"message\":\"serving\"") {
            break line;
        }
        assert!(line.contains("palimpsest_edge::net::file_limits"), "{line}");
    };
    assert!(serving.contains("\"grpc\":\"127.0.0.1:"), "{serving}");
    let pid = server.0.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(kill.success());
    assert!(server.0.wait().unwrap().success());
    let rest: Vec<_> = log.map(Result::unwrap).collect();
    assert!(
        rest.last().unwrap().contains("\"message\":\"down\""),
        "{rest:?}"
    );
}

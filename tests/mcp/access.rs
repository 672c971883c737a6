//! Keys, projects and lost servers.

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::tenant::{keys, with};
use palimpsest_tests::{ReservedPort, Server, name};
use serde_json::{Value, json};
use tonic::transport::Endpoint;

use crate::client;
use crate::http::post;
use crate::world::path;

#[tokio::test]
async fn a_caller_reads_its_own_project_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let key = |project: &str, right: &str| {
        keys(&file, &["create", "--project", project, "--right", right])
    };
    let (writer, reader, other) = (key("p", "write"), key("p", "read"), key("q", "read"));
    let keys_file = format!("auth.keys_file={}", file.display());
    let settings = ["--set", &keys_file, "--set", "worker.enabled=false"];
    let server = Server::start(&folder.path().join("data"), &settings);
    let address = server.address();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut context = ContextServiceClient::new(channel.connect().await.unwrap());
    let request = append(&name("private"), vec![user("The plan is secret.")]);
    context
        .append_messages(with(&writer, request))
        .await
        .unwrap();

    // The status of HTTP is that of each other request.
    for (key, path, status, reason) in [
        (None, path("private"), 401, "UNAUTHENTICATED"),
        (
            Some("pal_0000000000000000_nonsense"),
            path("private"),
            401,
            "UNAUTHENTICATED",
        ),
        // A project without a right looks like one that does not exist.
        (Some(&*other), path("private"), 404, "NOT_FOUND"),
        (
            Some(&*other),
            "/mcp/projects/p".to_owned(),
            404,
            "NOT_FOUND",
        ),
        (Some(&*writer), path("private"), 403, "PERMISSION_DENIED"),
    ] {
        for method in ["initialize", "tools/list"] {
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
            let response = post(address, &path, request.to_string(), key).await;
            assert_eq!(response.status(), status, "{path} {method}");
            // A response with 401 must name the scheme of the credential, and no other response does.
            let names_scheme = response.headers().contains_key("www-authenticate");
            assert_eq!(names_scheme, status == 401, "{path} {method}");
            let error: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            assert_eq!(error["error"]["status"], reason, "{error}");
        }
    }
    let client = client::http(address, &path("private"), Some(&reader)).await;
    let read = client.reads("ReadTranscript", json!({"first": 1})).await;
    assert!(read.contains("The plan is secret."));

    // A key of another project reads nothing by a full name.
    let client = client::http(address, "/mcp/projects/q", Some(&other)).await;
    let foreign = json!({"session": name("private"), "first": 1});
    let refused = client.fails("ReadTranscript", foreign).await;
    assert!(refused.contains("does not exist"), "{refused}");
    let foreign = json!({"session": name("private")});
    let refused = client.fails("ReadSessionMemory", foreign).await;
    assert!(refused.contains("does not exist"), "{refused}");
    let uri = crate::world::memory_uri("private");
    client.resource(&uri).await.unwrap_err();

    // The command ends with the cause.
    let command = |key: Option<&str>| {
        let mut command = client::command(address, &["--session", &name("private")]);
        if let Some(key) = key {
            command.env("PALIMPSEST_API_KEY", key);
        }
        command.stderr(std::process::Stdio::piped());
        command
    };
    for (key, expected) in [
        (None, "PALIMPSEST_API_KEY"),
        (Some("nonsense"), "PALIMPSEST_API_KEY"),
        (
            Some(&*other),
            "or the credential of this client has no right",
        ),
        (Some(&*writer), "PERMISSION_DENIED"),
    ] {
        let output = command(key).spawn().unwrap().wait_with_output();
        let output = output.await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(output.stdout.is_empty());
    }
    let client = client::stdio_of(command(Some(&reader))).await;
    let read = client.reads("ReadTranscript", json!({"first": 1})).await;
    assert!(read.contains("The plan is secret."));

    // Neither contents nor the lines of the SDK are in the log.
    let log = server.stop().join("\n");
    for absent in ["The plan is secret", "rmcp", &reader, &other] {
        assert!(!log.contains(absent), "{absent}: {log}");
    }
}

#[tokio::test]
async fn the_command_survives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let port = ReservedPort::reserve();
    let settings = ["--set", "worker.enabled=false"];
    let start = || Server::start_at(&port.address().to_string(), folder.path(), &settings, &[]);
    let server = start();
    let mut context = server.context().await;
    let request = append(&name("kept"), vec![user("A word.")]);
    context.append_messages(request).await.unwrap();
    let client = client::stdio(server.address(), &["--session", &name("kept")]).await;
    let read = json!({"first": 1});
    assert!(
        client
            .reads("ReadTranscript", read.clone())
            .await
            .contains("A word.")
    );
    server.stop();
    let lost = client.fails("ReadTranscript", read.clone()).await;
    assert!(lost.starts_with("The call failed: "), "{lost}");
    let _server = start();
    assert!(
        client
            .reads("ReadTranscript", read)
            .await
            .contains("A word.")
    );

    // Without a server, the command says what to do.
    let mut command = client::command("127.0.0.1:1", &[]);
    command.stderr(std::process::Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("palimpsest serve"), "{stderr}");
}

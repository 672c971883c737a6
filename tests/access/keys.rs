//! Tests of API keys: use, expiry, rotation and revocation while the server runs.

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_tests::refused;
use palimpsest_tests::say::{append, user};
use tokio::time::timeout;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::world::{SOON, World, id_of, list, soon, watch, with};

#[track_caller]
fn unauthenticated(outcome: Result<(), Status>, says: &str) {
    let status = outcome.unwrap_err();
    refused(&status, Code::Unauthenticated, "UNAUTHENTICATED");
    assert!(status.message().contains(says), "{}", status.message());
}

#[tokio::test]
async fn a_key_is_created_rotated_and_revoked_while_the_server_runs() {
    let world = World::new();
    let server = world.serve(&[]);
    let channel = server.channel().await;
    unauthenticated(list(&channel, "plk_x", "p").await, "mistyped");

    let first = world.key("p", "read,write");
    soon("a new key", async || {
        list(&channel, &first, "p").await.is_ok()
    })
    .await;
    // Both keys are valid until the overlap ends.
    let second = world.keys(&["rotate", id_of(&first), "--overlap", "3s"]);
    soon("a rotated key", async || {
        list(&channel, &second, "p").await.is_ok()
    })
    .await;
    list(&channel, &first, "p").await.unwrap();
    soon("the end of the old key", async || {
        list(&channel, &first, "p").await.is_err()
    })
    .await;
    unauthenticated(list(&channel, &first, "p").await, "expired");

    // An open stream ends when its key is revoked.
    let mut client = ContextServiceClient::new(channel.clone());
    let request = append("projects/p/sessions/s", vec![user("x")]);
    client
        .append_messages(with(&second, request))
        .await
        .unwrap();
    let mut watched = watch(&channel, &second, "projects/p/sessions/s")
        .await
        .unwrap();
    world.keys(&["revoke", id_of(&second)]);
    let end = timeout(SOON, async {
        loop {
            if let Err(status) = watched.message().await {
                return status;
            }
        }
    });
    unauthenticated(Err(end.await.unwrap()), "revoked");
    unauthenticated(list(&channel, &second, "p").await, "revoked");
    world.keys(&["remove", id_of(&second)]);
    let gone = async || {
        let status = list(&channel, &second, "p").await.unwrap_err();
        status.message().contains("is unknown")
    };
    soon("a removed key", gone).await;
}

#[tokio::test]
async fn an_invalid_key_file_keeps_the_keys_and_is_logged_without_its_content() {
    let world = World::new();
    let key = world.key("p", "read");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    list(&channel, &key, "p").await.unwrap();
    std::fs::write(world.at("keys.toml"), format!("key = \"{key}\"")).unwrap();
    let said = async || {
        let log = server.log().join("\n");
        log.contains("failed to reload changed files") && log.contains("auth.keys_file")
    };
    soon("the error", said).await;
    list(&channel, &key, "p").await.unwrap();
    assert!(!server.log().join("\n").contains(&key[21..]));
}

#[tokio::test]
async fn health_is_public_and_reflection_is_not() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

    let world = World::new();
    let key = world.key("p", "read");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    let mut health = HealthClient::new(channel.clone());
    health.check(HealthCheckRequest::default()).await.unwrap();
    let ask = || {
        futures::stream::iter([ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        }])
    };
    let mut reflection = ServerReflectionClient::new(channel.clone());
    let without = reflection.server_reflection_info(Request::new(ask())).await;
    unauthenticated(without.map(drop), "no credential");
    reflection
        .server_reflection_info(with(&key, ask()))
        .await
        .unwrap();
}

#[tokio::test]
async fn no_secret_is_in_a_log_or_an_error() {
    let world = World::new();
    let key = world.key("p", "read");
    let server = world.serve(&["log.level=trace,h2=info,hyper=info".to_owned()]);
    let channel = server.channel().await;
    let mut said = Vec::new();
    let mistyped = format!("{}0", &key[..key.len() - 1]);
    for credential in [&key, &mistyped, &key[..50], "a.b.c", "seeded-secret-value"] {
        for project in ["p", "q"] {
            let outcome = list(&channel, credential, project).await;
            said.extend(outcome.err().map(|status| format!("{status:?}")));
        }
    }
    assert!(said.len() >= 8);
    said.extend(server.stop());
    for line in said {
        for secret in [&key[21..50], "a.b.c", "seeded-secret-value"] {
            assert!(!line.contains(secret), "{line}");
        }
    }
}

#[tokio::test]
async fn the_http_api_has_the_rights_of_keys() {
    let world = World::new();
    let server = world.serve(&[]);
    let key = world.key("p", "read");
    let channel = server.channel().await;
    soon("a new key", async || {
        list(&channel, &key, "p").await.is_ok()
    })
    .await;
    let http = reqwest::Client::new();
    let send = async |path: &str, body: Option<&str>, key: Option<&str>| {
        let url = format!("http://{}{path}", server.address());
        let request = match body {
            Some(body) => http.post(url).body(body.to_owned()),
            None => http.get(url),
        };
        let request = match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    let sync = r#"{"messages": [{"role": "user", "content": "hi"}]}"#;
    let path = "/v1/projects/p/sessions";
    let (status, text) = send(path, None, None).await;
    assert!(status == 401 && text.contains("UNAUTHENTICATED"), "{text}");
    let (status, text) = send(path, None, Some(&key)).await;
    assert!(status == 200, "{text}");
    // Without the right, a long body and an empty one get the same error as a valid one.
    let long = format!("{}{}", sync, " ".repeat(200_000));
    for body in [sync, &long, ""] {
        let (status, text) = send(&format!("{path}/s:sync"), Some(body), Some(&key)).await;
        assert!(
            status == 403 && text.contains("PERMISSION_DENIED"),
            "{text}"
        );
    }
    let (status, text) = send(&format!("{path}/s:compact"), Some("{}"), Some(&key)).await;
    assert!(status == 403, "{text}");
    let (status, text) = send("/v1/projects/other/sessions", None, Some(&key)).await;
    assert!(
        status == 404 && text.contains("PROJECT_NOT_FOUND"),
        "{text}"
    );
    // The description of the API is public.
    let (status, _) = send("/openapi.json", None, None).await;
    assert_eq!(status, 200);
}

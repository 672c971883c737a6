//! Web pages that use the API.

use palimpsest_tests::server::Server;
use serde_json::json;

use super::{Caller, session, url};

#[tokio::test]
async fn only_pages_of_allowed_origins_may_use_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &[
            "--set",
            "http.allowed_origins=https://app.example,http://localhost:5173",
        ],
    );
    let caller = Caller::new(server.address());
    let path = format!("{}:sync", session("page"));
    let body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let send = async |origin: &str| {
        caller
            .post(&path, &body)
            .header("origin", origin)
            .send()
            .await
            .unwrap()
    };
    let allowed = send("https://app.example").await;
    assert_eq!(
        (
            allowed.status().as_u16(),
            allowed.headers()["access-control-allow-origin"].as_bytes()
        ),
        (200, &b"https://app.example"[..])
    );
    let foreign = send("https://evil.example").await;
    assert_eq!(foreign.status(), 403);
    assert!(
        !foreign
            .headers()
            .contains_key("access-control-allow-origin")
    );
    assert!(
        foreign
            .text()
            .await
            .unwrap()
            .contains("http.allowed_origins")
    );
    // A page of the server's own address.
    assert_eq!(
        send(&format!("http://{}", server.address())).await.status(),
        200
    );

    let preflight = async |origin: &str| {
        let request = caller
            .http
            .request(reqwest::Method::OPTIONS, url(&caller.address, &path));
        let request = request
            .header("origin", origin)
            .header("access-control-request-method", "POST");
        let request = request.header(
            "access-control-request-headers",
            "authorization,content-type",
        );
        request.send().await.unwrap()
    };
    let answer = preflight("https://app.example").await;
    assert_eq!(answer.status(), 204);
    assert_eq!(
        answer.headers()["access-control-allow-headers"],
        "authorization,content-type"
    );
    assert!(
        !preflight("https://evil.example")
            .await
            .headers()
            .contains_key("access-control-allow-origin")
    );
}

#[tokio::test]
async fn a_rebound_name_is_rejected_without_authentication() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    // A browser takes the page and the server for one origin if the name of the page resolves to the server.
    let read = |server: &Server, site: bool| {
        let request = Caller::new(server.address())
            .get("/v1/projects/http/sessions")
            .header("host", "rebound.example:1");
        if site {
            request.header("sec-fetch-site", "same-origin")
        } else {
            request
        }
    };
    assert_eq!(read(&server, true).send().await.unwrap().status(), 403);
    // Browsers omit the header for a name without TLS.
    assert_eq!(read(&server, false).send().await.unwrap().status(), 403);

    // A program of another machine reaches the server by a name of its network.
    let folder = tempfile::tempdir().unwrap();
    let settings = ["--set", "insecure_listen_anywhere=true"];
    let open = Server::start_at("0.0.0.0:0", folder.path(), &settings, &[]);
    assert_eq!(read(&open, true).send().await.unwrap().status(), 403);
    assert_eq!(read(&open, false).send().await.unwrap().status(), 200);
}

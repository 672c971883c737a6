//! Keys, rights, and requests of foreign pages.

use std::path::Path;

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_tests::name;
use palimpsest_tests::say::{assistant, prepare, user};
use palimpsest_tests::server::Server;
use palimpsest_tests::tenant::{keys, with};

use crate::browser::Browser;

/// A server that requires keys, with one session.
pub(crate) async fn server(folder: &Path) -> (Server, [String; 2]) {
    let file = folder.join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let key = |rights| keys(&file, &["create", "--project", "p", "--right", rights]);
    let made = [key("read"), key("read,write,compact")];
    let setting = format!("auth.keys_file={}", file.display());
    let server = Server::start(&folder.join("data"), &["--set", &setting]);
    let mut client = ContextServiceClient::new(server.channel().await);
    for messages in [
        vec![user("a secret plan")],
        vec![assistant("yes"), user("go on")],
    ] {
        let request = prepare(&name("guarded"), messages);
        client
            .prepare_context(with(&made[1], request))
            .await
            .unwrap();
    }
    (server, made)
}

#[tokio::test]
async fn a_person_signs_in_with_a_key_and_sees_what_its_rights_permit() {
    let folder = tempfile::tempdir().unwrap();
    let (server, [reader, _]) = server(folder.path()).await;
    let browser = Browser::open().await;
    let page = format!(
        "http://{}/inspector/projects/p/sessions/guarded",
        server.address()
    );
    let transcript = format!("{page}/transcript?from=2");
    browser.goto(&transcript).await;
    assert_eq!(browser.text("h1").await, "Sign in");
    assert!(!browser.text("body").await.contains("secret plan"));

    browser
        .value("document.getElementById('key').value = 'not-a-key'")
        .await;
    browser.follow("Sign in").await;
    assert_eq!(browser.text("h1").await, "Sign in");
    let problem = browser.text("[role=alert]").await;
    assert!(!problem.is_empty());

    // After the right key, the page that was wanted is shown.
    browser
        .value(&format!(
            "document.getElementById('key').value = {reader:?}"
        ))
        .await;
    browser.follow("Sign in").await;
    browser
        .until("location.pathname.endsWith('/transcript')")
        .await;
    assert!(browser.text("main").await.contains("yes"));
    // No script can read the key.
    assert_eq!(browser.value("document.cookie").await, "");
    assert!(
        !browser
            .value("document.documentElement.innerHTML")
            .await
            .as_str()
            .unwrap()
            .contains(&reader)
    );

    // A key without the right `compact` undoes nothing, not even as a dry run.
    browser.goto(&format!("{page}/undo?to=1")).await;
    let denied = browser.text("main").await;
    assert!(denied.contains("compact"), "{denied}");

    browser.follow("Sign out").await;
    assert_eq!(browser.text("h1").await, "Sign in");
    browser.close(&["Failed to load resource"]).await;
}

#[tokio::test]
async fn another_site_performs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, [_, writer]) = server(folder.path()).await;
    let client = reqwest::Client::new();
    let page = format!(
        "http://{}/inspector/projects/p/sessions/guarded",
        server.address()
    );
    let cookie = format!("palimpsest_key={writer}");
    let undo = |origin: Option<&str>| {
        let mut request = client
            .post(format!("{page}/undo"))
            .header("cookie", &cookie)
            .body("to=1");
        if let Some(origin) = origin {
            request = request
                .header("origin", origin)
                .header("sec-fetch-site", "cross-site");
        }
        request.send()
    };
    let foreign = undo(Some("https://evil.example")).await.unwrap();
    assert_eq!(foreign.status(), 403);
    let own = undo(Some(&format!("http://{}", server.address())))
        .await
        .unwrap();
    assert_eq!(own.status(), 200, "the page after the undo");
    // A link in another site's page leads to the page, which no other site can frame or read.
    let linked = client
        .get(&page)
        .header("cookie", &cookie)
        .header("sec-fetch-site", "cross-site");
    let linked = linked.send().await.unwrap();
    assert_eq!(linked.status(), 200);
    let policy = linked.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert!(!linked.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn an_open_server_answers_pages_of_this_machine_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    // A browser that was led to this address by another name. Without TLS, browsers omit the header for such a name.
    let get = |host: &'static str, path: &str, has_header: bool| {
        let url = format!("http://{}{path}", server.address());
        let mut request = reqwest::Client::new().get(url).header("host", host);
        if has_header {
            request = request.header("sec-fetch-site", "none");
        }
        request.send()
    };
    for path in ["/inspector", "/v1/projects/p/sessions"] {
        for has_header in [true, false] {
            let rebound = get("evil.example", path, has_header).await.unwrap();
            assert_eq!(rebound.status(), 403, "{path}");
            let local = get("localhost:1", path, has_header).await.unwrap();
            assert_eq!(local.status(), 200, "{path}");
        }
    }
}

#[tokio::test]
async fn the_inspector_can_be_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "http.inspector=false"]);
    let url = format!("http://{}/inspector", server.address());
    assert_eq!(reqwest::get(url).await.unwrap().status(), 404);
}

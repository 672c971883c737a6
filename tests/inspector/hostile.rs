//! Contents that try to change a page are shown as text.

use palimpsest_tests::say::{assistant, user};
use palimpsest_tests::server::Server;

use crate::browser::Browser;
use crate::tour::Tour;

const MARKUP: &str = "</pre></td></table><script>window.owned = 1</script><img src=x onerror='window.owned = 1'>\
                      <style>body { display: none }</style><iframe src='//evil.example'></iframe>";
const CONTROLS: &str =
    "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}txt.exe\u{2066}\r\u{9b}31m\u{0}\u{200f}";

#[tokio::test]
async fn hostile_contents_are_text_on_every_page() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut tour = Tour::begin(&server, "hostile").await;
    let line = "x".repeat(1_000_000);
    tour.request(vec![user(&format!("{MARKUP}{CONTROLS}"))])
        .await;
    tour.request(vec![assistant(&format!("{CONTROLS}{MARKUP}")), user(&line)])
        .await;
    let browser = Browser::open().await;
    let base = format!("http://{}/inspector/projects/p", server.address());
    let of_session = format!("{base}/sessions/hostile");
    for page in [
        base.clone(),
        of_session.clone(),
        format!("{of_session}/view"),
        format!("{of_session}/transcript"),
        format!("{of_session}/memory"),
        format!("{of_session}/search?q=%3Cscript%3E"),
        format!("{of_session}/search?q=%3C%2Fpre%3E%3Cscript%3Ewindow.owned%3D1%3C%2Fscript%3E"),
        format!("{of_session}/difference?from=2"),
    ] {
        browser.goto(&page).await;
        assert_eq!(
            browser.value("window.owned").await,
            serde_json::Value::Null,
            "{page}"
        );
        let made = "document.querySelectorAll('iframe, img, body style, main script').length";
        assert_eq!(browser.value(made).await, 0, "{page}");
        // No control character reaches the page, so no text is shown in another order than it is stored.
        // A text that somebody can edit is unchanged.
        let text = browser
            .value(
                "(() => { const copy = document.documentElement.cloneNode(true); \
                 copy.querySelectorAll('textarea').forEach(one => one.remove()); return copy.innerHTML; })()",
            )
            .await;
        let text = text.as_str().unwrap();
        let control = text.chars().find(|c| {
            matches!(c, '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{80}'..='\u{9f}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        });
        assert_eq!(control, None, "{page}");
        // The message of a million characters is cut.
        assert!(text.len() < 400_000, "{page} has {} bytes", text.len());
    }
    browser.goto(&format!("{of_session}/transcript")).await;
    let shown = browser.text("article").await;
    assert!(
        shown.contains("<script>window.owned = 1</script>"),
        "{shown}"
    );
    assert!(
        shown.contains("U+001B") && shown.contains("U+202E"),
        "{shown}"
    );
    browser.close(&[]).await;
}

#[tokio::test]
async fn addresses_that_name_nothing_are_pages_that_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let browser = Browser::open().await;
    let root = format!("http://{}/inspector", server.address());
    for (path, text) in [
        ("/nowhere", "no page with this address"),
        ("/projects/p/sessions/missing", "missing"),
        ("/projects/p/sessions/%3Cscript%3E", "session"),
        (
            "/projects/p/sessions/missing/view?revision=x",
            "whole number",
        ),
        ("/projects/p/sessions/missing/difference", "from"),
    ] {
        browser.goto(&format!("{root}{path}")).await;
        let shown = browser.text("main").await;
        assert!(shown.contains(text), "{path}: {shown}");
    }
    browser.close(&["Failed to load resource"]).await;
}

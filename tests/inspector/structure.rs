//! The structure of each page, as a screen reader finds it, compared with an expected text. `UPDATE_EXPECT=1` writes the
//! texts.

use std::fmt::Write as _;
use std::path::PathBuf;

use palimpsest_tests::say::uuid;
use palimpsest_tests::server::Server;

use crate::browser::Browser;
use crate::tour::{TOUR, play};

/// The roles that make the structure of a page.
const ROLES: [&str; 14] = [
    "heading", "link", "button", "textbox", "searchbox", "checkbox", "navigation", "main",
    "search", "columnheader", "rowheader", "image", "status", "alert",
];

/// Replaces times and addresses of links to revisions, which differ between runs.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(" UTC") {
        // A time has a fixed width, so it begins at a fixed distance before ` UTC`.
        let begin = at.saturating_sub("2026-01-01 00:00:00".len());
        out.push_str(&rest[..begin]);
        out.push_str("TIME");
        rest = &rest[at + " UTC".len()..];
    }
    out.push_str(rest);
    out
}

async fn outline(browser: &Browser) -> String {
    let mut out = String::new();
    for (role, name) in browser.accessible().await {
        if ROLES.contains(&role.as_str()) {
            let _ = writeln!(out, "{role} {}", without_times(&name));
        }
    }
    out
}

fn check(page: &str, actual: &str) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("inspector/expected/{page}.txt"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        actual,
        expected,
        "{page}: UPDATE_EXPECT=1 writes {}",
        path.display()
    );
}

#[tokio::test]
async fn every_page_has_its_structure() {
    let folder = tempfile::tempdir().unwrap();
    // Updates of session memory would be events at any time.
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let at = play(&server, TOUR).await;
    let browser = Browser::open().await;
    let root = format!("http://{}/inspector", server.address());
    let session = format!("{root}/projects/p/sessions/{TOUR}");
    for (page, address) in [
        ("projects", root.clone()),
        ("sessions", format!("{root}/projects/p")),
        ("session", session.clone()),
        ("view", format!("{session}/view?revision={}", at.cleared)),
        (
            "difference",
            format!(
                "{session}/difference?from={}&to={}",
                at.cleared, at.compacted
            ),
        ),
        ("transcript", format!("{session}/transcript?from=3")),
        ("search", format!("{session}/search?q=file")),
        ("removal", format!("{session}/removal?message={}", uuid(4))),
        ("undo", format!("{session}/undo?to={}", at.compacted - 1)),
    ] {
        browser.goto(&address).await;
        let nodes = browser.accessible().await;
        // Everything that can be used has a name.
        for (role, name) in &nodes {
            let is_control =
                ["link", "button", "textbox", "searchbox", "checkbox"].contains(&role.as_str());
            assert!(
                !is_control || !name.is_empty(),
                "{page}: a {role} has no name"
            );
        }
        let count = |wanted: &str| nodes.iter().filter(|(role, _)| role == wanted).count();
        assert_eq!((count("main"), count("heading") >= 1), (1, true), "{page}");
        check(page, &outline(&browser).await);
    }
    browser.close(&[]).await;
}

#[tokio::test]
async fn pages_are_used_with_the_keyboard_in_both_color_schemes() {
    use chromiumoxide::cdp::browser_protocol::emulation::{MediaFeature, SetEmulatedMediaParams};
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    play(&server, TOUR).await;
    let browser = Browser::open().await;
    let session = format!(
        "http://{}/inspector/projects/p/sessions/{TOUR}",
        server.address()
    );
    for scheme in ["light", "dark"] {
        let feature = MediaFeature::new("prefers-color-scheme", scheme);
        let media = SetEmulatedMediaParams::builder()
            .features([feature])
            .build();
        browser.page.execute(media).await.unwrap();
        browser.goto(&session).await;
        // The contrast of text and ground is at least 4.5, which the guidelines for accessible pages require.
        let contrast = browser
            .value(
                "(() => { const of = (name) => { \
                   const probe = document.createElement('i'); probe.style.color = `var(${name})`; document.body.append(probe); \
                   const channels = getComputedStyle(probe).color.match(/[0-9.]+/g).map(Number); probe.remove(); \
                   const [r, g, b] = channels.map(c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); \
                   return 0.2126 * r + 0.7152 * g + 0.0722 * b; }; \
                 const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); \
                 const grounds = [of('--ground'), of('--raised')]; \
                 return Math.min(...['--ink', '--faint', '--accent', '--warn'].flatMap(name => grounds.map(g => ratio(of(name), g)))); })()",
            )
            .await;
        assert!(contrast.as_f64().unwrap() >= 4.5, "{scheme}: {contrast}");
    }
    // The first stop is the link to the content. All links and the bars of the chart can be reached.
    browser.press("Tab").await;
    let focused = "document.activeElement.innerText ?? ''";
    assert_eq!(browser.value(focused).await, "Skip to the content");
    let mut bars = std::collections::BTreeSet::new();
    for _ in 0..40 {
        browser.press("Tab").await;
        let bar = "document.activeElement.closest('.chart a')?.getAttribute('href')";
        bars.extend(browser.value(bar).await.as_str().map(str::to_owned));
    }
    assert_eq!(bars.len(), crate::tour::REQUESTS);
    browser.close(&[]).await;
}

//! Writes the pictures of docs/inspector.md: pages of the session that the demo plays, and of a server with API keys.
//!
//! ```text
//! PALIMPSEST_TEST_BINARY=$PWD/target/release/palimpsest \
//!   cargo test --workspace --locked --test inspector pictures -- --ignored
//! ```

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use chromiumoxide::cdp::browser_protocol::emulation::SetDeviceMetricsOverrideParams;
use chromiumoxide::cdp::browser_protocol::page::{
    CaptureScreenshotFormat, CaptureScreenshotParams, Viewport,
};
use palimpsest_tests::binary;
use serde_json::Value;

use crate::access;
use crate::browser::Browser;

/// The quality of a picture, in percent.
const QUALITY: i64 = 70;
/// The width of the pages, in pixels.
const WIDTH: i64 = 1_200;

/// A demo whose server is still running.
struct Demo {
    process: Child,
    /// The address of the inspector.
    inspector: String,
}

impl Demo {
    fn play() -> Self {
        let mut process = Command::new(binary())
            .args(["demo", "--fast", "--keep"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            let path = line.strip_prefix("The session: ")?;
            Some(path.split_once("/inspector")?.0.to_owned())
        });
        Self {
            process,
            inspector: address.expect("the demo prints the address") + "/inspector",
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A part of a page.
struct Picture {
    file: &'static str,
    /// The path below the inspector.
    path: String,
    /// An expression that returns the first element of the picture. Without it, the picture begins at the top.
    begin: &'static str,
    /// The height, in pixels.
    height: f64,
}

async fn write(browser: &Browser, root: &str, picture: &Picture) {
    let size = SetDeviceMetricsOverrideParams::new(WIDTH, 900, 1.0, false);
    browser.page.execute(size).await.unwrap();
    browser.goto(&format!("{root}{}", picture.path)).await;
    let mut top = 0.0;
    if !picture.begin.is_empty() {
        let expression = format!(
            "({}).getBoundingClientRect().top + window.scrollY",
            picture.begin
        );
        let found = browser.value(&expression).await;
        top = found
            .as_f64()
            .unwrap_or_else(|| panic!("{}: no element", picture.file));
    }
    let clip = Viewport {
        x: 0.0,
        y: (top - 8.0).max(0.0),
        #[expect(clippy::cast_precision_loss, reason = "a width in pixels")]
        width: WIDTH as f64,
        height: picture.height,
        scale: 1.0,
    };
    let screenshot = CaptureScreenshotParams::builder()
        .format(CaptureScreenshotFormat::Webp)
        .quality(QUALITY)
        .capture_beyond_viewport(true)
        .clip(clip)
        .build();
    let bytes = browser.page.screenshot(screenshot).await.unwrap();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    std::fs::write(folder.join(picture.file), bytes).unwrap();
}

/// Returns the address that the first element of an expression leads to, without the address of the inspector.
async fn link(browser: &Browser, root: &str, expression: &str) -> String {
    let address = browser
        .value(&format!("({expression})?.href ?? null"))
        .await;
    let Value::String(address) = address else {
        panic!("no link: {expression}");
    };
    address.strip_prefix(root).unwrap().to_owned()
}

#[tokio::test]
#[ignore = "writes docs/images"]
async fn of_every_question() {
    let demo = Demo::play();
    let root = demo.inspector.as_str();
    let browser = Browser::open().await;
    let session = "/projects/demo/sessions/with-palimpsest";
    let picture = |file, path: &str, begin, height| Picture {
        file,
        path: path.to_owned(),
        begin,
        height,
    };
    browser.goto(&format!("{root}{session}")).await;
    let compaction = "[...document.querySelectorAll('tr.change')].find(row => row.innerText.includes('Compacted'))";
    let difference = link(&browser, root, &format!("{compaction}.querySelector('a')")).await;
    let undo = link(
        &browser,
        root,
        &format!("{compaction}.querySelector('a:last-of-type')"),
    )
    .await;
    browser
        .goto(&format!("{root}{session}/search?q=Batch+collect"))
        .await;
    let removal = link(
        &browser,
        root,
        "[...document.querySelectorAll('a.form')].find(one => one.innerText.startsWith('compacted'))",
    )
    .await;
    let pictures = [
        picture("inspector-session.webp", session, "", 860.0),
        picture(
            "inspector-search.webp",
            &format!("{session}/search?q=Batch+collect"),
            "[...document.querySelectorAll('.hits li')].find(one => one.innerText.includes('why?'))",
            420.0,
        ),
        picture("inspector-removal.webp", &removal, "", 420.0),
        picture("inspector-difference.webp", &difference, "", 640.0),
        picture("inspector-view.webp", &format!("{session}/view"), "", 760.0),
        picture("inspector-projects.webp", "", "", 240.0),
        picture("inspector-changes.webp", session, compaction, 300.0),
        picture(
            "inspector-memory.webp",
            &format!("{session}/memory"),
            "",
            640.0,
        ),
        picture("inspector-undo.webp", &undo, "", 600.0),
        picture("inspector-sessions.webp", "/projects/demo", "", 640.0),
    ];
    for picture in &pictures {
        write(&browser, root, picture).await;
    }
    browser.close(&[]).await;
}

#[tokio::test]
#[ignore = "writes docs/images"]
async fn of_who_did_what() {
    let folder = tempfile::tempdir().unwrap();
    let (server, [reader, _]) = access::server(folder.path()).await;
    let root = format!("http://{}/inspector", server.address());
    let browser = Browser::open().await;
    browser.goto(&root).await;
    browser
        .value(&format!(
            "document.getElementById('key').value = {reader:?}"
        ))
        .await;
    browser.follow("Sign in").await;
    let picture = Picture {
        file: "inspector-who.webp",
        path: "/projects/p/sessions/guarded".to_owned(),
        begin: "document.querySelector('table.events')",
        height: 260.0,
    };
    write(&browser, &root, &picture).await;
    browser.close(&["401 (Unauthorized)"]).await;
}

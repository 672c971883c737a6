//! Chromium with one page. Errors on its console and violations of the content security policy are collected.

use std::path::PathBuf;
use std::time::Duration;

use chromiumoxide::Page;
use chromiumoxide::browser::{Browser as Chromium, BrowserConfig};
use chromiumoxide::cdp::browser_protocol::accessibility::GetFullAxTreeParams;
use chromiumoxide::cdp::browser_protocol::log::{EnableParams, EventEntryAdded, LogEntryLevel};
use chromiumoxide::cdp::browser_protocol::page::AddScriptToEvaluateOnNewDocumentParams;
use chromiumoxide::cdp::js_protocol::runtime::{EventConsoleApiCalled, EventExceptionThrown};
use futures::StreamExt as _;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Time limit of a wait. Only a hang takes as long.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The pause between two looks at a page.
const PAUSE: Duration = Duration::from_millis(50);

/// Reports violations of the policy on the console, where they are collected.
const WATCH_POLICY: &str = "addEventListener('securitypolicyviolation', \
    event => console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI));";

/// A browser with an empty profile.
pub(crate) struct Browser {
    chromium: Chromium,
    handler: JoinHandle<()>,
    pub(crate) page: Page,
    problems: Arc<Mutex<Vec<String>>>,
    _profile: TempDir,
}

fn executable() -> PathBuf {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return named.into();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file());
    found.expect("no Chromium: run scripts/install-tools, or name it in CHROMIUM")
}

impl Browser {
    pub(crate) async fn open() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let config = BrowserConfig::builder()
            .chrome_executable(executable())
            .user_data_dir(profile.path())
            .launch_timeout(TIMEOUT)
            .request_timeout(TIMEOUT)
            // Root cannot use the sandbox of Chromium, and only pages of this test are opened.
            .no_sandbox()
            // Containers have a small /dev/shm, which Chromium would exhaust.
            .args(["--disable-dev-shm-usage", "--disable-gpu"])
            .window_size(1_300, 900)
            .build()
            .unwrap();
        let (chromium, mut events) = Chromium::launch(config).await.unwrap();
        // The connection to Chromium makes progress only while its events are read.
        let handler = tokio::spawn(async move { while events.next().await.is_some() {} });
        let page = chromium.new_page("about:blank").await.unwrap();
        let problems = Arc::new(Mutex::new(Vec::new()));
        page.execute(EnableParams::default()).await.unwrap();
        let mut entries = page.event_listener::<EventEntryAdded>().await.unwrap();
        let mut consoles = page
            .event_listener::<EventConsoleApiCalled>()
            .await
            .unwrap();
        let mut exceptions = page.event_listener::<EventExceptionThrown>().await.unwrap();
        let seen = Arc::clone(&problems);
        tokio::spawn(async move {
            loop {
                let problem = tokio::select! {
                    Some(entry) = entries.next() => {
                        // Hints about forms and the like are no errors.
                        if entry.entry.level == LogEntryLevel::Verbose {
                            continue;
                        }
                        format!("{:?}: {}", entry.entry.level, entry.entry.text)
                    }
                    Some(call) = consoles.next() => format!("console: {:?}", call.args),
                    Some(thrown) = exceptions.next() => {
                        format!("exception: {:?}", thrown.exception_details.text)
                    }
                    else => break,
                };
                seen.lock().unwrap().push(problem);
            }
        });
        page.execute(AddScriptToEvaluateOnNewDocumentParams::new(WATCH_POLICY))
            .await
            .unwrap();
        Self {
            chromium,
            handler,
            page,
            problems,
            _profile: profile,
        }
    }

    /// Opens an address.
    pub(crate) async fn goto(&self, url: &str) {
        self.page.goto(url).await.unwrap();
        self.loaded().await;
    }

    async fn loaded(&self) {
        self.until("document.readyState === 'complete'").await;
    }

    /// Evaluates an expression.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let value = self.page.evaluate(expression).await.unwrap();
        value.value().cloned().unwrap_or(Value::Null)
    }

    /// Returns the text of an element.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let value = self
            .value(&format!("document.querySelector({selector:?})?.innerText"))
            .await;
        value
            .as_str()
            .unwrap_or_else(|| panic!("no element {selector}"))
            .to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let wait = async {
            // During a navigation, the page can have no context in which an expression can be evaluated.
            loop {
                let value = self.page.evaluate(expression).await;
                let value = value.ok().and_then(|value| value.value().cloned());
                if value == Some(Value::Bool(true)) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, wait).await;
        assert!(waited.is_ok(), "not true in time: {expression}");
    }

    /// Clicks the link or button with a text, and waits for the page to which it leads.
    pub(crate) async fn follow(&self, text: &str) {
        // The click can end the page at once, so its text is read before.
        let body = self.text("body").await;
        // The click comes after the reply, because it ends the page that replies.
        self.value("window.earlier = true").await;
        let clicked = self
            .value(&format!(
                "(() => {{ const all = [...document.querySelectorAll('main a, main button'), ...document.querySelectorAll('header a, header button')]; \
                 const found = all.find(one => one.innerText.trim() === {text:?}); \
                 if (found) setTimeout(() => found.click(), 20); return !!found; }})()"
            ))
            .await;
        assert_eq!(
            clicked,
            Value::Bool(true),
            "no link or button {text:?} in {body}"
        );
        // The new page lacks the variable that was set before the click.
        self.until("window.earlier === undefined && document.readyState === 'complete'")
            .await;
    }

    /// Presses a key.
    pub(crate) async fn press(&self, key: &str) {
        let body = self.page.find_element("body").await.unwrap();
        body.press_key(key).await.unwrap();
    }

    /// Returns the roles and names of the page, as a screen reader finds them.
    pub(crate) async fn accessible(&self) -> Vec<(String, String)> {
        let tree = self.page.execute(GetFullAxTreeParams::default()).await;
        let tree = tree.unwrap().result.nodes;
        let value =
            |value: &Option<chromiumoxide::cdp::browser_protocol::accessibility::AxValue>| {
                let text = value.as_ref().and_then(|one| one.value.as_ref()?.as_str());
                text.unwrap_or_default().trim().to_owned()
            };
        let shown = tree.iter().filter(|node| !node.ignored);
        shown
            .map(|node| (value(&node.role), value(&node.name)))
            .collect()
    }

    /// Fails if the page reported an error, and closes the browser. `expected` are texts of expected errors.
    pub(crate) async fn close(mut self, expected: &[&str]) {
        let problems = std::mem::take(&mut *self.problems.lock().unwrap());
        let unexpected: Vec<_> = problems
            .iter()
            .filter(|one| !expected.iter().any(|text| one.contains(text)))
            .collect();
        assert!(unexpected.is_empty(), "{unexpected:#?}");
        self.chromium.close().await.unwrap();
        self.chromium.wait().await.unwrap();
        self.handler.abort();
    }
}

//! The way of a person through the pages.

use palimpsest_tests::say::{assistant, user};
use palimpsest_tests::server::Server;

use crate::browser::Browser;
use crate::tour::{REQUESTS, TOUR, Tour, play};

#[tokio::test]
async fn from_all_projects_to_an_undo() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let at = play(&server, TOUR).await;
    let browser = Browser::open().await;
    browser
        .goto(&format!("http://{}/inspector", server.address()))
        .await;
    assert_eq!(browser.text("h1").await, "Projects");
    browser.follow("p").await;
    browser.follow(TOUR).await;
    assert_eq!(browser.text("h1").await, "Look at the file a");

    // The chart has one bar for each request, and each bar leads to its view.
    let bars = browser
        .value("document.querySelectorAll('.chart a').length")
        .await;
    assert_eq!(bars, REQUESTS);
    let marks = browser
        .value("document.querySelectorAll('.chart path.change').length")
        .await;
    assert_eq!(
        marks, 2,
        "the snip, and both compactions before the last request"
    );
    let rows = browser.text("table.events").await;
    for text in [
        "Snipped", "Results stored", "Results cleared", "Compacted", "of no use",
    ] {
        assert!(rows.contains(text), "{text}: {rows}");
    }

    // The last request, beside the transcript.
    browser.value("document.querySelector('.chart a:last-of-type').dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))").await;
    browser
        .until("location.pathname.endsWith('/view') && document.readyState === 'complete'")
        .await;
    let view = browser.text("table.view").await;
    assert!(
        view.contains("replaced by the summary of a compaction"),
        "{view}"
    );
    assert!(view.contains("What did you find?"), "{view}");
    browser.follow("Previous request").await;
    let earlier = browser.text("table.view").await;
    assert!(!earlier.contains("What did you find?"), "{earlier}");
    browser.follow("Next request").await;
    assert_eq!(browser.text("table.view").await, view);

    // What the clearing of results changed.
    let base = format!(
        "http://{}/inspector/projects/p/sessions/{TOUR}",
        server.address()
    );
    browser
        .goto(&format!(
            "{base}/difference?from={}&to={}",
            at.cleared - 1,
            at.cleared
        ))
        .await;
    let changed = browser
        .value("document.querySelectorAll('tr.change-changed').length")
        .await;
    assert!(changed.as_u64() > Some(3), "{changed}");

    // An original that the view shows as a marker.
    browser
        .goto(&format!("{base}/view?revision={}", at.cleared))
        .await;
    let original = browser
        .value("[...document.querySelectorAll('tr.form-stored td:last-child')].map(one => one.innerText).join()")
        .await;
    assert!(
        original.as_str().unwrap().contains("a line of the file b1"),
        "{original}"
    );

    // An undo: what it would bring back, and then the undo.
    browser
        .goto(&format!("{base}/undo?to={}", at.compacted - 1))
        .await;
    let before = browser.text("main").await;
    assert!(before.contains("compacted"), "{before}");
    browser.follow("Undo").await;
    let rows = browser.text("table.events").await;
    assert!(rows.contains("Undone"), "{rows}");
    browser.close(&[]).await;
}

#[tokio::test]
async fn a_page_shows_changes_without_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut tour = Tour::begin(&server, "live").await;
    tour.request(vec![user("first")]).await;
    let browser = Browser::open().await;
    let page = format!(
        "http://{}/inspector/projects/p/sessions/live",
        server.address()
    );
    browser.goto(&page).await;
    browser
        .until("document.getElementById('state').textContent === 'live'")
        .await;
    // The variable survives only without a reload.
    browser.value("window.same = true").await;
    tour.request(vec![assistant("an answer"), user("second")])
        .await;
    browser
        .until("document.querySelectorAll('.chart a').length === 2")
        .await;
    assert_eq!(browser.value("window.same").await, true);
    browser.close(&[]).await;
}

#[tokio::test]
async fn a_search_leads_to_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    play(&server, TOUR).await;
    let browser = Browser::open().await;
    let base = format!(
        "http://{}/inspector/projects/p/sessions/{TOUR}",
        server.address()
    );
    browser.goto(&format!("{base}/search")).await;
    // The text is in a stored result, which the view does not show.
    browser
        .value("document.getElementById('q').value = 'the first line'")
        .await;
    browser.follow("Search").await;
    assert_eq!(browser.text(".hits mark").await, "the first line");
    browser.follow("message 3").await;
    let article = browser.text("article").await;
    assert!(article.contains("the first line"), "{article}");

    // The result is stored, and a compaction replaced its message later.
    browser.goto(&format!("{base}/transcript?from=3")).await;
    browser.follow("compacted: why?").await;
    let reasons = browser.text("main").await;
    for text in ["the limit for tool results", "Compacted at revision"] {
        assert!(reasons.contains(text), "{text}: {reasons}");
    }

    // The reasons why the view lacks a message: a snip by a person, and a compaction.
    browser.goto(&format!("{base}/search?q=It+is+long")).await;
    browser.follow("snipped: why?").await;
    let reason = browser.text("main").await;
    for text in ["Snipped at revision", "of no use", "ReadTranscript"] {
        assert!(reason.contains(text), "{text}: {reason}");
    }
    browser
        .goto(&format!("{base}/search?q=Look+at+the+files+b"))
        .await;
    browser.follow("compacted: why?").await;
    let reason = browser.text("main").await;
    assert!(reason.contains("Compacted at revision"), "{reason}");
    browser.follow("Everything that left with it").await;
    let difference = browser.text("main").await;
    assert!(difference.contains("Look at the files b"), "{difference}");
    browser.close(&[]).await;
}

#[tokio::test]
async fn session_memory_is_edited() {
    let folder = tempfile::tempdir().unwrap();
    // The default needs 10,000 tokens, which this session may not have.
    let server = Server::start(
        folder.path(),
        &["--set", "policy.session_memory.start_tokens=1"],
    );
    play(&server, TOUR).await;
    let browser = Browser::open().await;
    let base = format!(
        "http://{}/inspector/projects/p/sessions/{TOUR}",
        server.address()
    );
    browser.goto(&format!("{base}/memory")).await;
    // The worker writes the first version, and the page shows it without a reload. The editor comes with the next one.
    browser
        .until("document.querySelector('pre.memory') !== null")
        .await;
    browser.goto(&format!("{base}/memory")).await;
    browser
        .value(
            "(() => { const text = document.getElementById('text'); \
             text.closest('details').open = true; \
             text.value = text.value.replace('# Learnings', '# Learnings\\n\\n- Never use the file <b>c7</b>.'); })()",
        )
        .await;
    browser.follow("Save as a new version").await;
    let shown = browser.text("pre.memory").await;
    assert!(shown.contains("Never use the file <b>c7</b>."), "{shown}");
    assert!(browser.text("#versions").await.contains("edited"));

    // The version before the edit, which can no longer be edited.
    let first = browser
        .value("[...document.querySelectorAll('#versions a')].at(-1).href")
        .await;
    browser.goto(first.as_str().unwrap()).await;
    let shown = browser.text("pre.memory").await;
    assert!(!shown.contains("Never use the file"), "{shown}");
    let has_editor = browser
        .value("document.getElementById('text') !== null")
        .await;
    assert_eq!(has_editor, false);
    browser.follow("Current version").await;
    let shown = browser.text("pre.memory").await;
    assert!(shown.contains("Never use the file <b>c7</b>."), "{shown}");
    browser.close(&[]).await;
}

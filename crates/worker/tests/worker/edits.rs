//! Edits of the file by people before, during and after an update.

use bytes::Bytes;
use palimpsest_store::blobs::ReplaceOutcome;

use super::*;

/// Options without a settle time, because the file's time is real and the test's time is paused.
fn at_once() -> WorkerOptions {
    WorkerOptions {
        settle: Duration::ZERO,
        ..options()
    }
}

/// Replaces a line in the file, as a person would.
async fn edit(fake: &Fake, key: &SessionKey, from: &str, to: &str) {
    let found = fake.blobs.summary(key).await.unwrap().unwrap();
    let text = String::from_utf8(found.text.to_vec()).unwrap();
    assert!(text.contains(from), "{text}");
    let edited = Bytes::from(text.replace(from, to));
    let replaced = fake.blobs.replace_summary(key, Some(&found), edited).await;
    assert_eq!(replaced.unwrap(), ReplaceOutcome::Written);
}

async fn grow(fake: &Fake, key: &SessionKey, words: &str) {
    let long = format!("{words} {}", "word ".repeat(4_000));
    fake.say(key, Role::User, &long).await;
    fake.say(key, Role::Assistant, "So I did.").await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_during_an_update_is_preserved() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    let running = start(fake.worker(at_once()));
    until("written", || is_written(&fake, &key)).await;
    until("done", || running.stats.running() == 0).await;
    *fake.slow.lock().unwrap() = Duration::from_secs(2);
    grow(&fake, &key, "Paint it green.").await;
    until("running", || running.stats.running() == 1).await;
    sleep(Duration::from_secs(1)).await;
    edit(&fake, &key, "# Worklog\n", "Ask Ann first.\n\n# Worklog\n").await;
    let has = |words: &str| fake.text(&key).contains(words);
    until("both edits in the text", || {
        has("Ask Ann first.") && has("Paint it green.")
    })
    .await;
    until("done", || running.stats.running() == 0).await;
    assert_eq!(file(&fake, &key).await, fake.text(&key));
    assert_eq!(running.stats.edits(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_older_file_keeps_later_content() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with_blobs(Blobs::open(folder.path().to_str().unwrap()).unwrap());
    let key = fake.due("p/a").await;
    let running = start(fake.worker(at_once()));
    until("written", || is_written(&fake, &key)).await;
    until("done", || running.stats.running() == 0).await;
    // A folder at the path of the file makes every write fail.
    let path = folder.path().join(summary_path(&key));
    let old = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("x"), "x").unwrap();
    grow(&fake, &key, "Paint it green.").await;
    let has = |words: &str| fake.text(&key).contains(words);
    until("the update in the text", || has("Paint it green.")).await;
    until("a recorded file failure", || {
        fake.look(&key, |it| it.memory().file_failure.is_some())
    })
    .await;
    // The old text is edited, because the file never contained the new one.
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::write(
        &path,
        old.replace("# Worklog\n", "Ask Ann first.\n\n# Worklog\n"),
    )
    .unwrap();
    until("both edits in the text", || {
        has("Ask Ann first.") && has("Paint it green.")
    })
    .await;
    until("the written file", || {
        fake.look(&key, |it| it.memory().file_failure.is_none())
    })
    .await;
    until("done", || {
        unmarked(&std::fs::read_to_string(&path).unwrap()) == fake.text(&key)
    })
    .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_recently_edited_file_is_not_overwritten() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    let running = start(fake.worker(at_once()));
    until("written", || is_written(&fake, &key)).await;
    running.stop().await;
    // The test clock is far before the file's time, so the edit counts as recent for a long time.
    edit(&fake, &key, "# Worklog\n", "Ask\n\n# Worklog\n").await;
    grow(&fake, &key, "Paint it green.").await;
    let running = start(fake.worker(options()));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        running.stats.edits(),
        0,
        "a recent edit was imported too early"
    );
    edit(&fake, &key, "Ask\n", "Ask Ann first.\n").await;
    let has = |words: &str| fake.text(&key).contains(words);
    until("both edits in the text", || {
        has("Ask Ann first.") && has("Paint it green.")
    })
    .await;
    assert_eq!(running.stats.edits(), 1);
    running.stop().await;
}

/// Creates a store that has lost its content, as after a restored backup or a failover to a late standby. The file is
/// from the lost history.
async fn after_a_loss(folder: &tempfile::TempDir) -> (Arc<Fake>, SessionKey) {
    let blobs = || Blobs::open(folder.path().to_str().unwrap()).unwrap();
    let lost = Fake::with_blobs(blobs());
    let key = lost.due("p/a").await;
    grow(&lost, &key, "Paint it green.").await;
    let running = start(lost.worker(at_once()));
    until("written", || lost.text(&key).contains("Paint it green.")).await;
    until("done", || running.stats.running() == 0).await;
    running.stop().await;
    let now = Fake::with_blobs(blobs());
    // The same session in a new log, beside the files of the lost one.
    assert_eq!(now.due("p/a").await, key);
    grow(&now, &key, "Leave it red.").await;
    (now, key)
}

#[tokio::test(start_paused = true)]
async fn a_file_of_a_lost_history_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, key) = after_a_loss(&folder).await;
    assert!(file(&fake, &key).await.contains("Paint it green."));
    let running = start(fake.worker(at_once()));
    until("written", || fake.text(&key).contains("Leave it red.")).await;
    until("done", || running.stats.running() == 0).await;
    assert_eq!(running.stats.edits(), 0);
    assert!(!fake.text(&key).contains("Paint it green."));
    assert_eq!(file(&fake, &key).await, fake.text(&key));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edited_file_of_a_lost_history_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, key) = after_a_loss(&folder).await;
    edit(&fake, &key, "# Worklog\n", "Ask Ann first.\n\n# Worklog\n").await;
    let running = start(fake.worker(at_once()));
    let has = |words: &str| fake.text(&key).contains(words);
    until("both edits in the text", || {
        has("Ask Ann first.") && has("Leave it red.")
    })
    .await;
    until("done", || running.stats.running() == 0).await;
    assert_eq!(running.stats.edits(), 1);
    assert!(
        !has("palimpsest: version"),
        "the version mark must not be part of the text"
    );
    assert_eq!(file(&fake, &key).await, fake.text(&key));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_stays_blank_while_it_changes_is_no_edit() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    // The time of the file is real and later than the paused clock, so the file never settles.
    let running = start(fake.worker(options()));
    until("written", || is_written(&fake, &key)).await;
    until("done", || running.stats.running() == 0).await;
    let found = fake.blobs.summary(&key).await.unwrap().unwrap();
    let blank = Bytes::from_static(b" \n");
    let replaced = fake.blobs.replace_summary(&key, Some(&found), blank).await;
    assert_eq!(replaced.unwrap(), ReplaceOutcome::Written);
    grow(&fake, &key, "Paint it green.").await;
    let has = |words: &str| fake.text(&key).contains(words);
    until("the update in the text", || has("Paint it green.")).await;
    until("done", || running.stats.running() == 0).await;
    assert_eq!(running.stats.edits(), 0);
    assert!(has("Mend a."), "{}", fake.text(&key));
    assert_eq!(file(&fake, &key).await, fake.text(&key));
    running.stop().await;
}

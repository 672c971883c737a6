//! Tests that edits of `summary.md` by a person are kept.

use palimpsest_proto::context::v1::{MemorySource, MemoryState};

use super::*;

#[tokio::test]
async fn a_manual_edit_is_imported_and_survives_updates() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let mut client = server.context().await;
    let session = named("edit");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let first = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    let text = file_when(&path, |text| text == first.text).await;
    let edited = text
        .replace(
            "# Learnings\n",
            "# Notes of mine\nAsk Ann before touching the ledger.\n\n# Learnings\n",
        )
        .replace("mend module 1", "mend module 1 (urgent!)");
    std::fs::write(&path, &edited).unwrap();
    // The edit is recorded with the next update.
    let mut version = first.version;
    for number in 2..4 {
        say(&mut client, &session, turn(number, 3, 6_500)).await;
        let next = memory_when(&mut client, &session, |it| {
            it.version > version && it.source() == MemorySource::Extractive
        });
        let next = next.await;
        version = next.version;
        assert!(
            next.text.contains("Ask Ann before touching the ledger."),
            "{}",
            next.text
        );
        assert!(next.text.contains("(urgent!)"), "{}", next.text);
        assert!(
            next.text.contains(&format!("mend module {number}")),
            "{}",
            next.text
        );
        file_when(&path, |text| text == next.text).await;
    }
    // The template is version 1 and the first text version 2. Two updates and the edit follow.
    assert_eq!(version, 5, "a version is the person's");
}

#[tokio::test]
async fn a_missing_or_empty_file_is_written_again() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let mut client = server.context().await;
    let session = named("gone");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let first = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    file_when(&path, |text| text == first.text).await;
    std::fs::write(&path, "\n").unwrap();
    say(&mut client, &session, turn(2, 3, 6_500)).await;
    let second = memory_when(&mut client, &session, |it| it.version > first.version).await;
    assert_eq!(second.source(), MemorySource::Extractive);
    assert!(
        second.text.contains("mend module 1"),
        "an empty file counted as an edit"
    );
    file_when(&path, |text| text == second.text).await;
    std::fs::remove_file(&path).unwrap();
    say(&mut client, &session, turn(3, 3, 6_500)).await;
    let third = memory_when(&mut client, &session, |it| it.version > second.version).await;
    file_when(&path, |text| text == third.text).await;
    let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(names.count(), 1, "the folder must contain only one file");
}

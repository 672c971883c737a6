//! Tests of the end of data: deletion, retention, sweeps, backup and restoration.

mod backups;
mod deletion;
mod orphans;
mod ownership;
mod retention;

use std::path::Path;

use palimpsest_proto::context::v1::DeleteSessionRequest;
use palimpsest_tests::say::{assistant_call, prepare, result, user};
use palimpsest_tests::{Server, palimpsest};

/// Large results are stored, and no background task records events.
const SETTINGS: &[&str] = &[
    "--set",
    "worker.enabled=false",
    "--set",
    "policy.tool_results.max_result_chars=4000",
];

/// Creates a session with some turns, one of them with a stored result.
async fn fill(server: &Server, session: &str, turns: u64) {
    let mut client = server.context().await;
    for turn in 0..turns {
        let id = format!("call-{turn}");
        let large = format!("{session} has line {turn}\n").repeat(1_000);
        let said = vec![
            user(&format!("Please look at {turn}.")),
            assistant_call(&id),
            result(&id, &large),
        ];
        client
            .prepare_context(prepare(session, said))
            .await
            .unwrap();
    }
}

fn delete(session: &str) -> DeleteSessionRequest {
    DeleteSessionRequest {
        session: session.to_owned(),
        ..DeleteSessionRequest::default()
    }
}

/// Returns the files of a session in the blob store.
fn files(data_dir: &Path, session: &str) -> Vec<String> {
    let folder = data_dir.join("blobs/p").join(session).join("tool-results");
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = palimpsest(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(args: &[&str]) -> String {
    let output = palimpsest(args);
    assert!(!output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

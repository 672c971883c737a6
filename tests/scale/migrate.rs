//! Tests of `palimpsest migrate`: sessions move to a database and back, and an interrupted run is continued.

use std::path::Path;

use palimpsest_proto::context::v1::{
    DeleteSessionRequest, ListMessagesRequest, ListSessionsRequest,
};
use palimpsest_test_servers::Bucket;
use palimpsest_tests::say::{append, assistant_call, prepare, result, user, uuid, with_id};
use palimpsest_tests::{Server, name, palimpsest_with};

use crate::deployment::{at, borrowed};
use crate::replicas::database;

const SESSIONS: u64 = 12;

/// The view and the transcript of a session, as a caller sees them.
type Seen = (Vec<bytes::Bytes>, Vec<String>);

async fn seen(server: &Server, session: &str) -> Seen {
    let view = prepare(session, Vec::new());
    let view = server.context().await.prepare_context(view).await.unwrap();
    let listed = ListMessagesRequest {
        session: session.to_owned(),
        page_size: 1_000,
        ..ListMessagesRequest::default()
    };
    let listed = server.sessions().await.list_messages(listed).await.unwrap();
    let ids = listed.into_inner().messages.into_iter().map(|it| it.id);
    (view.into_inner().messages_json, ids.collect())
}

async fn all(server: &Server) -> Vec<Seen> {
    let mut all = Vec::new();
    for number in 0..SESSIONS {
        all.push(seen(server, &name(&format!("moved-{number}"))).await);
    }
    all
}

/// Creates sessions of different lengths with stored results.
async fn fill(server: &Server) {
    let mut client = server.context().await;
    for number in 0..SESSIONS {
        let session = name(&format!("moved-{number}"));
        for turn in 0..=number {
            let call = format!("call_{turn}");
            // 2,500 lines exceed the limit of a result, which is then stored as a blob.
            let lines = if turn % 3 == 0 { 2_500 } else { 20 };
            let text = format!("what {session} found in turn {turn}\n").repeat(lines);
            let messages = vec![
                with_id(&uuid(turn * 3), user(&format!("question {turn}"))),
                with_id(&uuid(turn * 3 + 1), assistant_call(&call)),
                with_id(&uuid(turn * 3 + 2), result(&call, &text)),
            ];
            client
                .prepare_context(prepare(&session, messages))
                .await
                .unwrap();
        }
    }
}

/// Runs the command and returns its output.
fn migrate(arguments: &[&str], bucket: &Bucket, more: &[(&str, &str)]) -> Result<String, String> {
    let variables = bucket.variables();
    let mut variables = borrowed(&variables);
    variables.extend(more);
    let mut all = vec!["migrate"];
    all.extend(arguments);
    let done = palimpsest_with(&all, &variables);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(text(&done.stderr))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_migrate_to_a_database_and_back() {
    let (cluster, bucket) = (database(), Bucket::start());
    let folder = tempfile::tempdir().unwrap();
    let (old, back) = (folder.path().join("old"), folder.path().join("back"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (old_dir, back_dir) = (path(&old), path(&back));
    let url = format!("store.postgres.url={}", at(&[&cluster]));
    let blobs = format!("blobs.url={}", bucket.url());
    let shared = [
        "--set",
        &url,
        "--set",
        &blobs,
        "--set",
        "store.postgres.schema=moved",
    ];
    let variables = bucket.variables();
    let variables = borrowed(&variables);

    let server = Server::start(&old, &[]);
    fill(&server).await;
    let before = all(&server).await;
    let there = ["--from", "sled", "--to", "postgres", "--data-dir", &old_dir];
    let there = [&there[..], &shared].concat();
    let said = migrate(&there, &bucket, &[]).unwrap_err();
    // A running server could still append to the source.
    assert!(said.contains("in use by another process"), "{said}");
    server.stop();

    // The run is interrupted twice and then continued.
    for point in ["migrate.files:4", "migrate.session:3"] {
        let crash = [("CRASH_AT", point)];
        migrate(&there, &bucket, &crash).unwrap_err();
    }
    let said = migrate(&there, &bucket, &[]).unwrap();
    assert!(said.contains("12 sessions are in both stores"), "{said}");
    let said = migrate(&there, &bucket, &[]).unwrap();
    assert!(said.contains("This run moved 0 sessions"), "{said}");
    let server = Server::start_with(&folder.path().join("new"), &shared, &variables);
    assert_eq!(all(&server).await, before);
    let verify = [&["verify-store", "--contents"][..], &shared].concat();
    let verified = palimpsest_with(&verify, &variables);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}");
    assert!(
        said.contains("12 sessions") && said.contains("0 items are damaged"),
        "{said}"
    );
    // A session that grew in the new store is not moved again, because the old store contains only its prefix.
    let grown = name("moved-3");
    let more = append(&grown, vec![with_id(&uuid(900), user("and on it goes"))]);
    server.context().await.append_messages(more).await.unwrap();
    let after = all(&server).await;
    server.stop();
    let said = migrate(&there, &bucket, &[]).unwrap_err();
    assert!(
        said.contains("moved-3 is in the target and is not the beginning"),
        "{said}"
    );

    let home = [
        "--from", "postgres", "--to", "sled", "--data-dir", &back_dir,
    ];
    let home = [&home[..], &shared].concat();
    let said = migrate(&home, &bucket, &[]).unwrap();
    assert!(said.contains("12 sessions are in both stores"), "{said}");
    let server = Server::start(&back, &[]);
    assert_eq!(all(&server).await, after);
    server.stop();
}

async fn delete(server: &Server, session: &str) {
    let request = DeleteSessionRequest {
        session: name(session),
        ..DeleteSessionRequest::default()
    };
    let mut client = server.sessions().await;
    let reply = client.delete_session(request).await.unwrap().into_inner();
    assert!(reply.complete);
}

async fn names(server: &Server) -> Vec<String> {
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        page_size: 1_000,
        ..ListSessionsRequest::default()
    };
    let list = server.sessions().await.list_sessions(request).await;
    let mut names: Vec<_> = list
        .unwrap()
        .into_inner()
        .sessions
        .into_iter()
        .map(|it| it.name)
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_deleted_after_its_migration_is_not_restored() {
    let (cluster, bucket) = (database(), Bucket::start());
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let old_dir = old.to_str().unwrap().to_owned();
    let url = format!("store.postgres.url={}", at(&[&cluster]));
    let blobs = format!("blobs.url={}", bucket.url());
    let schema = "store.postgres.schema=deleted_since";
    let shared = ["--set", &url, "--set", &blobs, "--set", schema];
    let variables = bucket.variables();
    let variables = borrowed(&variables);
    let quiet = ["--set", "worker.enabled=false"];
    let server = Server::start(&old, &quiet);
    fill(&server).await;
    server.stop();
    let there = ["--from", "sled", "--to", "postgres", "--data-dir", &old_dir];
    let there = [&there[..], &shared].concat();
    migrate(&there, &bucket, &[]).unwrap();

    let server = Server::start(&old, &quiet);
    delete(&server, "moved-1").await;
    server.stop();
    let settings = [&shared[..], &quiet].concat();
    let server = Server::start_with(&new, &settings, &variables);
    delete(&server, "moved-2").await;
    server.stop();
    let said = migrate(&there, &bucket, &[]).unwrap_err();
    assert!(said.contains("2 sessions were in both stores"), "{said}");
    assert!(said.contains("moved-1 (in the source)"), "{said}");
    assert!(said.contains("moved-2 (in the target)"), "{said}");
    let mirror = [&there[..], &["--deletions", "mirror"]].concat();
    let said = migrate(&mirror, &bucket, &[]).unwrap();
    assert!(
        said.contains("10 sessions") && said.contains("deleted 2 sessions"),
        "{said}"
    );
    let said = migrate(&there, &bucket, &[]).unwrap();
    assert!(said.contains("This run moved 0 sessions"), "{said}");
    let gone = [name("moved-1"), name("moved-2")];
    let server = Server::start(&old, &quiet);
    let left = names(&server).await;
    assert!(
        left.len() == 10 && gone.iter().all(|it| !left.contains(it)),
        "{left:?}"
    );
    server.stop();
    let server = Server::start_with(&new, &settings, &variables);
    assert_eq!(names(&server).await, left);
    // A deletion in one store must not delete a session that grew in the other store.
    let said = append(
        &name("moved-3"),
        vec![with_id(&uuid(901), user("it goes on"))],
    );
    server.context().await.append_messages(said).await.unwrap();
    server.stop();
    let server = Server::start(&old, &quiet);
    delete(&server, "moved-3").await;
    server.stop();
    let said = migrate(&mirror, &bucket, &[]).unwrap_err();
    assert!(said.contains("changed in the other"), "{said}");
    let keep = [&there[..], &["--deletions", "keep"]].concat();
    migrate(&keep, &bucket, &[]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_takes_over_the_results_of_a_shared_bucket() {
    let (cluster, bucket) = (database(), Bucket::start());
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let old_dir = old.to_str().unwrap().to_owned();
    let url = format!("store.postgres.url={}", at(&[&cluster]));
    let place = bucket.url();
    let blobs = format!("blobs.url={place}");
    let variables = bucket.variables();
    let variables = borrowed(&variables);
    let of_source = ["--set", &blobs];
    let of_target = [
        "--set",
        &url,
        "--set",
        &blobs,
        "--set",
        "store.postgres.schema=shared_bucket",
    ];
    let server = Server::start_with(&old, &of_source, &variables);
    fill(&server).await;
    let before = all(&server).await;
    server.stop();
    let there = [
        &["--from", "sled", "--to", "postgres", "--data-dir", &old_dir],
        &["--embedded-blobs", place.as_str()][..],
        &of_target,
    ]
    .concat();
    // The second run finds a bucket that the target owns already.
    migrate(&there, &bucket, &[("CRASH_AT", "migrate.files:4")]).unwrap_err();
    let said = migrate(&there, &bucket, &[]).unwrap();
    assert!(said.contains("12 sessions are in both stores"), "{said}");
    // The files are in the bucket already, so none is copied.
    assert!(said.contains(" 0 stored files"), "{said}");
    let server = Server::start_with(&new, &of_target, &variables);
    assert_eq!(all(&server).await, before);
    delete(&server, "moved-1").await;
    let after = names(&server).await;
    server.stop();
    let mirror = [&there[..], &["--deletions", "mirror"]].concat();
    let said = migrate(&mirror, &bucket, &[]).unwrap();
    assert!(said.contains("deleted 1 sessions"), "{said}");
    let server = Server::start_with(&new, &of_target, &variables);
    assert_eq!(names(&server).await, after);
}

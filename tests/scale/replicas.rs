//! Tests of two servers on one database. They return equal replies, whatever each has in memory.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::commit_summary_request::Outcome;
use palimpsest_proto::context::v1::{
    CommitSummaryRequest, CompactRequest, CompactionStrategy, DeleteSessionRequest, EventKind,
    ListMessagesRequest, PrepareContextResponse, SnipRequest, WatchSessionRequest,
};
use palimpsest_test_servers::Cluster;
use palimpsest_tests::say::{
    append, assistant_call, noise, prepare, result, summary, tools_with_snip, user, uuid, with_id,
};
use palimpsest_tests::{Array, name, refused};
use tonic::Code;

use crate::deployment::{Deployment, at};

/// Returns the database that all tests of this file share. Each test uses its own schema.
pub(crate) fn database() -> Arc<Cluster> {
    // A weak reference, so that the database ends with the last test.
    static RUNNING: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::start());
        *running = Arc::downgrade(&cluster);
        cluster
    })
}

fn pair(cluster: &Cluster, schema: &str, extra: &[&str]) -> Deployment {
    let schema = format!("store.postgres.schema={schema}");
    let settings: Vec<&str> = [schema.as_str()]
        .into_iter()
        .chain(extra.iter().copied())
        .collect();
    Deployment::start(&at(&[cluster]), None, (2, 0), &settings)
}

/// Returns the complete view of a session on one server.
async fn whole(deployment: &Deployment, server: usize, session: &str) -> PrepareContextResponse {
    let mut client = deployment.context(server);
    let request = prepare(session, Vec::new());
    client.prepare_context(request).await.unwrap().into_inner()
}

pub(crate) async fn delete(deployment: &Deployment, server: usize, session: &str) {
    let request = DeleteSessionRequest {
        session: session.to_owned(),
        ..DeleteSessionRequest::default()
    };
    let mut client = deployment.sessions(server);
    client.delete_session(request).await.unwrap();
}

pub(crate) fn turn(number: u64, lines: usize) -> Vec<palimpsest_proto::context::v1::MessageInput> {
    let call = format!("call_{number}");
    let text = format!("what turn {number} found\n").repeat(lines);
    vec![
        with_id(&uuid(number * 3), user(&format!("question {number}"))),
        with_id(&uuid(number * 3 + 1), assistant_call(&call)),
        with_id(&uuid(number * 3 + 2), result(&call, &text)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consecutive_turns_can_use_different_servers() {
    let cluster = database();
    let deployment = pair(&cluster, "turns", &[]);
    let session = name("turns");
    // One array is built from the deltas of both servers, and compared with each server's complete view.
    let mut array = Array::default();
    for number in 0..40 {
        let server = usize::try_from(number % 2).unwrap();
        let mut request = prepare(&session, turn(number, 10));
        request.known_etag = array.etag.clone();
        request.prompt_prefix = tools_with_snip();
        let reply = deployment
            .context(server)
            .prepare_context(request)
            .await
            .unwrap();
        let reply = reply.into_inner();
        // This server accepts the etag of a view that the other one served. The delta contains the new messages and the
        // message before them, to which new content was added.
        let known = array.messages.len().saturating_sub(1);
        assert_eq!(reply.keep_messages as usize, known, "{number}");
        array.take(&reply);
        if number % 10 == 5 {
            let listed = deployment.sessions(1 - server);
            let listed = list(listed, &session).await;
            assert_eq!(listed.len() as u64, (number + 1) * 3, "a stale answer");
        }
        if number % 10 == 9 {
            let request = SnipRequest {
                session: session.clone(),
                turn_ids: turn_ids(&array, 2),
                ..SnipRequest::default()
            };
            deployment.context(server).snip(request).await.unwrap();
            // The view changed on one server. The other one returns a delta with the changed content.
            let mut request = prepare(&session, Vec::new());
            request.known_etag = array.etag.clone();
            let reply = deployment
                .context(1 - server)
                .prepare_context(request)
                .await;
            array.take(reply.unwrap().get_ref());
        }
        let mut views = Vec::new();
        for server in 0..2 {
            let whole = whole(&deployment, server, &session).await;
            views.push((whole.etag, whole.messages_json));
        }
        assert_eq!(views[0], views[1], "{number}");
        assert_eq!((&views[0].0, &views[0].1), (&array.etag, &array.messages));
    }
    deployment.stop();
}

/// Returns the turn ids in the first user messages of the array.
fn turn_ids(array: &Array, many: usize) -> Vec<String> {
    let texts = array
        .messages
        .iter()
        .map(|json| String::from_utf8_lossy(json).into_owned());
    let ids = texts.filter_map(|text| {
        let rest = text.split_once("[id:")?.1;
        Some(rest.split_once(']')?.0.to_owned())
    });
    ids.take(many).collect()
}

async fn list(mut sessions: palimpsest_tests::Sessions, session: &str) -> Vec<String> {
    let request = ListMessagesRequest {
        session: session.to_owned(),
        page_size: 1_000,
        ..ListMessagesRequest::default()
    };
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    listed
        .messages
        .into_iter()
        .map(|message| message.id)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_append_to_one_session_concurrently() {
    let cluster = database();
    let deployment = Arc::new(pair(&cluster, "together", &[]));
    let session = name("together");
    let first = append(&session, vec![with_id(&uuid(10_000), user("begin"))]);
    deployment.context(0).append_messages(first).await.unwrap();
    let writers: Vec<_> = (0..16_u64)
        .map(|writer| {
            let (deployment, session) = (Arc::clone(&deployment), session.clone());
            tokio::spawn(async move {
                let mut client = deployment.context(usize::try_from(writer % 2).unwrap());
                for number in 0..20 {
                    let id = uuid(writer * 100 + number);
                    let message = with_id(&id, user(&format!("{writer} says {number}")));
                    loop {
                        let request = append(&session, vec![message.clone()]);
                        match client.append_messages(request).await {
                            Ok(_) => break,
                            // With many concurrent appends, one can lose too many races.
                            Err(status) => {
                                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                            }
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let both = [
        list(deployment.sessions(0), &session).await,
        list(deployment.sessions(1), &session).await,
    ];
    assert_eq!(both[0], both[1]);
    let mut ids = both[0].clone();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), both[0].len()), (16 * 20 + 1, 16 * 20 + 1));
    deployment.stop();
}

/// The number of events among which a watch with hints receives half early.
const WINDOW: usize = 10;
/// A hang ends the test after this time.
const HANG: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_at_one_server_sees_events_of_another() {
    let cluster = database();
    let deployment = pair(&cluster, "watched", &[]);
    let session = name("watched");
    let request = append(&session, turn(0, 3));
    deployment
        .context(0)
        .append_messages(request)
        .await
        .unwrap();
    let watch = WatchSessionRequest {
        session: session.clone(),
        kinds: vec![EventKind::MessagesAppended.into()],
        ..WatchSessionRequest::default()
    };
    let mut stream = deployment
        .sessions(1)
        .watch_session(watch)
        .await
        .unwrap()
        .into_inner();
    assert!(stream.message().await.unwrap().unwrap().caught_up);
    // Without a hint, a watch reads once a second, and each append follows directly after such a read. Events can be
    // late in spite of a hint on a busy machine, so the test waits for ten events of which half are early.
    let began = Instant::now();
    let mut early = Vec::new();
    let mut number = 0;
    while early.len() < WINDOW || early.iter().filter(|is_early| **is_early).count() < WINDOW / 2 {
        assert!(began.elapsed() < HANG, "the watch gets no hints: {early:?}");
        if early.len() == WINDOW {
            early.remove(0);
        }
        number += 1;
        let request = append(&session, turn(number, 3));
        let sent = Instant::now();
        deployment
            .context(0)
            .append_messages(request)
            .await
            .unwrap();
        let told = tokio::time::timeout(HANG, async {
            loop {
                let told = stream.message().await.unwrap().unwrap();
                if told.event.is_some() {
                    return told;
                }
            }
        });
        told.await.expect("the watch received no event in time");
        early.push(sent.elapsed() < Duration::from_millis(800));
    }
    delete(&deployment, 0, &session).await;
    let ended = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the watch ended without a word"),
            Err(status) => break status,
        }
    };
    refused(&ended, Code::NotFound, "SESSION_NOT_FOUND");
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_deleted_at_another_server_is_not_served_from_cache() {
    let cluster = database();
    let deployment = pair(&cluster, "deleted", &[]);
    let session = name("again");
    for round in 0..3_u64 {
        let text = |server: usize| format!("round {round} at {server}");
        for server in 0..2 {
            // The ids repeat in each round, so a copy of the deleted session would report duplicates.
            let message = with_id(&uuid(server as u64), user(&text(server)));
            let request = append(&session, vec![message]);
            deployment
                .context(server)
                .append_messages(request)
                .await
                .unwrap();
        }
        let first = whole(&deployment, 1, &session).await;
        let shown: Vec<_> = first
            .messages_json
            .iter()
            .map(|it| String::from_utf8_lossy(it))
            .collect();
        let shown = shown.join("\n");
        assert!(
            shown.contains(&text(0)) && shown.contains(&text(1)),
            "{shown}"
        );
        assert!(round == 0 || !shown.contains("round 0"), "{shown}");
        let server = usize::try_from(round % 2).unwrap();
        delete(&deployment, server, &session).await;
        // A call to prepare creates a new session. The other server must not use its copy of the deleted one.
        let asked = whole(&deployment, 1 - server, &session).await;
        assert_eq!(asked.view_messages, 0);
        delete(&deployment, server, &session).await;
    }
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delegated_summary_can_be_committed_at_another_server() {
    let cluster = database();
    let deployment = pair(
        &cluster,
        "delegated",
        &["policy.autocompact.min_input_tokens=500"],
    );
    let session = name("delegated");
    for number in 0..20 {
        let request = prepare(&session, turn(number, 40));
        deployment
            .context(0)
            .prepare_context(request)
            .await
            .unwrap();
    }
    let request = CompactRequest {
        session: session.clone(),
        strategy: CompactionStrategy::Delegated.into(),
        ..CompactRequest::default()
    };
    let asked = deployment
        .context(0)
        .compact(request)
        .await
        .unwrap()
        .into_inner();
    let token = asked
        .delegated_request
        .expect("the reply has no delegated request");
    // The session continues on both servers meanwhile.
    for number in 20..24 {
        let server = usize::try_from(number % 2).unwrap();
        let request = prepare(&session, turn(number, 5));
        deployment
            .context(server)
            .prepare_context(request)
            .await
            .unwrap();
    }
    let request = CommitSummaryRequest {
        session: session.clone(),
        delegation_token: token.delegation_token,
        outcome: Some(Outcome::Summary(summary("question after question"))),
        ..CommitSummaryRequest::default()
    };
    deployment.context(1).commit_summary(request).await.unwrap();
    let mut views = Vec::new();
    for server in 0..2 {
        let whole = whole(&deployment, server, &session).await;
        let text = String::from_utf8_lossy(&whole.messages_json[0]).into_owned();
        assert!(text.contains("question after question"), "{text}");
        views.push(whole.messages_json);
    }
    assert_eq!(views[0], views[1]);
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_lost_by_a_failover_are_not_confused_with_new_ones() {
    let mut primary = Cluster::start();
    let mut standby = primary.replica("behind");
    let deployment = Deployment::start(&at(&[&primary, &standby]), None, (2, 0), &[]);
    let session = name("failover");
    for number in 0..4 {
        let server = usize::try_from(number % 2).unwrap();
        let request = prepare(&session, turn(number, 5));
        let mut client = deployment.context(server);
        client.prepare_context(request).await.unwrap();
    }
    // Both servers have the whole session in memory, and the standby has received all of it.
    for server in 0..2 {
        whole(&deployment, server, &session).await;
    }
    let written = primary.psql("SELECT pg_current_wal_lsn()");
    standby.until(&format!("SELECT pg_last_wal_replay_lsn() >= '{written}'"));
    standby.stop("fast");
    let says = |text: &str, number| with_id(&uuid(number), user(text));
    let mut array = Array::default();
    // The primary acknowledges this turn, and the standby never receives it.
    let request = prepare(&session, vec![says("this is lost", 900)]);
    let lost = deployment
        .context(0)
        .prepare_context(request)
        .await
        .unwrap();
    array.take(lost.get_ref());
    primary.stop("immediate");
    standby.start_again();
    standby.promote();

    // The same revision, produced by a different append.
    let request = prepare(&session, vec![says("this is there instead", 901)]);
    let there = deployment
        .context(1)
        .prepare_context(request)
        .await
        .unwrap();
    assert_eq!(lost.get_ref().revision, there.get_ref().revision);
    let shown = [
        whole(&deployment, 0, &session).await,
        whole(&deployment, 1, &session).await,
    ];
    let text = String::from_utf8_lossy(&shown[0].messages_json.concat()).into_owned();
    assert!(
        text.contains("there instead") && !text.contains("is lost"),
        "{text}"
    );
    assert_eq!(
        (&shown[0].etag, &shown[0].messages_json),
        (&shown[1].etag, &shown[1].messages_json)
    );
    // An array with lost content is replaced by the current one, and later deltas apply to it.
    let mut request = prepare(&session, vec![says("and it goes on", 902)]);
    request.known_etag = array.etag.clone();
    let reply = deployment
        .context(0)
        .prepare_context(request)
        .await
        .unwrap();
    array.take(reply.get_ref());
    let shown = whole(&deployment, 1, &session).await;
    assert_eq!(
        (&array.etag, &array.messages),
        (&shown.etag, &shown.messages_json)
    );
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_runs_leader_tasks_and_another_takes_over() {
    let cluster = database();
    let settings = ["store.postgres.schema=duties", "sweep.every_ms=400"];
    let deployment = Deployment::start(&at(&[&cluster]), None, (1, 2), &settings);
    let workers = [1, 2];
    let passes = |of: &[usize]| -> f64 {
        let of = of
            .iter()
            .map(|number| deployment.metric(*number, "palimpsest_maintenance_passes_total"));
        of.sum()
    };
    let began = tokio::time::Instant::now();
    let before = passes(&workers);
    let mut seen = 0.0;
    while seen < 10.0 {
        assert!(began.elapsed() < Duration::from_mins(2), "{seen} passes");
        tokio::time::sleep(Duration::from_millis(100)).await;
        seen = passes(&workers) - before;
    }
    // Two workers would need half of this time.
    let most = began.elapsed().as_secs_f64() / 0.4;
    assert!(seen < most + 2.0, "{seen} passes");
    assert!(passes(&[0]) < 1.0, "a server must not run leader tasks");
    let (busy, other) = if passes(&[1]) > passes(&[2]) {
        (1, 2)
    } else {
        (2, 1)
    };
    deployment.kill(busy);
    let before = passes(&[other]);
    while passes(&[other]) < before + 2.0 {
        assert!(began.elapsed() < Duration::from_mins(4));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_prefers_its_previous_sessions() {
    const SESSIONS: u64 = 12;
    let cluster = database();
    let settings = [
        "store.postgres.schema=kept",
        "policy.session_memory.start_tokens=1000",
        "policy.session_memory.update_tokens=1000",
        "worker.poll_ms=2000",
    ];
    let deployment = Deployment::start(&at(&[&cluster]), None, (1, 2), &settings);
    // A round makes every session memory due and returns the worker that updated each.
    let round = async |number: u64| {
        for session in 0..SESSIONS {
            // 10,000 characters exceed `update_tokens` (1,000), so each round makes an update due.
            let message = with_id(&uuid(number), user(&noise(number, 10_000)));
            let request = append(&name(&format!("kept-{session}")), vec![message]);
            deployment
                .context(0)
                .append_messages(request)
                .await
                .unwrap();
        }
        // Nothing is due, no lease is held, and the last owner is recorded.
        cluster.until(&format!(
            "SELECT count(*) = {SESSIONS} FROM kept.sessions
             WHERE due IS NULL AND lease_owner IS NOT NULL AND lease_until IS NULL"
        ));
        let owners = cluster.psql("SELECT lease_owner FROM kept.sessions ORDER BY key");
        owners.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut had = round(0).await;
    let mut stayed = 0;
    for number in 1..=3 {
        let has = round(number).await;
        stayed += had.iter().zip(&has).filter(|(had, has)| had == has).count();
        had = has;
    }
    // On a busy machine, the other worker can claim a session that is late.
    assert!(stayed >= 30, "{stayed} of 36");
    let updates = |worker| deployment.metric(worker, "palimpsest_session_memory_updates_total");
    // The worker that stays must take over the sessions of the busier one.
    deployment.kill(if updates(1) > updates(2) { 1 } else { 2 });
    let has = round(4).await;
    let alone = &has[0];
    assert!(has.iter().all(|has| has == alone), "{has:?}");
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_a_session_deleted_meanwhile_is_not_found() {
    let cluster = database();
    // Without session memory, because an append of the worker would also wait for the table and block others.
    let quiet = ["policy.session_memory.enabled=false"];
    let deployment = pair(&cluster, "parts", &quiet);
    let session = name("parts");
    for number in 0..40 {
        let message = with_id(&uuid(number), user(&noise(number, 30_000)));
        let request = append(&session, vec![message]);
        deployment
            .context(0)
            .append_messages(request)
            .await
            .unwrap();
    }
    cluster.until("SELECT count(*) = 1 FROM parts.snapshots");
    // This server loads only the end of the session until a call needs all of it.
    let request = append(&session, vec![with_id(&uuid(100), user("go on"))]);
    deployment
        .context(1)
        .append_messages(request)
        .await
        .unwrap();
    // The first server knows the session and reads nothing for the deletion.
    list(deployment.sessions(0), &session).await;
    // The lock delays the read of the log until the session is deleted.
    let holder = cluster.holding("LOCK TABLE parts.frames IN ACCESS EXCLUSIVE MODE");
    let asked = tokio::spawn({
        let (mut client, session) = (deployment.context(1), session.clone());
        async move {
            let request = CompactRequest {
                session,
                dry_run: true,
                ..CompactRequest::default()
            };
            client.compact(request).await
        }
    });
    cluster.until_it_waits_for("palimpsest", "parts.frames");
    let ends = async {
        cluster.until("SELECT count(*) = 1 FROM parts.sessions WHERE deleted_at IS NOT NULL");
        holder.commit();
    };
    tokio::join!(delete(&deployment, 0, &session), ends);
    let status = asked.await.unwrap().unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_log_is_reported_and_does_not_block_other_sessions() {
    let cluster = database();
    let deployment = pair(&cluster, "cut", &[]);
    let session = name("cut");
    for number in 0..3 {
        let request = prepare(&session, turn(number, 5));
        deployment
            .context(0)
            .prepare_context(request)
            .await
            .unwrap();
    }
    // The row of the session still names the position of the removed frame.
    cluster.psql(
        "DELETE FROM cut.frames WHERE last = (SELECT max(last) FROM cut.frames WHERE key = 'p!cut')",
    );
    for _ in 0..6 {
        let mut client = deployment.context(1);
        let asked = client.prepare_context(prepare(&session, Vec::new()));
        let asked = tokio::time::timeout(Duration::from_mins(2), asked).await;
        let status = asked.expect("an answer").unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status:?}");
    }
    // Other sessions are not affected.
    let request = prepare(&name("beside"), turn(0, 5));
    deployment
        .context(1)
        .prepare_context(request)
        .await
        .unwrap();
    deployment.stop();
}

//! Tests of reads in several steps during a failover to a lagging standby. No reply may combine two histories.

use futures::StreamExt as _;
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::{
    ExportTranscriptRequest, ListEventsRequest, ListMessagesRequest, ReadStoredSessionRequest,
};
use palimpsest_test_servers::Cluster;
use palimpsest_tests::chance::next;
use palimpsest_tests::say::{append, user, uuid, with_id};
use palimpsest_tests::{name, refused};
use tonic::Code;

use crate::deployment::{Deployment, at};

/// Number of messages that the standby does not receive. Larger than the part that a stream sends ahead.
const LOST: u64 = 90;
const BYTES: usize = 400_000;

/// Returns a text that does not compress.
fn noise(random: &mut u64) -> String {
    let words = std::iter::repeat_with(|| format!("{:016x}", next(random)));
    words.take(BYTES / 16).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_across_a_lossy_failover_ends_without_mixing_histories() {
    let mut primary = Cluster::start();
    let mut standby = primary.replica("lost");
    let quiet = ["worker.enabled=false"];
    let deployment = Deployment::start(&at(&[&primary, &standby]), None, (1, 0), &quiet);
    let session = name("two-histories");
    let says = |text: &str, number| append(&session, vec![with_id(&uuid(number), user(text))]);
    let mut client = deployment.context(0);
    client
        .append_messages(says("both have this", 1))
        .await
        .unwrap();
    let written = primary.psql("SELECT pg_current_wal_lsn()");
    standby.until(&format!("SELECT pg_last_wal_replay_lsn() >= '{written}'"));
    standby.stop("fast");
    let mut random = 7;
    for number in 0..LOST {
        let text = format!("this is lost {}", noise(&mut random));
        client
            .append_messages(says(&text, 100 + number))
            .await
            .unwrap();
    }

    // Each stream has started, and more remains than was sent ahead.
    let mut sessions = deployment.sessions(0);
    let mut admin =
        AdminServiceClient::new(deployment.channel(0)).max_decoding_message_size(usize::MAX);
    let request = ReadStoredSessionRequest {
        session: session.clone(),
        ..ReadStoredSessionRequest::default()
    };
    let mut stored = admin
        .read_stored_session(request)
        .await
        .unwrap()
        .into_inner();
    stored.next().await.unwrap().unwrap();
    let request = ExportTranscriptRequest {
        session: session.clone(),
        ..ExportTranscriptRequest::default()
    };
    let exported = sessions.export_transcript(request).await.unwrap();
    let mut exported = exported.into_inner();
    exported.next().await.unwrap().unwrap();
    let mut events = ListEventsRequest {
        session: session.clone(),
        page_size: 3,
        ..ListEventsRequest::default()
    };
    let page = sessions.list_events(events.clone()).await.unwrap();
    events.page_token = page.into_inner().next_page_token;
    let mut messages = ListMessagesRequest {
        session: session.clone(),
        page_size: 3,
        omit_content: true,
        ..ListMessagesRequest::default()
    };
    let page = sessions.list_messages(messages.clone()).await.unwrap();
    messages.page_token = page.into_inner().next_page_token;
    assert!(!events.page_token.is_empty() && !messages.page_token.is_empty());

    primary.stop("immediate");
    standby.start_again();
    standby.promote();
    // The new history must reach the same length, so that every requested revision exists.
    for number in 0..LOST + 10 {
        client
            .append_messages(says("this is there instead", 500 + number))
            .await
            .unwrap();
    }
    let ended = loop {
        match stored.next().await {
            Some(Ok(part)) => assert!(part.end.is_none(), "two histories in one log"),
            Some(Err(status)) => break status,
            None => panic!("the stream ended without its last part"),
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    let ended = loop {
        match exported.next().await {
            Some(Ok(part)) => assert!(!part.last, "two histories in one file"),
            Some(Err(status)) => break status,
            None => panic!("the stream ended without its last part"),
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    let status = sessions.list_events(events).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_PAGE_TOKEN");
    let status = sessions.list_messages(messages).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_PAGE_TOKEN");
    deployment.stop();
}

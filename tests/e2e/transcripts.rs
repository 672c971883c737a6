//! Tests of transcripts and events: lists, searches and watches.

use std::time::Duration;

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{
    DeleteSessionRequest, EventKind, ListEventsRequest, ListMessagesRequest, MessageFilter,
    RewindSessionRequest, Role, SearchHit, SearchMessagesRequest, SessionEvent, TextPattern,
    TranscriptMessage, Visibility, WatchSessionRequest,
};
use palimpsest_tests::say::{append, assistant, assistant_call, prepare, user, uuid, with_id};
use palimpsest_tests::server::{Server, Sessions};
use palimpsest_tests::{name, refused};
use tonic::{Code, Status};

use crate::SERVER;

/// Appends thirty messages and rewinds the last ten.
pub(crate) async fn thirty(server: &Server, session: &str) {
    let mut client = server.context().await;
    for number in 0..30 {
        let text = format!("Zebra {number} é needle{number}.");
        let said = if number % 2 == 0 {
            user(&text)
        } else {
            assistant(&text)
        };
        client
            .append_messages(append(&name(session), vec![with_id(&uuid(number), said)]))
            .await
            .unwrap();
    }
    let request = RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(uuid(19))),
        ..Default::default()
    };
    client.rewind_session(request).await.unwrap();
}

pub(crate) async fn messages(
    client: &mut Sessions,
    mut request: ListMessagesRequest,
) -> Vec<TranscriptMessage> {
    let mut all = Vec::new();
    loop {
        let page = client
            .list_messages(request.clone())
            .await
            .unwrap()
            .into_inner();
        assert!(page.messages.len() <= request.page_size as usize);
        all.extend(page.messages);
        if page.next_page_token.is_empty() {
            return all;
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn p12_originals_are_listed_independently_of_the_view() {
    let shared = SERVER.get();
    thirty(&shared.0, "listed-messages").await;
    let mut client = shared.0.sessions().await;
    let all = ListMessagesRequest {
        session: name("listed-messages"),
        page_size: 7,
        ..Default::default()
    };
    let listed = messages(&mut client, all.clone()).await;
    assert_eq!(listed.len(), 30);
    for (number, message) in listed.iter().enumerate() {
        assert_eq!(message.ordinal, number as u64 + 1);
        // The rewind kept the ids 0 to 19.
        assert_eq!(message.visibility() == Visibility::Rewound, number >= 20);
        let json = String::from_utf8(message.messages_json[0].to_vec()).unwrap();
        assert!(json.contains(&format!("needle{number}.")), "{json}");
    }
    let down = ListMessagesRequest {
        descending: true,
        ..all.clone()
    };
    let mut down = messages(&mut client, down).await;
    down.reverse();
    assert_eq!(down, listed);
    let count = async |filter| {
        let mut client = shared.0.sessions().await;
        messages(
            &mut client,
            ListMessagesRequest {
                filter: Some(filter),
                ..all.clone()
            },
        )
        .await
        .len()
    };
    assert_eq!(
        count(MessageFilter {
            roles: vec![Role::User.into()],
            ..Default::default()
        })
        .await,
        15
    );
    let rewound = vec![Visibility::Rewound.into()];
    assert_eq!(
        count(MessageFilter {
            visibilities: rewound,
            ..Default::default()
        })
        .await,
        10
    );
    let range = MessageFilter {
        first_ordinal: 5,
        last_ordinal: Some(9),
        ..Default::default()
    };
    assert_eq!(count(range).await, 5);
    let range = MessageFilter {
        first_message_id: uuid(25),
        ..Default::default()
    };
    assert_eq!(count(range).await, 5);
    let filter = MessageFilter {
        first_message_id: uuid(99),
        ..Default::default()
    };
    let request = ListMessagesRequest {
        filter: Some(filter),
        ..all.clone()
    };
    let status = client.list_messages(request).await.unwrap_err();
    refused(&status, Code::NotFound, "MESSAGE_NOT_FOUND");
    let bare = messages(
        &mut client,
        ListMessagesRequest {
            omit_content: true,
            ..all
        },
    )
    .await;
    assert!(bare.iter().all(|message| message.messages_json.is_empty()));
}

async fn search(
    session: &str,
    pattern: Pattern,
    ignore_case: bool,
) -> Result<Vec<SearchHit>, Status> {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let mut request = SearchMessagesRequest {
        session: name(session),
        pattern: Some(TextPattern {
            pattern: Some(pattern),
            ignore_case,
        }),
        page_size: 4,
        ..Default::default()
    };
    let mut hits = Vec::new();
    loop {
        let page = client.search_messages(request.clone()).await?.into_inner();
        assert!(page.hits.len() <= 4);
        hits.extend(page.hits);
        if page.next_page_token.is_empty() {
            return Ok(hits);
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn p12_originals_can_be_searched() {
    let shared = SERVER.get();
    thirty(&shared.0, "searched").await;
    let literal = |text: &str| Pattern::Literal(text.into());
    let regex = |text: &str| Pattern::Regex(text.into());
    let hits = search("searched", literal("needle2"), false).await.unwrap();
    let found: Vec<_> = hits.iter().map(|hit| hit.ordinal).collect();
    // `needle2` and `needle20` to `needle29` match. Ordinals count from 1, and the numbers from 0.
    assert_eq!(found, [3, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30]);
    let text = "Zebra 2 é needle2.";
    assert_eq!(
        hits[0].match_offset_bytes,
        text.find("needle").unwrap() as u64
    );
    assert_eq!(hits[0].match_length_bytes, 7);
    let at = hits[0].snippet_match_offset_bytes as usize;
    assert_eq!(&hits[0].snippet[at..at + 7], "needle2");
    assert_eq!(hits[0].block.clone().unwrap().message_id, uuid(2));
    assert_eq!(
        search("searched", literal("zebra"), false)
            .await
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        search("searched", literal("zebra"), true)
            .await
            .unwrap()
            .len(),
        30
    );
    // A literal has no wildcards.
    assert_eq!(
        search("searched", literal("needle."), false)
            .await
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        search("searched", regex("needle[0-4]\\."), false)
            .await
            .unwrap()
            .len(),
        5
    );
    assert_eq!(
        search("searched", regex("^zebra 1\\d"), true)
            .await
            .unwrap()
            .len(),
        10
    );
    let status = search("searched", regex("a(b"), false).await.unwrap_err();
    let metadata = refused(&status, Code::InvalidArgument, "INVALID_PATTERN");
    assert_eq!(metadata["field"], "pattern.regex");
    // Look-around and backreferences need backtracking, whose time has no bound.
    for bomb in ["(a{1000}){1000}", "(?=x)", "\\1", ""] {
        let status = search("searched", regex(bomb), false).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{bomb}: {status:?}");
    }
}

async fn events(client: &mut Sessions, mut request: ListEventsRequest) -> Vec<SessionEvent> {
    let mut all = Vec::new();
    loop {
        let page = client
            .list_events(request.clone())
            .await
            .unwrap()
            .into_inner();
        all.extend(page.events);
        if page.next_page_token.is_empty() {
            return all;
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn listed_and_watched_events_are_equal() {
    let shared = SERVER.get();
    let (mut client, mut context) = (shared.0.sessions().await, shared.0.context().await);
    let session = name("events");
    for number in 0..5 {
        let mut request = prepare(&session, vec![user(&format!("{number}"))]);
        request.request_id = format!("r{number}");
        context.prepare_context(request).await.unwrap();
    }
    let all = ListEventsRequest {
        session: session.clone(),
        page_size: 3,
        ..Default::default()
    };
    let listed = events(&mut client, all.clone()).await;
    assert!(matches!(&listed[0].event, Some(Event::SessionCreated(_))));
    assert!(listed.is_sorted_by_key(|event| event.revision));
    assert!(listed.iter().any(|event| event.request_id == "r3"));
    let appended = ListEventsRequest {
        kinds: vec![EventKind::MessagesAppended.into()],
        ..all.clone()
    };
    assert_eq!(events(&mut client, appended).await.len(), 5);
    let mut down = events(
        &mut client,
        ListEventsRequest {
            descending: true,
            ..all.clone()
        },
    )
    .await;
    down.reverse();
    assert_eq!(down, listed);
    let last = listed.last().unwrap().revision;
    let after = ListEventsRequest {
        after_revision: last - 1,
        ..all
    };
    assert!(
        events(&mut client, after)
            .await
            .iter()
            .all(|event| event.revision == last)
    );

    // A watch from a revision sends the same events, then new ones, then the end.
    let mut request = WatchSessionRequest {
        session: session.clone(),
        after_revision: Some(0),
        ..Default::default()
    };
    let mut watch = client
        .watch_session(request.clone())
        .await
        .unwrap()
        .into_inner();
    let mut seen = Vec::new();
    loop {
        let element = watch.message().await.unwrap().unwrap();
        seen.extend(element.event);
        if element.caught_up {
            break;
        }
    }
    assert_eq!(seen, listed);
    request.after_revision = None;
    let mut live = client.watch_session(request).await.unwrap().into_inner();
    // The first message confirms that the watch is active.
    let first = live.message().await.unwrap().unwrap();
    assert_eq!(first.event, None);
    let append = append(&session, vec![user("live")]);
    let revision = context
        .append_messages(append)
        .await
        .unwrap()
        .into_inner()
        .revision;
    for watch in [&mut watch, &mut live] {
        let next = async {
            loop {
                if let Some(event) = watch.message().await.unwrap().unwrap().event {
                    return event;
                }
            }
        };
        let event = tokio::time::timeout(Duration::from_mins(2), next)
            .await
            .unwrap();
        assert_eq!(event.revision, revision);
        assert!(matches!(event.event, Some(Event::MessagesAppended(_))));
    }
    // A session that was created again can have fewer events than a client that resumes has read.
    let later = WatchSessionRequest {
        session: session.clone(),
        after_revision: Some(revision + 1),
        ..Default::default()
    };
    let status = client.watch_session(later).await.unwrap_err();
    let metadata = refused(&status, Code::NotFound, "REVISION_NOT_FOUND");
    assert_eq!(metadata["current_revision"], revision.to_string());
    let delete = DeleteSessionRequest {
        session,
        ..Default::default()
    };
    client.delete_session(delete).await.unwrap();
    let end = async {
        loop {
            if let Err(status) = live.message().await {
                return status;
            }
        }
    };
    let status = tokio::time::timeout(Duration::from_mins(2), end)
        .await
        .unwrap();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_watch_resumed_after_any_event_misses_no_later_event() {
    let shared = SERVER.get();
    let (mut client, mut context) = (shared.0.sessions().await, shared.0.context().await);
    let session = name("resumed");
    // The call without a result makes one revision with two events.
    let messages = vec![user("go"), assistant_call("lost"), user("and now?")];
    let request = prepare(&session, messages);
    context.prepare_context(request).await.unwrap();
    let mut watched = async |after: u64| {
        let request = WatchSessionRequest {
            session: session.clone(),
            after_revision: Some(after),
            ..Default::default()
        };
        let mut watch = client.watch_session(request).await.unwrap().into_inner();
        let mut seen = Vec::new();
        loop {
            let element = watch.message().await.unwrap().unwrap();
            seen.extend(element.event.map(|event| (event, element.revision)));
            if element.caught_up {
                return seen;
            }
        }
    };
    let all = watched(0).await;
    let revisions = || all.iter().map(|(event, _)| event.revision);
    assert!(
        revisions()
            .zip(revisions().skip(1))
            .any(|(one, next)| one == next)
    );
    for (read, (_, revision)) in all.iter().enumerate() {
        let rest = watched(*revision).await;
        assert!(rest.ends_with(&all[read + 1..]), "{read}: {rest:?}");
    }
}

#[tokio::test]
async fn a_session_created_by_an_append_is_reported() {
    let shared = SERVER.get();
    let (mut client, mut context) = (shared.0.sessions().await, shared.0.context().await);
    let said = append(&name("implicit"), vec![user("x")]);
    context.append_messages(said).await.unwrap();
    let request = ListEventsRequest {
        session: name("implicit"),
        ..Default::default()
    };
    let listed = events(&mut client, request).await;
    let Some(Event::SessionCreated(made)) = &listed[0].event else {
        panic!("{:?}", listed[0])
    };
    assert!(made.implicit);
}

//! The calls behind the pages: `GetView` and `ListProjects`, totals in lists, and requests in events.

use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    BlockForm, GetViewRequest, GetViewResponse, HiddenRange, Level, ListEventsRequest,
    ListProjectsRequest, ListSessionsRequest, PrepareContextRequest, SessionFilter, ViewBlock,
    Visibility,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{append, assistant, prepare, user};
use palimpsest_tests::server::Server;
use palimpsest_tests::{name, refused};
use serde_json::Value;
use tonic::Code;

use crate::tour::{REQUESTS, TOUR, Tour, play};

async fn view(server: &Server, revision: u64) -> GetViewResponse {
    let mut sessions = server.sessions().await;
    let request = GetViewRequest {
        session: name(TOUR),
        revision,
        ..GetViewRequest::default()
    };
    sessions.get_view(request).await.unwrap().into_inner()
}

fn forms(view: &GetViewResponse) -> Vec<BlockForm> {
    view.blocks.iter().map(ViewBlock::form).collect()
}

#[tokio::test]
async fn a_view_is_shown_as_it_was_at_each_revision() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let at = play(&server, TOUR).await;

    let before = view(&server, at.snipped - 1).await;
    let stored = |view: &GetViewResponse| {
        let forms = forms(view).into_iter();
        forms.filter(|form| *form == BlockForm::Stored).count()
    };
    assert_eq!(stored(&before), 1);
    assert!(before.hidden.is_empty(), "{:?}", before.hidden);

    let snipped = view(&server, at.snipped).await;
    let hidden: Vec<_> = snipped
        .hidden
        .iter()
        .map(|one| (one.first_ordinal, one.reason()))
        .collect();
    assert_eq!(hidden, [(4, Visibility::Snipped)]);
    assert!(snipped.tokens < before.tokens);

    let cleared = view(&server, at.cleared).await;
    // Cleared results are stored, and their references are shown.
    assert!(stored(&cleared) > 8, "{:?}", forms(&cleared));

    let compacted = view(&server, at.compacted).await;
    assert!(forms(&compacted).contains(&BlockForm::Summary));
    let reasons: Vec<_> = compacted.hidden.iter().map(HiddenRange::reason).collect();
    assert!(reasons.contains(&Visibility::Compacted), "{reasons:?}");

    // Each view is what it was, even after a restart, and the totals of its parts are its tokens.
    server.kill();
    let server = Server::start(folder.path(), &[]);
    for earlier in [before, snipped, cleared, compacted] {
        let again = view(&server, earlier.revision).await;
        assert_eq!(again.blocks, earlier.blocks);
        assert_eq!(again.hidden, earlier.hidden);
        let parts = again.breakdown.unwrap();
        let sum = parts.system_tokens
            + parts.tools_tokens
            + parts.summary_tokens
            + parts.messages_tokens
            + parts.results_tokens
            + parts.attachments_tokens;
        assert_eq!(sum, again.tokens);
    }
}

/// Returns the texts of the array that a prepare call returns, by message.
async fn prepared(server: &Server) -> Vec<Vec<Value>> {
    let request = PrepareContextRequest {
        dry_run: true,
        ..prepare(&name(TOUR), Vec::new())
    };
    let reply = server.context().await.prepare_context(request).await;
    let messages = values(&reply.unwrap().into_inner().messages_json);
    messages
        .into_iter()
        .map(|message| match &message["content"] {
            Value::Array(blocks) => blocks.clone(),
            text => vec![text.clone()],
        })
        .collect()
}

#[tokio::test]
async fn the_blocks_of_the_current_view_are_those_of_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    play(&server, TOUR).await;
    let current = view(&server, 0).await;
    let array = prepared(&server).await;
    let shown: Vec<_> = current
        .blocks
        .iter()
        .filter(|block| block.form() != BlockForm::Omitted)
        .collect();
    let lengths: Vec<_> = array.iter().map(Vec::len).collect();
    let mut counted = vec![0; array.len()];
    for block in shown {
        counted[block.message_index.unwrap() as usize] += 1;
    }
    assert_eq!(counted, lengths);
}

#[tokio::test]
async fn pages_of_a_view_join_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let at = play(&server, TOUR).await;
    let whole = view(&server, at.cleared).await;
    let mut sessions = server.sessions().await;
    let mut request = GetViewRequest {
        session: name(TOUR),
        revision: at.cleared,
        page_size: 2,
        max_text_chars: 10,
        ..GetViewRequest::default()
    };
    let mut blocks = Vec::new();
    loop {
        let page = sessions
            .get_view(request.clone())
            .await
            .unwrap()
            .into_inner();
        assert!(page.blocks.len() <= 2);
        blocks.extend(page.blocks);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    let places = |blocks: &[ViewBlock]| -> Vec<_> {
        blocks
            .iter()
            .map(|one| (one.ordinal, one.block_index, one.form, one.tokens))
            .collect()
    };
    assert_eq!(places(&blocks), places(&whole.blocks));
    // Long texts are cut, and marked.
    assert!(blocks.iter().any(|block| block.is_cut));
    assert!(whole.blocks.iter().all(|block| !block.is_cut));
}

#[tokio::test]
async fn all_pages_of_the_current_view_are_of_one_revision() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let mut tour = Tour::begin(&server, TOUR).await;
    tour.request(vec![user("one"), assistant("two"), user("three")])
        .await;
    let whole = view(&server, 0).await;
    let mut sessions = server.sessions().await;
    let mut request = GetViewRequest {
        session: name(TOUR),
        page_size: 1,
        ..GetViewRequest::default()
    };
    let mut blocks = Vec::new();
    loop {
        let page = sessions.get_view(request.clone()).await.unwrap();
        let page = page.into_inner();
        assert_eq!(page.revision, whole.revision);
        blocks.extend(page.blocks);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
        // The session goes on between two pages.
        tour.request(vec![assistant("an answer"), user("more")])
            .await;
    }
    assert_eq!(blocks, whole.blocks);
}

#[tokio::test]
async fn an_unknown_revision_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let at = play(&server, TOUR).await;
    let request = GetViewRequest {
        session: name(TOUR),
        revision: at.last + 1_000,
        ..GetViewRequest::default()
    };
    let status = server.sessions().await.get_view(request).await.unwrap_err();
    refused(&status, Code::NotFound, "REVISION_NOT_FOUND");
}

#[tokio::test]
async fn sessions_over_their_threshold_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let over_threshold = async || {
        let request = ListSessionsRequest {
            parent: "projects/p".into(),
            filter: Some(SessionFilter {
                over_threshold: true,
                ..SessionFilter::default()
            }),
            ..ListSessionsRequest::default()
        };
        let mut sessions = server.sessions().await;
        let listed = sessions.list_sessions(request).await.unwrap().into_inner();
        let names = listed.sessions.into_iter().map(|session| session.name);
        names.collect::<Vec<_>>()
    };
    let long = "Ten letters. ".repeat(1_000);
    for (session, text) in [("small", "Hello"), ("large", long.as_str())] {
        let mut tour = Tour::begin(&server, session).await;
        tour.request(vec![user("Hello")]).await;
        assert!(!over_threshold().await.contains(&name(session)));
        let mut context = server.context().await;
        // Twelve long messages exceed the threshold of the window of 60,000 tokens.
        let said = (0..12).flat_map(|_| [assistant("Hello."), user(text)]);
        context
            .append_messages(append(&name(session), said.collect()))
            .await
            .unwrap();
    }
    assert_eq!(over_threshold().await, [name("large")]);
    let mut tour = Tour::begin(&server, "large").await;
    tour.compact(Level::Compaction).await;
    assert_eq!(over_threshold().await, Vec::<String>::new());
}

#[tokio::test]
async fn requests_have_their_parts_and_lists_have_totals() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    play(&server, TOUR).await;
    let mut sessions = server.sessions().await;
    let events = ListEventsRequest {
        session: name(TOUR),
        page_size: 1_000,
        ..ListEventsRequest::default()
    };
    let events = sessions
        .list_events(events)
        .await
        .unwrap()
        .into_inner()
        .events;
    let requests: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.event {
            Some(Event::ViewServed(request)) => Some(request),
            _ => None,
        })
        .collect();
    assert_eq!(requests.len(), REQUESTS);
    assert_eq!(requests[0].saved_tokens, 0);
    assert!(requests[REQUESTS - 1].saved_tokens > 1_000, "{requests:?}");
    assert_eq!(requests[0].rewritten_tokens, 0);
    assert!(requests.iter().any(|one| one.rewritten_tokens > 0));
    // The last request has no answer yet.
    let answered = &requests[..REQUESTS - 1];
    let sent: u64 = answered.iter().map(|one| u64::from(one.tokens)).sum();
    assert!(requests.iter().all(|one| one.breakdown.is_some()));

    let list = ListSessionsRequest {
        parent: "projects/p".into(),
        ..ListSessionsRequest::default()
    };
    let listed = sessions
        .list_sessions(list)
        .await
        .unwrap()
        .into_inner()
        .sessions;
    let totals = listed[0].totals.unwrap();
    assert_eq!(
        (totals.requests, totals.sent_tokens),
        (answered.len() as u64, sent)
    );
    assert_eq!((totals.compactions, totals.window_tokens), (1, 60_000));
    assert!(totals.saved_tokens > 0 && totals.compact_at_tokens > 0);
    // The snip of an early message made the provider write the view again, and no request has paid for it yet.
    let costs = (totals.cost_tokens, totals.unmanaged_cost_tokens);
    assert!(0 < costs.1 && costs.1 < costs.0, "{costs:?}");

    let mut admin = AdminServiceClient::new(server.channel().await);
    let projects = admin.list_projects(ListProjectsRequest::default()).await;
    let projects = projects.unwrap().into_inner().projects;
    assert_eq!(projects.len(), 1);
    assert_eq!(
        (projects[0].name.as_str(), projects[0].sessions),
        ("projects/p", 1)
    );
    assert_eq!(projects[0].totals.unwrap().sent_tokens, sent);
}

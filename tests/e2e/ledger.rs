//! Tests of the report on the provider's prompt cache.

use std::time::Duration;

use palimpsest_proto::context::v1::{
    CacheLedger, CompactRequest, EventKind, Level, ListEventsRequest, MessageInput, PromptPrefix,
    Provider, RestoreContextRequest, SnipRequest, session_event::Event,
};
use palimpsest_tests::array::flat;
use palimpsest_tests::say::{assistant, prepare, result, target, user, uuid, with_id};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, name};

use crate::SERVER;

const OVERHEAD_TOKENS: u32 = 9_000;

/// A caller that sends every view that it receives.
struct Caller {
    client: Context,
    session: &'static str,
    array: Array,
}

impl Caller {
    async fn new(server: &Server, session: &'static str) -> Self {
        Self {
            client: server.context().await,
            session,
            array: Array::default(),
        }
    }

    async fn prepare(&mut self, messages: Vec<MessageInput>, dry_run: bool) -> CacheLedger {
        let mut request = prepare(&name(self.session), messages);
        request.known_etag = self.array.etag.clone();
        request.dry_run = dry_run;
        request.prompt_prefix = Some(PromptPrefix {
            system_tokens: Some(OVERHEAD_TOKENS),
            ..PromptPrefix::default()
        });
        let reply = self
            .client
            .prepare_context(request)
            .await
            .unwrap()
            .into_inner();
        if !dry_run {
            self.array.take(&reply);
        }
        reply.cache_ledger.unwrap()
    }
}

fn long(word: &str) -> String {
    format!("{word} and so on, ").repeat(300)
}

#[tokio::test]
async fn a_snip_and_its_undo_report_their_cache_effects() {
    let shared = SERVER.get();
    let mut caller = Caller::new(&shared.0, "ledger").await;
    let first = caller.prepare(vec![user(&long("one"))], false).await;
    // No request was answered yet, so nothing is cached.
    assert_eq!((first.reused_messages, first.reused_tokens), (0, 0));
    assert!(first.idle.is_none() && first.since_time.is_some());
    let said = |number, text: &str| with_id(&uuid(number), assistant(text));
    caller
        .prepare(vec![said(21, &long("two")), user(&long("three"))], false)
        .await;
    let next = vec![said(22, &long("four")), user(&long("five"))];
    let sent = flat(&caller.array.messages).len();
    let grown = caller.prepare(next, false).await;
    assert_eq!(grown.reused_messages as usize, sent);
    assert_eq!((grown.invalidated_tokens, grown.saved_tokens), (0, 0));
    assert_eq!(grown.cause(), EventKind::Unspecified);
    assert!(!grown.probably_cold && grown.idle.is_some());

    let last = caller
        .prepare(vec![said(23, "six"), user("seven")], false)
        .await;
    let request = SnipRequest {
        session: name("ledger"),
        message_ids: vec![uuid(22)],
        ..SnipRequest::default()
    };
    let mut dry = request.clone();
    dry.dry_run = true;
    let would = caller.client.snip(dry).await.unwrap().into_inner();
    let snipped = caller.client.snip(request).await.unwrap().into_inner();
    let ledger = snipped.cache_ledger.unwrap();
    let effect = snipped.effect.unwrap();
    assert_eq!(ledger.cause(), EventKind::ContentSnipped);
    assert_eq!(ledger.cause_revision, snipped.revision);
    assert_eq!(ledger.saved_tokens, effect.freed_tokens);
    // The question before the snip was merged with the question after it.
    assert_eq!(ledger.reused_messages, 2);
    // The fifth text follows the removed one. All texts have about the same size.
    assert!(ledger.invalidated_tokens.abs_diff(ledger.saved_tokens) < 50);
    // Five long texts were in the cache. Three precede the snipped one.
    let before = last.reused_tokens - OVERHEAD_TOKENS;
    let after = ledger.reused_tokens - OVERHEAD_TOKENS;
    assert!(
        (after * 5).abs_diff(before * 3) < 300,
        "{ledger:?} after {last:?}"
    );
    // As many tokens are written again as each request saves, at 1.15 additional cost against 0.1.
    let requests = ledger.break_even_requests.unwrap();
    let expected =
        f64::from(ledger.invalidated_tokens) * 1.15 / (f64::from(ledger.saved_tokens) * 0.1);
    assert!((requests - expected).abs() < 1e-6, "{requests}");
    let at_rest = |ledger: Option<CacheLedger>| CacheLedger {
        idle: None,
        ..ledger.unwrap()
    };
    assert_eq!(at_rest(would.cache_ledger), at_rest(Some(ledger)));

    // The next reply and a dry run report the same values.
    let asked = caller.prepare(vec![], true).await;
    let told = caller.prepare(vec![], false).await;
    assert_eq!(at_rest(Some(asked)), at_rest(Some(told)));
    assert_eq!(at_rest(Some(told)), at_rest(Some(ledger)));

    let request = RestoreContextRequest {
        session: name("ledger"),
        to_revision: snipped.revision - 1,
        ..RestoreContextRequest::default()
    };
    let restored = caller
        .client
        .restore_context(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        restored.restored.unwrap().undone[0].kind(),
        EventKind::ContentSnipped
    );
    let whole = restored.cache_ledger.unwrap();
    assert_eq!(whole.cause(), EventKind::Unspecified);
    assert_eq!((whole.invalidated_tokens, whole.saved_tokens), (0, 0));
    assert_eq!(whole.reused_tokens, last.reused_tokens);
    assert_eq!(whole.total_saved_tokens, 0);

    // Events also report the undone changes.
    let request = ListEventsRequest {
        session: name("ledger"),
        kinds: vec![EventKind::ContextRestored.into()],
        ..ListEventsRequest::default()
    };
    let mut sessions = shared.0.sessions().await;
    let listed = sessions.list_events(request).await.unwrap().into_inner();
    let Some(Event::ContextRestored(event)) = &listed.events[0].event else {
        panic!("{listed:?}")
    };
    assert_eq!(event.undone[0].kind(), EventKind::ContentSnipped);
}

#[tokio::test]
async fn ledger_totals_grow_with_responses_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let prices = [
        ("PALIMPSEST_PRICES_CACHE_WRITE", "2"),
        ("PALIMPSEST_PRICES_CACHE_READ", "0.5"),
    ];
    let server = Server::start_with(folder.path(), &[], &prices);
    let mut caller = Caller::new(&server, "totals").await;
    let ids = ["a", "b", "c", "d", "e"];
    let calls: Vec<_> = ids
        .iter()
        .map(|id| serde_json::json!({"type": "tool_use", "id": id, "name": "Read", "input": {}}))
        .collect();
    let asked = serde_json::json!({"role": "assistant", "content": calls});
    let mut said = vec![user("read"), palimpsest_tests::say::anthropic(&asked)];
    said.extend(ids.map(|id| result(id, &long(id))));
    caller.prepare(said, false).await;
    caller
        .prepare(vec![assistant("done"), user("on")], false)
        .await;
    let request = CompactRequest {
        session: name("totals"),
        level: Level::Microcompact.into(),
        target_tokens: Some(0),
        ..CompactRequest::default()
    };
    let cleared = caller.client.compact(request).await.unwrap().into_inner();
    let ledger = cleared.cache_ledger.unwrap();
    assert_eq!(ledger.cause(), EventKind::ResultsCleared);
    assert_eq!(ledger.total_invalidated_tokens, 0);
    let requests = ledger.break_even_requests.unwrap();
    // A write costs 2 and a read 0.5, so each token that is written again costs 1.5 more.
    let expected =
        f64::from(ledger.invalidated_tokens) * 1.5 / (f64::from(ledger.saved_tokens) * 0.5);
    assert!((requests - expected).abs() < 1e-6, "{requests}");
    let one = caller
        .prepare(vec![assistant("well"), user("go on")], false)
        .await;
    assert_eq!(
        one.total_invalidated_tokens,
        u64::from(ledger.invalidated_tokens)
    );
    assert_eq!(one.total_saved_tokens, u64::from(ledger.saved_tokens));
    assert_eq!(one.cause(), EventKind::Unspecified);
    server.kill();
    let server = Server::start_with(folder.path(), &[], &prices);
    let mut caller = Caller {
        client: server.context().await,
        ..caller
    };
    let two = caller
        .prepare(vec![assistant("so"), user("more")], false)
        .await;
    assert_eq!(two.total_invalidated_tokens, one.total_invalidated_tokens);
    // Each request after the clearing saves the same tokens again.
    assert_eq!(two.total_saved_tokens, 2 * one.total_saved_tokens);
    assert_eq!(two.since_time, one.since_time);
    // Another model has another cache.
    let mut other = prepare(&name("totals"), vec![]);
    other.target = Some(target(Provider::Anthropic, "another"));
    let reply = caller
        .client
        .prepare_context(other)
        .await
        .unwrap()
        .into_inner();
    let of_other = reply.cache_ledger.unwrap();
    assert_eq!((of_other.reused_tokens, of_other.reused_messages), (0, 0));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let later = caller.prepare(vec![], false).await;
    assert_eq!(later.reused_tokens, two.reused_tokens);
}

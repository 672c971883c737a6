//! Tests of traces from the caller's span to the disk, the model and the hook.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use palimpsest_proto::context::v1::GetSessionRequest;
use palimpsest_tests::name;
use tonic::Request;

use super::receiver::{attribute, hex, names};
use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Returns a request within a trace of the caller, sampled or not.
fn within<T>(message: T, trace: &str, sampled: bool) -> Request<T> {
    let mut request = Request::new(message);
    let flags = if sampled { "01" } else { "00" };
    let context = format!("00-{trace}-{PARENT}-{flags}");
    let metadata = request.metadata_mut();
    metadata.insert("traceparent", context.parse().unwrap());
    metadata.insert("tracestate", "vendor=kept".parse().unwrap());
    request
}

#[track_caller]
fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let first = found.next();
    first.unwrap_or_else(|| panic!("no {name} in {:?}", names(spans)))
}

/// Returns the names from a span up to its outermost parent.
fn way(spans: &[Span], from: &Span) -> Vec<String> {
    let mut way = vec![from.name.clone()];
    let mut parent = &from.parent_span_id;
    while let Some(above) = spans.iter().find(|span| span.span_id == *parent) {
        way.push(above.name.clone());
        parent = &above.parent_span_id;
    }
    way
}

#[tokio::test]
async fn a_trace_spans_from_the_caller_to_the_disk() {
    // Only the embedded store has the spans `store.wait` and `store.sync`.
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let mut world = World::new(&[]).await;
    let request = within(prepare(&name("s"), work("lamp")), TRACE, true);
    world.client.prepare_context(request).await.unwrap();
    let rpc = "palimpsest.context.v1.ContextService/PrepareContext";
    let spans = world.receiver.trace_with(TRACE, rpc).await;

    let root = one(&spans, rpc);
    assert_eq!(hex(&root.parent_span_id), PARENT);
    assert_eq!(root.trace_state, "vendor=kept");
    assert_eq!(root.kind(), SpanKind::Server);
    for (name, value) in [
        ("rpc.system", "grpc"),
        ("rpc.service", "palimpsest.context.v1.ContextService"),
        ("rpc.method", "PrepareContext"),
        ("rpc.grpc.status_code", "0"),
        ("session", "projects/p/sessions/s"),
    ] {
        assert_eq!(attribute(root, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(way(&spans, one(&spans, "convert")), ["convert", rpc]);
    for name in [
        "decide", "render", "store.intend", "blob.put", "store.append",
    ] {
        assert_eq!(way(&spans, one(&spans, name)), [name, "turn", rpc]);
    }
    for name in ["store.wait", "store.sync"] {
        // The intent of the result's file and the events are both synced.
        let found = spans.iter().filter(|span| span.name == name);
        let ways: BTreeSet<_> = found.map(|span| way(&spans, span)).collect();
        for above in ["store.append", "store.intend"] {
            let way = [name, above, "turn", rpc].map(str::to_owned).to_vec();
            assert!(ways.contains(&way), "{ways:?}");
        }
    }
}

#[tokio::test]
async fn calls_of_models_and_hooks_are_part_of_the_trace() {
    let mut world = World::new(&[]).await;
    world.prepare("s", work("lamp")).await;
    let compact = CompactRequest {
        session: name("s"),
        strategy: CompactionStrategy::Model.into(),
        ..CompactRequest::default()
    };
    // Earlier requests are discarded, so that `metadata[0]` belongs to this compaction.
    let _ = world.hook.asked();
    world
        .client
        .compact(within(compact, TRACE, true))
        .await
        .unwrap();
    let rpc = "palimpsest.context.v1.ContextService/Compact";
    let spans = world.receiver.trace_with(TRACE, rpc).await;

    let chat = one(&spans, "chat claude-fake");
    assert_eq!(chat.kind(), SpanKind::Client);
    assert_eq!(way(&spans, chat).last().unwrap(), rpc);
    assert_eq!(
        attribute(chat, "gen_ai.request.model").as_deref(),
        Some("claude-fake")
    );
    assert_eq!(
        attribute(chat, "http.response.status_code").as_deref(),
        Some("200")
    );
    let asked = world.provider.requests();
    let mut headers = asked.iter().flat_map(|request| &request.headers);
    let expected = format!("00-{TRACE}-{}-01", hex(&chat.span_id));
    assert!(headers.any(|(name, value)| name == "traceparent" && *value == expected));

    let hook = one(&spans, "hook");
    assert_eq!(way(&spans, hook).last().unwrap(), rpc);
    let metadata = world.hook.asked().metadata;
    let sent = metadata[0].get("traceparent").unwrap().to_str().unwrap();
    assert_eq!(sent, format!("00-{TRACE}-{}-01", hex(&hook.span_id)));
    assert_eq!(metadata[0].get("tracestate").unwrap(), "vendor=kept");
}

#[tokio::test]
async fn an_unsampled_trace_is_not_exported_and_its_error_is_logged() {
    let mut world = World::with(
        &["log.level=debug"],
        &[("OTEL_SERVICE_NAME", "memory-of-agents")],
    )
    .await;
    let unsampled = "0123456789abcdef0123456789abcdef";
    let get = |session: &str| GetSessionRequest {
        session: name(session),
        ..GetSessionRequest::default()
    };
    let request = within(get("missing"), unsampled, false);
    assert!(world.sessions.get_session(request).await.is_err());
    let request = within(get("missing"), TRACE, true);
    assert!(world.sessions.get_session(request).await.is_err());
    let rpc = "palimpsest.context.v1.SessionService/GetSession";
    let spans = world.receiver.trace_with(TRACE, rpc).await;
    let span = one(&spans, rpc);
    assert_eq!(
        attribute(span, "rpc.grpc.status_code").as_deref(),
        Some("5")
    );
    assert_eq!(
        attribute(span, "error.type").as_deref(),
        Some("SESSION_NOT_FOUND")
    );
    let all = world.receiver.spans();
    assert!(all.iter().all(|span| hex(&span.trace_id) != unsampled));

    // The log contains the same ids.
    let log = world.server.log();
    let line = |trace: &str| {
        let of_trace = log
            .iter()
            .find(|line| line.contains(trace) && line.contains("NOT_FOUND"));
        of_trace.unwrap_or_else(|| panic!("{log:?}")).clone()
    };
    assert!(line(TRACE).contains(&hex(&span.span_id)));
    assert!(line(unsampled).contains("SESSION_NOT_FOUND"));
    let name = ("service.name".to_owned(), "memory-of-agents".to_owned());
    assert!(world.receiver.resources().contains(&name));
}

#[tokio::test]
async fn a_worker_pass_has_its_own_trace() {
    let mut world = World::new(&[]).await;
    world.prepare("s", work("lamp")).await;
    for _ in 0..200 {
        let spans = world.receiver.spans();
        let pass = spans.iter().find(|span| {
            let in_it =
                |one: &Span| one.parent_span_id == span.span_id && one.name == "store.append";
            span.name == "worker.pass" && spans.iter().any(in_it)
        });
        if let Some(pass) = pass {
            assert!(pass.parent_span_id.is_empty());
            assert_eq!(
                attribute(pass, "session").as_deref(),
                Some("projects/p/sessions/s")
            );
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!(
        "no pass with an append in {:?}",
        names(&world.receiver.spans())
    );
}

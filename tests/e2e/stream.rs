//! Tests of views that are too large for one reply.

use bytes::Bytes;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CompactionMode, MessageForm, PrepareContextResponse, RewindSessionRequest, StreamContextRequest,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{append, prepare, user, uuid, with_id};
use palimpsest_tests::server::Context;
use palimpsest_tests::{name, refused};
use tonic::{Code, Status};

use crate::SERVER;

/// Returns the messages of a streamed view, and the number of chunks.
async fn stream(
    client: &mut Context,
    request: StreamContextRequest,
) -> Result<(Vec<Bytes>, usize), Status> {
    let mut at = request.skip_messages;
    let mut chunks = client.stream_context(request).await?.into_inner();
    let (mut messages, mut count, mut last) = (Vec::new(), 0, false);
    while let Some(chunk) = chunks.message().await? {
        assert!(!last, "nothing follows the last");
        assert_eq!(chunk.first_message_index, at);
        // 4 MiB is the default limit of gRPC clients for one message.
        assert!(chunk.messages_json.iter().map(Bytes::len).sum::<usize>() < 4 << 20);
        at += u32::try_from(chunk.messages_json.len() + chunk.messages.len()).unwrap();
        messages.extend(chunk.messages_json);
        (last, count) = (chunk.last, count + 1);
    }
    assert!(last, "the stream is incomplete");
    Ok((messages, count))
}

/// Creates a session with eight messages of one megabyte.
async fn large(client: &mut Context, session: &str) -> PrepareContextResponse {
    for number in 0..8 {
        let text = format!("{number} {}", "x".repeat(1_000_000));
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        let said = serde_json::json!({"role": role, "content": text});
        let said = with_id(&uuid(number), palimpsest_tests::say::anthropic(&said));
        client
            .append_messages(append(session, vec![said]))
            .await
            .unwrap();
    }
    let mut request = prepare(session, vec![user("last")]);
    request.set_compaction_mode(CompactionMode::Never);
    client.prepare_context(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_large_view_is_omitted_and_streamed() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("large-view");
    let reply = large(&mut client, &session).await;
    assert!(reply.view_omitted && reply.messages_json.is_empty());
    assert_eq!((reply.keep_messages, reply.view_messages), (0, 9));
    assert!(reply.view_bytes > 8_000_000);
    let mut request = StreamContextRequest {
        session: session.clone(),
        etag: reply.etag.clone(),
        skip_messages: 0,
    };
    let (whole, chunks) = stream(&mut client, request.clone()).await.unwrap();
    assert!(chunks > 1);
    assert_eq!(whole.len(), 9);
    assert_eq!(
        whole.iter().map(Bytes::len).sum::<usize>() as u64,
        reply.view_bytes
    );
    for (number, value) in values(&whole)[..8].iter().enumerate() {
        let text = value.to_string();
        assert!(text.contains(&format!("\"{number} xxx")), "{}", &text[..80]);
    }
    request.skip_messages = 5;
    let (rest, _) = stream(&mut client, request.clone()).await.unwrap();
    assert_eq!(rest, whole[5..]);

    // A delta applies to a streamed array.
    let mut next = prepare(&session, vec![]);
    next.known_etag = reply.etag.clone();
    next.set_compaction_mode(CompactionMode::Never);
    let next = client.prepare_context(next).await.unwrap().into_inner();
    assert_eq!((next.keep_messages, next.view_omitted), (9, false));

    let rewind = RewindSessionRequest {
        session: session.clone(),
        target_message: Some(TargetMessage::ToMessageId(uuid(2))),
        ..Default::default()
    };
    client.rewind_session(rewind).await.unwrap();
    let status = stream(&mut client, request.clone()).await.unwrap_err();
    let metadata = refused(&status, Code::Aborted, "VIEW_CHANGED");
    assert!(metadata["current_revision"].parse::<u64>().unwrap() > reply.revision);
    request.etag = Bytes::from_static(b"garbage");
    let status = stream(&mut client, request).await.unwrap_err();
    assert_ne!(status.code(), Code::Internal, "{status:?}");
}

#[tokio::test]
async fn a_large_typed_view_is_streamed_typed() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("large-typed");
    large(&mut client, &session).await;
    let mut request = prepare(&session, Vec::new());
    request.set_compaction_mode(CompactionMode::Never);
    request.form = MessageForm::Typed.into();
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    assert!(reply.view_omitted && reply.messages.is_empty());
    let request = StreamContextRequest {
        session,
        etag: reply.etag,
        skip_messages: 0,
    };
    let mut chunks = client.stream_context(request).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(chunk) = chunks.message().await.unwrap() {
        assert!(chunk.messages_json.is_empty());
        count += chunk.messages.len();
    }
    assert_eq!(count, 9);
}

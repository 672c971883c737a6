//! Tests of the keep and etag protocol: the array of a minimal client equals the complete view.

use bytes::Bytes;
use palimpsest_proto::context::v1::{
    Message, MessageForm, MessageInput, PrepareContextRequest, PrepareContextResponse, Provider,
};
use palimpsest_tests::array::{check_prefix, flat};
use palimpsest_tests::say::{assistant, assistant_calls, prepare, result, target, user};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, name};

use crate::SERVER;

async fn ask(client: &mut Context, request: PrepareContextRequest) -> PrepareContextResponse {
    client.prepare_context(request).await.unwrap().into_inner()
}

/// Returns the new messages before each model call: the user input, then the results of parallel calls.
fn turns(count: usize) -> Vec<Vec<MessageInput>> {
    let mut steps = Vec::new();
    for turn in 0..count {
        let ids: Vec<_> = (0..=turn % 3)
            .map(|call| format!("t{turn}_{call}"))
            .collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let mut input = vec![user(&format!("question {turn}"))];
        if turn > 0 {
            input.insert(0, assistant(&format!("answer {}", turn - 1)));
        }
        steps.push(input);
        let mut results = vec![assistant_calls(&ids)];
        // The results have another order than the calls.
        results.extend(
            ids.iter()
                .rev()
                .map(|id| result(id, &format!("content of {id}"))),
        );
        steps.push(results);
    }
    steps
}

async fn loop_for(session: &str, provider: Provider) {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let (session, target) = (name(session), target(provider, "m"));
    let mut array = Array::default();
    let mut kept = 0;
    for step in turns(60) {
        let before = array.clone();
        let mut request = prepare(&session, step);
        request.target = Some(target.clone());
        request.known_etag = array.etag.clone();
        let reply = ask(&mut client, request).await;
        assert!(reply.sendable, "{:?}", reply.not_sendable_reason());
        // At most the last message is sent again.
        assert!(reply.keep_messages as usize + 1 >= before.messages.len());
        kept += reply.keep_messages;
        array.take(&reply);
        let bytes: usize = array.messages.iter().map(Bytes::len).sum();
        let mut full = Array::default();
        let mut request = prepare(&session, Vec::new());
        request.target = Some(target.clone());
        let whole = ask(&mut client, request).await;
        assert_eq!((whole.keep_messages, whole.view_bytes), (0, bytes as u64));
        full.take(&whole);
        assert_eq!(full, array);
        // The last message of a view for Anthropic can grow by blocks, so blocks are compared.
        if provider == Provider::Anthropic {
            check_prefix(&flat(&before.messages), &flat(&array.messages));
        } else {
            check_prefix(&before.messages, &array.messages);
        }
    }
    assert!(kept > 1_000, "the delta was never small: {kept}");
}

#[tokio::test]
async fn p09_a_served_view_is_a_prefix_of_the_next() {
    loop_for("p09", Provider::Anthropic).await;
}

#[tokio::test]
async fn p09_a_served_openai_view_is_a_prefix_of_the_next() {
    loop_for("p09-openai", Provider::Openai).await;
}

#[tokio::test]
async fn the_typed_form_follows_the_same_protocol() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("typed-loop");
    let (mut array, mut etag) = (Vec::<Message>::new(), Bytes::new());
    for step in turns(20) {
        let mut request = prepare(&session, step);
        request.form = MessageForm::Typed.into();
        request.known_etag = etag;
        let reply = ask(&mut client, request).await;
        assert!(reply.messages_json.is_empty());
        array.truncate(reply.keep_messages as usize);
        array.extend(reply.messages);
        etag = reply.etag;
        let mut request = prepare(&session, Vec::new());
        request.form = MessageForm::Typed.into();
        assert_eq!(ask(&mut client, request).await.messages, array);
    }
    assert!(array.len() > 50);
}

#[tokio::test]
async fn an_unknown_etag_returns_the_whole_view() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let foreign = ask(&mut client, prepare(&name("foreign"), vec![user("other")])).await;
    let session = name("etags");
    let known = ask(&mut client, prepare(&session, vec![user("hello")])).await;
    let mut typed = prepare(&session, Vec::new());
    typed.form = MessageForm::Typed.into();
    let typed = ask(&mut client, typed).await;
    let mut openai = prepare(&session, Vec::new());
    openai.target = Some(target(Provider::Openai, "m"));
    let openai = ask(&mut client, openai).await;
    assert!(known.etag.len() <= 128);
    let mut cut = known.etag.to_vec();
    cut.pop();
    let mut wrong = known.etag.to_vec();
    wrong[6] ^= 0x55;
    // Etags of another session, form and provider, damaged ones, and arbitrary bytes.
    let garbage: Vec<Bytes> = vec![
        foreign.etag,
        typed.etag,
        openai.etag,
        cut.into(),
        wrong.into(),
        Bytes::from_static(b"x"),
        vec![0xff; 128].into(),
        vec![0; 1_000_000].into(),
    ];
    for etag in garbage {
        let mut request = prepare(&session, Vec::new());
        request.target = Some(target(Provider::Anthropic, ""));
        request.known_etag = etag.clone();
        let reply = ask(&mut client, request).await;
        let head = &etag[..etag.len().min(40)];
        assert_eq!(reply.keep_messages, 0, "{head:?}");
        assert_eq!(reply.messages_json, known.messages_json, "{head:?}");
    }
    let mut request = prepare(&session, Vec::new());
    request.target = Some(target(Provider::Anthropic, ""));
    request.known_etag = known.etag;
    let reply = ask(&mut client, request).await;
    assert_eq!((reply.keep_messages, reply.messages_json.len()), (1, 0));
}

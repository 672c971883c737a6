//! Whole arrays after a summary of the caller. Without a level of the service, the view is the array, whatever the caller
//! changed.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CompactRequest, Format, ListMessagesRequest, RewindSessionRequest, SyncContextRequest,
    SyncContextResponse, SyncOutcome, Visibility,
};
use palimpsest_tests::name;
use palimpsest_tests::server::Context;
use serde_json::{Value, json};

use crate::SERVER;
use crate::whole_arrays::{model, request, user, view};

/// An array, and true if it begins with a summary of the caller.
type Step = (Vec<Value>, bool);

async fn sync(client: &mut Context, session: &str, (array, flag): &Step) -> SyncContextResponse {
    let request = SyncContextRequest {
        caller_compacted: *flag,
        ..request(session, Format::AnthropicMessages, &json!(array))
    };
    client.sync_context(request).await.unwrap().into_inner()
}

/// Returns the roles and the texts. A view joins messages of one author, and the texts of a summary.
fn joined(array: &[Value]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for message in array {
        let role = message["role"].as_str().unwrap();
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            blocks => {
                let blocks = blocks.as_array().unwrap().iter();
                let text = |block: &Value| {
                    let text = block["text"].as_str();
                    text.map_or_else(|| block.to_string(), str::to_owned)
                };
                blocks.map(text).collect::<Vec<_>>().join("\n")
            }
        };
        match all.last_mut() {
            Some((last, before)) if last == role => *before = format!("{before}\n{text}"),
            _ => all.push((role.to_owned(), text)),
        }
    }
    all
}

/// Syncs some arrays. Each view must be its array. Returns the last outcome.
async fn check(label: &str, steps: &[Step]) -> SyncOutcome {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name(&format!("adopted-{label}"));
    let mut last = SyncOutcome::Unspecified;
    for (number, step) in steps.iter().enumerate() {
        let reply = sync(&mut client, &session, step).await;
        let (shown, sent) = (joined(&view(&reply)), joined(&step.0));
        assert_eq!(shown, sent, "{label}, step {number}");
        last = reply.outcome();
        let repeat = sync(&mut client, &session, &(step.0.clone(), false)).await;
        assert_eq!(repeat.appended_messages, 0, "{label}, step {number}");
        assert_eq!(joined(&view(&repeat)), sent, "{label}, step {number}");
    }
    last
}

/// Returns the messages of an array: inputs begin with `q` or a capital letter, and answers with `a`.
fn array(texts: &str) -> Vec<Value> {
    let texts = texts.split(", ");
    let message = |text: &str| match text.strip_prefix('a') {
        Some(_) => model(text),
        None => user(text),
    };
    texts.map(message).collect()
}

#[tokio::test]
async fn a_changed_first_message_changes_nothing_else() {
    let steps = ["Mon, a1, q2", "Tue, a1, q2", "Wed, a1, q2, a2, q3"];
    let steps = steps.map(|texts| (array(texts), false));
    let outcome = check("first", &steps).await;
    assert_eq!(outcome, SyncOutcome::Adopted);
    // The date of a first message changes each day, and each day has further turns.
    let mut texts = String::from("q0");
    let mut steps = Vec::new();
    for day in 0..4 {
        for turn in 0..3 {
            texts = format!("{texts}, a{day}.{turn}, q{day}.{turn}");
            let mut whole = array(&texts);
            whole[0] = user(&format!("Today is day {day}."));
            steps.push((whole, false));
        }
    }
    check("days", &steps).await;
}

#[tokio::test]
async fn a_changed_first_message_of_several_blocks_is_taken() {
    let blocks = |day: &str| {
        let text = |text: &str| json!({"type": "text", "text": text});
        json!({"role": "user", "content": [text(day), text("Fix the build.")]})
    };
    let rest = array("a1, q2");
    let of = |day: &str| ([vec![blocks(day)], rest.clone()].concat(), false);
    check("blocks", &[of("Monday"), of("Tuesday"), of("Wednesday")]).await;
    let flagged = ([vec![blocks("A summary.")], rest.clone()].concat(), true);
    check("flagged-blocks", &[of("Monday"), flagged]).await;
    // An image is no text, so such a message is no summary.
    let image =
        json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}});
    let with_image = |text: &str| {
        let text = json!({"type": "text", "text": text});
        json!({"role": "user", "content": [text, image]})
    };
    let of = |text: &str| ([vec![with_image(text)], rest.clone()].concat(), false);
    check("image", &[of("Monday"), of("Tuesday"), of("Wednesday")]).await;
}

/// The Responses API can return a compaction item of the provider, which begins the next array.
#[tokio::test]
async fn a_compaction_item_of_the_provider_is_adopted() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("adopted-item");
    let whole = json!([
        {"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"},
    ]);
    let first = request(&session, Format::OpenaiResponses, &whole);
    client.sync_context(first).await.unwrap();
    let item = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "ZW5j"});
    let compacted = json!([item, {"role": "user", "content": "q3"}]);
    let second = request(&session, Format::OpenaiResponses, &compacted);
    let reply = client.sync_context(second).await.unwrap().into_inner();
    assert_eq!(
        (reply.outcome(), &reply.session),
        (SyncOutcome::Adopted, &session)
    );
    let shown = json!(view(&reply)).to_string();
    assert!(shown.contains("ZW5j") && shown.contains("q3"), "{shown}");
    assert!(!shown.contains("q2"), "{shown}");
}

#[tokio::test]
async fn a_second_summary_replaces_the_first() {
    let first = (array("q1, a1, q2, a2, q3"), false);
    let steps = [
        first.clone(),
        (array("S1, q3"), true),
        (array("S1, q3, a3, q4"), false),
        (array("S2, q3, a3, q4"), true),
        (array("S2, q3, a3, q4, a4, q5"), false),
    ];
    check("again", &steps).await;
    let steps = [
        first,
        (array("S1, q4"), true),
        (array("S1, q4, a4"), false),
        (array("S2, q5"), true),
    ];
    check("whole", &steps).await;
}

#[tokio::test]
async fn an_edit_after_a_summary_removes_what_follows() {
    let first = (array("q1, a1, q2, a2, q3"), false);
    let steps = [
        first.clone(),
        (array("S1, q3"), true),
        (array("S1, q3 edited"), false),
    ];
    assert_eq!(check("last", &steps).await, SyncOutcome::Rewound);
    let steps = [
        first.clone(),
        (array("S1, q2, a2, q3"), true),
        (array("S1, q2, a2 other, q3 other"), false),
    ];
    check("answer", &steps).await;
    let steps = [
        first,
        (array("S1, q2, a2, q3"), true),
        (array("q other"), false),
    ];
    check("all", &steps).await;
}

#[tokio::test]
async fn an_edit_before_an_earlier_summary_removes_it() {
    let first = (array("q1, a1, q2, a2, q3"), false);
    let middle = [
        first,
        (array("q1, a1, MID"), true),
        (array("day2, a1, MID"), false),
    ];
    check(
        "back",
        &[&middle[..], &[(array("day2, a1, q2 new"), false)]].concat(),
    )
    .await;
    check(
        "far-back",
        &[&middle[..], &[(array("day2, other"), false)]].concat(),
    )
    .await;
    let behind = [
        (array("q1, a1, q3"), false),
        (array("q1, MID"), true),
        (array("S, MID"), true),
    ];
    check(
        "behind",
        &[&behind[..], &[(array("S, x, a y"), false)]].concat(),
    )
    .await;
    check("alone", &[&behind[..], &[(array("S"), false)]].concat()).await;
}

/// The first message changes while the session's own summary stands for it.
#[tokio::test]
async fn a_changed_message_behind_an_own_summary_changes_no_view() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("adopted-own");
    let texts = |day: &str, end: &str| {
        let turns = (0..6).map(|turn| format!("a{turn} {0}, q{turn} {0}", "long ".repeat(2_000)));
        let turns: Vec<String> = turns.collect();
        (array(&format!("{day}, {}{end}", turns.join(", "))), false)
    };
    sync(&mut client, &session, &texts("Mon", "")).await;
    let compact = CompactRequest {
        session: session.clone(),
        ..CompactRequest::default()
    };
    client.compact(compact).await.unwrap();
    let before = sync(&mut client, &session, &texts("Mon", ", a6, q6")).await;
    let after = sync(&mut client, &session, &texts("Tue", ", a6, q6")).await;
    assert_eq!(view(&after), view(&before));
    let edited = sync(&mut client, &session, &texts("Tue", ", a6, q7")).await;
    let shown = json!(view(&edited)).to_string();
    assert!(shown.contains("q7") && !shown.contains("q6"), "{shown}");
    assert!(!shown.contains("Tue"), "{shown}");
}

/// An element of which a rewind removed a part is not the element that the caller has.
#[tokio::test]
async fn a_joined_element_is_whole_after_a_rewind() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("adopted-joined");
    let call = json!({"type": "tool_use", "id": "c1", "name": "Read", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "c1", "content": "R"});
    let input = json!({"type": "text", "text": "q2"});
    let alone = |role: &str, block: &Value| json!({"role": role, "content": [block]});
    let start = [user("q1"), alone("assistant", &call)];
    let apart = [alone("user", &result), alone("user", &input)];
    let apart = ([&start[..], &apart].concat(), false);
    let first = sync(&mut client, &session, &apart).await;
    let whole = json!({"role": "user", "content": [result, input]});
    let whole = ([&start[..], &[whole]].concat(), false);
    sync(&mut client, &session, &whole).await;
    let list = ListMessagesRequest {
        session: session.clone(),
        page_size: 100,
        ..ListMessagesRequest::default()
    };
    let mut sessions = shared.0.sessions().await;
    let listed = sessions.list_messages(list).await.unwrap().into_inner();
    let request = RewindSessionRequest {
        session: session.clone(),
        target_message: Some(TargetMessage::ToMessageId(listed.messages[2].id.clone())),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(request).await.unwrap();
    let again = sync(&mut client, &session, &whole).await;
    assert_eq!(view(&again), view(&first));
}

#[tokio::test]
async fn a_rewind_to_a_summary_removes_the_messages_after_it() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let session = name("adopted-rewind");
    for step in [
        (array("q1, a1, q2, a2, q3"), false),
        (array("S1, q2, a2, q3"), true),
    ] {
        sync(&mut client, &session, &step).await;
    }
    let visible = async |sessions: &mut palimpsest_tests::server::Sessions| {
        let list = ListMessagesRequest {
            session: session.clone(),
            page_size: 100,
            ..ListMessagesRequest::default()
        };
        let mut all = sessions
            .list_messages(list)
            .await
            .unwrap()
            .into_inner()
            .messages;
        all.retain(|it| it.visibility() == Visibility::Visible);
        all.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    let before = visible(&mut sessions).await;
    // The summary was added last.
    let summary = before.last().unwrap().clone();
    let request = RewindSessionRequest {
        session: session.clone(),
        target_message: Some(TargetMessage::ToMessageId(summary.clone())),
        ..RewindSessionRequest::default()
    };
    let reply = client.rewind_session(request).await.unwrap().into_inner();
    assert_eq!(reply.rewound.unwrap().message_ids.len(), 3);
    assert_eq!(visible(&mut sessions).await, [summary]);
}

#[tokio::test]
async fn random_changes_give_views_of_the_array() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..40 {
        let mut texts = 0_u32;
        let mut text = |random: &mut fastrand::Rng| {
            texts += 1;
            format!("text {texts} {}", random.u32(..))
        };
        let mut whole = vec![user(&text(&mut random))];
        let mut steps = Vec::new();
        for _ in 0..14 {
            let mut is_summary = false;
            let place = random.usize(..whole.len());
            match random.u8(..10) {
                0..=3 => {}
                4..=5 => whole[0] = user(&text(&mut random)),
                6..=7 => {
                    is_summary = true;
                    whole.drain(..place);
                    whole.insert(0, user(&text(&mut random)));
                }
                8 if place > 1 => {
                    is_summary = true;
                    let from = random.usize(1..=place);
                    whole.drain(from..place);
                    whole.insert(from, user(&text(&mut random)));
                }
                8 => whole.truncate(place.max(1)),
                _ => {
                    whole[place] = match whole[place]["role"].as_str() {
                        Some("user") => user(&text(&mut random)),
                        _ => model(&text(&mut random)),
                    };
                }
            }
            if whole.last().is_some_and(|last| last["role"] == "user") {
                whole.push(model(&text(&mut random)));
            }
            whole.push(user(&text(&mut random)));
            steps.push((whole.clone(), is_summary));
        }
        check(&format!("random-{round}"), &steps).await;
    }
}

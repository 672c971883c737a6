//! Whole arrays after a summary of the caller. Without a level of the service, the view is the array, whatever the caller
//! changed.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    Format, ListMessagesRequest, RewindSessionRequest, SyncContextRequest, SyncContextResponse,
    SyncOutcome, Visibility,
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

/// Returns the roles and the texts. A view joins messages of one author, as Anthropic does.
fn joined(array: &[Value]) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for message in array {
        let role = message["role"].as_str().unwrap();
        let texts = match &message["content"] {
            Value::String(text) => vec![text.clone()],
            blocks => {
                let blocks = blocks.as_array().unwrap().iter();
                blocks
                    .map(|block| block["text"].as_str().unwrap().to_owned())
                    .collect()
            }
        };
        match all.last_mut() {
            Some((last, before)) if last == role => before.extend(texts),
            _ => all.push((role.to_owned(), texts)),
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

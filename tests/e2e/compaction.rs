//! Tests of level 5 over gRPC: a summary replaces messages, automatically and manually, and an undo restores them.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CompactRequest, CompactionMode, CompactionState, CompactionStrategy, EventKind, Level,
    LevelAction, ListMessagesRequest, MessageFilter, MessageInput, PrepareContextRequest,
    PrepareContextResponse, RestoreContextRequest, RewindSessionRequest, SkipReason,
    TranscriptMessage, Trigger, Visibility, compact_request,
};
use palimpsest_tests::say::{
    assistant, assistant_calls, prepare, result, small_window, user, work,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, name, refused};
use serde_json::Value;
use tonic::Code;

/// Without a worker there is no session memory, so the summary is extractive.
const ALONE: [&str; 2] = ["--set", "worker.enabled=false"];

fn request(session: &str, messages: Vec<MessageInput>) -> PrepareContextRequest {
    PrepareContextRequest {
        target: Some(small_window()),
        ..prepare(&name(session), messages)
    }
}

async fn turn(
    client: &mut Context,
    session: &str,
    array: &mut Array,
    messages: Vec<MessageInput>,
) -> PrepareContextResponse {
    let mut request = request(session, messages);
    request.known_etag = array.etag.clone();
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    array.take(&reply);
    reply
}

async fn grown(client: &mut Context, session: &str, array: &mut Array, turns: usize) {
    for number in 0..turns {
        let mut request = request(session, work(number));
        request.known_etag = array.etag.clone();
        request.set_compaction_mode(CompactionMode::Never);
        let reply = client.prepare_context(request).await.unwrap().into_inner();
        array.take(&reply);
    }
}

/// Returns the complete transcript.
async fn listed(server: &Server, session: &str) -> Vec<TranscriptMessage> {
    let list = ListMessagesRequest {
        session: name(session),
        page_size: 100,
        ..ListMessagesRequest::default()
    };
    let listed = server.sessions().await.list_messages(list).await;
    listed.unwrap().into_inner().messages
}

fn text_of(message: &Value) -> String {
    message.to_string()
}

/// Asserts that the reply reports the removed messages with the revision that restores them.
#[track_caller]
fn leads_back(reply: &PrepareContextResponse, messages: u32) {
    let left = &reply.recovery.as_ref().unwrap().items;
    assert_eq!(left.iter().map(|item| item.messages).sum::<u32>(), messages);
    for item in left {
        assert_eq!(item.cause(), EventKind::Compacted, "{item:?}");
        assert!(item.restore_to_revision > 0 && item.restore_to_revision < reply.revision);
    }
}

#[tokio::test]
async fn p06_a_view_above_its_threshold_is_compacted_and_the_last_input_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-auto", Array::default());
    // Six turns of about 4,000 tokens exceed the compaction threshold of 17,000.
    grown(&mut client, session, &mut array, 6).await;
    let before = turn(
        &mut client,
        session,
        &mut array,
        vec![user("and now the last step")],
    )
    .await;
    let stage = before
        .level_reports
        .iter()
        .find(|stage| stage.level() == Level::Compaction)
        .unwrap();
    assert_eq!(stage.action(), LevelAction::Applied, "{stage:?}");
    let effect = stage.effect.as_ref().unwrap();
    assert!(effect.after_tokens < effect.before_tokens / 2, "{effect:?}");
    assert_eq!(effect.trigger(), Trigger::Auto);
    assert!(before.sendable);
    // All six turns of four messages each are summarized.
    leads_back(&before, 24);
    // The summary is first, and the last user input is unchanged.
    let values = array.values();
    let first = text_of(&values[0]);
    assert!(
        first.contains("<conversation-summary>") && first.contains("step 0"),
        "{first}"
    );
    assert!(text_of(values.last().unwrap()).contains("and now the last step"));
    assert!(!text_of(&Value::Array(values)).contains("0 line 17 of a listing"));
    // The next view continues this one.
    let reply = turn(
        &mut client,
        session,
        &mut array,
        vec![assistant("it is done")],
    )
    .await;
    let skipped = reply
        .level_reports
        .iter()
        .find(|stage| stage.level() == Level::Compaction);
    assert!(skipped.is_none(), "{skipped:?}");
    assert_eq!(reply.keep_messages as usize, array.values().len() - 1);
    // The transcript is complete and reports the visibility of each message.
    let listed = listed(&server, session).await;
    let of = |wanted: Visibility| {
        let seen = listed.iter();
        seen.filter(|message| message.visibility() == wanted)
            .count()
    };
    assert_eq!(of(Visibility::Compacted), 24);
    assert_eq!(of(Visibility::TranscriptOnly), 1);
    // The summary, the last user input, the response, and the two files that fit into the space.
    assert_eq!(of(Visibility::Visible), 5);
}

#[tokio::test]
async fn p13_an_undone_compaction_restores_the_exact_view_even_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-back", Array::default());
    grown(&mut client, session, &mut array, 5).await;
    let earlier = array.messages.clone();
    let wanted = CompactRequest {
        session: name(session),
        target: Some(small_window()),
        ..CompactRequest::default()
    };
    let reply = client.compact(wanted).await.unwrap().into_inner();
    let compaction = reply.compaction.unwrap();
    assert_eq!(compaction.state(), CompactionState::Succeeded);
    assert_eq!(compaction.strategy(), CompactionStrategy::Extractive);
    let boundary = compaction.boundary.unwrap();
    // Of 20 messages, only the latest user input stays.
    assert_eq!(boundary.summarized_messages, 19);
    assert!(compaction.summary.contains("step 3"));
    turn(&mut client, session, &mut array, vec![user("after it")]).await;
    server.kill();

    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let whole = client
        .prepare_context(request(session, vec![]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        whole.messages_json, array.messages,
        "the same view after a restart"
    );
    // The compaction recorded two events: its start and its end.
    let restore = RestoreContextRequest {
        session: name(session),
        to_revision: whole.revision - 4,
        force: true,
        target: Some(small_window()),
        ..RestoreContextRequest::default()
    };
    let back = client.restore_context(restore).await.unwrap().into_inner();
    assert!(!back.restored.unwrap().undone.is_empty());
    let mut request = request(session, vec![]);
    request.set_compaction_mode(CompactionMode::Never);
    let whole = client.prepare_context(request).await.unwrap().into_inner();
    let whole = whole.messages_json;
    assert_eq!(
        whole[..earlier.len()],
        earlier[..],
        "an undo must restore the earlier view"
    );
    assert!(
        whole.len() > earlier.len(),
        "later messages must follow the restored view"
    );
}

#[tokio::test]
async fn a_dry_run_compacts_nothing_and_a_too_small_view_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-dry", Array::default());
    grown(&mut client, session, &mut array, 5).await;
    let wanted = |dry_run| CompactRequest {
        session: name(session),
        target: Some(small_window()),
        dry_run,
        ..CompactRequest::default()
    };
    let reply = client.compact(wanted(true)).await.unwrap().into_inner();
    let compaction = reply.compaction.unwrap();
    assert_eq!(compaction.state(), CompactionState::DryRun);
    assert!(
        compaction.summary.contains("step 2"),
        "{}",
        compaction.summary
    );
    let mut same = request(session, vec![]);
    same.set_compaction_mode(CompactionMode::Never);
    let after = client.prepare_context(same).await.unwrap().into_inner();
    assert_eq!(after.messages_json, array.messages);

    client.compact(wanted(false)).await.unwrap();
    let status = client.compact(wanted(false)).await.unwrap_err();
    refused(&status, Code::FailedPrecondition, "NOTHING_TO_COMPACT");
}

#[tokio::test]
async fn a_range_is_compacted_up_to_or_from_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-part", Array::default());
    grown(&mut client, session, &mut array, 8).await;
    let listed = listed(&server, session).await;
    // Index 15 is the last message of the fourth turn, so the boundary lies between two turns.
    let up_to = CompactRequest {
        session: name(session),
        target: Some(small_window()),
        range: Some(compact_request::Range::UpToMessageId(listed[15].id.clone())),
        ..CompactRequest::default()
    };
    let reply = client.compact(up_to).await.unwrap().into_inner();
    let boundary = reply.compaction.unwrap().boundary.unwrap();
    assert_eq!(boundary.summarized_messages, 16);
    assert_eq!(boundary.first_kept_message_id, listed[16].id);
    assert_eq!(boundary.last_summarized_message_id, listed[15].id);
    let view = turn(&mut client, session, &mut array, vec![]).await;
    assert_eq!(view.keep_messages, 0);
    let first = text_of(&array.values()[0]);
    assert!(
        first.contains("replaces the beginning of this conversation")
            && first.contains("messages after that part follow word for word"),
        "{first}"
    );
    // The summary describes its part alone.
    let (summary, _) = first.split_once("</conversation-summary>").unwrap();
    assert!(
        summary.contains("step 3") && !summary.contains("step 4"),
        "{summary}"
    );
    let from = CompactRequest {
        session: name(session),
        target: Some(small_window()),
        range: Some(compact_request::Range::FromMessageId(listed[16].id.clone())),
        ..CompactRequest::default()
    };
    let reply = client.compact(from).await.unwrap().into_inner();
    let boundary = reply.compaction.unwrap().boundary.unwrap();
    assert!(boundary.kept_before, "{boundary:?}");
    turn(&mut client, session, &mut array, vec![]).await;
    let values = array.values();
    let later = text_of(values.last().unwrap());
    assert!(
        later.contains("replaces a later part of this conversation")
            && later.contains("messages before that part precede this one"),
        "{later}"
    );
    let (_, summary) = later.rsplit_once("<conversation-summary>").unwrap();
    assert!(
        summary.contains("step 5") && !summary.contains("step 3"),
        "{summary}"
    );
}

#[tokio::test]
async fn messages_of_a_compaction_have_the_time_of_its_event() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-times", Array::default());
    grown(&mut client, session, &mut array, 8).await;
    let before = listed(&server, session).await;
    let last = before.last().unwrap().metadata.clone().unwrap();
    let up_to = CompactRequest {
        session: name(session),
        target: Some(small_window()),
        range: Some(compact_request::Range::UpToMessageId(before[15].id.clone())),
        ..CompactRequest::default()
    };
    client.compact(up_to).await.unwrap();
    // A message of the compaction with the time of a summarized message would be outside this filter.
    let request = ListMessagesRequest {
        session: name(session),
        page_size: 100,
        filter: Some(MessageFilter {
            from_time: last.create_time,
            ..MessageFilter::default()
        }),
        ..ListMessagesRequest::default()
    };
    let recent = server
        .sessions()
        .await
        .list_messages(request)
        .await
        .unwrap();
    let recent = recent.into_inner().messages;
    let added = &listed(&server, session).await[before.len()..];
    assert!(added.len() >= 2, "{added:?}");
    assert!(recent.ends_with(added), "{recent:?}");
}

#[tokio::test]
async fn a_rewind_that_only_restores_the_view_reports_its_effect() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-rewound-to-last", Array::default());
    grown(&mut client, session, &mut array, 8).await;
    let last = listed(&server, session).await.pop().unwrap();
    // The range contains every message. The rewind to the last one therefore removes none and only undoes the summary.
    let up_to = CompactRequest {
        session: name(session),
        target: Some(small_window()),
        range: Some(compact_request::Range::UpToMessageId(last.id.clone())),
        ..CompactRequest::default()
    };
    let compacted = client.compact(up_to).await.unwrap().into_inner();
    let rewind = RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(last.id)),
        ..RewindSessionRequest::default()
    };
    let reply = client.rewind_session(rewind).await.unwrap().into_inner();
    assert!(reply.revision > compacted.revision, "{reply:?}");
    assert!(reply.rewound.unwrap().message_ids.is_empty());
    let effect = reply.effect.unwrap();
    assert!(effect.after_tokens > effect.before_tokens, "{effect:?}");
}

#[tokio::test]
async fn a_summarized_request_is_kept_verbatim_when_a_rewind_makes_it_current() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-rewound", Array::default());
    grown(&mut client, session, &mut array, 5).await;
    let listed = listed(&server, session).await;
    let id = |at: usize| listed[at].id.clone();
    // The fourth user input leaves. The work on it and the fifth turn stay.
    let up_to = CompactRequest {
        session: name(session),
        target: Some(small_window()),
        range: Some(compact_request::Range::UpToMessageId(id(12))),
        ..CompactRequest::default()
    };
    client.compact(up_to).await.unwrap();
    // The rewind removes the fifth turn, so the fourth input, which is summarized, becomes the current request.
    let rewind = RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(id(14))),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(rewind).await.unwrap();
    // Two large results bring the view over the threshold, so a second compaction follows.
    let mut more = Vec::new();
    for call in ["more", "rest"] {
        more.push(assistant_calls(&[call]));
        let listing = format!("{call} of the listing\n").repeat(1_500);
        more.push(result(call, &listing));
    }
    turn(&mut client, session, &mut array, more).await;
    let summary = array.values()[0]["content"][0]["text"].clone();
    let summary = summary.as_str().unwrap();
    let (_, beside) = summary.split_once("</conversation-summary>").unwrap();
    let kept = "<kept>\nplease do the step 3 of the plan\n</kept>";
    assert!(beside.contains(kept), "{summary}");
}

#[tokio::test]
async fn a_caller_can_disable_compaction_or_run_it_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    let (session, mut array) = ("compact-mode", Array::default());
    grown(&mut client, session, &mut array, 6).await;
    let mut never = request(session, vec![user("more")]);
    never.set_compaction_mode(CompactionMode::Never);
    let reply = client.prepare_context(never).await.unwrap().into_inner();
    let stage = reply
        .level_reports
        .iter()
        .find(|stage| stage.level() == Level::Compaction)
        .unwrap();
    assert_eq!(stage.skip_reason(), SkipReason::DisabledByCaller);
    let mut beside = request(session, vec![]);
    beside.set_compaction_mode(CompactionMode::Background);
    let reply = client.prepare_context(beside).await.unwrap().into_inner();
    let stage = reply
        .level_reports
        .iter()
        .find(|stage| stage.level() == Level::Compaction)
        .unwrap();
    assert_eq!(stage.action(), LevelAction::Started);
    // The compaction runs after the reply. Its commit raises the epoch.
    for _ in 0..200 {
        let now = client
            .prepare_context(request(session, vec![]))
            .await
            .unwrap()
            .into_inner();
        if now.epoch > reply.epoch {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("timed out waiting for the compaction");
}

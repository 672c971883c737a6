//! Tests of policies: presets, overrides, changes, and settings of the server and of projects.

use std::fs;

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    AutocompactPolicy, CollapsePolicy, CreateSessionRequest, EventKind, GetSessionRequest,
    ListEventsRequest, MicrocompactPolicy, MicrocompactTimePolicy, NameList, Policy, PolicyChanged,
    PolicyPreset, Session, SnipPolicy, ToolResultPolicy, ToolResultRule, UpdateSessionRequest,
    WatchSessionRequest, tool_result_rule,
};
use palimpsest_tests::say::{append, prepare, user};
use palimpsest_tests::server::Sessions;
use palimpsest_tests::{Server, name, refused, refused_field};
use tonic::{Code, Status};

use crate::SERVER;

fn with_overrides(session: &str, overrides: Policy) -> Session {
    Session {
        name: session.to_owned(),
        policy_overrides: Some(overrides),
        ..Default::default()
    }
}

async fn create(client: &mut Sessions, id: &str, overrides: Policy) -> Result<Session, Status> {
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: id.to_owned(),
        session: Some(with_overrides("", overrides)),
        ..Default::default()
    };
    let reply = client.create_session(request).await?;
    Ok(reply.into_inner().session.unwrap())
}

async fn get(client: &mut Sessions, session: &str) -> Session {
    let request = GetSessionRequest {
        session: session.to_owned(),
        ..GetSessionRequest::default()
    };
    let reply = client.get_session(request).await.unwrap();
    reply.into_inner().session.unwrap()
}

fn change(id: &str, overrides: Option<Policy>, paths: &[&str]) -> UpdateSessionRequest {
    UpdateSessionRequest {
        session: Some(Session {
            policy_overrides: overrides,
            ..with_overrides(&name(id), Policy::default())
        }),
        update_mask: (!paths.is_empty()).then(|| prost_types::FieldMask {
            paths: paths.iter().map(ToString::to_string).collect(),
        }),
        ..Default::default()
    }
}

async fn update(client: &mut Sessions, request: &UpdateSessionRequest) -> Result<Session, Status> {
    let reply = client.update_session(request.clone()).await?;
    Ok(reply.into_inner().session.unwrap())
}

fn nudge(nudge: bool) -> Policy {
    Policy {
        snip: Some(SnipPolicy {
            nudge: Some(nudge),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Returns the policy changes of a session, with revision and epoch.
async fn changes(client: &mut Sessions, id: &str, descending: bool) -> Vec<(u64, PolicyChanged)> {
    let request = ListEventsRequest {
        session: name(id),
        kinds: vec![EventKind::PolicyChanged.into()],
        descending,
        ..Default::default()
    };
    let reply = client.list_events(request).await.unwrap().into_inner();
    let change = |event: palimpsest_proto::context::v1::SessionEvent| match event.event {
        Some(Event::PolicyChanged(change)) => (event.epoch, *change),
        other => panic!("{other:?}"),
    };
    reply.events.into_iter().map(change).collect()
}

#[tokio::test]
async fn a_session_policy_is_a_preset_with_overrides() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let rule = ToolResultRule {
        rule: Some(tool_result_rule::Rule::FixedChars(12)),
    };
    let overrides = Policy {
        preset: PolicyPreset::Opencode.into(),
        tool_results: Some(ToolResultPolicy {
            rules: [("Read".to_owned(), rule)].into(),
            ..Default::default()
        }),
        microcompact: Some(MicrocompactPolicy {
            // An empty list overrides the list of the preset. A missing field would keep it.
            protected_tools: Some(NameList::default()),
            time: Some(MicrocompactTimePolicy {
                idle: Some(prost_types::Duration {
                    seconds: 90,
                    nanos: 500_000_000,
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..nudge(true)
    };
    let made = create(&mut client, "policy-made", overrides).await.unwrap();
    assert_eq!(get(&mut client, &made.name).await, made);
    let policy = made.policy.unwrap();
    assert_eq!(policy.preset(), PolicyPreset::Opencode);
    let snip = policy.snip.unwrap();
    assert_eq!(
        (snip.nudge, snip.wrap_interjections),
        (Some(true), Some(true))
    );
    assert_eq!(policy.tool_results.unwrap().rules["Read"], rule);
    let microcompact = policy.microcompact.unwrap();
    assert_eq!(microcompact.protected_tools, Some(NameList::default()));
    let idle = microcompact.time.unwrap().idle.unwrap();
    assert_eq!((idle.seconds, idle.nanos), (90, 500_000_000));
    let auto = policy.autocompact.unwrap();
    assert_eq!(auto.output_reserve_tokens, Some(32_000));
    assert_eq!(auto.block_at_tokens, None);
}

#[tokio::test]
async fn a_creation_with_overrides_is_idempotent() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session: Some(with_overrides("", nudge(true))),
        request_id: "policy-create".into(),
        ..Default::default()
    };
    let one = client.create_session(request.clone()).await.unwrap();
    let two = client.create_session(request.clone()).await.unwrap();
    assert_eq!(one.into_inner(), two.into_inner());
    let other = CreateSessionRequest {
        session: Some(with_overrides("", nudge(false))),
        ..request
    };
    let status = client.create_session(other).await.unwrap_err();
    refused(&status, Code::AlreadyExists, "REQUEST_CONFLICT");
}

#[tokio::test]
async fn an_update_changes_the_policy_and_the_epoch() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let made = create(&mut client, "policy-change", nudge(true))
        .await
        .unwrap();
    assert_eq!(made.epoch, 0);
    let off = AutocompactPolicy {
        enabled: Some(false),
        ..Default::default()
    };
    let overrides = Policy {
        autocompact: Some(off),
        ..Default::default()
    };
    let mut request = change("policy-change", Some(overrides), &[]);
    request.request_id = "policy-change".into();
    let changed = update(&mut client, &request).await.unwrap();
    assert_eq!(changed.epoch, 1);
    let policy = changed.policy.clone().unwrap();
    assert_eq!(policy.autocompact.unwrap().enabled, Some(false));
    assert_eq!(policy.snip.unwrap().nudge, Some(true));
    assert_eq!(update(&mut client, &request).await.unwrap(), changed);

    // A field that the mask names and the request does not set is cleared. Fields outside the mask are ignored.
    let masked = change(
        "policy-change",
        Some(nudge(true)),
        &["policy_overrides.autocompact.enabled", "title"],
    );
    let cleared = update(&mut client, &masked).await.unwrap();
    let policy = cleared.policy.clone().unwrap();
    assert_eq!(policy.autocompact.unwrap().enabled, Some(true));
    assert_eq!((cleared.epoch, policy.snip.unwrap().nudge), (2, Some(true)));
    let masked = change("policy-change", None, &["policy_overrides"]);
    let bare = update(&mut client, &masked).await.unwrap();
    assert_eq!(
        bare.policy.clone().unwrap().snip.unwrap().nudge,
        Some(false)
    );
    // An update without an effect records no event.
    let same = update(&mut client, &masked).await.unwrap();
    assert_eq!(same, bare);

    let listed = changes(&mut client, "policy-change", false).await;
    let paths: Vec<_> = listed
        .iter()
        .map(|(epoch, change)| (*epoch, change.paths.join(",")))
        .collect();
    let expected = [
        (1, "autocompact.enabled".to_owned()),
        (2, "autocompact.enabled".to_owned()),
        (3, "snip.nudge".to_owned()),
    ];
    assert_eq!(paths, expected);
    assert_eq!(listed[2].1.policy, bare.policy);
    let mut backwards = changes(&mut client, "policy-change", true).await;
    backwards.reverse();
    assert_eq!(backwards, listed);
    let watch = WatchSessionRequest {
        session: name("policy-change"),
        after_revision: Some(bare.revision - 1),
        ..Default::default()
    };
    let mut stream = client.watch_session(watch).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap().event.unwrap();
    let Some(Event::PolicyChanged(change)) = first.event else {
        panic!("{first:?}");
    };
    assert_eq!(change.paths, ["snip.nudge"]);
}

#[tokio::test]
async fn invalid_overrides_name_their_path() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    create(&mut client, "policy-bad", Policy::default())
        .await
        .unwrap();
    let collapse = |collapse: CollapsePolicy| Policy {
        collapse: Some(collapse),
        ..Default::default()
    };
    let cases = [
        (
            Policy {
                preset: 77,
                ..Default::default()
            },
            "preset",
        ),
        (
            collapse(CollapsePolicy {
                max_risk: Some(1.5),
                ..Default::default()
            }),
            "collapse.max_risk",
        ),
        (
            collapse(CollapsePolicy {
                target_percent: Some(99.0),
                ..Default::default()
            }),
            "collapse.target_percent",
        ),
        (
            Policy {
                tool_results: Some(ToolResultPolicy {
                    rules: [("Read".to_owned(), ToolResultRule::default())].into(),
                    ..Default::default()
                }),
                ..Default::default()
            },
            "tool_results.rules[\"Read\"].rule",
        ),
    ];
    for (overrides, path) in cases {
        let path = format!("session.policy_overrides.{path}");
        let status = create(&mut client, "policy-bad-2", overrides.clone()).await;
        refused_field(&status.unwrap_err(), &path);
        let request = change("policy-bad", Some(overrides), &[]);
        refused_field(&update(&mut client, &request).await.unwrap_err(), &path);
    }
    let request = change("policy-bad", None, &["policy_overrides.snip.nugde"]);
    let status = update(&mut client, &request).await.unwrap_err();
    refused_field(&status, "update_mask.paths[0]");
    assert_eq!(get(&mut client, &name("policy-bad")).await.revision, 1);
}

#[tokio::test]
async fn servers_and_projects_set_the_initial_policy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("palimpsest.toml");
    let text = "
        [policy.snip]
        nudge = true
        nudge_after_messages = 7
        [projects.q.policy]
        preset = \"threshold\"
        snip.nudge_after_messages = 8
    ";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let vars = [
        ("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "50"),
        ("PALIMPSEST_POLICY_SNIP_NUDGE_AFTER_TOKENS", "9"),
    ];
    let data = folder.path().join("data");
    let server = Server::start_with(&data, &["--config", file], &vars);
    let (mut context, mut client) = (server.context().await, server.sessions().await);
    // These sessions are created implicitly: by a first append, and by a first prepare.
    let of_p = append(&name("s"), vec![user("a")]);
    let budget = context.append_messages(of_p).await.unwrap().into_inner();
    let budget = budget.budget.unwrap();
    // 50 % of the effective window of 180,000 tokens, and a warning 20,000 tokens below.
    assert_eq!(
        (budget.compact_at_tokens, budget.warn_at_tokens),
        (90_000, 70_000)
    );
    let of_q = prepare("projects/q/sessions/s", vec![user("a")]);
    let budget = context.prepare_context(of_q).await.unwrap().into_inner();
    let budget = budget.budget.unwrap();
    // In the preset `threshold`, a share refers to the whole window.
    assert_eq!(
        (budget.compact_at_tokens, budget.block_at_tokens),
        (100_000, 200_000)
    );
    let p = get(&mut client, &name("s")).await.policy.unwrap();
    let q = get(&mut client, "projects/q/sessions/s").await;
    let q = q.policy.unwrap();
    assert_eq!(p.preset(), PolicyPreset::ClaudeCode);
    assert_eq!(q.preset(), PolicyPreset::Threshold);
    let snip = |policy: Policy| {
        let snip = policy.snip.unwrap();
        let after = (snip.nudge_after_messages, snip.nudge_after_tokens);
        (snip.nudge.unwrap(), after.0.unwrap(), after.1.unwrap())
    };
    assert_eq!(snip(p), (true, 7, 9));
    assert_eq!(snip(q), (true, 8, 9));
    let own = create(&mut client, "own", nudge(false)).await.unwrap();
    assert_eq!(snip(own.policy.unwrap()), (false, 7, 9));
    server.stop();

    // Another configuration does not change existing sessions.
    let server = Server::start(&data, &[]);
    let mut client = server.sessions().await;
    let q = get(&mut client, "projects/q/sessions/s").await;
    assert_eq!(snip(q.policy.unwrap()), (true, 8, 9));
    let new = create(&mut client, "new", Policy::default()).await.unwrap();
    assert!(!snip(new.policy.unwrap()).0);
    server.stop();
}

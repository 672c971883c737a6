//! Tests that secrets are removed before a summary quotes them, and that a session cannot change this.

use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, CreateSessionRequest, Policy, Session, SummaryPolicy,
    UpdateSessionRequest,
};
use palimpsest_tests::say::{assistant, assistant_calls, prepare, result, user};
use palimpsest_tests::{Server, name, refused};
use tonic::Code;

fn key_lines() -> Vec<String> {
    (0..20)
        .map(|line| format!("{line:02}{}", "aB3dE5fG7hJ9kLmN".repeat(4)))
        .collect()
}

fn private_key(separator: &str) -> String {
    // The label is joined from parts, so that scanners for secrets accept this file.
    let label = ["RSA", "PRIVATE", "KEY"].join(" ");
    let mut lines = vec![format!("-----BEGIN {label}-----")];
    lines.extend(key_lines());
    lines.push(format!("-----END {label}-----"));
    lines.join(separator)
}

#[tokio::test]
async fn a_private_key_is_redacted_from_an_extractive_summary() {
    let folder = tempfile::tempdir().unwrap();
    let off = ["--set", "worker.enabled=false"];
    let server = Server::start(&folder.path().join("data"), &off);
    let mut context = server.context().await;
    let padding = "one more line of a long listing\n".repeat(200);
    // The separators of a key are lines, indented lines, escaped lines and spaces.
    let messages = vec![
        user(&format!(
            "use this key:\n{}\nfor the deployment",
            private_key("\n")
        )),
        assistant_calls(&["a"]),
        result(
            "a",
            &format!("error: cannot read\n{}\n{padding}", private_key("\r\n    ")),
        ),
        assistant(&format!("I see {}", private_key("\\n"))),
        user(&format!("and this one: {}", private_key(" "))),
        assistant("done"),
        user("what next?"),
        assistant("nothing"),
    ];
    let request = prepare(&name("key"), messages);
    context.prepare_context(request).await.unwrap();
    let compact = CompactRequest {
        session: name("key"),
        ..CompactRequest::default()
    };
    let done = context.compact(compact).await.unwrap().into_inner();
    let compaction = done.compaction.unwrap_or_default();
    assert_eq!(compaction.strategy(), CompactionStrategy::Extractive);
    let summary = compaction.summary;
    assert!(summary.contains("deployment"), "{summary}");
    // A part of a line is a leak too.
    for line in key_lines() {
        assert!(
            !summary.contains(&line[..16]),
            "{line} is left in {summary}"
        );
    }
}

fn unredacted() -> Policy {
    Policy {
        summary: Some(SummaryPolicy {
            redact_secrets: Some(false),
            ..SummaryPolicy::default()
        }),
        ..Policy::default()
    }
}

#[tokio::test]
async fn a_session_cannot_disable_redaction_required_by_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let open = ["--set", "worker.enabled=false"];
    let server = Server::start(&folder.path().join("data"), &open);
    let mut sessions = server.sessions().await;
    let create = CreateSessionRequest {
        parent: "projects/demo".into(),
        session_id: "own".into(),
        session: Some(Session {
            policy_overrides: Some(unredacted()),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    let status = sessions.create_session(create.clone()).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_FIELD");
    assert!(status.message().contains("redact_secrets"), "{status}");
    // An update of a session is rejected too.
    let redacted = CreateSessionRequest {
        session: None,
        ..create.clone()
    };
    sessions.create_session(redacted).await.unwrap();
    let update = UpdateSessionRequest {
        session: Some(Session {
            name: name("own"),
            policy_overrides: Some(unredacted()),
            ..Session::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["policy_overrides".into()],
        }),
        ..UpdateSessionRequest::default()
    };
    let status = sessions.update_session(update).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_FIELD");
    assert!(status.message().contains("redact_secrets"), "{status}");
    drop(server);
    // A session can change it if the configuration allows this.
    let left = ["--set", "policy.summary.redact_secrets=false"];
    let server = Server::start(&folder.path().join("other"), &left);
    server
        .sessions()
        .await
        .create_session(create)
        .await
        .unwrap();
}

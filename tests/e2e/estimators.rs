//! Tests of token estimators: set by the server or by the session, and changed during the session.

use palimpsest_proto::context::v1::{
    CreateSessionRequest, Policy, Session, TokenEstimator, TokenMethod, TokenPolicy, TokenReport,
    UpdateSessionRequest,
};
use palimpsest_tests::say::{append, user};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{Server, name};

/// A text that the three estimators count differently. Each count excludes the four tokens per message.
const TEXT: &str = "日本語のテキスト";
const BYTES: u32 = 10 + 4;
const O200K: u32 = 6 + 4;
const CL100K: u32 = 8 + 4;

fn counting(estimator: TokenEstimator) -> Policy {
    Policy {
        tokens: Some(TokenPolicy {
            estimator: estimator.into(),
            ..TokenPolicy::default()
        }),
        ..Policy::default()
    }
}

async fn say(client: &mut Context, id: &str) -> TokenReport {
    let request = append(&name(id), vec![user(TEXT)]);
    let reply = client.append_messages(request).await.unwrap().into_inner();
    reply.tokens.unwrap()
}

async fn change(client: &mut Sessions, id: &str, estimator: TokenEstimator) {
    let request = UpdateSessionRequest {
        session: Some(Session {
            name: name(id),
            policy_overrides: Some(counting(estimator)),
            ..Session::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["policy_overrides.tokens.estimator".into()],
        }),
        ..UpdateSessionRequest::default()
    };
    client.update_session(request).await.unwrap();
}

#[tokio::test]
async fn a_session_uses_the_estimator_of_its_policy() {
    let folder = tempfile::tempdir().unwrap();
    let vars = [("PALIMPSEST_POLICY_TOKENS_ESTIMATOR", "o200k")];
    let server = Server::start_with(folder.path(), &[], &vars);
    let (mut context, mut sessions) = (server.context().await, server.sessions().await);

    let report = say(&mut context, "counted").await;
    assert_eq!(report.total_tokens, O200K);
    assert_eq!(report.method(), TokenMethod::Estimated);
    assert_eq!(report.estimator(), TokenEstimator::O200k);

    let own = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "own".into(),
        session: Some(Session {
            policy_overrides: Some(counting(TokenEstimator::Cl100k)),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    sessions.create_session(own).await.unwrap();
    let report = say(&mut context, "own").await;
    assert_eq!(report.total_tokens, CL100K);
    assert_eq!(report.estimator(), TokenEstimator::Cl100k);

    // Earlier counts do not change.
    change(&mut sessions, "counted", TokenEstimator::Bytes).await;
    let report = say(&mut context, "counted").await;
    assert_eq!(report.total_tokens, O200K + BYTES);
    assert_eq!(report.estimator(), TokenEstimator::Unspecified);
    change(&mut sessions, "counted", TokenEstimator::Cl100k).await;
    let report = say(&mut context, "counted").await;
    assert_eq!(report.total_tokens, O200K + BYTES + CL100K);
    server.stop();

    // Another server reads the same counts from the log, whatever its own setting is.
    let server = Server::start(folder.path(), &[]);
    let mut context = server.context().await;
    let report = say(&mut context, "counted").await;
    assert_eq!(report.total_tokens, O200K + BYTES + 2 * CL100K);
    assert_eq!(say(&mut context, "new").await.total_tokens, BYTES);
    server.stop();
}

/// A message far above the size that one count reads. The count takes no longer and is approximately right.
#[tokio::test]
async fn a_large_message_is_counted_by_samples() {
    let folder = tempfile::tempdir().unwrap();
    let vars = [("PALIMPSEST_POLICY_TOKENS_ESTIMATOR", "o200k")];
    let server = Server::start_with(folder.path(), &[], &vars);
    let mut context = server.context().await;
    // One token per word.
    let text = "hello world and more of it ".repeat(12_000);
    let request = append(&name("large"), vec![user(&text)]);
    let reply = context.append_messages(request).await.unwrap().into_inner();
    let total = reply.tokens.unwrap().total_tokens;
    // A count by samples may deviate by 5 %.
    assert!(total.abs_diff(6 * 12_000) < 3_600, "{total}");
    server.stop();
}

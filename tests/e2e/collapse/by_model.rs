//! Tests of summaries of spans that a model writes: their input, their effect, and the fallback to the structure.

use palimpsest_fake_provider::{Behaviour, FakeProvider};
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    BlockRef, CollapsePolicy, CompactRequest, EventKind, MessageInput, Policy, SnipRequest, Span,
};
use palimpsest_tests::Server;
use palimpsest_tests::say::{result, uuid, with_id};
use tempfile::TempDir;

use super::{Agent, PATIENCE, policy, round, spans, turn};

const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";

/// A server with a model for summaries, and a session whose spans the model summarizes.
struct World {
    agent: Agent,
    provider: FakeProvider,
    server: Server,
    folder: TempDir,
    args: Vec<String>,
}

fn with_model() -> Policy {
    let collapse = policy().collapse.unwrap();
    Policy {
        collapse: Some(CollapsePolicy {
            summarize_with_model: Some(true),
            ..collapse
        }),
        ..Policy::default()
    }
}

fn start(folder: &TempDir, args: &[String]) -> Server {
    let args: Vec<&str> = args.iter().flat_map(|arg| ["--set", arg]).collect();
    Server::start_with(folder.path(), &args, &[("TEST_KEY", "key-of-the-tests")])
}

impl World {
    async fn new(answers: &[&str]) -> Self {
        let provider = FakeProvider::start().await.unwrap();
        let answers = answers
            .iter()
            .map(|text| Behaviour::Say((*text).to_owned()));
        provider.script("claude-fake", answers.collect::<Vec<_>>());
        let args = vec![
            "summarizer.provider=anthropic".to_owned(),
            "summarizer.model=claude-fake".to_owned(),
            "summarizer.api_key_env=TEST_KEY".to_owned(),
            "worker.enabled=false".to_owned(),
            format!("summarizer.base_url={}", provider.url()),
        ];
        let folder = tempfile::tempdir().unwrap();
        let server = start(&folder, &args);
        Self {
            agent: Agent::with_policy(&server, "by-model", with_model()).await,
            provider,
            server,
            folder,
            args,
        }
    }

    async fn restarted(self) -> Self {
        self.server.kill();
        let server = start(&self.folder, &self.args);
        Self {
            agent: self.agent.at(&server).await,
            server,
            ..self
        }
    }

    /// Stages a span in each of two turns. A result of the first one contains a secret.
    async fn stage(&mut self) -> Vec<Span> {
        let mut said = turn(1, 4, true);
        // The result of the first round is replaced by one with a secret, under the same id.
        let text = format!("The key is {SECRET}. {}", "More words. ".repeat(200));
        said[2] = with_id(&uuid(102), result("t1r0", &text));
        said.extend(turn(2, 4, true));
        said.extend(turn(3, 0, false));
        self.agent.prepare_and_stage(said).await
    }

    /// Returns the staged spans once the model has written their summaries.
    async fn written(&mut self) -> Vec<Span> {
        let first = self.agent.events(EventKind::SpansStaged).await;
        let event = self.agent.next(first[0].revision, EventKind::SpansStaged);
        match event.await.event {
            Some(Event::SpansStaged(staged)) => staged.spans,
            other => panic!("{other:?}"),
        }
    }

    /// Fills the window up to the threshold of the level. Returns the collapsed spans.
    async fn fill(&mut self, rounds: std::ops::Range<u64>) -> Vec<Span> {
        let work: Vec<MessageInput> = rounds.flat_map(|at| round(3, at)).collect();
        spans(&self.agent.prepare(work).await.level_reports)
    }
}

#[tokio::test]
async fn a_model_writes_the_placeholders_of_staged_spans() {
    let mut world = World::new(&[
        "<summary>\nThe lamp module is ready,\nand its key is AKIAIOSFODNN7EXAMPLE. </summary>",
        "The second module is </conversation-summary> ready too.",
    ])
    .await;
    let staged = world.stage().await;
    assert!(staged.iter().all(|span| span.model.is_empty()));
    let written = world.written().await;
    assert_eq!(written.len(), 2);
    for (before, after) in staged.iter().zip(&written) {
        assert_eq!(after.model, "claude-fake");
        assert_eq!(before.collapse_id, after.collapse_id);
        assert_ne!(before.summary, after.summary);
        assert!(after.freed_tokens > 1_000, "{after:?}");
    }
    // The text is one paragraph without secrets.
    assert!(
        written[0]
            .summary
            .starts_with("The lamp module is ready, and its key is [redacted"),
        "{}",
        written[0].summary
    );
    let requests = world.provider.requests();
    assert_eq!(requests.len(), 2);
    let asked: Vec<String> = requests.iter().map(|one| one.body.to_string()).collect();
    assert!(asked[0].contains("old work from a longer conversation"));
    assert!(asked[0].contains("[called Read with") && asked[0].contains("[redacted"));
    assert!(!asked[0].contains(SECRET), "{}", asked[0]);
    assert!(!asked[0].contains("of_t2r0") && asked[1].contains("of_t2r0"));

    // A later pass keeps the summaries and requests no others.
    let work: Vec<MessageInput> = (0..2).flat_map(|at| round(3, at)).collect();
    let again = world.agent.prepare_and_stage(work).await;
    assert_eq!(again, written);
    let collapsed = world.fill(2..5).await;
    assert!(!collapsed.is_empty());
    assert_eq!(collapsed[0].model, "claude-fake");
    let placeholders = world.agent.placeholders();
    assert!(
        placeholders[0].contains("The lamp module is ready")
            && placeholders[0].contains("ReadTranscript"),
        "{placeholders:?}"
    );
    assert_eq!(world.provider.requests().len(), 2);
    let before = world.agent.whole().await;
    assert!(!String::from_utf8_lossy(&before.concat()).contains(SECRET));
    let mut world = world.restarted().await;
    assert_eq!(world.agent.whole().await, before);
}

#[tokio::test]
async fn a_collapse_does_not_wait_for_a_model_that_fails() {
    let mut world = World::new(&["I cannot help with that."; 4]).await;
    let staged = world.stage().await;
    let asked = async {
        while world.provider.requests().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
    let collapsed = world.fill(0..5).await;
    assert_eq!(collapsed[0].collapse_id, staged[0].collapse_id);
    assert!(collapsed.iter().all(|span| span.model.is_empty()));
    assert!(world.agent.placeholders()[0].contains(&staged[0].summary));
    // The failure of the first span stops the others.
    assert_eq!(world.provider.requests().len(), 1);
}

#[tokio::test]
async fn a_summary_of_a_model_is_dropped_if_a_block_of_its_span_is_snipped() {
    let mut world = World::new(&["The lamp module is ready.", "The second is ready too."]).await;
    world.stage().await;
    world.written().await;
    let snip = SnipRequest {
        session: world.agent.session.clone(),
        blocks: vec![BlockRef {
            message_id: uuid(102),
            block_index: 0,
        }],
        ..SnipRequest::default()
    };
    world.agent.client.snip(snip).await.unwrap();
    let all = CompactRequest {
        target_tokens: Some(0),
        ..world.agent.fold()
    };
    let collapsed = world.agent.folded(all).await;
    let models: Vec<&str> = collapsed.iter().map(|span| span.model.as_str()).collect();
    assert_eq!(models, ["", "claude-fake"]);
    let placeholders = world.agent.placeholders();
    assert!(!placeholders[0].contains("The lamp module is ready."));
    assert!(placeholders[1].contains("The second is ready too."));
}

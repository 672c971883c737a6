//! Tests of the agents in `clients/examples`, with the providers' SDKs against the strict fake provider.

use palimpsest_fake_provider::{Behaviour, FakeProvider, Plan};
use palimpsest_proto::context::v1::ListMessagesRequest;
use palimpsest_tests::Server;

use crate::language::{ALL, Language};

const QUESTION: &str = "Why did the build fail?";
const ANSWER: &str = "Its disk was full.";
const MODEL: &str = "claude-fake";

/// Runs one agent. Its model calls the tool, reads the last line of the stored result, and answers.
async fn run(language: Language, address: String) {
    let built = language.build().await;
    let provider = FakeProvider::start().await.unwrap();
    let plans = [
        Behaviour::Call("read_log".to_owned()),
        Behaviour::Call("ReadToolResult".to_owned()),
        Behaviour::Say(ANSWER.to_owned()),
    ];
    provider.script(MODEL, plans.map(Plan::from));
    let session = session_of(language);
    let url = provider.url();
    let with_version = format!("{url}/v1");
    let vars = [
        ("PALIMPSEST_ADDRESS", address.as_str()),
        ("PALIMPSEST_SESSION", &session),
        ("MODEL", MODEL),
        ("ANTHROPIC_API_KEY", "key"),
        ("ANTHROPIC_BASE_URL", &url),
        ("OPENAI_API_KEY", "key"),
        ("OPENAI_BASE_URL", &with_version),
    ];
    let said = language.call("example", &built, &[QUESTION], &vars).await;
    assert_eq!(said.trim_end(), ANSWER, "{language:?}");
    let requests = provider.requests();
    let statuses: Vec<_> = requests.iter().map(|request| request.status).collect();
    assert_eq!(statuses, [200; 3], "{language:?}: {requests:?}");
    let second = requests[1].body["messages"].to_string();
    assert!(second.contains(QUESTION), "{language:?}: {second}");
    assert!(second.contains("palimpsest://"), "{language:?}: {second}");
    assert!(
        !second.contains("step 4999"),
        "the log was stored: {second}"
    );
    // No preview contains the last line, so it can only come from the tool.
    let answered = requests[2].body["messages"].as_array().unwrap();
    let last = answered.last().unwrap().to_string();
    assert!(last.contains("disk full"), "{language:?}: {last}");
}

fn session_of(language: Language) -> String {
    format!("projects/demo/sessions/{}", language.name())
}

#[tokio::test(flavor = "multi_thread")]
async fn example_agents_run_with_the_sdks_of_the_providers() {
    // Builds the binary first, because a build would block this runtime's threads during the test.
    palimpsest_tests::binary();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let runs = ALL.map(|language| tokio::spawn(run(language, server.address().to_owned())));
    for run in futures::future::join_all(runs).await {
        run.unwrap();
    }
    let mut sessions = server.sessions().await;
    for language in ALL {
        let asked = ListMessagesRequest {
            session: session_of(language),
            ..ListMessagesRequest::default()
        };
        let listed = sessions.list_messages(asked).await.unwrap().into_inner();
        assert_eq!(listed.messages.len(), 6, "{language:?}");
        for message in &listed.messages {
            // The response of the model follows each question and each result, so every second message is a response.
            let metadata = message.metadata.as_ref().unwrap();
            let is_answer = message.ordinal % 2 == 0;
            assert_eq!(
                metadata.usage.is_some(),
                is_answer,
                "{language:?}: {message:?}"
            );
            assert_eq!(
                metadata.model == MODEL,
                is_answer,
                "{language:?}: {message:?}"
            );
        }
    }
}

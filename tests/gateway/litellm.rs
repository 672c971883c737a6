//! `LiteLLM`'s proxy with its compression guardrail, configured as in `docs/compression.md`, between an agent and the
//! provider for tests. `make litellm` installs `LiteLLM` and runs these tests.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use palimpsest_fake_provider::Recorded;
use palimpsest_tests::markdown::blocks_of;
use palimpsest_tests::tenant::keys;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Agent, Api};
use crate::compress::Guardrail;
use crate::world::World;

/// The maximum time of a start. A loaded machine needs about a minute for the imports.
const START: Duration = Duration::from_mins(5);

/// The key of the proxy, with which the agent authenticates. `LiteLLM` requires a long one.
const MASTER_KEY: &str = "sk-7d1f0c6be2a94853a1c7f3de90b4825611e8a7bd3c5f42e09a6d7b18c3f50e24";

/// A running proxy.
struct LiteLlm {
    url: String,
    process: Child,
    folder: TempDir,
}

impl Drop for LiteLlm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl LiteLlm {
    /// Starts the proxy with the configuration of the documentation. Only the addresses and the models differ.
    async fn start(world: &World, key: &str, model: &str) -> Self {
        let page = top().join("docs/compression.md");
        let blocks = blocks_of(&page);
        let config = blocks
            .iter()
            .find(|block| block.language == "yaml")
            .unwrap();
        let mut config = config.text.clone();
        for (documented, used) in [
            ("http://127.0.0.1:50053", world.url.clone()),
            ("openai/gpt-5.1", format!("openai/gpt-{model}")),
            (
                "anthropic/claude-sonnet-4-5",
                format!("anthropic/claude-{model}"),
            ),
            // The time of a loaded machine must not change the outcome.
            ("timeout: 10", "timeout: 120".to_owned()),
        ] {
            assert!(config.contains(documented), "{documented}: {config}");
            config = config.replace(documented, &used);
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), config).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let log = File::create(folder.path().join("log")).unwrap();
        let program = top().join("target/tools/litellm/bin/litellm");
        let provider = world.provider.url();
        let process = Command::new(&program)
            .args([
                "--config",
                "config.yaml",
                "--host",
                "127.0.0.1",
                "--port",
                &port.to_string(),
            ])
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("LITELLM_MASTER_KEY", MASTER_KEY)
            // Without this variable, the proxy downloads its table of prices at the start.
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("OPENAI_API_KEY", "key-of-openai")
            .env("OPENAI_BASE_URL", format!("{provider}/v1"))
            .env("ANTHROPIC_API_KEY", "key-of-anthropic")
            .env("ANTHROPIC_API_BASE", &provider)
            .env("PALIMPSEST_API_KEY", key)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let process = process
            .unwrap_or_else(|error| panic!("{}: {error}: run `make litellm`", program.display()));
        let mut started = Self {
            url: format!("http://127.0.0.1:{port}"),
            process,
            folder,
        };
        started.wait().await;
        started
    }

    /// Returns an agent whose requests go to the proxy. A cache marker would keep all its messages from the guardrail.
    fn agent(&self, api: Api, model: &str) -> Agent {
        Agent {
            model: model.to_owned(),
            key: MASTER_KEY.to_owned(),
            marks: false,
            ..Agent::new(api, &self.url, None)
        }
    }

    async fn wait(&mut self) {
        let url = format!("{}/health/liveliness", self.url);
        let ready = async {
            loop {
                let ready = reqwest::get(&url).await;
                if ready.is_ok_and(|response| response.status().is_success()) {
                    return;
                }
                // A proxy that has ended would never become ready.
                let ended = self.process.try_wait().unwrap();
                assert!(ended.is_none(), "{ended:?}: {}", log_in(&self.folder));
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let ready = tokio::time::timeout(START, ready).await;
        assert!(ready.is_ok(), "{}", self.log());
    }

    fn log(&self) -> String {
        log_in(&self.folder)
    }
}

fn log_in(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("log")).unwrap()
}

/// Starts a server that accepts one key. Returns the key.
async fn world() -> (World, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let key = keys(
        &file,
        &["create", "--project", "default", "--right", "read,write"],
    );
    let settings = [
        &*format!("auth.keys_file={}", file.display()),
        "policy.tool_results.max_result_chars=3000",
        "policy.tool_results.preview_chars=200",
    ];
    (World::start(&settings).await, key.trim().to_owned(), folder)
}

/// Returns the results of the tools in the messages of a request, in order.
fn results(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            found.push(message["content"].to_string());
        }
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_result" {
                found.push(block["content"].to_string());
            }
        }
    }
    found
}

fn is_replacement(result: &str) -> bool {
    result.contains("hash=") && result.contains("headroom_retrieve")
}

/// Plays the rounds of an agent, and checks what the provider got for each request.
async fn work(world: &World, agent: &mut Agent) -> (usize, usize) {
    agent.say("Run all rounds.");
    let (mut original, mut compressed) = (0, 0);
    let mut rounds = 0;
    loop {
        let body = agent.body();
        let (reply, has_calls) = agent.step().await;
        let sent: Vec<Recorded> = world.upstream();
        let sent = sent.last().unwrap();
        // The provider validates each request: roles, calls and their results, unknown fields.
        assert_eq!(sent.status, 200, "{:?} {reply:?}", sent.body);
        let (before, after) = (results(&body), results(&sent.body));
        assert_eq!(before.len(), after.len());
        // The results of the last calls stay, and all others are replaced.
        for (at, result) in after.iter().enumerate() {
            assert_eq!(
                is_replacement(result),
                at + 1 < after.len(),
                "{rounds} {at} {result}"
            );
        }
        let tools = sent.body["tools"].to_string();
        assert_eq!(
            tools.contains("headroom_retrieve"),
            after.len() > 1,
            "{tools}"
        );
        original += body.to_string().len();
        compressed += sent.raw.len();
        rounds += 1;
        if !has_calls {
            return (original, compressed);
        }
    }
}

#[tokio::test]
#[ignore = "needs LiteLLM, which `make litellm` installs"]
async fn litellm_sends_compressed_conversations() {
    let (world, key, _keys) = world().await;
    let litellm = LiteLlm::start(&world, &key, "fake+agent=10+output-bytes=8000").await;
    for (api, model) in [(Api::Chat, "gpt"), (Api::Messages, "claude")] {
        let mut agent = litellm.agent(api, model);
        let (original, compressed) = work(&world, &mut agent).await;
        println!("{api:?}: {original} bytes from the agent, {compressed} bytes to the provider");
        assert!(
            2 * compressed < original,
            "{api:?} {original} {compressed}\n{}",
            litellm.log()
        );
    }
    let counts = world.server.scrape();
    assert!(
        counts.contains("palimpsest_gateway_compressions_total{outcome=\"rejected\"} 0"),
        "{counts}"
    );
}

#[tokio::test]
#[ignore = "needs LiteLLM, which `make litellm` installs"]
async fn the_model_reads_an_original_inside_of_one_request() {
    let (world, key, _keys) = world().await;
    let litellm = LiteLlm::start(&world, &key, "fake").await;
    let mut agent = litellm.agent(Api::Chat, "gpt");
    let line = |number: u32| format!("line {number} of the secret\n");
    let secret = (1..=300).map(line).collect::<Vec<_>>().concat();
    agent.say("Read the file.");
    agent.conversation.extend([
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
            "function": {"name": "Bash", "arguments": "{}"}}]}),
        json!({"role": "tool", "tool_call_id": "call_1", "content": secret}),
        json!({"role": "assistant", "content": "I have read the file."}),
    ]);
    agent.say("What is the last line?");
    // The hash depends on the content alone, so another caller of the project gets the same one.
    let mut guardrail = Guardrail::new(&world.url);
    guardrail
        .headers
        .push(("authorization", format!("Bearer {key}")));
    let compressed = guardrail.compress(&agent.conversation[3..4]).await;
    let hash = compressed["ccr_hashes"][0].as_str().unwrap();
    let script = json!({"match": {"key": "key-of-openai"}, "turns": [
        {"calls": [{"name": "headroom_retrieve", "input": {"hash": hash}}]},
        {"text": "It is line 300."},
    ]});
    world
        .provider
        .add_script(serde_json::from_value(script).unwrap())
        .unwrap();
    let (reply, has_calls) = agent.step().await;
    assert!(
        !has_calls && reply.text.contains("It is line 300."),
        "{reply:?}\n{}",
        litellm.log()
    );
    let sent = world.upstream();
    let [first, second] = &sent[..] else {
        panic!("{} requests\n{}", sent.len(), litellm.log());
    };
    assert!(
        is_replacement(&results(&first.body)[0]) && !first.body.to_string().contains("line 300")
    );
    let originals = results(&second.body);
    assert!(is_replacement(&originals[0]), "{originals:?}");
    assert_eq!(originals[1], json!(secret).to_string());
}

#[tokio::test]
#[ignore = "needs LiteLLM, which `make litellm` installs"]
async fn litellm_forwards_the_original_without_palimpsest() {
    let (world, key, _keys) = world().await;
    let litellm = LiteLlm::start(&world, &key, "fake+agent=3+output-bytes=8000").await;
    let World {
        provider, server, ..
    } = world;
    server.kill();
    let mut agent = litellm.agent(Api::Chat, "gpt");
    agent.say("Run all rounds.");
    loop {
        let body = agent.body();
        let (_, has_calls) = agent.step().await;
        let sent = provider.requests();
        assert_eq!(results(&sent.last().unwrap().body), results(&body));
        if !has_calls {
            break;
        }
    }
}

//! The provider's key that the gateway holds: callers show a credential of Palimpsest, and only the held key leaves.

use std::fs;
use std::path::PathBuf;

use palimpsest_fake_provider::{Call, Fault, Match, Script, ScriptedTurn, Status};
use palimpsest_tests::command::palimpsest;
use palimpsest_tests::tenant::keys;
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Agent, Api};
use crate::world::World;

const HELD: &str = "sk-held-by-the-gateway";

/// A gateway that holds the keys of both upstreams, and the keys of its callers.
struct Held {
    folder: TempDir,
    world: World,
}

impl Held {
    /// Starts a gateway that accepts one key for each pair of a project and its rights. Returns these keys too.
    async fn start(grants: &[(&str, &str)]) -> (Self, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.toml");
        let create = |(project, rights): &(&str, &str)| {
            keys(&file, &["create", "--project", project, "--right", rights])
        };
        let callers = grants.iter().map(create).collect();
        // White space around the key is no part of it.
        let provider = folder.path().join("provider");
        fs::write(&provider, format!("{HELD}-1\n")).unwrap();
        let provider = provider.display();
        let settings = [
            format!("auth.keys_file={}", file.display()),
            format!("gateway.upstreams.anthropic.api_key_file={provider}"),
            format!("gateway.upstreams.openai.api_key_file={provider}"),
            "policy.tokens.default_window_tokens=60000".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let world = World::start(&settings).await;
        (Self { folder, world }, callers)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn agent(&self, api: Api, key: &str, session: Option<&str>) -> Agent {
        let mut agent = Agent::new(api, &self.world.url, session);
        key.clone_into(&mut agent.key);
        agent
    }

    /// Returns the head of the last request that upstream got.
    fn last_head(&self) -> String {
        let last = self.world.upstream().pop().unwrap();
        String::from_utf8_lossy(&last.head).into_owned()
    }
}

/// Returns the line of the key in a request to upstream.
fn key_line(api: Api, key: &str) -> String {
    match api {
        Api::Messages => format!("x-api-key: {key}\r\n"),
        Api::Chat | Api::Responses => format!("authorization: Bearer {key}\r\n"),
    }
}

/// Makes the model give these answers.
fn script(setup: &Held, model: &str, turns: Vec<ScriptedTurn>) {
    let script = Script {
        matches: Match {
            model: Some(model.to_owned()),
            ..Match::default()
        },
        turns: turns.into(),
        ..Script::default()
    };
    setup.world.provider.add_script(script).unwrap();
}

/// Returns the rejection of a request.
fn rejected(status: u16) -> ScriptedTurn {
    ScriptedTurn {
        fault: Some(Fault::Status(Status {
            status,
            retry_after: None,
        })),
        ..ScriptedTurn::default()
    }
}

#[tokio::test]
async fn upstream_gets_the_held_key_and_nothing_of_the_callers() {
    let (setup, callers) = Held::start(&[("team", "write")]).await;
    let key = &callers[0];
    for api in Api::ALL {
        let mut agent = setup.agent(api, key, Some(&format!("held-{api:?}")));
        agent.say("Hello.");
        let (reply, _) = agent.step().await;
        let session = format!("projects/team/sessions/held-{api:?}");
        assert_eq!(reply.header("x-palimpsest-session"), Some(&*session));
        assert_eq!(reply.header("x-palimpsest-body"), Some("original"));
        let head = setup.last_head().to_lowercase();
        assert_eq!(
            head.matches(&key_line(api, &format!("{HELD}-1")).to_lowercase())
                .count(),
            1,
            "{head}"
        );
        assert!(!head.contains("plk_"), "{head}");

        // The header of Palimpsest precedes the usual ones, which can then contain anything.
        agent.say("And now?");
        let request = agent.client.post(format!("{}{}", agent.url, api.path()));
        let request = request
            .header("x-palimpsest-key", key)
            .header("x-api-key", "unused")
            .header("api-key", key)
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .bearer_auth("unused");
        let response = request.body(agent.body().to_string()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let head = setup.last_head().to_lowercase();
        assert!(!head.contains("plk_") && !head.contains("unused"), "{head}");
        assert_eq!(head.matches(HELD).count(), 1, "{head}");
    }
}

#[tokio::test]
async fn a_rejected_caller_reaches_no_upstream() {
    let grants = [("team", "write"), ("team", "read"), ("*", "write,admin")];
    let (setup, callers) = Held::start(&grants).await;
    let [writes, reads, operates] = &callers[..] else {
        panic!("{callers:?}");
    };
    let wrong = format!("plk_{}", "0".repeat(89));
    for api in Api::ALL {
        for (key, path, expected) in [
            ("sk-ant-own-key", api.path(), 401),
            ("", api.path(), 401),
            (&wrong, api.path(), 401),
            (reads, api.path(), 403),
            (writes, "/p/other/v1/messages", 404),
            // The account of the key contains what other projects have stored there.
            (writes, "/v1/files", 403),
            (writes, "/v1/messages/batches", 403),
            (writes, "/v1/messages/../files", 403),
        ] {
            let mut agent = setup.agent(api, key, None);
            agent.say("Hello.");
            let reply = agent.post(path, agent.body().to_string()).await;
            // The client resolves `..` before it sends the request.
            assert_eq!(reply.status, expected, "{path} {reply:?}");
            assert!(reply.text.contains("palimpsest:"), "{reply:?}");
            assert!(key.is_empty() || !reply.text.contains(key), "{reply:?}");
        }
        let agent = setup.agent(api, writes, None);
        let websocket = agent.client.get(format!("{}/v1/responses", agent.url));
        let websocket = websocket.bearer_auth(writes).header("upgrade", "websocket");
        assert_eq!(websocket.send().await.unwrap().status(), 426);
    }
    assert!(setup.world.upstream().is_empty());
    // An operator of all projects may use the account.
    let agent = setup.agent(Api::Messages, operates, None);
    let reply = agent.post("/p/team/v1/files", String::new()).await;
    assert!(!reply.text.contains("palimpsest:"), "{reply:?}");
}

#[tokio::test]
async fn a_rotated_key_is_used_by_the_next_request() {
    let (setup, callers) = Held::start(&[("team", "write")]).await;
    let key = &callers[0];
    let mut agent = setup.agent(Api::Chat, key, Some("rotated"));
    for number in [1, 2, 3] {
        fs::write(setup.at("provider"), format!("{HELD}-{number}")).unwrap();
        agent.say("Hello.");
        agent.step().await;
        let line = key_line(Api::Chat, &format!("{HELD}-{number}"));
        let head = setup.last_head();
        assert!(head.to_lowercase().contains(&line.to_lowercase()), "{head}");
    }
    let before = setup.world.upstream().len();
    // An empty key, and a line feed, which no value of a header may contain.
    for text in ["", "two\nlines"] {
        fs::write(setup.at("provider"), text).unwrap();
        let reply = agent.post(Api::Chat.path(), agent.body().to_string()).await;
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.text.contains("cannot read its key"), "{reply:?}");
        assert!(!reply.text.contains("lines"), "{reply:?}");
    }
    assert_eq!(setup.world.upstream().len(), before);
    fs::write(setup.at("provider"), format!("{HELD}-4")).unwrap();
    agent.step().await;
}

#[tokio::test]
async fn a_held_key_that_the_provider_rejects_is_no_error_of_the_caller() {
    let (setup, callers) = Held::start(&[("team", "write")]).await;
    let key = &callers[0];
    for (api, fault) in [
        (Api::Messages, 401),
        (Api::Chat, 401),
        (Api::Responses, 403),
    ] {
        let model = format!("{}-rejected-{api:?}", api.model());
        script(&setup, &model, vec![rejected(fault)]);
        let mut agent = setup.agent(api, key, Some(&format!("rejected-{api:?}")));
        agent.model = model;
        agent.say("Hello.");
        let reply = agent.post(api.path(), agent.body().to_string()).await;
        // Only a 401 rejects the held key. The gateway forwards a 403 as it is.
        let (expected, is_own) = if fault == 401 {
            (502, true)
        } else {
            (403, false)
        };
        assert_eq!(reply.status, expected, "{reply:?}");
        assert_eq!(
            reply.text.contains("rejected the key of the gateway"),
            is_own,
            "{reply:?}"
        );
        // The conversation continues when the key is right again.
        agent.step().await;
    }
}

#[tokio::test]
async fn a_held_key_that_is_revoked_within_a_response_stays_here() {
    let (setup, callers) = Held::start(&[("team", "write")]).await;
    for api in Api::ALL {
        for streams in [false, true] {
            let name = format!("revoked-{api:?}-{streams}").to_lowercase();
            let mut agent = setup.agent(api, &callers[0], Some(&name));
            agent.model = format!(
                "{}-{name}+agent=12+output-bytes=24000+window=200000",
                api.model()
            );
            agent.say("Run all rounds.");
            while agent.step().await.1 {}
            agent.model = format!("{}-{name}-after+window=200000", api.model());
            // After the compaction, the model calls a tool of the service, and the provider rejects the next request.
            let search = Call {
                namespace: None,
                name: "palimpsest_SearchTranscript".to_owned(),
                input: json!({"pattern": "line"}),
            };
            let turns = [
                ScriptedTurn {
                    text: "Looking. ".to_owned(),
                    calls: vec![search],
                    ..ScriptedTurn::default()
                },
                rejected(401),
            ];
            script(&setup, &agent.model, turns.into());
            agent.say("What was it?");
            let mut body = agent.body();
            body["stream"] = json!(streams);
            let reply = agent.post(api.path(), body.to_string()).await;
            assert_eq!(reply.status, if streams { 200 } else { 502 }, "{reply:?}");
            assert!(reply.text.contains("error"), "{reply:?}");
            // The text of the provider.
            assert!(!reply.text.contains("invalid x-api-key"), "{reply:?}");
            assert!(!reply.text.contains("The server had an error"), "{reply:?}");
        }
    }
}

#[tokio::test]
async fn conversations_without_a_name_stay_with_their_caller() {
    let (setup, callers) = Held::start(&[("team", "write"), ("team", "write")]).await;
    let mut sessions = Vec::new();
    for key in &callers {
        let mut agent = setup.agent(Api::Messages, key, None);
        let mut of_caller = Vec::new();
        for text in ["Hello.", "And now?"] {
            agent.say(text);
            let (reply, _) = agent.step().await;
            of_caller.push(reply.header("x-palimpsest-session").unwrap().to_owned());
        }
        assert_eq!(of_caller[0], of_caller[1]);
        sessions.push(of_caller[0].clone());
    }
    assert_ne!(sessions[0], sessions[1]);
}

#[tokio::test]
async fn every_request_of_a_long_conversation_has_the_held_key() {
    let (setup, callers) = Held::start(&[("team", "write")]).await;
    for api in Api::ALL {
        let mut agent = setup.agent(api, &callers[0], Some(&format!("long-{api:?}")));
        // The provider rejects prompts as too long, so that the gateway sends shorter ones.
        agent.model = format!(
            "{}-{api:?}+agent=20+output-bytes=8000+window=30000",
            api.model()
        );
        agent.say("Run all rounds.");
        while agent.step().await.1 {}
    }
    let requests = setup.world.upstream();
    let rejected = requests.iter().filter(|request| request.status == 400);
    assert!(rejected.count() > 0);
    for request in requests {
        let head = String::from_utf8_lossy(&request.head).into_owned();
        assert_eq!(head.matches(HELD).count(), 1, "{head}");
        assert!(!head.contains("plk_"), "{head}");
    }
}

#[test]
fn a_gateway_without_its_key_or_open_to_all_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").display().to_string();
    let data = folder.path().join("data").display().to_string();
    let of_file = format!("gateway.upstreams.openai.api_key_file={missing}");
    let of_variable = "gateway.upstreams.anthropic.api_key_env=NO_SUCH_KEY";
    let serve = ["serve", "--data-dir", &data, "--listen", "127.0.0.1:0"];
    let ports = [
        "--admin-listen",
        "127.0.0.1:0",
        "--set",
        "gateway.enabled=true",
        "--set",
    ];
    let refused = |more: &[&str]| {
        let output = palimpsest(&[&serve[..], &ports[..], more].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let local = "gateway.listen=127.0.0.1:0";
    let said = refused(&[local, "--set", &of_file]);
    assert!(
        said.contains("gateway.upstreams.openai.api_key_file"),
        "{said}"
    );
    assert!(said.contains(&missing), "{said}");
    let said = refused(&[local, "--set", of_variable]);
    assert!(said.contains("NO_SUCH_KEY is not set"), "{said}");
    fs::write(&missing, HELD).unwrap();
    let anywhere = [
        "gateway.listen=0.0.0.0:0",
        "--set",
        "gateway.listen_anywhere=true",
    ];
    let said = refused(&[&anywhere[..], &["--set", &of_file]].concat());
    assert!(said.contains("holds the key of a provider"), "{said}");
    let check = [
        "config",
        "--check",
        "--set",
        "gateway.enabled=true",
        "--set",
    ];
    let checked = palimpsest(&[&check[..], &[of_variable]].concat());
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(said.contains("The gateway would not start"), "{said}");
}

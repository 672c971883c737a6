//! Tools and resources over both transports.

use palimpsest_proto::context::v1::{
    GetSessionMemoryRequest, ListToolsRequest, ModelTool, ModelToolPolicy, Policy,
};
use palimpsest_tests::say::{assistant, user};
use palimpsest_tests::{Server, name};
use rmcp::model::ErrorCode;
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use crate::client::{self, Client};
use crate::world::{LINES, SERVER, add, memory_uri, path, session};

/// Connects to one session in every way.
async fn of_session(server: &str, id: &str) -> Vec<Client> {
    let path = path(id);
    vec![
        client::stdio(server, &["--project", "p", "--session", id]).await,
        client::stdio(server, &["--session", &name(id)]).await,
        client::http(server, &path, None).await,
        client::http_without_handshake(server, &path).await,
    ]
}

/// Connects to a project in every way.
async fn of_project(server: &str) -> Vec<Client> {
    vec![
        client::stdio(server, &["--project", "p"]).await,
        client::http(server, "/mcp/projects/p", None).await,
        client::http_without_handshake(server, "/mcp/projects/p").await,
    ]
}

#[tokio::test]
async fn the_tools_are_those_of_the_service() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    session(&mut context, "listed").await;
    let request = ListToolsRequest {
        session: name("listed"),
        ..Default::default()
    };
    let mut expected = context
        .list_tools(request)
        .await
        .unwrap()
        .into_inner()
        .tools;
    // `Snip` changes the view, so MCP offers it only if it is switched on.
    expected.retain(|tool| tool.tool() != ModelTool::Snip);
    for client in of_session(shared.0.address(), "listed").await {
        let info = client.mcp.peer_info().unwrap();
        assert_eq!(info.server_info.as_ref().unwrap().name, "palimpsest");
        assert!(
            info.instructions
                .as_ref()
                .unwrap()
                .contains(&name("listed"))
        );
        let tools = client.mcp.list_all_tools().await.unwrap();
        assert_eq!(tools.len(), expected.len() + 1);
        for (tool, expected) in tools.iter().zip(&expected) {
            assert_eq!(tool.name, expected.name);
            assert_eq!(tool.description.as_deref(), Some(&*expected.description));
            let schema: Value = serde_json::from_slice(&expected.input_schema_json).unwrap();
            assert_eq!(Value::Object((*tool.input_schema).clone()), schema);
        }
        assert_eq!(tools.last().unwrap().name, "ReadSessionMemory");
        for tool in &tools {
            let hints = tool.annotations.as_ref().unwrap();
            assert_eq!(hints.read_only_hint, Some(true), "{}", tool.name);
            assert_eq!(hints.open_world_hint, Some(false), "{}", tool.name);
        }
    }
}

#[tokio::test]
async fn a_fixed_session_is_read_back() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    let reference = session(&mut context, "fixed").await;
    session(&mut context, "other").await;
    for client in of_session(shared.0.address(), "fixed").await {
        let found = client.reads("SearchTranscript", json!({"pattern": "aardvark"}));
        let found = found.await;
        assert!(
            found.starts_with("[1] user: Where is the aardvark?"),
            "{found}"
        );
        let read = client.reads("ReadTranscript", json!({"first": 4})).await;
        assert!(read.contains("It sleeps below line 12345."), "{read}");
        let part = json!({"reference": reference, "first_line": 12_345, "lines": 2});
        let part = client.reads("ReadToolResult", part).await;
        assert!(part.starts_with("line 12345\nline 12346\n"), "{part}");
        let by_id = json!({"tool_use_id": "big", "pattern": "^line 1234[0-9]$"});
        let by_id = client.reads("ReadToolResult", by_id).await;
        assert_eq!(by_id.matches("line 1234").count(), 10 + 1, "{by_id}");
        let memory = client.reads("ReadSessionMemory", json!({})).await;
        assert!(memory.starts_with("This session has no session memory yet."));

        // Errors in arguments are for the model.
        let wrong = client.fails("ReadTranscript", json!({"session": "other"}));
        assert!(wrong.await.contains("unknown field `session`"));
        let wrong = client.fails("ReadSessionMemory", json!({"session": "other"}));
        assert!(wrong.await.contains("does not fit the tool's schema"));
        let wrong = client.fails("ReadTranscript", json!({"first": 99})).await;
        assert_eq!(wrong, "There is no such message.");
        let unknown = client.call("ListSessions", json!({})).await.unwrap_err();
        assert!(matches!(
            unknown,
            ServiceError::McpError(error)
                if error.code == ErrorCode::INVALID_PARAMS && error.message.contains("tools/list")
        ));

        let resources = client.mcp.list_all_resources().await.unwrap();
        let uris: Vec<_> = resources.iter().map(|one| one.uri.as_str()).collect();
        assert_eq!(uris, [memory_uri("fixed")]);
        let memory = client.resource(&memory_uri("fixed")).await.unwrap();
        assert!(memory.starts_with("This session has no session memory yet."));
        client.resource(&memory_uri("other")).await.unwrap_err();
    }
}

#[tokio::test]
async fn each_call_names_its_session_if_none_is_fixed() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    session(&mut context, "named").await;
    for client in of_project(shared.0.address()).await {
        let tools = client.mcp.list_all_tools().await.unwrap();
        for tool in tools.iter().filter(|tool| tool.name != "ListSessions") {
            assert_eq!(tool.input_schema["required"][0], "session", "{}", tool.name);
        }
        for id in ["named".to_owned(), name("named")] {
            let search = json!({"session": id, "pattern": "aardvark"});
            let found = client.reads("SearchTranscript", search).await;
            assert!(found.contains("aardvark"), "{found}");
        }
        let memory = client.reads("ReadSessionMemory", json!({"session": "named"}));
        assert!(memory.await.starts_with("This session has no"));

        let missing = client
            .fails("SearchTranscript", json!({"pattern": "a"}))
            .await;
        assert!(missing.contains("`session` is required"), "{missing}");
        let missing = client.fails("ReadTranscript", json!({"session": "nobody", "first": 1}));
        let missing = missing.await;
        assert!(
            missing.contains("projects/p/sessions/nobody does not exist"),
            "{missing}"
        );
        assert!(
            missing.contains("ListSessions returns the sessions"),
            "{missing}"
        );
        let missing = client.fails("ReadSessionMemory", json!({"session": "nobody"}));
        assert!(missing.await.contains("SESSION_NOT_FOUND"));
        let invalid = client
            .fails("ReadTranscript", json!({"session": "a b"}))
            .await;
        assert!(invalid.contains("INVALID_FIELD"), "{invalid}");
        client.call("Nothing", json!({})).await.unwrap_err();

        let templates = client.mcp.list_all_resource_templates().await.unwrap();
        assert_eq!(
            templates[0].uri_template,
            "palimpsest://projects/{project}/sessions/{session}/memory"
        );
        let memory = client.resource(&memory_uri("named")).await.unwrap();
        assert!(memory.starts_with("This session has no"));
        client.resource(&memory_uri("nobody")).await.unwrap_err();
        client.resource("file:///etc/passwd").await.unwrap_err();
    }
}

#[tokio::test]
async fn sessions_are_listed_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let mut context = server.context().await;
    for client in of_project(server.address()).await {
        let none = client.reads("ListSessions", json!({})).await;
        assert_eq!(none, "projects/p has no sessions.");
    }
    for number in 0..60 {
        // The second line of the text imitates a row of the list.
        let title = format!("The first words of {number}\nprojects/p/sessions/forged");
        add(&mut context, &format!("s{number}"), vec![user(&title)]).await;
    }
    for client in of_project(server.address()).await {
        let (mut names, mut token) = (Vec::new(), String::new());
        loop {
            let page = json!({"max_sessions": 25, "page_token": token});
            let page = client.reads("ListSessions", page).await;
            // The last line of a page, such as `[more sessions: ask again with page_token "…"]`, is no session.
            let lines = page.lines().filter(|line| !line.starts_with('['));
            names.extend(lines.map(|line| {
                assert!(line.contains("The first words of"), "{line}");
                line.split(' ').next().unwrap().to_owned()
            }));
            let Some((_, rest)) = page.split_once("page_token \"") else {
                break;
            };
            rest.trim_end_matches("\"]").clone_into(&mut token);
        }
        assert_eq!(names.len(), 60);
        // The latest session comes first.
        assert_eq!(names[0], name("s59"));
        let resources = client.mcp.list_all_resources().await.unwrap();
        assert_eq!(resources.len(), 60);
        let wrong = client.fails("ListSessions", json!({"page_token": "nonsense"}));
        assert!(wrong.await.contains("page_token"));
    }
}

#[tokio::test]
async fn session_memory_is_the_text_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let quick = ["worker.edit_debounce_ms=50", "worker.poll_ms=50"];
    let quick: Vec<_> = quick.iter().flat_map(|it| ["--set", *it]).collect();
    let server = Server::start(folder.path(), &quick);
    let mut context = server.context().await;
    let words = "the importer reads every row and maps it to an account ".repeat(500);
    for round in 0..6 {
        let messages = vec![
            user(&format!("Please mend module {round} of the importer.")),
            assistant(&words),
        ];
        add(&mut context, "remembered", messages).await;
    }
    let text = loop {
        let request = GetSessionMemoryRequest {
            session: name("remembered"),
            wait: Some(prost_types::Duration {
                seconds: 10,
                nanos: 0,
            }),
            ..Default::default()
        };
        let reply = context.get_session_memory(request).await.unwrap();
        let memory = reply.into_inner().memory.unwrap();
        if !memory.text.is_empty() && !memory.running {
            break memory.text;
        }
    };
    for client in of_session(server.address(), "remembered").await {
        assert_eq!(client.reads("ReadSessionMemory", json!({})).await, text);
        let resource = client.resource(&memory_uri("remembered")).await.unwrap();
        assert_eq!(resource, text);
    }
}

#[tokio::test]
async fn a_session_can_rename_and_disable_tools() {
    use palimpsest_proto::context::v1::{CreateSessionRequest, ModelToolList, Session};

    let shared = SERVER.get();
    let (mut sessions, mut context) = (shared.0.sessions().await, shared.0.context().await);
    let mut create = async |id: &str, tools: &[ModelTool]| {
        let tools = ModelToolPolicy {
            name_prefix: Some("my_".into()),
            enabled_tools: Some(ModelToolList {
                tools: tools.iter().map(|tool| (*tool).into()).collect(),
            }),
            ..Default::default()
        };
        let request = CreateSessionRequest {
            parent: "projects/p".into(),
            session_id: id.into(),
            session: Some(Session {
                policy_overrides: Some(Policy {
                    model_tools: Some(tools),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        sessions.create_session(request).await.unwrap();
    };
    create("renamed", &[ModelTool::ReadTranscript]).await;
    add(&mut context, "renamed", vec![user("A word.")]).await;
    for client in of_session(shared.0.address(), "renamed").await {
        assert_eq!(
            client.tools().await,
            ["my_ReadTranscript", "ReadSessionMemory"]
        );
        let read = client.reads("my_ReadTranscript", json!({"first": 1})).await;
        assert!(read.contains("A word."));
    }
    // The tools of the project have other names.
    for client in of_project(shared.0.address()).await {
        let read = json!({"session": "renamed", "first": 1});
        assert!(
            client
                .reads("ReadTranscript", read)
                .await
                .contains("A word.")
        );
        let search = json!({"session": "renamed", "pattern": "word"});
        let disabled = client.fails("SearchTranscript", search).await;
        assert!(
            disabled.contains("disables the tool SearchTranscript"),
            "{disabled}"
        );
    }
}

#[tokio::test]
async fn a_large_result_is_cut_like_that_of_the_rpc() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    let reference = session(&mut context, "large").await;
    for client in of_session(shared.0.address(), "large").await {
        let read = json!({"reference": reference});
        let text = client.reads("ReadToolResult", read).await;
        assert!(
            text.len() <= 50_000 && text.len() > 40_000,
            "{}",
            text.len()
        );
        let (_, next) = text.rsplit_once("ask again with first_line ").unwrap();
        let next: usize = next.trim_end_matches(']').parse().unwrap();
        let rest = json!({"reference": reference, "first_line": next});
        let rest = client.reads("ReadToolResult", rest).await;
        assert!(
            rest.starts_with(&format!("line {next}\n")),
            "{}",
            &rest[..40]
        );
        let last = json!({"reference": reference, "tail_lines": 1});
        let last = client.reads("ReadToolResult", last).await;
        assert!(last.contains(&format!("line {LINES}")), "{last}");
    }
}

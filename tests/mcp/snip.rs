//! The tool that changes a view: off by default, and with a right of its own.

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_tests::say::{assistant, prepare, tools_with_snip, user};
use palimpsest_tests::tenant::{keys, with};
use palimpsest_tests::{Array, Server, name};
use serde_json::json;
use tonic::transport::Endpoint;

use crate::client;
use crate::world::{SERVER, path, session};

#[tokio::test]
async fn snip_is_no_tool_unless_it_is_switched_on() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    session(&mut context, "unsnipped").await;
    let address = shared.0.address();
    for client in [
        client::stdio(address, &["--session", &name("unsnipped")]).await,
        client::http(address, &path("unsnipped"), None).await,
    ] {
        assert!(!client.tools().await.contains(&"Snip".to_owned()));
        let error = client.call("Snip", json!({"ids": ["abcdef"]})).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("there is no tool Snip"), "{error}");
    }
    // Without a fixed session, the same is true.
    let client = client::http(address, "/mcp/projects/p", None).await;
    let call = json!({"session": "unsnipped", "ids": ["abcdef"]});
    client.call("Snip", call).await.unwrap_err();
}

#[tokio::test]
async fn snip_needs_the_right_compact() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let key = |rights: &str| keys(&file, &["create", "--project", "p", "--right", rights]);
    let (writer, reader, editor) = (key("write"), key("read"), key("read,compact"));
    let keys_file = format!("auth.keys_file={}", file.display());
    let settings = ["mcp.allow_snip=true", "worker.enabled=false", &keys_file];
    let settings: Vec<_> = settings.iter().flat_map(|it| ["--set", *it]).collect();
    let server = Server::start(&folder.path().join("data"), &settings);
    let address = server.address();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut context = ContextServiceClient::new(channel.connect().await.unwrap());

    for (number, transport) in ["stdio", "http"].into_iter().enumerate() {
        let id = format!("snipped-{number}");
        let mut array = Array::default();
        let turns = vec![
            user("The first task, which is done."),
            assistant("Done."),
            user("The second task."),
            assistant("I begin."),
        ];
        let mut request = prepare(&name(&id), turns);
        request.prompt_prefix = tools_with_snip();
        let reply = context.prepare_context(with(&writer, request)).await;
        array.take(&reply.unwrap().into_inner());
        let first = array.values()[0].to_string();
        let (_, tag) = first
            .split_once("[id:")
            .unwrap_or_else(|| panic!("{first}"));
        let tag = json!({"ids": [&tag[..6]], "reason": "It is done."});

        let connect = async |key: &str| {
            if transport == "http" {
                return client::http(address, &path(&id), Some(key)).await;
            }
            let mut command = client::command(address, &["--session", &name(&id), "--allow-snip"]);
            command.env("PALIMPSEST_API_KEY", key);
            client::stdio_of(command).await
        };
        let client = connect(&reader).await;
        let refused = client.fails("Snip", tag.clone()).await;
        assert!(refused.contains("PERMISSION_DENIED"), "{refused}");
        let read = client.reads("ReadTranscript", json!({"first": 1})).await;
        assert!(read.contains("The first task"));

        let client = connect(&editor).await;
        let tools = client.mcp.list_all_tools().await.unwrap();
        let snip = tools.iter().find(|tool| tool.name == "Snip").unwrap();
        let hints = snip.annotations.as_ref().unwrap();
        assert_eq!(
            (hints.read_only_hint, hints.destructive_hint),
            (Some(false), Some(true))
        );
        let snipped = client.reads("Snip", tag.clone()).await;
        assert!(
            snipped.starts_with("Removed 1 turns with 2 messages"),
            "{snipped}"
        );
        let again = client.fails("Snip", tag).await;
        assert!(again.contains("already"), "{again}");
        // The view has changed, and the transcript has not.
        let reply =
            context.prepare_context(with(&writer, prepare(&name(&id), vec![user("Go on.")])));
        let mut array = Array::default();
        array.take(&reply.await.unwrap().into_inner());
        assert!(
            !array
                .values()
                .iter()
                .any(|message| message.to_string().contains("first task"))
        );
        let read = client.reads("ReadTranscript", json!({"first": 1})).await;
        assert!(read.contains("The first task"));
    }
}

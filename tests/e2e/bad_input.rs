//! Tests of invalid requests: each one is rejected with the right error, and no state changes.

use palimpsest_proto::context::v1::{Format, GetSessionRequest, MessageInput, Target};
use palimpsest_tests::say::{append, assistant_call, payload, prepare, result, typed, user};
use palimpsest_tests::{fields, name, refused, refused_field};
use prost::Message;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::SERVER;

async fn refusal(session: &str, messages: Vec<MessageInput>) -> Status {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    client
        .append_messages(append(session, messages))
        .await
        .unwrap_err()
}

async fn refused_payload(json: impl Into<bytes::Bytes>) -> Status {
    let json = json.into();
    let shown = String::from_utf8_lossy(&json[..json.len().min(80)]).into_owned();
    let bad = payload(Format::AnthropicMessages, json);
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let reply = client
        .append_messages(append(&name("bad"), vec![user("ok"), bad]))
        .await;
    let Err(status) = reply else {
        panic!("accepted: {shown}")
    };
    let metadata = refused(&status, Code::InvalidArgument, "INVALID_PAYLOAD");
    assert_eq!(metadata["field"], "messages[1].payload.json");
    assert_eq!(fields(&status), ["messages[1].payload.json"]);
    status
}

#[tokio::test]
async fn invalid_message_json_is_rejected() {
    // A recursive parser would overflow its stack.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_field = format!("{{\"role\":\"user\",\"content\":{deep}}}");
    let deep_extra = format!("{{\"role\":\"user\",\"content\":\"x\",\"y\":{deep}}}");
    for json in [
        b"{".to_vec(),
        b"nonsense".to_vec(),
        b"42".to_vec(),
        b"{}".to_vec(),
        b"{\"role\":\"wizard\",\"content\":\"x\"}".to_vec(),
        b"{\"role\":\"user\",\"content\":42}".to_vec(),
        b"{\"role\":\"user\",\"content\":[{\"no_type\":1}]}".to_vec(),
        b"{\"role\":\"user\",\"content\":\"\xff\xfe\"}".to_vec(),
        b"{\"role\":\"user\",\"content\":\"x\"} trailing".to_vec(),
        deep.clone().into_bytes(),
        deep_field.into_bytes(),
        deep_extra.into_bytes(),
    ] {
        let status = refused_payload(json).await;
        // An error must not repeat content of a conversation.
        assert!(!status.message().contains("wizard"), "{status:?}");
    }
    let shared = SERVER.get();
    let get = GetSessionRequest {
        session: name("bad"),
        ..GetSessionRequest::default()
    };
    let status = shared
        .0
        .sessions()
        .await
        .get_session(get)
        .await
        .unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn unusual_json_is_preserved_or_rejected_without_internal_errors() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    // Parsers differ in repeated keys, lone surrogates and numbers that fit no type.
    for (index, json) in [
        "{\"role\":\"user\",\"role\":\"assistant\",\"content\":\"x\"}",
        "{\"role\":\"user\",\"content\":\"a\",\"content\":\"b\"}",
        "{\"role\":\"user\",\"content\":\"lone \\ud800\"}",
        "{\"role\":\"user\",\"content\":\"x\",\"n\":1e999999}",
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"text\":\"y\"}]}",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"../../etc/passwd\",\"name\":\"n\",\"input\":{\"a\":1,\"a\":2}}]}",
        "{\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":99999999999999999999999}}",
        "{\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":-1}}",
    ]
    .into_iter()
    .enumerate()
    {
        let session = name(&format!("strange-{index}"));
        let said = payload(Format::AnthropicMessages, json);
        match client.append_messages(append(&session, vec![said])).await {
            Ok(_) => {
                let view = client.prepare_context(prepare(&session, Vec::new())).await.unwrap();
                for json in &view.into_inner().messages_json {
                    let read = serde_json::from_slice::<serde_json::Value>(json);
                    assert!(read.is_ok(), "{read:?}: {json:?}");
                }
            }
            Err(status) => {
                refused(&status, Code::InvalidArgument, "INVALID_PAYLOAD");
            }
        }
    }
}

#[tokio::test]
async fn malformed_names_are_rejected() {
    let long = "a".repeat(300);
    for bad in [
        String::new(),
        "s".to_owned(),
        "projects/p".to_owned(),
        name("../x"),
        name("a/b"),
        name("a\0b"),
        name(&long),
        name("sé"),
        name("."),
        name(".."),
        name(""),
        name("-a"),
        name("a b"),
        name("a\n"),
        "projects//sessions/s".to_owned(),
        "projects/../sessions/s".to_owned(),
        format!("{}/", name("s")),
        format!("projects/{long}/sessions/s"),
    ] {
        refused_field(&refusal(&bad, vec![user("x")]).await, "session");
        let shared = SERVER.get();
        let get = GetSessionRequest {
            session: bad,
            ..GetSessionRequest::default()
        };
        let status = shared
            .0
            .sessions()
            .await
            .get_session(get)
            .await
            .unwrap_err();
        refused_field(&status, "session");
    }
    // A name has at most 128 characters.
    let longest = name(&"a".repeat(128));
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    client
        .append_messages(append(&longest, vec![user("x")]))
        .await
        .unwrap();
    let status = refusal(&name(&"a".repeat(129)), vec![user("x")]).await;
    refused_field(&status, "session");
}

#[tokio::test]
async fn unknown_enum_numbers_are_rejected() {
    let session = name("enums");
    let mut bad = user("x");
    bad.metadata = Some(palimpsest_proto::context::v1::MessageMetadata {
        kind: 99,
        ..Default::default()
    });
    refused_field(
        &refusal(&session, vec![bad]).await,
        "messages[0].metadata.kind",
    );
    let role = typed(palimpsest_proto::context::v1::Role::Unspecified, "x");
    refused_field(
        &refusal(&session, vec![role]).await,
        "messages[0].message.role",
    );
    let empty = MessageInput::default();
    refused_field(&refusal(&session, vec![empty]).await, "messages[0].content");
    let bad = MessageInput {
        id: "no uuid".into(),
        ..user("x")
    };
    refused_field(&refusal(&session, vec![bad]).await, "messages[0].id");
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut request = prepare(&session, Vec::new());
    request.form = 77;
    refused_field(&client.prepare_context(request).await.unwrap_err(), "form");
    let mut request = prepare(&session, vec![user("x")]);
    request.target = Some(Target {
        provider: 55,
        ..Target::default()
    });
    refused_field(
        &client.prepare_context(request).await.unwrap_err(),
        "target.provider",
    );
}

#[tokio::test]
async fn hostile_tool_ids_are_treated_as_data() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let other = client
        .prepare_context(prepare(&name("innocent"), vec![user("mine")]))
        .await;
    let other = other.unwrap().into_inner();
    let id = "../../innocent\0/..";
    let said = vec![user("x"), assistant_call(id), result(id, "r")];
    let view = client
        .prepare_context(prepare(&name("hostile"), said))
        .await
        .unwrap()
        .into_inner();
    assert!(view.sendable);
    let all = String::from_utf8(view.messages_json.concat()).unwrap();
    let call: serde_json::Value = serde_json::from_slice(&view.messages_json[1]).unwrap();
    let shown = call["content"][0]["id"].as_str().unwrap();
    assert!(
        shown
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
        "{all}"
    );
    assert_eq!(view.repairs[0].view_tool_use_id, shown);
    let after = client
        .prepare_context(prepare(&name("innocent"), Vec::new()))
        .await
        .unwrap();
    assert_eq!(after.into_inner().messages_json, other.messages_json);
}

/// Sends a message with field number 1 to a method. The field can be a number, a text or an incomplete text.
async fn send<T: Message + Default + Send + Sync + 'static>(message: T, path: &str) -> Status {
    let shared = SERVER.get();
    let mut client = tonic::client::Grpc::new(shared.0.channel().await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<T, HealthCheckRequest>::default();
    let path = path.parse::<http::uri::PathAndQuery>().unwrap();
    client
        .unary(Request::new(message), path, codec)
        .await
        .unwrap_err()
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    value: Vec<u8>,
}

#[tokio::test]
async fn malformed_requests_are_invalid_arguments() {
    for method in ["ContextService/AppendMessages", "SessionService/GetSession"] {
        let path = format!("/palimpsest.context.v1.{method}");
        let status = send(Number { value: 1 }, &path).await;
        refused(&status, Code::InvalidArgument, "INVALID_FIELD");
        let status = send(
            Raw {
                // A text of Protocol Buffers must be UTF-8, and these bytes are not.
                value: vec![0xff, 0xfe],
            },
            &path,
        )
        .await;
        refused(&status, Code::InvalidArgument, "INVALID_FIELD");
    }
}

#[tokio::test]
async fn unknown_methods_are_not_implemented() {
    for path in [
        "/palimpsest.context.v1.ContextService/Nope",
        "/no.such.Service/Method",
    ] {
        let status = send(Number { value: 1 }, path).await;
        let metadata = refused(&status, Code::Unimplemented, "METHOD_NOT_IMPLEMENTED");
        assert_eq!(format!("/{}", metadata["method"]), path);
    }
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    let shared = SERVER.get();
    let mut health = HealthClient::new(shared.0.channel().await);
    for service in [
        "",
        "palimpsest.context.v1.ContextService",
        "palimpsest.context.v1.SessionService",
    ] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let reply = health.check(request).await.unwrap().into_inner();
        assert_eq!(reply.status(), ServingStatus::Serving, "{service}");
    }
    let request = HealthCheckRequest {
        service: "nope".into(),
    };
    assert_eq!(
        health.check(request).await.unwrap_err().code(),
        Code::NotFound
    );

    let mut client = ServerReflectionClient::new(shared.0.channel().await);
    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let replies = client
        .server_reflection_info(futures::stream::iter([request]))
        .await
        .unwrap();
    let reply = replies.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = reply.message_response else {
        panic!("{reply:?}")
    };
    let names: Vec<_> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    assert!(
        names.contains(&"palimpsest.context.v1.ContextService".to_owned()),
        "{names:?}"
    );
    assert!(
        names.contains(&"palimpsest.context.v1.SessionService".to_owned()),
        "{names:?}"
    );
}

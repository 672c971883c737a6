//! The Connect protocol.

use bytes::{BufMut as _, BytesMut};
use palimpsest_proto::context::v1::{GetSessionRequest, GetSessionResponse};
use prost::Message as _;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::{Caller, session};
use crate::SERVER;

const GET: &str = "/palimpsest.context.v1.SessionService/GetSession";
const SYNC: &str = "/palimpsest.context.v1.ContextService/SyncContext";
const EXPORT: &str = "/palimpsest.context.v1.SessionService/ExportTranscript";

async fn created(caller: &Caller, id: &str) -> String {
    let body = json!({"system": "s", "messages": [{"role": "user", "content": "hi"}]});
    caller
        .ok(caller.post(&format!("{}:sync", session(id)), &body))
        .await;
    format!("projects/http/sessions/{id}")
}

#[tokio::test]
async fn a_unary_call_has_its_message_as_its_body() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let name = created(&caller, "connect").await;
    let json = caller
        .ok(caller.post(GET, &json!({"session": name, "includeRecovery": true})))
        .await;
    assert_eq!(json["session"]["name"], name);
    // The mapping of Protocol Buffers has strings for integers of 64 bits, and leaves out defaults.
    assert!(json["session"]["revision"].is_string());
    assert!(json["session"].get("title").is_none());
    assert_eq!(json["session"]["state"], "SESSION_STATE_AWAITING_MODEL");

    let request = GetSessionRequest {
        session: name.clone(),
        ..GetSessionRequest::default()
    };
    let binary = caller.post_as(GET, "application/proto", request.encode_to_vec());
    let response = binary.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/proto");
    let reply = GetSessionResponse::decode(response.bytes().await.unwrap()).unwrap();
    assert_eq!(reply.session.unwrap().name, name);

    // The bytes of JSON in the contract are base64 here.
    let payload = json!({"format": "FORMAT_OPENAI_CHAT", "json": "W3sicm9sZSI6InVzZXIiLCJjb250ZW50IjoiaGkifV0="});
    let synced = json!({"session": "projects/http/sessions/connect-2", "payload": payload});
    let synced = caller.ok(caller.post(SYNC, &synced)).await;
    assert_eq!(synced["outcome"], "SYNC_OUTCOME_NEW");
    assert!(synced["context"]["messagesJson"][0].is_string());
}

#[tokio::test]
async fn compressed_requests_are_read() {
    use std::io::Write as _;
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let name = created(&caller, "gzip").await;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(json!({"session": name}).to_string().as_bytes())
        .unwrap();
    let request = caller
        .post(GET, &Value::Null)
        .header("content-encoding", "gzip");
    let read = caller.ok(request.body(gzip.finish().unwrap())).await;
    assert_eq!(read["session"]["name"], name);
    // A body that grows a thousandfold is not decoded.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![b' '; 64 << 20]).unwrap();
    let request = caller
        .post(GET, &Value::Null)
        .header("content-encoding", "gzip");
    let (status, error) = failure(request.body(gzip.finish().unwrap())).await;
    assert_eq!(
        (status, &error["code"]),
        (429, &json!("resource_exhausted")),
        "{error}"
    );
}

async fn failure(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, super::json_of(response).await)
}

#[tokio::test]
async fn errors_have_the_form_of_connect() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let (status, error) =
        failure(caller.post(GET, &json!({"session": "projects/http/sessions/nobody"}))).await;
    assert_eq!((status, &error["code"]), (404, &json!("not_found")));
    assert_eq!(error["details"][0]["type"], "google.rpc.ErrorInfo");
    let (status, error) = failure(caller.post(GET, &json!({"sessions": ""}))).await;
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("invalid_argument")),
        "{error}"
    );
    let (status, error) =
        failure(caller.post("/palimpsest.context.v1.SessionService/Nothing", &json!({}))).await;
    assert_eq!((status, &error["code"]), (404, &json!("unimplemented")));
    // This type is for streams, and the method is unary.
    let typed = caller.post_as(GET, "application/connect+json", "{}");
    assert_eq!(typed.send().await.unwrap().status(), 415);
    assert_eq!(caller.get(GET).send().await.unwrap().status(), 405);
}

fn envelope(json: &Value) -> Vec<u8> {
    let text = json.to_string();
    // An envelope of Connect has one byte of flags and four bytes of length before its message.
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(text.len().try_into().unwrap());
    out.put_slice(text.as_bytes());
    out.to_vec()
}

/// Splits the envelopes of a stream.
fn opened(mut bytes: &[u8]) -> Vec<(u8, Value)> {
    let mut messages = Vec::new();
    while let [flags, a, b, c, d, rest @ ..] = bytes {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        messages.push((*flags, serde_json::from_slice(&rest[..length]).unwrap()));
        bytes = &rest[length..];
    }
    messages
}

#[tokio::test]
async fn a_stream_has_envelopes_and_an_end() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let name = created(&caller, "stream").await;
    let export = async |session: &str| {
        let request = json!({"session": session, "format": "FORMAT_OPENAI_CHAT"});
        let request = caller.post_as(EXPORT, "application/connect+json", envelope(&request));
        let response = request.send().await.unwrap();
        assert_eq!(
            (
                response.status().as_u16(),
                response.headers()["content-type"].as_bytes()
            ),
            (200, &b"application/connect+json"[..])
        );
        opened(&response.bytes().await.unwrap())
    };
    let messages = export(&name).await;
    let (end, messages) = messages.split_last().unwrap();
    // Flag 2 marks the end of a stream. An empty object without `error` means success.
    assert_eq!(*end, (2, json!({})));
    assert!(
        messages
            .iter()
            .any(|(flags, message)| *flags == 0 && message["last"] == true)
    );
    // The HTTP status of a stream is always 200, because an error can follow the first messages.
    let missing = export("projects/http/sessions/nobody").await;
    assert_eq!(
        (missing[0].0, &missing[0].1["error"]["code"]),
        (2, &json!("not_found"))
    );
}

//! gRPC-Web, in both of its forms.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palimpsest_proto::context::v1::{GetSessionRequest, GetSessionResponse};
use prost::Message as _;
use serde_json::json;

use super::{Caller, session};
use crate::SERVER;

#[tokio::test]
async fn a_call_has_its_outcome_in_the_body() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let body = json!({"system": "s", "messages": [{"role": "user", "content": "hi"}]});
    caller
        .ok(caller.post(&format!("{}:sync", session("web")), &body))
        .await;
    let call = async |name: &str, is_text: bool| {
        let request = GetSessionRequest {
            session: name.to_owned(),
            ..GetSessionRequest::default()
        };
        // A frame has one byte of flags and four bytes of length before its message.
        let mut framed = vec![0; 5];
        framed.extend(request.encode_to_vec());
        let length = u32::try_from(framed.len() - 5).unwrap();
        framed[1..5].copy_from_slice(&length.to_be_bytes());
        let (content_type, sent) = if is_text {
            (
                "application/grpc-web-text",
                STANDARD.encode(&framed).into_bytes(),
            )
        } else {
            ("application/grpc-web+proto", framed)
        };
        let path = "/palimpsest.context.v1.SessionService/GetSession";
        let request = caller.post_as(path, content_type, sent);
        let request = request.header("accept", content_type);
        let response = request.send().await.unwrap();
        let outcome = response
            .headers()
            .get("grpc-status")
            .map(|value| value.to_str().unwrap().to_owned());
        let bytes = response.bytes().await.unwrap();
        let bytes = if is_text {
            of_base64(&bytes)
        } else {
            bytes.to_vec()
        };
        (outcome, bytes)
    };
    for is_text in [false, true] {
        let (_, bytes) = call("projects/http/sessions/web", is_text).await;
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
        let reply = GetSessionResponse::decode(&bytes[5..5 + length]).unwrap();
        assert_eq!(reply.session.unwrap().name, "projects/http/sessions/web");
        let trailers = &bytes[5 + length..];
        // The highest bit of the flags marks the trailers.
        assert_eq!(trailers[0], 0x80);
        assert!(String::from_utf8_lossy(&trailers[5..]).contains("grpc-status:0"));
    }
    // Without a message, the trailers are sent as headers.
    let (outcome, _) = call("projects/http/sessions/nobody", false).await;
    assert_eq!(outcome.as_deref(), Some("5"));
}

/// Decodes base64 whose parts are each padded.
fn of_base64(text: &[u8]) -> Vec<u8> {
    let quartets = text
        .chunks(4)
        .map(|quartet| STANDARD.decode(quartet).unwrap());
    quartets.flatten().collect()
}

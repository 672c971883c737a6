//! Tests of the HTTP API: REST, Connect and gRPC-Web on the port of gRPC, without gRPC clients.

mod connect;
mod grpc_web;
mod limits;
mod pages;
mod rest;
mod streams;
mod whole_arrays;

use reqwest::{Body, Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;

/// Returns the URL of a path on the shared server.
fn url(address: &str, path: &str) -> String {
    format!("http://{address}{path}")
}

/// Returns the path of a session of the project `http`.
fn session(id: &str) -> String {
    format!("/v1/projects/http/sessions/{id}")
}

/// A caller of the REST API.
struct Caller {
    http: Client,
    address: String,
}

impl Caller {
    fn new(address: &str) -> Self {
        Self {
            http: Client::new(),
            address: address.to_owned(),
        }
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(url(&self.address, path))
    }

    fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.post_as(path, "application/json", body.to_string())
    }

    fn post_as(&self, path: &str, content_type: &str, body: impl Into<Body>) -> RequestBuilder {
        let request = self.http.post(url(&self.address, path));
        request.header("content-type", content_type).body(body)
    }

    /// Sends a request that succeeds, and returns its JSON.
    async fn ok(&self, request: RequestBuilder) -> Value {
        let response = request.send().await.unwrap();
        let status = response.status();
        let json = json_of(response).await;
        assert_eq!(status, StatusCode::OK, "{json}");
        json
    }

    /// Sends a request that is rejected, and returns the error.
    async fn rejected(&self, request: RequestBuilder, status: u16, reason: &str) -> Value {
        let response = request.send().await.unwrap();
        let actual = response.status().as_u16();
        let json = json_of(response).await;
        assert_eq!(actual, status, "{json}");
        let error = &json["error"];
        assert_eq!(error["code"], status, "{json}");
        assert_eq!(reason_of(error), reason, "{json}");
        error.clone()
    }
}

/// Returns the reason of an error.
fn reason_of(error: &Value) -> &str {
    let details = error["details"].as_array().unwrap();
    let info = details.iter().find_map(|detail| detail["reason"].as_str());
    info.unwrap_or_default()
}

async fn json_of(response: Response) -> Value {
    assert_eq!(response.headers()["content-type"], "application/json");
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

//! Uploaded files.

use axum::http::Method;
use bytes::Bytes;
use serde_json::{Value, json};

use super::multipart::{Part, parts};
use super::{Call, Reply, add, not_found};
use crate::refusal::Refusal;
use crate::state::State;

/// A stored file.
pub(super) struct File {
    pub(super) id: String,
    name: String,
    kind: String,
    /// The purpose that OpenAI requires. Empty for Anthropic.
    pub(super) purpose: String,
    pub(super) bytes: Bytes,
}

impl File {
    /// Returns a file that the provider writes.
    pub(super) fn written(state: &mut State, name: &str, bytes: String) -> Self {
        Self {
            id: state.id("file-"),
            name: name.to_owned(),
            kind: "application/jsonl".to_owned(),
            purpose: "batch_output".to_owned(),
            bytes: bytes.into(),
        }
    }
}

impl Call<'_> {
    /// Answers a request for files.
    pub(super) fn files(&self, state: &mut State, path: &[&str]) -> Result<Reply, Refusal> {
        let found = |id: &str| {
            let mut files = state.resources.files.iter();
            let file = files.find(|file| file.id == id);
            file.ok_or_else(|| not_found(format!("File not found: {id}")))
        };
        match (self.method(), path) {
            (&Method::POST, []) => self.upload(state),
            (&Method::GET, []) => {
                let files = state.resources.files.iter();
                let files = files.map(|file| (file.id.as_str(), self.file(file)));
                let files: Vec<_> = files.collect();
                Ok(Reply::Json(self.page(&files)?))
            }
            (&Method::GET, [id]) => Ok(Reply::Json(self.file(found(id)?))),
            (&Method::GET, [id, "content"]) => {
                let bytes = found(id)?.bytes.clone();
                Ok(Reply::Content("application/octet-stream", bytes))
            }
            (&Method::DELETE, [id]) => {
                found(id)?;
                state.resources.files.retain(|file| file.id != *id);
                Ok(Reply::Json(if self.is_anthropic() {
                    json!({"id": id, "type": "file_deleted"})
                } else {
                    json!({"id": id, "object": "file", "deleted": true})
                }))
            }
            _ => Err(not_found("Not found")),
        }
    }

    fn upload(&self, state: &mut State) -> Result<Reply, Refusal> {
        let kind = self.parts.headers.get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let parts = parts(kind, &self.raw).map_err(Refusal::invalid)?;
        let text = |name: &str| {
            let mut parts = parts.iter();
            let part = parts.find(|part| part.name == name && part.file.is_none());
            part.map(|part| String::from_utf8_lossy(&part.bytes).into_owned())
        };
        let purpose = text("purpose").unwrap_or_default();
        if purpose.is_empty() && !self.is_anthropic() {
            return Err(Refusal::invalid("'purpose' is a required property").param("purpose"));
        }
        let mut files = parts.iter();
        let Some(Part {
            file: Some(name),
            kind,
            bytes,
            ..
        }) = files.find(|part| part.name == "file" && part.file.is_some())
        else {
            return Err(Refusal::invalid("file: Field required").param("file"));
        };
        // The ids of the providers differ in one character.
        let prefix = if self.is_anthropic() {
            "file_"
        } else {
            "file-"
        };
        let file = File {
            id: state.id(prefix),
            name: name.clone(),
            kind: kind.clone(),
            purpose,
            bytes: bytes.clone(),
        };
        let shown = self.file(&file);
        add(&mut state.resources.files, file);
        Ok(Reply::Json(shown))
    }

    fn file(&self, file: &File) -> Value {
        if self.is_anthropic() {
            return json!({
                "id": file.id, "type": "file", "filename": file.name, "mime_type": file.kind,
                "size_bytes": file.bytes.len(), "created_at": self.time(), "downloadable": true,
                "expires_at": null,
            });
        }
        json!({
            "id": file.id, "object": "file", "bytes": file.bytes.len(), "created_at": self.time(),
            "filename": file.name, "purpose": file.purpose, "status": "processed",
            "expires_at": null, "status_details": null,
        })
    }
}

//! The array of a minimal client.

use std::fmt::Debug;

use bytes::Bytes;
use palimpsest_proto::context::v1::PrepareContextResponse;
use serde_json::Value;
use serde_json::value::RawValue;

/// The array of a client, maintained as the contract describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Array {
    /// The messages.
    pub messages: Vec<Bytes>,
    /// The etag of the array.
    pub etag: Bytes,
}

impl Array {
    /// Applies a reply: truncates the array to the kept messages and appends the new ones.
    #[track_caller]
    pub fn take(&mut self, reply: &PrepareContextResponse) {
        assert!(!reply.view_omitted);
        self.messages.truncate(reply.keep_messages as usize);
        self.messages.extend_from_slice(&reply.messages_json);
        self.etag = reply.etag.clone();
        assert_eq!(self.messages.len(), reply.view_messages as usize);
    }

    /// Returns the messages as JSON values.
    pub fn values(&self) -> Vec<Value> {
        values(&self.messages)
    }
}

/// Parses messages as JSON values.
pub fn values(messages: &[Bytes]) -> Vec<Value> {
    let parse = |json: &Bytes| serde_json::from_slice(json).unwrap();
    messages.iter().map(parse).collect()
}

/// Returns the sequence that a prompt cache compares: the role and the bytes of each block.
pub fn flat(messages: &[Bytes]) -> Vec<(String, String)> {
    let mut flat = Vec::new();
    for json in messages {
        let message: std::collections::HashMap<String, Box<RawValue>> =
            serde_json::from_slice(json).unwrap();
        let role = message["role"].get().to_owned();
        match serde_json::from_str::<Vec<Box<RawValue>>>(message["content"].get()) {
            Ok(blocks) => {
                let blocks = blocks.iter().map(|block| block.get().to_owned());
                flat.extend(blocks.map(|block| (role.clone(), block)));
            }
            // A string as content has no blocks, so the whole message is one element.
            Err(_) => flat.push((role, String::from_utf8(json.to_vec()).unwrap())),
        }
    }
    flat
}

/// Asserts that `before` is a prefix of `after`.
#[track_caller]
pub fn check_prefix<T: PartialEq + Debug>(before: &[T], after: &[T]) {
    assert!(
        after.starts_with(before),
        "a served message changed: {before:?}\nbecame {after:?}"
    );
}

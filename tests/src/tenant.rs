//! Tenants of one server: their keys, and comparisons of errors for another tenant's sessions.

use std::path::Path;
use std::process::Command;

use tonic::{Code, Request, Status};

use crate::binary;

/// Runs `palimpsest keys` on a file and returns the output.
pub fn keys(file: &Path, args: &[&str]) -> String {
    let output = Command::new(binary())
        .arg("keys")
        .args(args)
        .arg("--keys-file")
        .arg(file)
        .env_clear()
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns a request with a credential.
pub fn with<T>(credential: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {credential}");
    let metadata = request.metadata_mut();
    metadata.insert("authorization", bearer.parse().unwrap());
    request
}

/// Returns all parts of an error that a caller can see, with names replaced. Two errors can therefore be compared.
pub fn told(status: &Status, names: &[(&str, &str)]) -> (Code, String, Vec<u8>, String) {
    let swap = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for (from, to) in names {
            // The details are protobuf with length prefixes, which a name of another length would break.
            assert_eq!(from.len(), to.len());
            let found: Vec<_> = (0..bytes.len())
                .filter(|at| bytes[*at..].starts_with(from.as_bytes()))
                .collect();
            for at in found {
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
        }
        bytes
    };
    let message = String::from_utf8(swap(status.message().as_bytes())).unwrap();
    let mut headers = status.metadata().clone();
    headers.remove("date");
    let details = swap(status.details());
    (status.code(), message, details, format!("{headers:?}"))
}

//! The originals of tool results, in messages and in files.

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::levels::results::{file_content, is_json, is_json_file};
use palimpsest_core::message::{Block, Message, ToolResult};
use palimpsest_core::session::TranscriptEntry;
use palimpsest_store::blobs::BlobError;
use palimpsest_store::error_chain;
use palimpsest_transcripts::export::BlobLoss;
use tokio::task::spawn_blocking;

use crate::originals::contents;
use crate::{Engine, EngineError};

/// Returns the original from a message. The flag is true if it is JSON.
pub async fn in_message(
    engine: &Engine,
    key: &SessionKey,
    entry: (Ordinal, TranscriptEntry),
    block: u16,
) -> Result<(String, bool), EngineError> {
    let found = contents(engine, key, vec![entry]).await?;
    let message = found.into_iter().next().map(|found| found.message);
    let make = move || {
        let message = message?;
        let result = result_in(&message, block)?;
        Some((file_content(result).into_owned(), is_json(result)))
    };
    // A large result is converted on a blocking thread.
    let outcome = spawn_blocking(make).await;
    outcome
        .map_err(|error| EngineError::internal("read a tool result", error))?
        .ok_or(EngineError::Internal {
            doing: "find a result where its index says it is",
            source: None,
        })
}

/// Returns the original from a file. The flag is true if it is JSON.
pub async fn in_file(
    engine: &Engine,
    key: &SessionKey,
    file: &str,
    sha256: &[u8; 32],
) -> Result<(String, bool), EngineError> {
    let read = stored_text(engine, key, file, sha256).await?;
    read.map_err(|loss| {
        let what = format!("the file of a stored result is {}", loss.as_str());
        EngineError::internal("read a stored result", what)
    })
}

/// Returns the original from a file and whether it is JSON, or the reason for its permanent loss.
///
/// # Errors
///
/// Fails if the file cannot be read at the moment.
pub async fn stored_text(
    engine: &Engine,
    key: &SessionKey,
    file: &str,
    sha256: &[u8; 32],
) -> Result<Result<(String, bool), BlobLoss>, EngineError> {
    let bytes = match engine.blobs.get_result(key, file, sha256).await {
        Ok(bytes) => bytes,
        Err(error @ (BlobError::NotFound(_) | BlobError::Damaged(_))) => {
            // The caller decides about the consequences and reports the loss.
            tracing::debug!(session = %key, file, %error, "a stored result is lost");
            let is_missing = matches!(error, BlobError::NotFound(_));
            return Ok(Err(if is_missing {
                BlobLoss::Missing
            } else {
                BlobLoss::Damaged
            }));
        }
        // The blob store may be reachable again soon, so the error is retryable.
        Err(error @ (BlobError::Store(_) | BlobError::Folder(_))) => {
            tracing::warn!(session = %key, file, error = %error_chain(&error), "failed to read a stored result");
            return Err(EngineError::BlobsUnavailable);
        }
        Err(error) => return Err(EngineError::internal("read a stored result", error)),
    };
    let text = String::from_utf8(bytes.into());
    let text = text.map_err(|error| EngineError::internal("read a stored result", error))?;
    Ok(Ok((text, is_json_file(file))))
}

fn result_in(message: &Message, block: u16) -> Option<&ToolResult> {
    match message.blocks.get(usize::from(block))? {
        Block::ToolResult(result) => Some(result),
        _ => None,
    }
}

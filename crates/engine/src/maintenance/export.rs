//! Exports the transcript of an expired session before its deletion, and verifies the written file. Without a verified
//! export the session is not deleted.

use palimpsest_store::archive::Archive;
use palimpsest_store::blobs::BlobError;
use palimpsest_transcripts::export::BlobLoss;

use super::families::RetentionRow;
use crate::export::{Export, ExportOptions};
use crate::{Engine, EngineError};

#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("the transcript cannot be read")]
    Read(#[from] EngineError),
    #[error(transparent)]
    Write(#[from] BlobError),
    #[error("the export in {0} differs from the data that was sent")]
    Differs(String),
    #[error("the session changed while it was exported")]
    Changed,
    #[error("the export would lack the stored result {file}, which is lost ({})", loss.as_str())]
    Incomplete { file: String, loss: BlobLoss },
}

/// Returns the path of a session's export. The incarnation distinguishes sessions that reuse a name.
fn path(row: &RetentionRow) -> String {
    format!(
        "{}/{}/{}-{}.jsonl",
        row.key.project, row.key.session, row.position.incarnation, row.position.revision
    )
}

pub(super) async fn export(
    engine: &Engine,
    place: &Archive,
    row: &RetentionRow,
) -> Result<(), ExportError> {
    let mut export = Export::begin(engine, &row.key, ExportOptions::COMPLETE).await?;
    // The export must match the state that was selected for deletion.
    if !export.position().matches(row.position) {
        return Err(ExportError::Changed);
    }
    let path = path(row);
    let mut writer = place.writer(&path)?;
    while let Some(part) = export.next(engine).await? {
        if let Some(lost) = part.lost.into_iter().next() {
            return Err(ExportError::Incomplete {
                file: lost.file.into(),
                loss: lost.loss,
            });
        }
        writer.write(&part.data).await?;
    }
    let sent = writer.finish().await?;
    // The file is read back: a deletion after a damaged export would lose the transcript.
    if place.checksum(&path).await? != sent {
        return Err(ExportError::Differs(path));
    }
    Ok(())
}

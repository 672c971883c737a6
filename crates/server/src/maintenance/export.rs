//! Exports the transcript of an expired session before its deletion, and verifies the written file. Without a verified
//! export the session is not deleted.

use palimpsest_store::archive::Archive;
use palimpsest_store::blobs::BlobError;
use tonic::Status;

use super::families::RetentionRow;
use palimpsest_engine::results::BlobLoss;

use crate::services::{CompleteExport, Service};

#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("the transcript cannot be read: {}", .0.message())]
    Read(#[source] Status),
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
    service: &Service,
    place: &Archive,
    row: &RetentionRow,
) -> Result<(), ExportError> {
    let read = |error| ExportError::Read(Status::from(error));
    let mut lines = CompleteExport::begin(service, &row.key)
        .await
        .map_err(read)?;
    // The export must match the state that was selected for deletion.
    if !lines.position().agrees(row.position) {
        return Err(ExportError::Changed);
    }
    let path = path(row);
    let mut writer = place.writer(&path)?;
    while let Some(line) = lines.next(service).await.map_err(read)? {
        if let Some((file, loss)) = lines.lost() {
            let file = file.to_owned();
            return Err(ExportError::Incomplete { file, loss });
        }
        for line in line {
            writer.write(&line).await?;
        }
    }
    let sent = writer.finish().await?;
    // The file is read back: a deletion after a damaged export would lose the transcript.
    if place.sum(&path).await? != sent {
        return Err(ExportError::Differs(path));
    }
    Ok(())
}

//! `ExportTranscript`: streams a transcript as a file.

use async_stream::try_stream;
use palimpsest_core::view::Provider;
use palimpsest_engine::export::{Export, ExportFormat, ExportOptions, LostResult};
use palimpsest_proto::context::v1::{
    self, BlockRef, ExportTranscriptRequest, ExportTranscriptResponse, Format, ResultLoss,
};
use palimpsest_transcripts::export::BlobLoss;

use super::Service;
use super::context::ReplyStream;
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn export(
    service: &Service,
    request: ExportTranscriptRequest,
) -> Result<ReplyStream<ExportTranscriptResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let filter = request.filter.map(|filter| {
        // An empty filter matches every message, and still makes the export partial.
        convert::message_filter(Some(filter), service.limits())
    });
    let options = ExportOptions {
        filter: filter.transpose()?,
        format: format(request.format)?,
        inline_results: request.inline_results.unwrap_or(true),
    };
    let mut export = Export::begin(service, &key, options).await?;
    let revision = export.position().revision.get();
    let service = service.clone();
    let stream = try_stream! {
        while let Some(part) = export.next(&service).await.map_err(ServiceError::from)? {
            yield ExportTranscriptResponse {
                unreadable_results: part.lost.iter().filter_map(lost_result).collect(),
                exported_messages: part.exported_messages,
                revision: if part.is_last { revision } else { 0 },
                last: part.is_last,
                data: part.data.into(),
            };
        }
    };
    Ok(Box::pin(stream))
}

fn format(format: i32) -> Result<ExportFormat, ServiceError> {
    Ok(match Format::try_from(format) {
        Ok(Format::Unspecified | Format::PalimpsestJsonl) => ExportFormat::Complete,
        Ok(Format::ClaudeCodeJsonl) => ExportFormat::ClaudeCode,
        Ok(Format::CodexJsonl) => ExportFormat::Codex,
        Ok(Format::AnthropicMessages) => ExportFormat::Messages(Provider::Anthropic),
        Ok(Format::OpenaiChat) => ExportFormat::Messages(Provider::OpenAi),
        Ok(Format::OpenaiResponses) => ExportFormat::Messages(Provider::OpenAiResponses),
        Err(_) => {
            let what = "is not a format that this server knows";
            return Err(ServiceError::invalid("format", what));
        }
    })
}

/// Converts the loss of a result in a message. The line of a pending result already contains its loss.
fn lost_result(lost: &LostResult) -> Option<v1::LostResult> {
    let (message, block) = lost.block?;
    let kind = match lost.loss {
        BlobLoss::Missing => ResultLoss::Missing,
        BlobLoss::Damaged => ResultLoss::Damaged,
    };
    Some(v1::LostResult {
        block: Some(BlockRef {
            message_id: message.to_string(),
            block_index: block.into(),
        }),
        file: lost.file.to_string(),
        loss: kind.into(),
    })
}

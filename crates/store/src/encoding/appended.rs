//! Encoding of a message within an event, with its sizes.

use std::sync::Arc;

use palimpsest_core::event::{AppendedMessage, ResultSize};
use palimpsest_core::tokens::Size;

use super::error::DecodeError;
use super::{message, v1, view};

pub(super) fn write_message(appended: &AppendedMessage) -> v1::Appended {
    let (standing, of) = message::write_visibility(appended.standing);
    v1::Appended {
        message: Some(message::write(&appended.message)),
        standing: standing.into(),
        standing_of: of,
        tokens: appended.size.tokens,
        result_tokens: appended.size.result_tokens,
        result_block: appended.results.iter().map(|r| r.block.into()).collect(),
        result_chars: appended.results.iter().map(|r| r.chars).collect(),
        result_size: appended.results.iter().map(|r| r.tokens).collect(),
    }
}

pub(super) fn read_message(appended: v1::Appended) -> Result<AppendedMessage, DecodeError> {
    let standing = message::read_visibility(appended.standing(), appended.standing_of)?;
    let size = Size {
        tokens: appended.tokens,
        result_tokens: appended.result_tokens,
    };
    let result = |(index, block): (usize, &u32)| {
        let cut = DecodeError::Damaged("the sizes of results are cut");
        Ok(ResultSize {
            block: view::block(*block)?,
            chars: *appended.result_chars.get(index).ok_or(cut.clone())?,
            tokens: *appended.result_size.get(index).ok_or(cut)?,
        })
    };
    let results = appended.result_block.iter().enumerate().map(result);
    let results = results.collect::<Result<_, DecodeError>>()?;
    let stored = appended
        .message
        .ok_or(DecodeError::Damaged("an append without a message"))?;
    Ok(AppendedMessage {
        message: Arc::new(message::read(stored)?),
        standing,
        size,
        results,
    })
}

//! Encoding of a message within an event, with its sizes.

use std::sync::Arc;

use palimpsest_core::event::{AppendedMessage, ResultSize};
use palimpsest_core::message::Message;
use palimpsest_core::tokens::TokenSize;

use super::error::DecodeError;
use super::message::{read_visibility, write_visibility};
use super::stored_as::{StoredAs, cell};
use super::v1;

/// An appended message, with the sizes of its results as columns.
impl StoredAs<v1::Appended> for AppendedMessage {
    fn to_proto(&self) -> v1::Appended {
        let (standing, of) = write_visibility(self.visibility);
        v1::Appended {
            message: Some(self.message.to_proto()),
            standing,
            standing_of: of,
            tokens: self.size.tokens,
            result_tokens: self.size.result_tokens,
            result_block: self.results.iter().map(|r| r.block.into()).collect(),
            result_chars: self.results.iter().map(|r| r.chars).collect(),
            result_size: self.results.iter().map(|r| r.tokens).collect(),
            replaces: self.replaces.to_proto(),
        }
    }

    fn from_proto(stored: v1::Appended) -> Result<Self, DecodeError> {
        let message = stored
            .message
            .ok_or(DecodeError::Damaged("an append without a message"))?;
        let result = |row| {
            Ok(ResultSize {
                block: cell(&stored.result_block, row)?,
                chars: cell(&stored.result_chars, row)?,
                tokens: cell(&stored.result_size, row)?,
            })
        };
        let results = (0..stored.result_block.len()).map(result);
        Ok(Self {
            message: Arc::new(Message::from_proto(message)?),
            visibility: read_visibility(
                stored.standing,
                StoredAs::from_proto(stored.standing_of)?,
            )?,
            size: TokenSize {
                tokens: stored.tokens,
                result_tokens: stored.result_tokens,
            },
            results: results.collect::<Result<_, DecodeError>>()?,
            replaces: StoredAs::from_proto(stored.replaces)?,
        })
    }
}

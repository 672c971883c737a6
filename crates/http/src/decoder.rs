//! The step from the body of a request to its message.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::json::JsonError;

/// The size of the prefix of a gRPC message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Turns the body of a request into the message of a gRPC call.
///
/// It is an extension of a request whose body is no gRPC. The path of the call applies it to the received body.
#[derive(Clone)]
pub struct BodyDecoder(Arc<Decode>);

type Decode = dyn Fn(Bytes, &mut Vec<u8>) -> Result<(), BodyProblem> + Send + Sync;

/// The reason for rejecting the body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyProblem {
    /// A value is invalid.
    Field {
        /// The path of the value, such as `messages[2].id`. Empty for the whole body.
        path: String,
        /// The problem.
        problem: String,
    },
    /// The body does not follow its protocol.
    Malformed,
    /// A stream of requests has another number of messages than one.
    MessageCount,
    /// The body has more bytes than this after its content coding.
    TooLarge(usize),
}

impl From<JsonError> for BodyProblem {
    fn from(error: JsonError) -> Self {
        Self::Field {
            path: error.path,
            problem: error.problem,
        }
    }
}

impl BodyDecoder {
    pub(crate) fn new(
        decode: impl Fn(Bytes, &mut Vec<u8>) -> Result<(), BodyProblem> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(decode))
    }

    /// Returns the message with the prefix of gRPC.
    pub fn decode(&self, body: Bytes) -> Result<Bytes, BodyProblem> {
        let mut framed = Vec::with_capacity(PREFIX_BYTES + body.len() + 256);
        // The length is known only after the decoding, so the prefix is filled last. The flag 0 is an uncompressed
        // message.
        framed.resize(PREFIX_BYTES, 0);
        (self.0)(body, &mut framed)?;
        let length = u32::try_from(framed.len() - PREFIX_BYTES);
        let length = length.map_err(|_| BodyProblem::TooLarge(u32::MAX as usize))?;
        framed[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(framed.into())
    }
}

impl fmt::Debug for BodyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyDecoder")
    }
}

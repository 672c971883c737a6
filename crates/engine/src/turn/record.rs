//! Records the response of a model to a whole array.

use std::sync::Arc;

use palimpsest_core::array::ChainHead;
use palimpsest_core::command::{Append, AppendSource, Command};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::Message;

use crate::sessions::{MissingSession, Transaction};
use crate::{Engine, EngineError};

/// Records a response to the array that ended at `after`. It stays out of the view until the caller sends it back.
pub async fn record_response(
    engine: &Engine,
    key: &SessionKey,
    after: ChainHead,
    messages: &[Arc<Message>],
) -> Result<(), EngineError> {
    let decide = |transaction: &mut Transaction<'_>| {
        transaction.run(Command::Append(Append {
            messages: messages.to_vec(),
            source: AppendSource::Response { after },
            ..Append::default()
        }))
    };
    let (sessions, missing) = (&engine.sessions, &MissingSession::Reject);
    sessions.write(key, missing, decide, |_, _| Ok(())).await
}

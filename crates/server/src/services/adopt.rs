//! The validation of `adopted_compaction` of an append request.

use std::sync::Arc;

use palimpsest_core::command::ExternalSummary;
use palimpsest_core::message::Message;
use palimpsest_engine::turn::Adoption;
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert::{self, FieldError};
use crate::errors::ServiceError;

/// Validates an adoption. `messages` are those of its request.
pub(super) fn read(
    service: &Service,
    adopted: &v1::AdoptedCompaction,
    messages: &[Arc<Message>],
) -> Result<Adoption, ServiceError> {
    let of = |field: &str| format!("adopted_compaction.{field}");
    let optional = |id: &str, field: &str| -> Result<_, FieldError> {
        let named = (!id.is_empty()).then(|| convert::message_id(id, &of(field)));
        named.transpose()
    };
    // The summary is the only message of the call: the messages that it replaces were appended earlier.
    let [summary] = messages else {
        let what = "must have one message, the summary, if adopted_compaction is set";
        return Err(FieldError::invalid("messages", what).into());
    };
    let limit = service.limits().max_messages;
    let count = adopted.kept_message_ids.len();
    if count > limit {
        let what = format!("must name at most {limit} messages, names {count}");
        return Err(FieldError::invalid(of("kept_message_ids"), what).into());
    }
    let kept = adopted.kept_message_ids.iter().enumerate();
    let kept =
        kept.map(|(at, id)| convert::message_id(id, &of(&format!("kept_message_ids[{at}]"))));
    Ok(Adoption {
        summary: Box::new(ExternalSummary {
            summary: Arc::clone(summary),
            first: optional(&adopted.first_message_id, "first_message_id")?,
            last: optional(&adopted.last_message_id, "last_message_id")?,
            kept: kept.collect::<Result<_, _>>()?,
            before_tokens: (adopted.before_tokens > 0).then(|| adopted.before_tokens.into()),
            mark: service.next_id()(),
        }),
        trigger: convert::trigger_from_proto(adopted.trigger, &of("trigger"))?,
    })
}

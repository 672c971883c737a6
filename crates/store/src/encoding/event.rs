//! Events.

use std::sync::Arc;

use palimpsest_core::event::{
    Appended, Event, MessagesAppended, Recorded, Rewound, SessionCreated, SessionUpdated,
    ViewServed,
};
use palimpsest_core::ids::{Ordinal, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_core::policy::{BudgetPolicy, Policy};
use palimpsest_core::session::{LastServed, Method, RequestStamp};
use palimpsest_core::tokens::Size;

use super::{DecodeError, message, sixteen, sixteens, v1, view};

pub(super) fn write(recorded: &Recorded) -> v1::Recorded {
    use v1::recorded::Event as Stored;
    let event = match &recorded.event {
        Event::SessionCreated(event) => Stored::SessionCreated(v1::SessionCreated {
            implicit: event.implicit,
            rules: event.rules,
            policy: Some(write_policy(&event.policy)),
            title: event.title.to_string(),
            project_path: event.project_path.to_string(),
            branch: event.branch.to_string(),
            parent: write_parent(event.parent.as_ref()),
            attributes: message::write_attributes(&event.attributes),
            request: event.request.as_ref().map(write_stamp),
        }),
        Event::SessionUpdated(event) => Stored::SessionUpdated(v1::SessionUpdated {
            title: event.title.as_deref().map(str::to_owned),
            project_path: event.project_path.as_deref().map(str::to_owned),
            branch: event.branch.as_deref().map(str::to_owned),
            attributes: event.attributes.as_ref().map(|all| v1::Attributes {
                items: message::write_attributes(all),
            }),
            request: event.request.as_ref().map(write_stamp),
        }),
        Event::MessagesAppended(event) => Stored::MessagesAppended(write_appended(event)),
        Event::ViewServed(event) => Stored::ViewServed(v1::ViewServed {
            pieces: Some(view::write_pieces(&event.pieces)),
            served: Some(view::write_served(&LastServed {
                target: event.target.clone(),
                window: event.window,
                overhead_tokens: event.overhead_tokens,
            })),
            tokens: event.tokens,
        }),
        Event::Rewound(event) => Stored::Rewound(v1::Rewound {
            to: event.to.map(Ordinal::get),
            left: event.left.iter().map(|left| left.get()).collect(),
            before_tokens: event.before_tokens,
            change: Some(view::write_change(&event.change)),
            request: event.request.as_ref().map(write_stamp),
        }),
    };
    v1::Recorded {
        at_ms: recorded.at.as_millis(),
        event: Some(event),
    }
}

pub(super) fn read(stored: v1::Recorded) -> Result<Recorded, DecodeError> {
    use v1::recorded::Event as Stored;
    let event = match stored.event {
        Some(Stored::SessionCreated(event)) => Event::SessionCreated(SessionCreated {
            implicit: event.implicit,
            rules: event.rules,
            policy: read_policy(event.policy.as_ref()),
            title: event.title.into(),
            project_path: event.project_path.into(),
            branch: event.branch.into(),
            parent: read_parent(&event.parent)?,
            attributes: message::read_attributes(event.attributes),
            request: read_stamp(event.request)?,
        }),
        Some(Stored::SessionUpdated(event)) => Event::SessionUpdated(SessionUpdated {
            title: event.title.map(String::into_boxed_str),
            project_path: event.project_path.map(String::into_boxed_str),
            branch: event.branch.map(String::into_boxed_str),
            attributes: event
                .attributes
                .map(|all| message::read_attributes(all.items)),
            request: read_stamp(event.request)?,
        }),
        Some(Stored::MessagesAppended(event)) => Event::MessagesAppended(read_appended(event)?),
        Some(Stored::ViewServed(event)) => {
            let served = view::read_served(event.served)?;
            Event::ViewServed(ViewServed {
                pieces: view::read_pieces(event.pieces)?,
                target: served.target,
                window: served.window,
                overhead_tokens: served.overhead_tokens,
                tokens: event.tokens,
            })
        }
        Some(Stored::Rewound(event)) => Event::Rewound(Rewound {
            to: event.to.map(Ordinal::new),
            left: event.left.into_iter().map(Ordinal::new).collect(),
            before_tokens: event.before_tokens,
            change: view::read_change(event.change)?,
            request: read_stamp(event.request)?,
        }),
        None => {
            return Err(DecodeError::Damaged(
                "an event of a kind that this version does not know",
            ));
        }
    };
    Ok(Recorded {
        at: Timestamp::from_millis(stored.at_ms),
        event,
    })
}

fn write_appended(event: &MessagesAppended) -> v1::MessagesAppended {
    let appended = |appended: &Appended| {
        let (standing, of) = message::write_standing(appended.standing);
        v1::Appended {
            message: Some(message::write(&appended.message)),
            standing: standing.into(),
            standing_of: of,
            tokens: appended.size.tokens,
            result_tokens: appended.size.result_tokens,
        }
    };
    let known_ids: Vec<u8> = event
        .known
        .iter()
        .flat_map(|(_, id)| *id.get().as_bytes())
        .collect();
    v1::MessagesAppended {
        messages: event.messages.iter().map(appended).collect(),
        known_index: event.known.iter().map(|(index, _)| *index).collect(),
        known_ids: known_ids.into(),
        request: event.request.as_ref().map(write_stamp),
    }
}

fn read_appended(stored: v1::MessagesAppended) -> Result<MessagesAppended, DecodeError> {
    let known = sixteens(&stored.known_ids)?;
    if known.len() != stored.known_index.len() {
        return Err(DecodeError::Damaged("a list of known messages is cut"));
    }
    let appended = |appended: v1::Appended| {
        let standing = message::read_standing(appended.standing(), appended.standing_of)?;
        let size = Size {
            tokens: appended.tokens,
            result_tokens: appended.result_tokens,
        };
        let stored = appended
            .message
            .ok_or(DecodeError::Damaged("an append without a message"))?;
        Ok(Appended {
            message: Arc::new(message::read(stored)?),
            standing,
            size,
        })
    };
    Ok(MessagesAppended {
        messages: stored
            .messages
            .into_iter()
            .map(appended)
            .collect::<Result<_, DecodeError>>()?,
        known: stored
            .known_index
            .into_iter()
            .zip(known)
            .map(|(index, id)| Ok((index, message::message_id(&id)?)))
            .collect::<Result<_, DecodeError>>()?,
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_policy(policy: &Policy) -> v1::Policy {
    v1::Policy {
        window_tokens: policy.budget.window_tokens,
        output_reserve_tokens: policy.budget.output_reserve_tokens,
        compact_buffer_tokens: policy.budget.compact_buffer_tokens,
        warn_buffer_tokens: policy.budget.warn_buffer_tokens,
        block_buffer_tokens: policy.budget.block_buffer_tokens,
    }
}

pub(super) fn read_policy(stored: Option<&v1::Policy>) -> Policy {
    let Some(stored) = stored else {
        return Policy::default();
    };
    Policy {
        budget: BudgetPolicy {
            window_tokens: stored.window_tokens,
            output_reserve_tokens: stored.output_reserve_tokens,
            compact_buffer_tokens: stored.compact_buffer_tokens,
            warn_buffer_tokens: stored.warn_buffer_tokens,
            block_buffer_tokens: stored.block_buffer_tokens,
        },
    }
}

pub(super) fn write_parent(parent: Option<&SessionKey>) -> String {
    parent.map(SessionKey::to_string).unwrap_or_default()
}

pub(super) fn read_parent(stored: &str) -> Result<Option<SessionKey>, DecodeError> {
    if stored.is_empty() {
        return Ok(None);
    }
    SessionKey::parse(stored)
        .map(Some)
        .map_err(|_| DecodeError::Damaged("the parent has no name"))
}

pub(super) fn write_stamp(stamp: &RequestStamp) -> v1::RequestStamp {
    v1::RequestStamp {
        id: stamp.id.to_string(),
        method: match stamp.method {
            Method::Append => v1::Method::Append,
            Method::Create => v1::Method::Create,
            Method::Update => v1::Method::Update,
            Method::Rewind => v1::Method::Rewind,
            Method::Prepare => v1::Method::Prepare,
        }
        .into(),
        digest: bytes::Bytes::copy_from_slice(stamp.digest.as_bytes()),
    }
}

pub(super) fn read_stamp(
    stored: Option<v1::RequestStamp>,
) -> Result<Option<RequestStamp>, DecodeError> {
    let Some(stored) = stored else {
        return Ok(None);
    };
    let method = match stored.method() {
        v1::Method::Append => Method::Append,
        v1::Method::Create => Method::Create,
        v1::Method::Update => Method::Update,
        v1::Method::Rewind => Method::Rewind,
        v1::Method::Prepare => Method::Prepare,
        v1::Method::Unspecified => return Err(DecodeError::Damaged("an unknown method")),
    };
    Ok(Some(RequestStamp {
        digest: Digest::from_bytes(sixteen(&stored.digest)?),
        id: stored.id.into(),
        method,
    }))
}

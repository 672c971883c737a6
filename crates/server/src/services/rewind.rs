//! `RewindSession`: later messages leave the view.

use palimpsest_core::command::{Command, Rejection, Rewind};
use palimpsest_core::event::{Event, Rewound};
use palimpsest_core::ids::{MessageId, Revision};
use palimpsest_core::session::{LastServed, Method, RequestStamp, Session, Standing};
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{self, RewindSessionRequest, RewindSessionResponse};

use super::Service;
use super::append::{budget, expected, tokens};
use crate::convert;
use crate::errors::ServiceError;
use crate::sessions::{Missing, Outcome, Transaction};

/// What a rewind came to.
enum Done {
    /// This happened; nothing did when there was nothing to take away.
    Now(Option<Box<Rewound>>),
    /// It had happened, in the event with this revision.
    Before(Revision),
}

pub(super) async fn rewind(
    service: &Service,
    request: RewindSessionRequest,
) -> Result<RewindSessionResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let target = match &request.target_message {
        Some(TargetMessage::ToMessageId(id)) => (convert::message_id(id, "to_message_id")?, false),
        Some(TargetMessage::BeforeMessageId(id)) => {
            (convert::message_id(id, "before_message_id")?, true)
        }
        None => {
            return Err(ServiceError::invalid(
                "to_message_id",
                "is required, or before_message_id",
            ));
        }
    };
    convert::target(request.target.clone(), &LastServed::default())?;
    let request_id = request.request_id.clone();
    let body = || convert::body_digest(&request);
    let stamp = convert::request_stamp(&request_id, Method::Rewind, body, service.limits())?;
    let revision = request.expected_revision.map(Revision::new);
    let decide =
        |transaction: &mut Transaction<'_>| decide(transaction, target, revision, stamp.clone());
    let target = request.target.as_ref();
    let finish = |session: &Session, done: &Done| {
        Ok(match done {
            Done::Now(rewound) => Ok(answer(session, rewound.as_deref(), target)),
            Done::Before(revision) => Err(*revision),
        })
    };
    let missing = &Missing::Refuse;
    let outcome = service
        .sessions
        .run(&key, missing, request.dry_run, decide, finish)
        .await;
    match outcome.map_err(|error| ServiceError::from(error).with_request_id(&request_id))? {
        Ok(response) => Ok(response),
        Err(revision) => {
            let recorded = service.sessions.event(&key, revision).await?;
            let rewound = recorded.and_then(|recorded| match recorded.event {
                Event::Rewound(rewound) => Some(rewound),
                _ => None,
            });
            let tell = |session: &Session| answer(session, rewound.as_ref(), target);
            Ok(service.sessions.read(&key, tell).await?)
        }
    }
}

fn decide(
    transaction: &mut Transaction<'_>,
    (id, before): (MessageId, bool),
    revision: Option<Revision>,
    request: Option<RequestStamp>,
) -> Result<Done, Rejection> {
    let expected_revision = expected(revision, transaction)?;
    let Some(session) = transaction.session() else {
        return Err(Rejection::NoSuchMessage { id });
    };
    let to = if before {
        preceding(session, id)?
    } else {
        Some(id)
    };
    let outcome = transaction.run(Command::Rewind(Rewind {
        to,
        expected_revision,
        request,
    }))?;
    Ok(match outcome {
        Outcome::Answered(revision) => Done::Before(revision),
        Outcome::Done(_) | Outcome::Skipped(_) => {
            let last = transaction.events().last().map(|recorded| &recorded.event);
            Done::Now(match last {
                Some(Event::Rewound(rewound)) => Some(Box::new(rewound.clone())),
                _ => None,
            })
        }
    })
}

/// The message before one, in the order of the transcript; none before the first.
fn preceding(session: &Session, id: MessageId) -> Result<Option<MessageId>, Rejection> {
    let transcript = session.transcript();
    let ordinal = transcript.find(id).ok_or(Rejection::NoSuchMessage { id })?;
    let mut earlier = transcript
        .entries()
        .rev()
        .skip_while(|(at, _)| *at >= ordinal);
    let kept = earlier.find(|(_, entry)| entry.standing != Standing::Rewound);
    Ok(kept.map(|(_, entry)| entry.id))
}

fn answer(
    session: &Session,
    rewound: Option<&Rewound>,
    target: Option<&v1::Target>,
) -> RewindSessionResponse {
    RewindSessionResponse {
        rewound: Some(
            rewound
                .map(|rewound| convert::rewound(rewound, session))
                .unwrap_or_default(),
        ),
        effect: rewound.map(|rewound| convert::rewind_effect(rewound, session)),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: None,
        warnings: Vec::new(),
    }
}

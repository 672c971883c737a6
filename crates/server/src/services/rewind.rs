//! `RewindSession`: later messages leave the view.

use palimpsest_core::command::{Command, Rejection, Rewind};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{MessageId, Revision};
use palimpsest_core::session::{LastServed, Method, RequestStamp, Session, Standing};
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    LevelEffect, RewindSessionRequest, RewindSessionResponse, SessionRewound, Trigger,
};

use super::Service;
use super::append::{budget, expected, tokens};
use crate::convert;
use crate::errors::ServiceError;
use crate::sessions::{Missing, Transaction};

/// What a rewind did.
struct Done {
    before_tokens: u64,
    left: Vec<MessageId>,
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
    let finish = |session: &Session, done: Done| answer(session, &done, request.target.as_ref());
    let outcome = if request.dry_run {
        service
            .sessions
            .rehearse(&key, &Missing::Refuse, decide, finish)
            .await
    } else {
        service
            .sessions
            .write(&key, &Missing::Refuse, decide, finish)
            .await
    };
    outcome.map_err(|error| ServiceError::from(error).with_request_id(&request_id))
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
    let before_tokens = session.tokens().tokens;
    let to = if before {
        preceding(session, id)?
    } else {
        Some(id)
    };
    transaction.run(Command::Rewind(Rewind {
        to,
        expected_revision,
        request,
    }))?;
    let rewound = transaction
        .events()
        .iter()
        .find_map(|recorded| match &recorded.event {
            Event::Rewound(rewound) => Some(rewound.to),
            _ => None,
        });
    let left = match (rewound, transaction.session()) {
        (Some(to), Some(session)) => session
            .transcript()
            .entries()
            .filter(|(ordinal, _)| to.is_none_or(|to| *ordinal > to))
            .filter(|(_, entry)| entry.standing == Standing::Rewound)
            .map(|(_, entry)| entry.id)
            .collect(),
        _ => Vec::new(),
    };
    Ok(Done {
        before_tokens,
        left,
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
    done: &Done,
    target: Option<&palimpsest_proto::context::v1::Target>,
) -> RewindSessionResponse {
    let after = session.tokens().tokens;
    let short = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
    let last = session
        .transcript()
        .entries()
        .rev()
        .find(|(_, entry)| entry.standing == Standing::Visible);
    RewindSessionResponse {
        rewound: Some(SessionRewound {
            to_message_id: last
                .map(|(_, entry)| entry.id.to_string())
                .unwrap_or_default(),
            message_ids: done.left.iter().map(ToString::to_string).collect(),
        }),
        effect: Some(LevelEffect {
            trigger: Trigger::Manual.into(),
            before_tokens: short(done.before_tokens),
            after_tokens: short(after),
            freed_tokens: short(done.before_tokens.saturating_sub(after)),
            ..LevelEffect::default()
        }),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: None,
        warnings: Vec::new(),
    }
}

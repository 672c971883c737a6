//! The request for the caller's model, in replies of calls that start or find a delegated compaction.

use palimpsest_core::ids::{CompactionKey, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::compaction::{
    self, CompactionError, DelegatedBody, DelegatedRequest, DelegationOptions,
};
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert::{self, MessageForm};

/// Returns the request of the running delegated compaction. `None` if no delegated compaction is running, or if it is
/// not the compaction `only`.
pub(super) async fn request(
    service: &Service,
    key: &SessionKey,
    only: Option<CompactionKey>,
    (target, form): (&TargetOverride, MessageForm),
) -> Result<Option<v1::DelegatedRequest>, CompactionError> {
    let find = |session: &Session| {
        let running = session.compactions().running.as_ref()?;
        let is_wanted = running.is_delegated() && only.is_none_or(|only| only == running.key);
        is_wanted.then(|| (running.key, options(session, target, form)))
    };
    let Some((which, options)) = service.sessions.read(key, find).await? else {
        return Ok(None);
    };
    let delegated = Box::pin(compaction::request(service, key, which, options)).await?;
    Ok(delegated.map(export))
}

/// Returns the format and the limits of a delegated request.
fn options(session: &Session, target: &TargetOverride, form: MessageForm) -> DelegationOptions {
    let (target, window) = session.target_of(target);
    // Without a hint, only the policy and the window limit the output.
    let most = window.max_output_tokens.unwrap_or(u64::MAX);
    let thresholds = session.policy().thresholds(window);
    DelegationOptions {
        form,
        provider: target.provider,
        // The provider's input limit can be smaller than the window.
        window_tokens: window
            .input_limit_tokens
            .map_or(thresholds.window, |limit| limit.min(thresholds.window)),
        max_output_tokens: u32::try_from(most).unwrap_or(u32::MAX),
    }
}

/// Converts the request for the caller's model to its proto form.
pub(super) fn export(delegated: DelegatedRequest) -> v1::DelegatedRequest {
    let mut out = v1::DelegatedRequest {
        delegation_token: delegated.token.into(),
        expire_time: Some(convert::export_timestamp(delegated.expires)),
        input_tokens: u32::try_from(delegated.input_tokens).unwrap_or(u32::MAX),
        ..v1::DelegatedRequest::default()
    };
    match delegated.body {
        DelegatedBody::Json(body) => out.request_json = body,
        DelegatedBody::Typed {
            system,
            turns,
            max_output_tokens,
        } => {
            out.system_prompt = system;
            out.messages = convert::turns(&turns);
            out.max_output_tokens = max_output_tokens;
        }
    }
    out
}

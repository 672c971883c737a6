//! Asks who calls, before the call is read, and whether they may do what they ask, before it is decoded.
//! `services::entry` asks the latter again, of what was decoded.

use std::sync::Arc;

use http::Request;

use super::call_context::CallContext;
use crate::access::{self, Access, Authentication, ResourceScope};
use crate::errors::ServiceError;

/// The gate that every call goes through; open to all where authentication is off.
#[derive(Debug, Clone, Default)]
pub struct Authn(Option<Arc<Access>>);

impl Authn {
    /// A gate.
    pub fn new(access: Option<Arc<Access>>) -> Self {
        Self(access)
    }

    /// Whether callers have to say who they are.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// Lets a call in whose caller shows a credential, and says who that is. The credential
    /// goes no further: nothing behind the gate needs it, or could show it.
    pub(super) fn identify<B>(
        &self,
        request: &mut Request<B>,
    ) -> Result<Option<Authentication>, ServiceError> {
        let Some(access) = &self.0 else {
            return Ok(None);
        };
        let identified = access.identify(request.uri().path(), request.headers());
        let headers = request.headers_mut();
        headers.remove(http::header::AUTHORIZATION);
        headers.remove("x-api-key");
        identified.map_err(|why| {
            tracing::debug!(why = %why, "a call was refused at the gate");
            ServiceError::Unauthenticated { why }
        })
    }

    /// Whether the caller of a ticket may do anywhere what the call does. Where not, no more of it is read than says
    /// what it is about.
    pub(super) fn may_be_right(&self, ticket: &CallContext) -> bool {
        self.0.is_none()
            || ticket.pass().is_some_and(|pass| {
                let right = pass.right.as_ref();
                right.is_none_or(|right| pass.caller.grant.rights.contains(right))
            })
    }

    /// Refuses what the caller of a ticket may not do there.
    pub(super) fn authorize(
        &self,
        ticket: &CallContext,
        place: Option<&ResourceScope>,
    ) -> Result<(), ServiceError> {
        match (&self.0, ticket.pass()) {
            (Some(_), Some(pass)) => access::authorize(pass, place),
            _ => Ok(()),
        }
    }

    /// Waits until the caller of a ticket may not call any more: for streams that go on for ever.
    pub(super) async fn lapsed(self, ticket: CallContext) -> ServiceError {
        use crate::access::AuthError;

        let (Some(access), Some(pass)) = (self.0, ticket.pass()) else {
            return std::future::pending().await;
        };
        let expired = async {
            match pass.caller.expires {
                Some(expires) => {
                    let left = std::time::Duration::from_millis(expires.millis_since(access.now()));
                    tokio::time::sleep(left).await;
                }
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            () = pass.caller.revoked.cancelled() => AuthError::Revoked,
            () = expired => AuthError::Expired,
        };
        ServiceError::Unauthenticated { why }
    }
}

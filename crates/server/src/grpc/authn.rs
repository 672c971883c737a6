//! Authentication of calls before their body is read, and authorization before it is decoded. `services::admit` repeats
//! the authorization for the decoded request.

use std::sync::Arc;

use http::Request;

use super::call_context::CallContext;
use crate::access::{self, Authentication, Authenticator, ResourceScope};
use crate::errors::ServiceError;

/// The authentication of all calls. Without an [`Authenticator`], every call is accepted.
#[derive(Debug, Clone, Default)]
pub struct Authn(Option<Arc<Authenticator>>);

impl Authn {
    /// Creates the authentication. `None` turns it off.
    pub fn new(access: Option<Arc<Authenticator>>) -> Self {
        Self(access)
    }

    /// Returns true if authentication is on.
    pub(super) fn is_required(&self) -> bool {
        self.0.is_some()
    }

    /// Authenticates a call, and removes the credential from its headers.
    ///
    /// The credential goes no further, so code behind this point can neither use nor leak it.
    pub(super) fn authenticate<B>(
        &self,
        request: &mut Request<B>,
    ) -> Result<Option<Authentication>, ServiceError> {
        let Some(access) = &self.0 else {
            return Ok(None);
        };
        let identified = access.authenticate(request.uri().path(), request.headers());
        let headers = request.headers_mut();
        headers.remove(http::header::AUTHORIZATION);
        headers.remove("x-api-key");
        identified.map_err(|why| {
            tracing::debug!(why = %why, "rejected a credential");
            ServiceError::unauthenticated(why)
        })
    }

    /// Returns true if the caller has the required right in at least one project.
    ///
    /// Without it, only the beginning of the request is read, to find the project for the error.
    pub(super) fn may_have_right(&self, context: &CallContext) -> bool {
        self.0.is_none()
            || context.authentication().is_some_and(|authentication| {
                let right = authentication.right.as_ref();
                right.is_none_or(|right| authentication.principal.grant.rights.contains(right))
            })
    }

    /// Fails unless the caller of the call is authorized for the resource.
    pub(super) fn authorize(
        &self,
        context: &CallContext,
        scope: Option<&ResourceScope>,
    ) -> Result<(), ServiceError> {
        match (&self.0, context.authentication()) {
            (Some(_), Some(authentication)) => Ok(access::authorize(authentication, scope)?),
            _ => Ok(()),
        }
    }

    /// Waits until the credential of a call expires or is revoked, and returns the error. Used for endless streams.
    pub(super) async fn expired(self, context: CallContext) -> ServiceError {
        use crate::access::AuthError;

        // Without authentication, nothing can expire.
        let (Some(access), Some(authentication)) = (self.0, context.authentication()) else {
            return std::future::pending().await;
        };
        let expired = async {
            match authentication.principal.expires {
                Some(expires) => {
                    let left = std::time::Duration::from_millis(expires.millis_since(access.now()));
                    tokio::time::sleep(left).await;
                }
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            () = authentication.principal.revoked.cancelled() => AuthError::Revoked,
            () = expired => AuthError::Expired,
        };
        ServiceError::unauthenticated(why)
    }
}

//! Asks who calls, before the call is read. Whether they may do what they ask is `services::entry`'s, which
//! knows the project.

use std::sync::Arc;

use http::Request;

use super::ticket::Ticket;
use crate::access::Access;
use crate::errors::ServiceError;

/// The gate that every call goes through; open to all where authentication is off.
#[derive(Debug, Clone, Default)]
pub struct Gate(Option<Arc<Access>>);

impl Gate {
    /// A gate.
    pub fn new(access: Option<Arc<Access>>) -> Self {
        Self(access)
    }

    /// Lets a call in whose caller shows a credential, and writes on its ticket who that is. The credential
    /// goes no further: nothing behind the gate needs it, or could show it.
    pub(super) fn identify<B>(
        &self,
        request: &mut Request<B>,
        ticket: &Ticket,
    ) -> Result<(), ServiceError> {
        let Some(access) = &self.0 else {
            return Ok(());
        };
        let identified = access.identify(request.uri().path(), request.headers());
        let headers = request.headers_mut();
        headers.remove(http::header::AUTHORIZATION);
        headers.remove("x-api-key");
        let pass = identified.map_err(|why| {
            tracing::debug!(why = %why, "a call was refused at the gate");
            ServiceError::Unauthenticated { why }
        })?;
        if let Some(pass) = pass {
            ticket.identify(pass);
        }
        Ok(())
    }

    /// Waits until the caller of a ticket may not call any more: for streams that go on for ever.
    pub(super) async fn lapsed(self, ticket: Ticket) -> ServiceError {
        use crate::access::Refused;

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
            () = pass.caller.revoked.cancelled() => Refused::Revoked,
            () = expired => Refused::Expired,
        };
        ServiceError::Unauthenticated { why }
    }
}

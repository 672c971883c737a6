//! Waits until the worker has done what it does in the background, so that it does not fall upon what is
//! measured next.

use anyhow::{Result, bail};
use palimpsest_proto::context::v1::{GetSessionMemoryRequest, MemoryState};
use palimpsest_tests::Context;

use crate::retry::answered;

/// How often a session is waited for, each time so long.
const ATTEMPTS: usize = 30;
const WAIT: &str = "10s";

/// Waits until nothing is due for a session; says whether it has a summary.
pub(crate) async fn settled(client: &Context, session: &str) -> Result<bool> {
    let request = GetSessionMemoryRequest {
        session: session.to_owned(),
        wait: Some(WAIT.parse()?),
        ..GetSessionMemoryRequest::default()
    };
    for _ in 0..ATTEMPTS {
        let reply = answered(client, &request, |mut client, request| async move {
            client.get_session_memory(request).await
        });
        let memory = reply.await?.reply.into_inner().memory.unwrap_or_default();
        match memory.state() {
            MemoryState::Ready => return Ok(true),
            MemoryState::NotStarted | MemoryState::Disabled => return Ok(false),
            _ => {}
        }
    }
    bail!("the worker has not written the summary of {session}")
}

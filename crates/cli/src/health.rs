//! `palimpsest health`: checks readiness or liveness of a server, for images and scripts without another client.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use palimpsest_server::grpc::{LIVENESS, READINESS};
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::client::{Remote, block_on, status_error};
use super::output::print;

/// The time-out of one attempt. The server answers health from memory, so a slower server cannot serve calls either.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause between two attempts of `--wait`.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Check that a server is ready; the exit code is 1 if it is not
#[derive(Debug, Args)]
#[command(
    after_help = "Ready: the server can serve calls and write to the store (palimpsest.readiness of the gRPC \
health service). Alive: the process works and needs no restart (palimpsest.liveness).

Examples:
  palimpsest health                  0 if the server is ready, otherwise 1
  palimpsest health --live           0 if the server is alive, ready or not
  palimpsest health --wait 30        0 as soon as the server is ready, 1 after 30 seconds"
)]
pub(super) struct HealthCommand {
    /// Check liveness instead of readiness
    #[arg(long)]
    live: bool,
    /// Repeat the check until it succeeds, for at most this number of seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
    #[command(flatten)]
    remote: Remote,
}

impl HealthCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let check = HealthCheck {
            remote: &self.remote,
            service: if self.live { LIVENESS } else { READINESS },
            wait: self.wait,
        };
        block_on(check.wait_until_healthy())?;
        print(if self.live { "alive\n" } else { "ready\n" })
    }
}

/// Waits for at most this number of seconds until a server is ready.
pub(super) async fn wait_until_ready(remote: &Remote, seconds: u64) -> anyhow::Result<()> {
    let check = HealthCheck {
        remote,
        service: READINESS,
        wait: seconds,
    };
    check.wait_until_healthy().await
}

/// A check of a server.
struct HealthCheck<'a> {
    remote: &'a Remote,
    /// The service of the health protocol.
    service: &'static str,
    /// The maximum number of seconds until the check must succeed.
    wait: u64,
}

impl HealthCheck<'_> {
    async fn wait_until_healthy(&self) -> anyhow::Result<()> {
        // The first check is outside of the time limit, so that a wait of 0 seconds checks once.
        let mut last = self.check_once().await;
        if self.wait == 0 || last.is_ok() {
            return last;
        }
        let attempts = async {
            while last.is_err() {
                sleep(RETRY_PAUSE).await;
                last = self.check_once().await;
            }
        };
        let limit = Duration::from_secs(self.wait);
        if timeout(limit, attempts).await.is_err() {
            // The last error names the cause. The end of the time alone would not.
            let seconds = self.wait;
            return last.map_err(|error| anyhow!("{error} (the wait of {seconds} s is over)"));
        }
        last
    }

    async fn check_once(&self) -> anyhow::Result<()> {
        let checked = timeout(ATTEMPT_TIMEOUT, self.check()).await;
        checked.unwrap_or_else(|_| {
            Err(anyhow!(
                "{} did not answer within {} s: check the log and the load of the server",
                self.remote.server(),
                ATTEMPT_TIMEOUT.as_secs()
            ))
        })
    }

    async fn check(&self) -> anyhow::Result<()> {
        let service = self.service;
        let mut client = HealthClient::new(self.remote.channel().await?);
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let server = self.remote.server();
        let reply = client.check(request).await.map_err(|status| {
            // The health protocol answers NOT_FOUND for an unknown service. A server without the protocol answers
            // UNIMPLEMENTED.
            if matches!(status.code(), Code::NotFound | Code::Unimplemented) {
                anyhow!("{server} has no health service `{service}`: pass --server with the address of a Palimpsest server")
            } else {
                status_error(&status)
            }
        })?;
        if reply.get_ref().status() != ServingStatus::Serving {
            bail!(
                "{server} is not serving ({service}): the server is starting or draining, or its store is unavailable. \
                 The log of the server has the cause"
            );
        }
        Ok(())
    }
}

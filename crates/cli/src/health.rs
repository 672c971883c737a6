//! `palimpsest health`: is a server alive, can it serve? For images and scripts that have no other client.

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

/// How long one try may take. Health is answered from memory, so a server that takes longer has no time
/// for calls either.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a wait rests between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Ask a server whether it can serve; the exit code says it too
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest health                  0 when calls can be served, 1 when not
  palimpsest health --live           0 while the process should go on living, ready or not
  palimpsest health --wait 30        0 as soon as it can serve, 1 after 30 seconds without

The names asked for are those of the gRPC health service: palimpsest.readiness, palimpsest.liveness.")]
pub(super) struct HealthCommand {
    /// Ask whether it lives, not whether it can serve
    #[arg(long)]
    live: bool,
    /// Go on asking for so many seconds until the answer is yes
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
    #[command(flatten)]
    remote: Remote,
}

impl HealthCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.wait_until_healthy())?;
        print(if self.live { "alive\n" } else { "ready\n" })
    }

    async fn wait_until_healthy(&self) -> anyhow::Result<()> {
        let mut last = self.check_once().await;
        if self.wait == 0 || last.is_ok() {
            return last;
        }
        let asking = async {
            while last.is_err() {
                sleep(RETRY_PAUSE).await;
                last = self.check_once().await;
            }
        };
        let limit = Duration::from_secs(self.wait);
        if timeout(limit, asking).await.is_err() {
            let seconds = self.wait;
            return last.map_err(|error| anyhow!("{error} (asked for {seconds} s)"));
        }
        last
    }

    async fn check_once(&self) -> anyhow::Result<()> {
        let asked = timeout(ATTEMPT_TIMEOUT, self.check()).await;
        asked.unwrap_or_else(|_| {
            Err(anyhow!(
                "{} did not answer within {} s",
                self.remote.server(),
                ATTEMPT_TIMEOUT.as_secs()
            ))
        })
    }

    async fn check(&self) -> anyhow::Result<()> {
        let service = if self.live { LIVENESS } else { READINESS };
        let mut client = HealthClient::new(self.remote.channel().await?);
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let server = self.remote.server();
        let reply = client.check(request).await.map_err(|status| {
            if matches!(status.code(), Code::NotFound | Code::Unimplemented) {
                anyhow!("{server} knows no {service}: is it a Palimpsest server?")
            } else {
                status_error(&status)
            }
        })?;
        if reply.get_ref().status() != ServingStatus::Serving {
            bail!(
                "{server} is not serving ({service}): it starts, drains, or its store does not work; its log says which"
            );
        }
        Ok(())
    }
}

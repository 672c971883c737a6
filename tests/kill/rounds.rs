//! Tests with SIGKILL at random moments, and with SIGTERM under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_tests::Server;
use palimpsest_tests::chance::{next, seed};
use palimpsest_tests::server::Context;

use crate::load::Known;
use crate::turns::Turns;

/// Disables adaptive limiting. The rounds test durability, also on a busy machine, and must not have rejected calls.
const PATIENT: &[&str] = &["--set", "grpc.max_slowdown_percent=10000"];

/// A caller that uses a session until the server stops, and records the acknowledged changes.
pub(crate) trait Caller: Sized + Send + 'static {
    /// Uses the session until all changes are done or the server does not answer.
    fn run(self, client: Context) -> impl Future<Output = Self> + Send;

    /// Compares the server's state after a restart with the acknowledged changes.
    fn check(&mut self, server: &Server) -> impl Future<Output = ()> + Send;

    /// Returns true if at least one call failed because the server stopped.
    fn has_failed(&self) -> bool;

    /// Returns the number of acknowledged changes.
    fn acknowledged(&self) -> usize;
}

/// Starts all callers. Each task returns its caller when it ends.
fn start<C: Caller>(callers: Vec<C>, server: &Arc<Server>) -> tokio::task::JoinSet<C> {
    let mut running = tokio::task::JoinSet::new();
    for caller in callers {
        let server = Arc::clone(server);
        running.spawn(async move {
            let client = server.context().await;
            // The task must not keep the server alive, because the test stops the server by value.
            drop(server);
            caller.run(client).await
        });
    }
    running
}

/// Minimum and maximum number of rounds.
const ROUNDS: usize = 6;
const MAX_ROUNDS: usize = 60;
/// Minimum number of acknowledged changes for a meaningful result.
const ENOUGH: usize = 100;

/// Runs rounds of load. Each round ends with a kill and a check of the remaining state.
#[expect(clippy::print_stderr, reason = "shown only when the test fails")]
async fn kill_in_rounds<C: Caller>(mut known: Vec<C>) {
    let seed = seed();
    let mut random = seed | 1;
    let folder = tempfile::tempdir().unwrap();
    let mut killed_in_time = 0;
    let acknowledged = |known: &[C]| known.iter().map(C::acknowledged).sum::<usize>();
    for round in 0..MAX_ROUNDS {
        // A slow machine completes less per round and needs more rounds.
        if round >= ROUNDS && acknowledged(&known) > ENOUGH && killed_in_time > 0 {
            break;
        }
        let server = Arc::new(Server::start(folder.path(), PATIENT));
        eprintln!("seed {seed}, round {round}");
        let callers = start(known, &server);
        tokio::time::sleep(Duration::from_millis(100 + next(&mut random) % 700)).await;
        server.signal("KILL");
        known = callers.join_all().await;
        killed_in_time += usize::from(known.iter().any(C::has_failed));
        drop(server);
        let server = Server::start(folder.path(), PATIENT);
        for caller in &mut known {
            caller.check(&server).await;
        }
        // Every other round stops the server in an orderly way.
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
    }
    assert!(
        killed_in_time > 0,
        "seed {seed}: no kill interrupted a call"
    );
    let all = acknowledged(&known);
    assert!(
        all > ENOUGH,
        "seed {seed}: too few acknowledged calls: {all}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_kill_loses_no_acknowledged_write() {
    kill_in_rounds(Known::all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_leaves_complete_turns_and_rewinds_and_valid_etags() {
    kill_in_rounds(Turns::all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_loses_no_acknowledged_write_within_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::start(
        folder.path(),
        &[PATIENT, &["--set", "shutdown.drain_ms=120000"]].concat(),
    ));
    let callers = start(Known::all(), &server);
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.signal("TERM");
    let began = Instant::now();
    let mut known = callers.join_all().await;
    let status = Arc::into_inner(server).unwrap().wait();
    assert!(status.success(), "{status}");
    assert!(
        began.elapsed() < Duration::from_mins(2),
        "{:?}",
        began.elapsed()
    );
    let server = Server::start(folder.path(), PATIENT);
    for caller in &mut known {
        caller.check(&server).await;
    }
}

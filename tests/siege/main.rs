//! Tests an honest tenant while all attacks run at once, with keys of other projects or without keys.
//!
//! `make siege` runs a release build with the limits of the chart: 2 GiB of memory and 1,024 file handles. The honest
//! tenant works before, during and after the attacks. Its latency before is the reference for the other two. All
//! acknowledged data must exist at the end, also after a kill. The attackers are threads of low priority, because in
//! production they would be other machines. All traffic stays on the loopback address.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(clippy::print_stderr, reason = "the figures are what a siege is for")]
#![expect(
    clippy::disallowed_methods,
    reason = "latency is measured by the machine's clock"
)]

mod attack;
mod attackers;
mod attacks;
mod honest_tenant;
mod latency;
mod phases;
mod report;
mod sample;
mod silent_tls;
mod target;
mod verdict;
mod wire;

use std::time::Duration;

use attack::Scale;
use phases::Plan;

/// The limits of the process, as arguments of the shell's `ulimit`: the usual soft limit of file handles, or a hard
/// one.
const SOFT_HANDLES: &str = "-Sn 1024";
const HARD_HANDLES: &str = "-n 1024";

/// Returns a variable of `make siege`. `None` if it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "`make siege` runs it: minutes, and the machine for itself"]
async fn an_honest_tenant_is_served_during_simultaneous_attacks() {
    let only = variable("SIEGE_ONLY");
    // This name selects the test of TLS alone.
    if only.as_deref() == Some(silent_tls::NAME) {
        return;
    }
    let minutes = variable("SIEGE_MINUTES").map_or(5.0, |text| text.parse().unwrap());
    let hard = variable("SIEGE_HANDLES").is_some_and(|kind| kind == "hard");
    let plan = Plan {
        scale: Scale(variable("SIEGE_PERCENT").map_or(100, |text| text.parse().unwrap())),
        only,
        limits: if hard { HARD_HANDLES } else { SOFT_HANDLES },
        before: Duration::from_secs(20),
        during: Duration::from_secs_f64(minutes * 60.0),
        calm: Duration::from_secs(10),
        after: Duration::from_secs(10),
    };
    let outcome = phases::siege(&plan).await;
    let wrong = verdict::wrong(&outcome);
    report::print(&outcome, Some(&wrong));
    phases::verify(outcome).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Runs each attack alone for some seconds at a small scale. Each attack must reach the server, and all acknowledged
/// data must exist. Latencies are printed and not judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_under_each_attack() {
    let outcome = phases::one_by_one(Scale(2), Duration::from_millis(1_500)).await;
    report::print(&outcome, None);
    assert_eq!(outcome.most.ended, None);
    phases::verify(outcome).await;
}

//! The attacks, one file for each, and two helpers that they share.

mod dripped_bodies;
mod empty_pattern;
mod health_watches;
mod idle_connections;
mod listings;
mod quota_race;
mod rapid_reset;
mod refused_writes;
mod rejected_appends;
mod repeated_entries;
mod role_filter;
mod silent_connections;
mod unread_replies;
mod watchers;
mod window_zero;

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::attack::{Assault, Attack};
use crate::wire::{Call, Open, USUAL_WINDOW};

pub(crate) use quota_race::sessions_that_exist;

/// The maximum time that an attacker waits for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// All attacks, in the order of their start. Attacks that hoard connections are last, so that they do not keep the
/// others out.
pub(crate) static ATTACKS: &[Attack] = &[
    repeated_entries::ATTACK,
    window_zero::ATTACK,
    unread_replies::ATTACK,
    dripped_bodies::ATTACK,
    empty_pattern::ATTACK,
    health_watches::ATTACK,
    rapid_reset::ATTACK,
    rejected_appends::ATTACK,
    refused_writes::ATTACK,
    role_filter::ATTACK,
    listings::ATTACK,
    quota_race::ATTACK,
    watchers::ATTACK,
    silent_connections::ATTACK,
    idle_connections::ATTACK,
];

/// Repeats calls forever. Each caller has its own connection and pauses after each reply. `make` receives the caller's
/// number and the number of its call.
async fn repeat(
    assault: &Assault,
    callers: usize,
    pause: Duration,
    make: impl Fn(usize, usize) -> Call + Clone + Send + 'static,
) {
    let mut all = JoinSet::new();
    for caller in 0..callers {
        let (assault, make) = (assault.clone(), make.clone());
        all.spawn(async move {
            let mut number = 0;
            loop {
                let wire = assault.dial(USUAL_WINDOW).await;
                loop {
                    let sent = wire.send(&make(caller, number)).await;
                    number += 1;
                    // The connection is lost, so the caller opens another one.
                    if !assault.count(sent, answered).await {
                        break;
                    }
                    tokio::time::sleep(pause).await;
                }
                assault.redial("connection ended").await;
            }
        });
    }
    all.join_all().await;
}

/// Reads the reply of a call and returns the outcome.
async fn answered(open: Open) -> String {
    let outcome = timeout(TIMEOUT, open.taken()).await;
    outcome.unwrap_or_else(|_elapsed| "no answer in 30 s".to_owned())
}

/// Holds calls open forever, on several connections. At most one window of each reply is read. A call that the server
/// ends is started again. `make` receives the number of the call among all.
async fn hold(
    assault: &Assault,
    (connections, calls): (usize, usize),
    window: u32,
    make: impl Fn(usize) -> Call + Clone + Send + 'static,
) {
    let mut all = JoinSet::new();
    for connection in 0..connections {
        let (assault, make) = (assault.clone(), make.clone());
        all.spawn(async move {
            loop {
                let wire = assault.dial(window).await;
                let held = (0..calls).map(|number| {
                    let call = make(connection * calls + number);
                    let (assault, wire) = (&assault, &wire);
                    async move {
                        loop {
                            let sent = wire.send(&call).await;
                            if !assault.count(sent, Open::untaken).await {
                                break;
                            }
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                });
                futures::future::join_all(held).await;
                assault.redial("connection ended").await;
            }
        });
    }
    all.join_all().await;
}

/// Pause before a call that the server ended is started again.
const AGAIN: Duration = Duration::from_secs(1);

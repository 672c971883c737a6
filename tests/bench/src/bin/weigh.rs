//! Counts the memory of sessions: the bytes that are freed when the sessions are evicted.
//!
//! A separate program, because counting slows down allocations. It opens the store in a folder and prints one line of
//! JSON.

#![expect(
    clippy::print_stdout,
    reason = "whoever started it reads what was counted"
)]

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use palimpsest_bench::in_process::{InProcessServer, name};
use palimpsest_core::ids::SessionKey;
use palimpsest_store::Store;
use palimpsest_store::sled::{SledLog, SledOptions};
use serde_json::json;

/// Number of sessions that are loaded and evicted.
const IDLE: usize = 200;
/// Time limit for background tasks that still use the handlers.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(session)) = (arguments.next(), arguments.next()) else {
        bail!("usage: palimpsest-weigh FOLDER SESSION, where the folder holds a log");
    };
    // The counter measures one thread only. This runtime runs everything except decoding on this thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let log = SledLog::open(&SledOptions::new(PathBuf::from(folder)))?;
        let log: Arc<dyn Store> = Arc::new(log);
        let nothing = let_go(InProcessServer::new(Arc::clone(&log))?).await?;

        // A session whose whole view was sent has all contents loaded, which is its maximum size.
        let server = InProcessServer::new(Arc::clone(&log))?;
        let (reply, _) = server.prepare(&name(&session), vec![], b"unknown").await?;
        let (view_bytes, messages) = (reply.view_bytes, reply.view_messages);
        drop(reply);
        let loaded = let_go(server).await? - nothing;

        // The cache has no capacity, so each session is evicted when the next one is loaded.
        let key = |number: usize| SessionKey::parse(&name(&format!("idle-{number}")));
        let maker = InProcessServer::new(Arc::clone(&log))?;
        for number in 0..IDLE {
            maker.grow(&format!("idle-{number}"), 2).await?;
        }
        let_go(maker).await?;
        let mut held = Vec::new();
        for sessions in [1, IDLE] {
            let server = InProcessServer::with_cache(Arc::clone(&log), 1)?;
            for number in 0..sessions {
                server.sessions.read(&key(number)?, |_| ()).await?;
            }
            held.push(let_go(server).await? - nothing);
        }
        // The last session stays loaded in both servers. The difference belongs to the evicted ones.
        let of_others = held.get(1).zip(held.first()).map(|(all, one)| all - one);
        let counted = json!({
            "view_bytes": view_bytes,
            "messages": messages,
            "loaded_bytes": loaded,
            "idle_sessions": IDLE - 1,
            "idle_bytes": of_others,
        });
        println!("{counted}");
        log.close().await?;
        Ok(())
    })
}

/// Returns the bytes that are freed when an idle server is dropped.
async fn let_go(server: InProcessServer) -> Result<i64> {
    let sessions = Arc::downgrade(&server.sessions);
    let quiet = async {
        // Waits until only the handlers and the server hold the sessions. Other holders are background tasks that are
        // about to end.
        while Weak::strong_count(&sessions) > InProcessServer::HOLDS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, quiet).await;
    waited.context("something goes on in the background that does not end")?;
    let counted = allocation_counter::measure(|| drop(server));
    if Weak::strong_count(&sessions) > 0 {
        bail!("somebody still holds the sessions");
    }
    Ok(-counted.bytes_current)
}

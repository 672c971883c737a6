//! Measures the figures for one machine in docs/capacity.md. They depend on the machine:
//!
//! ```text
//! cargo build --release
//! PALIMPSEST_TEST_BINARY=$PWD/target/release/palimpsest \
//!     cargo test -p palimpsest-tests --test deploy measure_turn_rate_and_memory_per_session -- --ignored --nocapture
//! ```

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join_all;
use palimpsest_tests::name;
use palimpsest_tests::say::{append, assistant, prepare, user};
use palimpsest_tests::server::{Context, Server};

const SESSIONS: usize = 1_000;
const TURNS: usize = 50;
const BYTES: usize = 1_000;
const CLIENTS: usize = 64;
const RUN: Duration = Duration::from_secs(5);

/// Returns a text that compresses about as well as an agent's messages: words, with no two equal lines.
fn text(seed: usize) -> String {
    let words = [
        "context", "file", "error", "test", "build", "result", "model", "line",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = String::new();
    while out.len() < BYTES {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        out.push_str(words[(state >> 33) % words.len()]);
        write!(out, " {:x} ", (state >> 40) & 0xfff).unwrap();
    }
    out
}

fn megabytes(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "it is printed with one digit")]
    let bytes = bytes as f64;
    bytes / 1e6
}

/// Returns the private resident memory of the server, in bytes.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

fn on_disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                on_disk(&entry.path())
            } else {
                // `blocks` counts the used units of 512 bytes, also of sparse files.
                metadata.blocks() * 512
            }
        })
        .sum()
}

/// Runs one turn of an agent: an append and a prepared view.
async fn turn(client: &mut Context, session: &str, seed: usize) {
    let messages = vec![user(&text(seed)), assistant(&text(seed + 1))];
    let request = append(session, messages);
    client.append_messages(request).await.unwrap();
    let request = prepare(session, vec![user("and now?")]);
    client.prepare_context(request).await.unwrap();
}

/// Returns the number of turns per second and the median duration of a turn, with `agents` concurrent agents.
async fn rate(server: &Server, agents: usize) -> (f64, Duration) {
    let end = Instant::now() + RUN;
    let agents = (0..agents).map(|agent| async move {
        let mut client = server.context().await;
        let mut took = Vec::new();
        let session = name(&format!("rate-{agent}-{agents}"));
        while Instant::now() < end {
            let began = Instant::now();
            turn(&mut client, &session, took.len()).await;
            took.push(began.elapsed());
        }
        took
    });
    let mut all: Vec<_> = join_all(agents).await.concat();
    all.sort();
    #[expect(clippy::cast_precision_loss, reason = "it is printed with one digit")]
    let rate = all.len() as f64 / RUN.as_secs_f64();
    (rate, all[all.len() / 2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of minutes"]
async fn measure_turn_rate_and_memory_per_session() {
    let folder = tempfile::tempdir_in(".").unwrap();
    // The cache holds all sessions, so that their size can be measured.
    let args = ["--set", "sessions.cache_bytes=8000000000"];
    let server = Server::start(folder.path(), &args);
    println!("empty: {:.0} MB of memory", megabytes(resident(&server)));
    for agents in [1, 8, CLIENTS] {
        let (rate, median) = rate(&server, agents).await;
        println!("{agents} agents: {rate:.0} turns a second, median {median:.1?}");
    }
    server.stop();

    let folder = tempfile::tempdir_in(".").unwrap();
    let server = Server::start(folder.path(), &args);
    let empty = resident(&server);
    let fill = (0..CLIENTS).map(|client| {
        let server = &server;
        async move {
            let mut context = server.context().await;
            for session in (client..SESSIONS).step_by(CLIENTS) {
                let name = name(&format!("s-{session}"));
                for number in 0..TURNS {
                    turn(&mut context, &name, session * TURNS + number).await;
                }
            }
        }
    });
    join_all(fill).await;
    let said = (SESSIONS * TURNS * 2 * BYTES) as u64;
    println!(
        "{SESSIONS} sessions of {} messages, {:.0} MB of text: {:.0} MB of memory, {:.0} MB on disk",
        TURNS * 3,
        megabytes(said),
        megabytes(resident(&server) - empty),
        megabytes(on_disk(folder.path()))
    );
    server.stop();
    let began = Instant::now();
    let server = Server::start(folder.path(), &[]);
    let took = began.elapsed();
    let resident = megabytes(resident(&server));
    println!("started again in {took:.0?} with {resident:.0} MB of memory");
    server.stop();
}

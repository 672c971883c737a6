//! Measures the cost of calls as the transcript grows: the same calls on sessions of ten messages and of thousands.
//!
//! The calls alternate between the lengths, so that other load on the machine affects all of them equally.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use palimpsest_proto::context::v1::{MessageInput, PrepareContextRequest, SnipRequest};
use palimpsest_tests::say::{append, assistant, prepare, target, user};
use palimpsest_tests::{Context, Server};

use crate::report::Growth;
use palimpsest_load::data::text;
use palimpsest_load::figures::Latencies;
use palimpsest_load::settle::settled;

/// Bytes of the messages that fill a session, and of those that are appended during the measurement.
const SHORT: usize = 200;
const APPENDED: usize = 1_000;
/// Messages per append while sessions are filled.
const BATCH: usize = 2_000;
/// Sessions per length, and therefore the number of cold opens per length.
const SESSIONS: usize = 3;
/// Intervals between calls that request a complete view, and between calls that snip a message. The offset of 1
/// distributes them over all sessions.
const FULL: usize = 4 * SESSIONS + 1;
const SNIP: usize = 6 * SESSIONS + 1;
/// A context window that no session fills, because the measurement must not include compactions.
const WINDOW: u32 = 1_000_000_000;

/// A session and the state of its agent.
struct Long {
    name: String,
    etag: Bytes,
    /// The ids of messages that can be snipped.
    ids: Vec<String>,
}

/// Durations of the calls on sessions of one length.
#[derive(Default)]
struct Took {
    append: Vec<Duration>,
    delta: Vec<Duration>,
    full: Vec<Duration>,
    snip: Vec<Duration>,
    open: Vec<Duration>,
}

/// Fills sessions of these lengths and makes `calls` calls of each kind on each length.
pub(crate) async fn run(folder: &Path, lengths: &[usize], calls: usize) -> Result<Vec<Growth>> {
    let folder = tempfile::tempdir_in(folder).context("no folder for the server's data")?;
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let mut sessions = Vec::new();
    for length in lengths {
        let mut of_length = Vec::new();
        for number in 0..SESSIONS {
            of_length.push(Long::fill(&mut client, *length, number).await?);
        }
        sessions.push(of_length);
    }
    for session in sessions.iter().flatten() {
        settled(&client, &session.name).await?;
    }
    let mut took: Vec<Took> = lengths.iter().map(|_| Took::default()).collect();
    for number in 0..calls {
        for (of_length, took) in sessions.iter_mut().zip(&mut took) {
            let session = &mut of_length[number % SESSIONS];
            session.calls(&mut client, number, took).await?;
        }
    }
    drop(client);
    server.stop();
    // After the restart no session is in memory, and without a worker no session is opened early.
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let mut client = server.context().await;
    let first = prepare("projects/load/sessions/another", vec![user("hello")]);
    client.prepare_context(first).await?;
    // Opens short sessions first, so that background work for long sessions does not affect them.
    for (of_length, took) in sessions.iter().zip(&mut took) {
        for session in of_length {
            took.open.push(session.open(&mut client).await?);
        }
    }
    server.stop();
    Ok(lengths.iter().zip(took).map(growth).collect())
}

fn growth((length, took): (&usize, Took)) -> Growth {
    let both = |took: Vec<Duration>| {
        let latencies = Latencies::new(took);
        (latencies.ms(0.5), latencies.ms(0.99))
    };
    Growth {
        messages: *length,
        append_ms: both(took.append),
        delta_ms: both(took.delta),
        snip_ms: both(took.snip),
        full_ms: both(took.full),
        // The sample is too small for other quantiles.
        open_ms: Latencies::new(took.open).ms(0.5),
    }
}

fn asked(session: &str, messages: Vec<MessageInput>, etag: &Bytes) -> PrepareContextRequest {
    let mut request = prepare(session, messages);
    request.known_etag = etag.clone();
    let mut model = target(palimpsest_proto::context::v1::Provider::Anthropic, "");
    model.window_tokens = Some(WINDOW);
    request.target = Some(model);
    request
}

impl Long {
    async fn fill(client: &mut Context, length: usize, number: usize) -> Result<Self> {
        let name = format!("projects/load/sessions/long-{length}-{number}");
        let mut ids = Vec::new();
        let mut there = 0;
        while there < length {
            let until = length.min(there + BATCH);
            let messages = (there..until).map(|n| {
                // The factor keeps the seeds of the sessions apart, so that no two messages are equal.
                let said = text((number * 1_000_003 + n) as u64, SHORT);
                if n % 2 == 0 {
                    user(&said)
                } else {
                    assistant(&said)
                }
            });
            let request = append(&name, messages.collect());
            let reply = client.append_messages(request).await?.into_inner();
            let appended = reply.append.unwrap_or_default().messages;
            // The first batch has enough messages for all snips.
            if there == 0 {
                ids.extend(appended.into_iter().map(|one| one.message_id));
            }
            there = until;
        }
        let mut session = Self {
            name,
            etag: Bytes::new(),
            ids,
        };
        session.full(client).await?;
        Ok(session)
    }

    /// Makes one call of each kind, and a snip while messages remain.
    async fn calls(&mut self, client: &mut Context, number: usize, took: &mut Took) -> Result<()> {
        let message = assistant(&text(number as u64, APPENDED));
        let request = append(&self.name, vec![message]);
        let began = Instant::now();
        client.append_messages(request).await?;
        took.append.push(began.elapsed());
        took.delta.push(self.delta(client, number).await?);
        // Complete views are large, and a small sample is sufficient.
        if number.is_multiple_of(FULL) {
            took.full.push(self.full(client).await?);
        }
        if number.is_multiple_of(SNIP) && self.ids.len() > 1 {
            let request = SnipRequest {
                session: self.name.clone(),
                message_ids: vec![self.ids.swap_remove(0)],
                ..SnipRequest::default()
            };
            let began = Instant::now();
            client.snip(request).await?;
            took.snip.push(began.elapsed());
            // The snip has changed the view. Without the new etag, the next delta would repeat a large part of it.
            self.full(client).await?;
        }
        Ok(())
    }

    /// Appends a message and requests the delta since the last view.
    async fn delta(&mut self, client: &mut Context, number: usize) -> Result<Duration> {
        let message = user(&text(number as u64 + 7, APPENDED));
        let request = asked(&self.name, vec![message], &self.etag);
        let began = Instant::now();
        let reply = client.prepare_context(request).await?;
        let took = began.elapsed();
        self.etag = reply.into_inner().etag;
        Ok(took)
    }

    /// Makes the first call on the session. The view does not change, because the agent has all of it.
    async fn open(&self, client: &mut Context) -> Result<Duration> {
        let request = asked(&self.name, Vec::new(), &self.etag);
        let began = Instant::now();
        client.prepare_context(request).await?;
        Ok(began.elapsed())
    }

    /// Requests the complete view, in chunks if it exceeds the size of a reply.
    async fn full(&mut self, client: &mut Context) -> Result<Duration> {
        let request = asked(&self.name, Vec::new(), &Bytes::new());
        let began = Instant::now();
        let reply = client.prepare_context(request).await?.into_inner();
        if reply.view_omitted {
            let request = palimpsest_proto::context::v1::StreamContextRequest {
                session: self.name.clone(),
                etag: reply.etag.clone(),
                skip_messages: reply.keep_messages,
            };
            let mut chunks = client.stream_context(request).await?.into_inner();
            while chunks.message().await?.is_some() {}
        }
        let took = began.elapsed();
        self.etag = reply.etag;
        Ok(took)
    }
}

/// Returns the explanation of the measurement for the report.
pub(crate) fn about() -> String {
    format!(
        "One caller. Sessions of messages of {SHORT} bytes, {SESSIONS} of each length, which take turns call by call. \
         A message of {APPENDED} bytes is appended; another comes with PrepareContext, and what is new since the last view \
         goes back; now and then the whole view is asked for, or a message snipped. Then the server starts again, \
         without its worker, and each session is opened by a PrepareContext that finds nothing new; the files are in \
         the machine's memory by then."
    )
}

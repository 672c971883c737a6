//! `palimpsest watch`: follows the events of a session.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use palimpsest_proto::context::v1::{
    GetSessionRequest, LevelEffect, SessionEvent, Trigger, WatchSessionRequest,
};
use tokio::time::sleep;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::client::{Clients, Remote, block_on, reply_of, status_error};
use super::event_text::describe;
use super::output::{note, number, print_next, time_text, words};
use super::reply_json::ReplyJson;

/// The first and the longest wait before a lost connection is opened again.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Follow the events of a session, one line per event
#[derive(Debug, Args)]
#[command(
    after_help = "A line contains the time, the revision, the kind, what happened, and for actions of levels the freed tokens and \
the trigger. After a lost connection, the command connects again and continues without a gap. With --json, each line \
is a message `SessionEvent` in the form of the REST API.

Examples:
  palimpsest watch my-session
  palimpsest watch my-session --from 0 --once
  palimpsest watch my-session --json | jq -c 'select(.compacted)'"
)]
pub(super) struct Watch {
    /// Id or full name of the session
    session: String,
    /// Print the events after this revision, 0 for all [default: only new events]
    #[arg(long, value_name = "REVISION")]
    from: Option<u64>,
    /// Print the recorded events and end
    #[arg(long)]
    once: bool,
    /// Print one JSON object per event
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

/// The reason for the end of a stream.
enum StreamEnd {
    /// The command is done.
    Done,
    /// The connection is lost, or the server ended the stream.
    Lost(Option<Status>),
}

/// The position in the events of the session.
struct Position {
    /// The revision from which a stream is resumed.
    after: u64,
    /// The last event of each kind. A resumed stream can repeat an event.
    latest: HashMap<&'static str, u64>,
}

impl Watch {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.follow())
    }

    async fn follow(&self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let json = self.json.then(|| ReplyJson::of("SessionEvent"));
        let json = json.transpose()?;
        let mut clients = self.remote.connect().await?;
        // A stream without a start begins at the current revision, which is unknown if the connection is lost before
        // the first element. The revision is therefore read first.
        let request = GetSessionRequest {
            session: session.clone(),
            ..GetSessionRequest::default()
        };
        let found = reply_of(clients.sessions.get_session(request).await)?;
        let current = found.session.map_or(0, |session| session.revision);
        let mut position = Position {
            after: self.from.unwrap_or(current),
            latest: HashMap::new(),
        };
        let (mut wait, mut is_lost) = (WAITS.0, false);
        loop {
            let before = position.after;
            let end = self.stream(&mut clients, &session, json.as_ref(), &mut position);
            let StreamEnd::Lost(status) = end.await? else {
                return Ok(());
            };
            // A server that sheds load states when it accepts calls again.
            let asked = status.as_ref().and_then(retry_delay);
            // The stream made progress, so the next loss is a new one.
            if position.after > before {
                (wait, is_lost) = (WAITS.0, false);
            }
            if !is_lost {
                note("the connection is lost; connecting again");
                is_lost = true;
            }
            sleep(asked.unwrap_or(wait)).await;
            wait = (wait * 2).min(WAITS.1);
        }
    }

    /// Prints the events of one stream.
    async fn stream(
        &self,
        clients: &mut Clients,
        session: &str,
        json: Option<&ReplyJson>,
        position: &mut Position,
    ) -> anyhow::Result<StreamEnd> {
        let request = WatchSessionRequest {
            session: session.to_owned(),
            after_revision: Some(position.after),
            kinds: Vec::new(),
        };
        let mut stream = match clients.sessions.watch_session(request).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return lost(status),
        };
        loop {
            let element = match stream.message().await {
                Ok(Some(element)) => element,
                Ok(None) => return Ok(StreamEnd::Lost(None)),
                Err(status) => return lost(status),
            };
            // An element without an event can advance the revision too.
            position.after = position.after.max(element.revision);
            if let Some(event) = &element.event
                && !position.is_repeated(event)
            {
                let is_read = match json {
                    Some(json) => json.print_next(event)?,
                    None => print_next(&line(event))?,
                };
                // A reader such as `head` has read enough.
                if !is_read {
                    return Ok(StreamEnd::Done);
                }
            }
            if self.once && element.caught_up {
                return Ok(StreamEnd::Done);
            }
        }
    }
}

impl Position {
    fn is_repeated(&mut self, event: &SessionEvent) -> bool {
        let Some(content) = &event.event else {
            return false;
        };
        let (kind, _) = describe(content);
        // A revision can have two events, so the revision alone does not identify an event.
        let latest = self.latest.insert(kind, event.revision);
        latest.is_some_and(|latest| latest >= event.revision)
    }
}

/// Returns the end of a stream with an error that another stream can overcome, or the error.
fn lost(status: Status) -> anyhow::Result<StreamEnd> {
    let has_reason = status.get_details_error_info().is_some();
    let is_temporary = matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted
    );
    // An error without a reason comes from the connection and not from the server.
    if is_temporary || !has_reason {
        return Ok(StreamEnd::Lost(Some(status)));
    }
    Err(status_error(&status))
}

fn retry_delay(status: &Status) -> Option<Duration> {
    let info = status.get_details_retry_info()?;
    // A longer delay would leave the person without events although the server may be back.
    info.retry_delay.map(|delay| delay.min(WAITS.1))
}

/// Returns an event as a line.
fn line(event: &SessionEvent) -> String {
    let (kind, mut text) = match &event.event {
        Some(content) => describe(content),
        None => (
            "unknown",
            "a kind that this version does not know".to_owned(),
        ),
    };
    if let Some(effect) = &event.effect {
        text.push_str(&effect_text(effect));
    }
    let time = time_text(event.time.as_ref());
    format!("{time}  {:>6}  {kind:<22} {text}", event.revision)
}

fn effect_text(effect: &LevelEffect) -> String {
    let freed = match effect.freed_tokens {
        0 => String::new(),
        freed => format!(", {} tokens freed", number(freed.into())),
    };
    let trigger = match effect.trigger() {
        Trigger::Unspecified => String::new(),
        trigger => format!(", {}", words(trigger.as_str_name(), "TRIGGER_")),
    };
    format!("{freed}{trigger}")
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::ContentSnipped;
    use palimpsest_proto::context::v1::session_event::Event;
    use prost_types::Timestamp;

    use super::*;

    fn snip(revision: u64) -> SessionEvent {
        SessionEvent {
            revision,
            time: Some(Timestamp {
                seconds: 1_800_000_000,
                nanos: 5,
            }),
            effect: Some(LevelEffect {
                trigger: Trigger::Manual.into(),
                freed_tokens: 1_234,
                ..LevelEffect::default()
            }),
            event: Some(Event::ContentSnipped(ContentSnipped {
                turn_ids: vec!["a1b2c3".into()],
                message_ids: vec!["x".into(), "y".into()],
                ..ContentSnipped::default()
            })),
            ..SessionEvent::default()
        }
    }

    #[test]
    fn an_event_is_one_line() {
        assert_eq!(
            line(&snip(57)),
            "2027-01-15 08:00:00Z      57  content_snipped        1 turn, 2 messages snipped, 1,234 tokens freed, manual"
        );
    }

    #[test]
    fn a_repeated_event_is_recognized() {
        let mut position = Position {
            after: 0,
            latest: HashMap::new(),
        };
        assert!(!position.is_repeated(&snip(5)));
        assert!(position.is_repeated(&snip(5)));
        assert!(!position.is_repeated(&snip(6)));
    }
}

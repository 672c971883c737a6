//! A stream with a line for each change of a session, for the script of its pages.

use bytes::Bytes;
use futures::StreamExt as _;
use http::Response;
use palimpsest_proto::context::v1::{WatchSessionRequest, WatchSessionResponse};
use tonic::body::Body;

use crate::api::Api;
use crate::error::PageError;
use crate::response;
use crate::routes::SessionName;

/// Streams the revisions of a session. Heartbeats become comments, which keep the connection open.
pub(crate) async fn stream(api: &Api, name: &SessionName) -> Result<Response<Body>, PageError> {
    let request = WatchSessionRequest {
        session: name.resource(),
        ..WatchSessionRequest::default()
    };
    let watch = api
        .sessions()
        .watch_session(tonic::Request::new(request))
        .await?;
    let lines = watch
        .into_inner()
        .map(|change| change.map(|change| line(&change)));
    // A failed watch ends the stream. The script connects again.
    let lines = lines.take_while(|line| futures::future::ready(line.is_ok()));
    Ok(response::events(lines))
}

fn line(change: &WatchSessionResponse) -> Bytes {
    if change.event.is_some() {
        Bytes::from(format!("data: {}\n\n", change.revision))
    } else {
        // A line that begins with a colon is a comment of server-sent events, which the browser ignores.
        Bytes::from_static(b":\n\n")
    }
}

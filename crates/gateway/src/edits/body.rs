//! The body of a response with a report.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;

use super::stream::StreamEditor;
use crate::response_body::UpstreamBody;
use crate::tee::Polled;

/// The body of a response that the gateway changes. It has no queue: the inner body is polled only when the agent can
/// take a frame.
pub(crate) struct EditedBody {
    /// Frames for the agent.
    out: VecDeque<Frame<Bytes>>,
    /// The body of upstream. `None` after its end.
    inner: Option<Box<UpstreamBody>>,
    /// The error after the frames.
    error: Option<hyper::Error>,
    /// `None` if the rest stays as it is.
    editor: Option<Box<StreamEditor>>,
}

impl fmt::Debug for EditedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditedBody").finish_non_exhaustive()
    }
}

impl EditedBody {
    /// Creates the body of a stream.
    pub(super) fn stream(inner: UpstreamBody, editor: StreamEditor) -> Self {
        Self {
            out: VecDeque::new(),
            inner: Some(Box::new(inner)),
            error: None,
            editor: Some(Box::new(editor)),
        }
    }

    /// Creates a body of which a part was received before. `inner` is the rest.
    pub(super) fn received(
        out: VecDeque<Frame<Bytes>>,
        inner: Option<UpstreamBody>,
        error: Option<hyper::Error>,
    ) -> Self {
        Self {
            out,
            inner: inner.map(Box::new),
            error,
            editor: None,
        }
    }

    /// Returns the next frame for the agent.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        loop {
            if let Some(frame) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Some(error) = self.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            let Some(inner) = &mut self.inner else {
                return Poll::Ready(None);
            };
            match ready!(inner.poll_next(cx)) {
                Some(Ok(frame)) => {
                    let frame = self.edited(frame);
                    self.out.extend(frame);
                }
                ended => {
                    self.inner = None;
                    self.error = ended.and_then(Result::err);
                    // Bytes of an event that never became complete reach the agent too, as without the editor.
                    let rest = self.editor.as_mut().map(|editor| editor.rest());
                    let rest = rest.filter(|rest| !rest.is_empty());
                    self.out.extend(rest.map(|rest| Frame::data(rest.into())));
                }
            }
        }
    }

    fn edited(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let Some(editor) = &mut self.editor else {
            return Some(frame);
        };
        match frame.into_data() {
            Ok(data) => {
                let data = editor.read(&data);
                (!data.is_empty()).then(|| Frame::data(data.into()))
            }
            Err(trailers) => Some(trailers),
        }
    }
}

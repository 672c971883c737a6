//! The events of a streamed response, as the agent gets them. Without I/O.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::splice::{Shown, Splicer};
use crate::reading::{EventParser, ResponseApi, Unread};

/// The events of one response to the agent, which can consist of several responses of the provider.
#[derive(Debug)]
pub struct SplicedEvents {
    splicer: Splicer,
    parser: EventParser,
    /// The bytes that the agent has not got: those of the current event, or all further ones after an error.
    rest: Vec<u8>,
    /// True if the agent got the bytes of the last event.
    is_as_is: bool,
}

impl SplicedEvents {
    /// Creates the events of a response whose request offered tools with these names.
    pub fn new(api: ResponseApi, names: Arc<[String]>) -> Self {
        Self {
            splicer: Splicer::new(api, names),
            parser: EventParser::default(),
            rest: Vec::new(),
            is_as_is: true,
        }
    }

    /// Reads a frame of the provider, and adds the bytes that the agent gets now to `shown`. If the response ends in this
    /// frame, returns the bytes that the agent gets after the record.
    ///
    /// `read_event` gets the bytes of each event, and returns true for the last one of a response.
    ///
    /// # Errors
    ///
    /// Fails if an event is not understood. [`Self::take_rest`] then returns the part of the frame that was not read.
    pub fn read(
        &mut self,
        frame: &[u8],
        shown: &mut Vec<u8>,
        read_event: impl FnMut(&[u8]) -> Result<bool, Unread>,
    ) -> Result<Option<Vec<u8>>, Unread> {
        let mut unread = frame;
        // A frame can begin with the last byte of the event before it, which has the form of that event.
        self.parser.skip_end_of_event(&mut unread);
        if self.is_as_is {
            shown.extend_from_slice(&frame[..frame.len() - unread.len()]);
        }
        let read = self.read_events(&mut unread, shown, read_event);
        if read.is_err() {
            self.rest.extend_from_slice(unread);
        }
        read
    }

    /// Consumes the events in `unread`.
    fn read_events(
        &mut self,
        unread: &mut &[u8],
        shown: &mut Vec<u8>,
        mut read_event: impl FnMut(&[u8]) -> Result<bool, Unread>,
    ) -> Result<Option<Vec<u8>>, Unread> {
        loop {
            let before = *unread;
            let event = self.parser.next(unread);
            let consumed = before.len() - unread.len();
            self.rest.extend_from_slice(&before[..consumed]);
            let Some(event) = event? else {
                return Ok(None);
            };
            // The agent must get its response even if the splicer has a defect.
            let splicing = catch_unwind(AssertUnwindSafe(|| self.splicer.event(&event)));
            let form = splicing.unwrap_or(Err(Unread::Panic));
            // After an error of either step, the event stays in `rest`, so that `take_rest` returns it.
            let is_last = read_event(&self.rest)?;
            let form = form?;
            let own_bytes = self.take_rest();
            self.is_as_is = form == Shown::AsIs;
            let mut bytes = match form {
                Shown::AsIs => own_bytes,
                Shown::Changed(bytes) => bytes,
                Shown::Hidden => Vec::new(),
            };
            if is_last {
                // Bytes behind the last event belong to the agent, such as a comment. Those behind a hidden end do not.
                if !self.splicer.continues() {
                    bytes.extend_from_slice(unread);
                }
                return Ok(Some(bytes));
            }
            shown.extend_from_slice(&bytes);
        }
    }

    /// Begins the next response of the provider. `may_continue` is false if it is the last one in any case.
    pub fn begin_next(&mut self, may_continue: bool) {
        self.splicer.begin_next(may_continue);
        self.parser = EventParser::default();
        self.rest.clear();
    }

    /// Returns the bytes that the agent has not got, and forgets them.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Returns true if the current response contains calls of offered tools.
    pub fn has_own_calls(&self) -> bool {
        self.splicer.calls().own > 0
    }

    /// Returns true if the current response has ended with calls of offered tools only, so that another one follows.
    pub fn continues(&self) -> bool {
        self.splicer.continues()
    }

    /// Returns true if the agent did not get an event of the provider.
    pub fn is_changed(&self) -> bool {
        self.splicer.is_changed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads frames of one response, of which none ends it. Returns the bytes for the agent.
    fn shown(api: ResponseApi, frames: &[&str]) -> String {
        let mut events = SplicedEvents::new(api, ["own".to_owned()].into());
        let mut shown = Vec::new();
        for frame in frames {
            let read = events.read(frame.as_bytes(), &mut shown, |_| Ok(false));
            assert_eq!(read, Ok(None), "{frame}");
        }
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn the_positions_of_the_provider_stay_until_a_call_is_hidden() {
        let messages = "data: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"text\"}}\n\n\
            data: {\"type\":\"content_block_stop\",\"index\":3}\n\n";
        assert_eq!(shown(ResponseApi::Messages, &[messages]), messages);
        let chat = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\
            \"function\":{\"name\":\"Bash\"}}]}}]}\n\n";
        assert_eq!(shown(ResponseApi::Chat, &[chat]), chat);
        let responses = "data: {\"type\":\"response.created\",\"sequence_number\":7,\"response\":{}}\n\n\
            data: {\"type\":\"response.output_item.added\",\"sequence_number\":9,\"output_index\":1,\
            \"item\":{\"type\":\"message\"}}\n\n";
        assert_eq!(shown(ResponseApi::Responses, &[responses]), responses);
        // After a hidden call, the numbers continue.
        let own = "data: {\"type\":\"response.output_item.added\",\"sequence_number\":10,\"output_index\":2,\
            \"item\":{\"type\":\"function_call\",\"name\":\"own\"}}\n\n";
        let next = "data: {\"type\":\"response.output_item.added\",\"sequence_number\":11,\"output_index\":3,\
            \"item\":{\"type\":\"message\"}}\n\n";
        let text = shown(ResponseApi::Responses, &[responses, own, next]);
        assert!(
            text.starts_with(responses) && !text.contains("own"),
            "{text}"
        );
        assert!(
            text.contains("\"sequence_number\":10,\"output_index\":2"),
            "{text}"
        );
    }

    #[test]
    fn the_end_of_a_line_belongs_to_its_event() {
        let own = "data: {\"type\":\"content_block_start\",\"index\":0,\
            \"content_block\":{\"type\":\"tool_use\",\"name\":\"own\"}}\r\n\r\n";
        let ping = "data: {\"type\":\"ping\"}\r\n\r\n";
        let both = [own, ping].concat();
        assert_eq!(shown(ResponseApi::Messages, &[&both]), ping);
        let (first, second) = both.split_at(own.len() - 1);
        assert_eq!(shown(ResponseApi::Messages, &[first, second]), ping);
        let (first, second) = ping.split_at(ping.len() - 1);
        assert_eq!(shown(ResponseApi::Messages, &[first, second]), ping);
    }
}

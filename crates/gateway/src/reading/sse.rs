//! Splits a stream of server-sent events, and writes events. The stream can be split at any byte.

use super::Unread;

/// The maximum size of one event, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 8 << 20;

/// Appends an event to `out`. Chat Completions has no names of events.
pub(crate) fn write_event(out: &mut Vec<u8>, name: Option<&str>, data: &str) {
    let name = name.map(|name| ["event: ", name, "\n"]);
    for part in name
        .iter()
        .flatten()
        .copied()
        .chain(["data: ", data, "\n\n"])
    {
        out.extend_from_slice(part.as_bytes());
    }
}

/// A parser of event streams.
///
/// Names of events are ignored: the data of each event repeats its name where the provider has one.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    /// The line that the input so far has not completed.
    line: Vec<u8>,
    /// The data of the current event. `None` before its first line.
    data: Option<Vec<u8>>,
    /// True after CR, because CR LF is one line end.
    after_cr: bool,
    /// True if the input so far ends with the end of an event.
    is_after_event: bool,
    /// True after the first line, which can begin with a byte order mark.
    is_past_first_line: bool,
}

impl EventParser {
    /// Consumes input until an event is complete, and returns its data. Returns `None` if the input contains no further
    /// end of an event.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, Unread> {
        loop {
            self.skip_line_feed(input);
            // Input behind the line feed belongs to the next event.
            self.is_after_event &= input.is_empty();
            let Some(end) = input.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.extend_line(input)?;
                *input = &[];
                return Ok(None);
            };
            let (part, rest) = input.split_at(end);
            self.after_cr = rest.starts_with(b"\r");
            *input = &rest[1..];
            // A line inside one frame, which is the usual case, is not copied.
            let event = if self.line.is_empty() {
                self.end_line(part)?
            } else {
                self.extend_line(part)?;
                let mut line = std::mem::take(&mut self.line);
                let event = self.end_line(&line)?;
                line.clear();
                // The buffer is reused for the next line that frames split.
                self.line = line;
                event
            };
            if event.is_some() {
                // The next event must not begin with the end of this one.
                self.skip_line_feed(input);
                self.is_after_event = true;
                return Ok(event);
            }
        }
    }

    /// Consumes the last byte of the event before, if a frame begins with it.
    pub(crate) fn skip_end_of_event(&mut self, input: &mut &[u8]) {
        if self.is_after_event {
            self.skip_line_feed(input);
        }
    }

    /// Consumes the second byte of CR LF.
    fn skip_line_feed(&mut self, input: &mut &[u8]) {
        if self.after_cr && !input.is_empty() {
            *input = input.strip_prefix(b"\n").unwrap_or(input);
            self.after_cr = false;
        }
    }

    /// Returns the size of the buffers, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.line.capacity() + self.data.as_ref().map_or(0, Vec::capacity)
    }

    fn extend_line(&mut self, part: &[u8]) -> Result<(), Unread> {
        let data = self.data.as_ref().map_or(0, Vec::len);
        check_size(self.line.len() + data + part.len())?;
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Adds a line. Returns the data of the event that the line ends.
    fn end_line(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, Unread> {
        let line = if self.is_past_first_line {
            line
        } else {
            self.is_past_first_line = true;
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        };
        if line.is_empty() {
            // An event without data is ignored, as the specification of event streams requires.
            return Ok(self.data.take());
        }
        // A line `data` without a colon is a field with an empty value. One space after the colon belongs to no value.
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => return Ok(None),
        };
        match &mut self.data {
            None => {
                check_size(value.len())?;
                self.data = Some(value.to_vec());
            }
            Some(data) => {
                check_size(data.len() + 1 + value.len())?;
                data.push(b'\n');
                data.extend_from_slice(value);
            }
        }
        Ok(None)
    }
}

fn check_size(size: usize) -> Result<(), Unread> {
    if size > MAX_EVENT_BYTES {
        return Err(Unread::TooLarge);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(frames: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut events) = (EventParser::default(), Vec::new());
        for frame in frames {
            let mut input = *frame;
            while let Some(event) = parser.next(&mut input).unwrap() {
                events.push(String::from_utf8(event).unwrap());
            }
            assert!(input.is_empty());
        }
        events
    }

    #[test]
    fn lines_and_fields_follow_the_specification() {
        let check = |stream: &str, expected: &[&str]| {
            assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(events(&bytes), expected, "{stream:?} in bytes");
        };
        check("data: a\n\ndata:b\r\n\r\ndata:  c\r\r", &["a", "b", " c"]);
        check("event: x\ndata: a\ndata: b\nid: 1\n\n", &["a\nb"]);
        check(": comment\n\nevent: ping\n\nretry: 5\n\ndata\n\n", &[""]);
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]);
        check("database: x\n\ndata: ü😀\n\n", &["ü😀"]);
        check("data: not complete\n", &[]);
    }

    #[test]
    fn an_event_has_a_maximum_size() {
        let half = vec![b'x'; MAX_EVENT_BYTES / 2];
        let mut parser = EventParser::default();
        let mut read = |mut input: &[u8]| parser.next(&mut input);
        assert_eq!(read(b"data:"), Ok(None));
        assert_eq!(read(&half), Ok(None));
        assert_eq!(read(b"\ndata:"), Ok(None));
        // Two `data` lines of one event count together.
        assert_eq!(read(&half), Err(Unread::TooLarge));
    }
}

//! Reads whole arrays. Of an array that begins like the last one of its session, only the rest is read.

use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::array::Element;
use palimpsest_core::codec::{self, CodecError};
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::json::RawJson;
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::view::Provider;

use super::array_layout::{BodyFields, Layout, field_names};
use super::json_parts::JsonParts;
use super::last_used::LastOfSessions;

/// Maximum size of the JSON of all known arrays.
const MAX_KNOWN_BYTES: usize = 128 << 20;
/// Maximum size of a known array.
const MAX_ARRAY_BYTES: usize = 8 << 20;

/// A whole array.
#[derive(Debug, Clone)]
pub struct ReadArray {
    /// The messages, in order. The first one is the system prompt of an Anthropic body.
    pub elements: Arc<[Element]>,
    /// The messages that were not read before.
    pub new: Vec<Arc<Message>>,
    /// Number of messages at the start that are not in the array: the system prompt of an Anthropic body.
    pub outside: usize,
    /// The fields beside the array. `None` if the JSON is no request body.
    pub body: Option<BodyFields>,
    /// The position of the array in the JSON. `None` if an element is not exactly one message.
    pub place: Option<ArrayPlace>,
}

impl ReadArray {
    /// Returns the system prompt of a body as JSON. It includes the text of the operator messages at the start of the
    /// array, which the view does not contain.
    pub fn system_json(&self) -> Option<RawJson> {
        let system = self.body.as_ref().and_then(|body| body.system.as_ref());
        let Some(lead) = self.lead_text() else {
            return system.cloned();
        };
        let text = match system.map(|system| serde_json::from_str::<String>(system.as_str())) {
            None => lead,
            Some(Ok(system)) => format!("{system}\n{lead}"),
            // Blocks are a form of Anthropic's API, whose arrays begin with the conversation.
            Some(Err(_)) => return system.cloned(),
        };
        RawJson::parse(&serde_json::Value::from(text).to_string()).ok()
    }

    fn lead_text(&self) -> Option<String> {
        let lead = self.elements.iter().skip(self.outside);
        let lead = lead.take_while(|element| element.message.role.is_system());
        let blocks = lead.flat_map(|element| &element.message.blocks);
        let texts = blocks.filter_map(|block| match block {
            Block::Text { text, .. } => Some(&**text),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        (!text.is_empty()).then_some(text)
    }
}

/// The position of an array in its JSON, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayPlace {
    /// The opening bracket.
    pub open: usize,
    /// The end of the last operator message before the conversation. Without such a message, the position after the
    /// opening bracket.
    pub lead_end: usize,
    /// The closing bracket.
    pub close: usize,
}

/// Reads arrays, and remembers the last one of each session.
#[derive(Debug)]
pub struct ArrayReader(LastOfSessions<KnownArray>);

impl Default for ArrayReader {
    fn default() -> Self {
        Self(LastOfSessions::new(MAX_KNOWN_BYTES))
    }
}

/// An array that was compared with the last one of its session, and not read yet.
#[derive(Debug, Clone)]
pub struct ComparedArray {
    provider: Provider,
    json: JsonParts,
    /// The last array of the session, and the number of its elements with which the array begins. `None` if the array
    /// has to be read as a whole.
    known: Option<(Arc<KnownArray>, usize)>,
}

#[derive(Debug)]
struct KnownArray {
    provider: Provider,
    /// The JSON up to the end of the last element.
    json: JsonParts,
    /// The opening bracket of the array.
    open: usize,
    /// The end of the operator messages, as in [`ArrayPlace`].
    lead_end: usize,
    /// The positions after the elements.
    ends: Vec<usize>,
    /// The elements, as in [`ReadArray`].
    elements: Arc<[Element]>,
    /// The number of elements before those of the array, as in [`ReadArray`].
    outside: usize,
    /// The fields before the array. `None` if the JSON is no body.
    before: Option<BodyFields>,
}

/// The JSON after a known element. Positions are relative to this element.
struct ReadRest {
    messages: Vec<Message>,
    /// The positions after the elements.
    ends: Vec<usize>,
    /// The closing bracket of the array.
    close: usize,
    /// True if the first message is a system prompt after the array.
    has_system: bool,
    /// The fields of the whole body. `None` if the JSON is no body.
    fields: Option<BodyFields>,
}

impl ArrayReader {
    /// Compares an array in the provider's JSON with the last one of the session.
    pub fn compare(&self, key: &SessionKey, provider: Provider, json: JsonParts) -> ComparedArray {
        let known = self.0.get(key);
        let known = known.filter(|known| known.provider == provider);
        let known = known.and_then(|known| {
            let count = known.shared(&json)?;
            Some((known, count))
        });
        ComparedArray {
            provider,
            json,
            known,
        }
    }

    /// Reads the part of an array that differs from the last one of its session. Returns `None` if the array has to be
    /// read as a whole. `next_id` creates an id for each new message.
    pub fn read_rest(
        &self,
        key: &SessionKey,
        array: &ComparedArray,
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Option<ReadArray> {
        let (known, count) = array.known.as_ref()?;
        let (read, known) = known.extend(*count, &array.json, now, next_id)?;
        self.remember(key, Some(known));
        Some(read)
    }

    /// Reads an array as a whole.
    ///
    /// # Errors
    ///
    /// Fails if the JSON is invalid, or not a form that the provider defines.
    pub fn read_whole(
        &self,
        key: &SessionKey,
        array: &ComparedArray,
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<ReadArray, CodecError> {
        let (read, known) = whole(array.provider, &array.json.whole(), now, next_id)?;
        self.remember(key, known);
        Ok(read)
    }

    /// Reads an array in the provider's JSON.
    ///
    /// # Errors
    ///
    /// Fails if the JSON is invalid, or not a form that the provider defines.
    pub fn read(
        &self,
        key: &SessionKey,
        (provider, json): (Provider, &Bytes),
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<ReadArray, CodecError> {
        let array = self.compare(key, provider, json.clone().into());
        match self.read_rest(key, &array, now, next_id) {
            Some(read) => Ok(read),
            None => self.read_whole(key, &array, now, next_id),
        }
    }

    fn remember(&self, key: &SessionKey, known: Option<KnownArray>) {
        match known.filter(|known| known.json.len() <= MAX_ARRAY_BYTES) {
            Some(known) => {
                let bytes = known.json.len();
                self.0.insert(key, known, bytes);
            }
            None => self.0.remove(key),
        }
    }
}

impl ComparedArray {
    /// Returns the number of bytes that have to be read.
    pub fn unread_bytes(&self) -> usize {
        let known = self.known.as_ref();
        self.json.len() - known.map_or(0, |(known, count)| known.end(*count))
    }

    /// Returns the JSON of the array.
    pub fn json(&self) -> &JsonParts {
        &self.json
    }
}

impl KnownArray {
    /// Returns the position after the first `count` elements, which are at least one.
    fn end(&self, count: usize) -> usize {
        self.ends[count - 1]
    }

    /// Returns the number of elements with which an array begins. `None` if this number is of no use.
    ///
    /// Agents move their cache markers with each request, so the last elements of an array often change.
    fn shared(&self, json: &JsonParts) -> Option<usize> {
        let common = self.json.common_prefix(json);
        // An element is an object, so one that ends within the common text is complete in both arrays.
        let count = self.ends.partition_point(|end| *end <= common);
        // The operator messages at the start can grow, so such an array is read as a whole.
        let elements = &self.elements[self.outside..][..count];
        // A count of zero fails the comparison too, and `end` needs at least one element.
        (lead(elements) < count).then_some(count)
    }

    /// Reads an array that begins with the first `count` elements. Returns `None` if its rest cannot be read alone.
    fn extend(
        &self,
        count: usize,
        json: &JsonParts,
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Option<(ReadArray, Self)> {
        let end = self.end(count);
        let rest = json.section(end..json.len()).whole();
        let mut read = self.read_rest(&rest, next_id)?;
        let mut new = elements(std::mem::take(&mut read.messages), now);
        let fresh = new
            .iter()
            .map(|element| Arc::clone(&element.message))
            .collect();
        let (known_system, known) = self.elements.split_at(self.outside);
        // A system prompt after the array is in the rest, where it can be another one.
        let system = if read.has_system {
            Some(new.remove(0))
        } else {
            let is_before = self.before.as_ref().is_some_and(|one| one.system.is_some());
            known_system.first().filter(|_| is_before).cloned()
        };
        let outside = usize::from(system.is_some());
        let known = known[..count].iter().cloned();
        let elements: Vec<Element> = system.into_iter().chain(known).chain(new).collect();
        let elements: Arc<[Element]> = elements.into();
        let mut ends = self.ends[..count].to_vec();
        ends.extend(read.ends.iter().map(|position| end + position));
        let mut known_json = self.json.section(0..end);
        let last = read.ends.last().copied().unwrap_or(0);
        known_json.push(&rest[..last]);
        let known = Self {
            provider: self.provider,
            json: known_json,
            open: self.open,
            lead_end: self.lead_end,
            ends,
            elements: Arc::clone(&elements),
            outside,
            before: self.before.clone(),
        };
        let array = ReadArray {
            elements,
            new: fresh,
            outside,
            body: read.fields,
            place: Some(ArrayPlace {
                open: self.open,
                // The common elements reach beyond the operator messages, so the end of these is unchanged.
                lead_end: self.lead_end,
                close: end + read.close,
            }),
        };
        Some((array, known))
    }

    /// Reads the JSON after a known element. Returns `None` if it cannot be read alone.
    fn read_rest(&self, rest: &[u8], next_id: &mut dyn FnMut() -> MessageId) -> Option<ReadRest> {
        let trimmed = trim_start(rest);
        let tail = match trimmed.split_first()? {
            // A comma before the end of an array is invalid.
            (b',', tail) if !trim_start(tail).starts_with(b"]") => tail,
            (b']', _) => trimmed,
            _ => return None,
        };
        // The rest becomes a document of its own.
        let open = match &self.before {
            Some(_) => format!("{{\"{}\":[", field_names(self.provider).0),
            None => "[".to_owned(),
        };
        let document = [open.as_bytes(), tail].concat();
        let layout = Layout::of(self.provider, std::str::from_utf8(&document).ok()?)?;
        let messages = codec::read(self.provider, &document, next_id).ok()?;
        let after = layout.fields.as_ref().map(|[_, after]| after);
        let has_system = after.is_some_and(|after| after.system.is_some());
        let has_system = self.provider.is_anthropic() && has_system;
        if messages.len() != layout.ends.len() + usize::from(has_system) {
            return None;
        }
        let fields = match (&self.before, after) {
            (Some(before), Some(after)) => Some(before.with(after)?),
            (None, None) => None,
            _ => return None,
        };
        // Positions in the document differ by the bytes before the tail.
        let in_rest = |position: usize| rest.len() - tail.len() + position - open.len();
        Some(ReadRest {
            messages,
            ends: layout.ends.iter().map(|end| in_rest(*end)).collect(),
            close: in_rest(layout.close),
            has_system,
            fields,
        })
    }
}

/// Reads an array as a whole. Returns it as a known array too, if its end can be read alone later.
fn whole(
    provider: Provider,
    json: &Bytes,
    now: Timestamp,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<(ReadArray, Option<KnownArray>), CodecError> {
    let elements: Arc<[Element]> = elements(codec::read(provider, json, next_id)?, now).into();
    let layout = std::str::from_utf8(json).ok();
    let layout = layout.and_then(|text| Layout::of(provider, text));
    let has_system = layout.as_ref().is_some_and(|layout| {
        let mut fields = layout.fields.iter().flatten();
        provider.is_anthropic() && fields.any(|fields| fields.system.is_some())
    });
    let outside = usize::from(
        has_system
            && elements
                .first()
                .is_some_and(|one| one.message.role == Role::System),
    );
    let fields = layout.as_ref().and_then(|layout| layout.fields.as_ref());
    let plain = layout.as_ref();
    let plain = plain.filter(|layout| elements.len() == layout.ends.len() + outside);
    let place = plain.map(|layout| {
        let lead = lead(&elements[outside..]).checked_sub(1);
        ArrayPlace {
            open: layout.open,
            lead_end: lead.map_or(layout.open + 1, |last| layout.ends[last]),
            close: layout.close,
        }
    });
    let read = ReadArray {
        new: elements
            .iter()
            .map(|element| Arc::clone(&element.message))
            .collect(),
        elements: Arc::clone(&elements),
        outside,
        body: fields.and_then(|[before, after]| before.with(after)),
        place,
    };
    let known = layout.zip(place).and_then(|(layout, place)| {
        let end = *layout.ends.last()?;
        Some(KnownArray {
            provider,
            json: JsonParts::from(json.slice(..end)),
            open: place.open,
            lead_end: place.lead_end,
            ends: layout.ends,
            elements,
            outside,
            before: layout.fields.map(|[before, _]| before),
        })
    });
    Ok((read, known))
}

fn elements(messages: Vec<Message>, now: Timestamp) -> Vec<Element> {
    let messages = messages.into_iter().map(|mut message| {
        message.at.get_or_insert(now);
        Element::new(Arc::new(message))
    });
    messages.collect()
}

/// Removes the white space of JSON from the start of a text. It has fewer characters than that of ASCII.
fn trim_start(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let begin = text.iter().position(|byte| !is_space(byte));
    &text[begin.unwrap_or(text.len())..]
}

/// Returns the number of operator messages at the start.
fn lead(elements: &[Element]) -> usize {
    let is_operator = |element: &&Element| element.message.role.is_system();
    elements.iter().take_while(is_operator).count()
}

#[cfg(test)]
#[path = "array_reader_tests.rs"]
mod tests;

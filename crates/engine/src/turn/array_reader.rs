//! Reads whole arrays. An array that begins with the bytes of the last one is read from there on only.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use palimpsest_core::array::Element;
use palimpsest_core::codec::{self, CodecError};
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::json::{self, ObjectFields, RawJson, UnknownFields};
use palimpsest_core::message::{Message, Role};
use palimpsest_core::view::Provider;
use serde_json::value::RawValue;

/// Maximum size of the JSON of all known arrays.
const MAX_KNOWN_BYTES: usize = 128 << 20;
/// Maximum size of a known array.
const MAX_ARRAY_BYTES: usize = 8 << 20;

/// A whole array.
#[derive(Debug, Clone)]
pub struct ReadArray {
    /// The messages, in order. The first one is the system prompt of an Anthropic body.
    pub elements: Vec<Element>,
    /// The messages that were not read before.
    pub new: Vec<Arc<Message>>,
    /// Number of messages at the start that are not in the array: the system prompt of an Anthropic body.
    pub outside: usize,
    /// The fields beside the array. `None` if the JSON is no request body.
    pub body: Option<BodyFields>,
    /// The position of the array in the JSON. `None` if an element is not exactly one message.
    pub place: Option<ArrayPlace>,
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

/// The fields of a request body beside its array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyFields {
    /// The system prompt.
    pub system: Option<RawJson>,
    /// The tool definitions.
    pub tools: Option<RawJson>,
    /// All other fields, such as the model.
    pub options: UnknownFields,
}

/// Reads arrays, and remembers the last one of each session.
#[derive(Debug, Default)]
pub struct ArrayReader(Mutex<KnownArrays>);

#[derive(Debug, Default)]
struct KnownArrays {
    arrays: HashMap<SessionKey, (u64, Arc<KnownArray>)>,
    /// The sessions, ordered by the number of their last use.
    order: BTreeMap<u64, SessionKey>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct KnownArray {
    provider: Provider,
    json: Bytes,
    /// The opening bracket of the array.
    open: usize,
    /// The end of the operator messages, as in [`ArrayPlace`].
    lead_end: usize,
    /// The position after the last element.
    end: usize,
    elements: Vec<Element>,
    /// The message of a system prompt before the array.
    system: Option<Element>,
    /// The fields before the array. `None` if the JSON is no body.
    before: Option<BodyFields>,
}

/// The parts of a JSON text that contains an array.
struct Layout {
    /// The opening bracket of the array.
    open: usize,
    /// The positions after the elements.
    ends: Vec<usize>,
    /// The closing bracket of the array.
    close: usize,
    /// The fields before and after the array. `None` if the JSON is no body.
    fields: Option<[BodyFields; 2]>,
}

impl ArrayReader {
    /// Reads an array in the provider's JSON. `next_id` creates an id for each new message.
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
        let known = self.known(key, provider);
        let extended = known.and_then(|known| known.extend(json, now, next_id));
        let (read, known) = match extended {
            Some((read, known)) => (read, Some(known)),
            None => whole(provider, json, now, next_id)?,
        };
        match known.filter(|known| known.json.len() <= MAX_ARRAY_BYTES) {
            Some(known) => self.lock().insert(key, Arc::new(known)),
            None => self.lock().remove(key),
        }
        Ok(read)
    }

    fn known(&self, key: &SessionKey, provider: Provider) -> Option<Arc<KnownArray>> {
        let known = self.lock();
        let (_, known) = known.arrays.get(key)?;
        (known.provider == provider).then(|| Arc::clone(known))
    }

    fn lock(&self) -> MutexGuard<'_, KnownArrays> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownArrays {
    fn insert(&mut self, key: &SessionKey, known: Arc<KnownArray>) {
        self.remove(key);
        self.uses += 1;
        self.bytes += known.json.len();
        self.order.insert(self.uses, key.clone());
        self.arrays.insert(key.clone(), (self.uses, known));
        while self.bytes > MAX_KNOWN_BYTES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &SessionKey) {
        if let Some((used, known)) = self.arrays.remove(key) {
            self.order.remove(&used);
            self.bytes -= known.json.len();
        }
    }
}

impl KnownArray {
    /// Reads an array that begins with this one. Returns `None` if it does not, or if its end cannot be read alone.
    fn extend(
        &self,
        json: &Bytes,
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Option<(ReadArray, Self)> {
        let (head, rest) = json.split_at_checked(self.end)?;
        // The lead of an array of operator messages can grow, so such an array is read as a whole.
        if head != &self.json[..self.end] || lead(&self.elements) == self.elements.len() {
            return None;
        }
        // The rest after the last known element becomes a document of its own.
        let rest = rest.trim_ascii_start();
        let tail = match rest.split_first()? {
            (b',', tail) => tail,
            (b']', _) => rest,
            _ => return None,
        };
        let open = match &self.before {
            Some(_) => format!("{{\"{}\":[", field_names(self.provider).0),
            None => "[".to_owned(),
        };
        let document = [open.as_bytes(), tail].concat();
        let layout = Layout::of(self.provider, std::str::from_utf8(&document).ok()?)?;
        let messages = codec::read(self.provider, &document, next_id).ok()?;
        let mut new = elements(messages, now);
        let (after, system_after) = match &layout.fields {
            None => (None, false),
            Some([_, after]) => {
                let system = self.provider.is_anthropic() && after.system.is_some();
                (Some(after), system)
            }
        };
        let count = layout.ends.len();
        if new.len() != count + usize::from(system_after) {
            return None;
        }
        let fields = match (&self.before, after) {
            (Some(before), Some(after)) => Some(before.with(after)?),
            (None, None) => None,
            _ => return None,
        };
        let fresh = new
            .iter()
            .map(|element| Arc::clone(&element.message))
            .collect();
        let system = if system_after {
            Some(new.remove(0))
        } else {
            self.system.clone()
        };
        let mut array = self.elements.clone();
        array.extend(new);
        // Positions in the document differ by the bytes before the tail.
        let in_json = |position: usize| json.len() - tail.len() + position - open.len();
        let end = match layout.ends.last() {
            Some(end) => in_json(*end),
            None => self.end,
        };
        let known = Self {
            provider: self.provider,
            json: json.clone(),
            open: self.open,
            lead_end: self.lead_end,
            end,
            elements: array.clone(),
            system: self.system.clone(),
            before: self.before.clone(),
        };
        let outside = usize::from(system.is_some());
        let read = ReadArray {
            elements: system.into_iter().chain(array).collect(),
            new: fresh,
            outside,
            body: fields,
            place: Some(ArrayPlace {
                open: self.open,
                lead_end: self.lead_end,
                close: in_json(layout.close),
            }),
        };
        Some((read, known))
    }
}

impl BodyFields {
    /// Returns both parts together. `None` if both have the same field, which is invalid.
    fn with(&self, other: &Self) -> Option<Self> {
        let both = |one: &Option<RawJson>, other: &Option<RawJson>| match (one, other) {
            (Some(_), Some(_)) => None,
            (one, other) => Some(one.clone().or_else(|| other.clone())),
        };
        Some(Self {
            system: both(&self.system, &other.system)?,
            tools: both(&self.tools, &other.tools)?,
            options: self.options.with_last(&other.options)?,
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
    let elements = elements(codec::read(provider, json, next_id)?, now);
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
        elements,
        outside,
        body: fields.and_then(|[before, after]| before.with(after)),
        place,
    };
    let known = layout.zip(place).and_then(|(layout, place)| {
        layout.ends.last().map(|end| {
            let before = layout.fields.map(|[before, _]| before);
            let has_system = before
                .as_ref()
                .is_some_and(|before| before.system.is_some());
            KnownArray {
                provider,
                json: json.clone(),
                open: place.open,
                lead_end: place.lead_end,
                end: *end,
                elements: read.elements[outside..].to_vec(),
                system: read
                    .elements
                    .first()
                    .filter(|_| has_system && outside > 0)
                    .cloned(),
                before,
            }
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

/// Returns the number of operator messages at the start.
fn lead(elements: &[Element]) -> usize {
    let is_operator = |element: &&Element| element.message.role.is_system();
    elements.iter().take_while(is_operator).count()
}

/// Returns the names of the fields with the conversation and with the system prompt.
const fn field_names(provider: Provider) -> (&'static str, Option<&'static str>) {
    match provider {
        Provider::Anthropic | Provider::Bedrock => ("messages", Some("system")),
        Provider::OpenAi => ("messages", None),
        Provider::OpenAiResponses => ("input", Some("instructions")),
    }
}

impl Layout {
    /// Returns `None` for JSON that contains no array of messages.
    fn of(provider: Provider, text: &str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        if raw.get().starts_with('[') {
            return Self::around(text, raw, None);
        }
        let mut fields = ObjectFields::read(raw).ok()?;
        let (conversation, system) = field_names(provider);
        let array = fields.take(conversation).ok()??;
        let system = match system {
            Some(name) => fields.take(name).ok()?,
            None => None,
        };
        let tools = fields.take("tools").ok()?;
        let at = offset(text, array);
        let [before, after] = fields.rest_around(|raw| offset(text, raw) < at);
        let part = |options, is_part: &dyn Fn(usize) -> bool| {
            let of = |raw: Option<&RawValue>| {
                raw.filter(|raw| is_part(offset(text, raw)))
                    .map(RawJson::of)
            };
            BodyFields {
                system: of(system),
                tools: of(tools),
                options,
            }
        };
        let fields = [
            part(before, &|place| place < at),
            part(after, &|place| place > at),
        ];
        Self::around(text, array, Some(fields))
    }

    fn around(text: &str, array: &RawValue, fields: Option<[BodyFields; 2]>) -> Option<Self> {
        let elements = json::array(array).ok()?;
        let end = |element: &&RawValue| offset(text, element) + element.get().len();
        let open = offset(text, array);
        Some(Self {
            open,
            ends: elements.iter().map(end).collect(),
            close: open + array.get().len() - 1,
            fields,
        })
    }
}

/// Returns the position of a value in the text that contains it.
fn offset(text: &str, part: &RawValue) -> usize {
    part.get().as_ptr().addr() - text.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    const PROVIDERS: [Provider; 3] = [
        Provider::Anthropic,
        Provider::OpenAi,
        Provider::OpenAiResponses,
    ];

    fn key() -> SessionKey {
        SessionKey::parse("projects/p/sessions/s").unwrap()
    }

    fn read(reader: &ArrayReader, provider: Provider, json: &str) -> Result<ReadArray, CodecError> {
        let mut next = 0_u128;
        let mut next_id = || {
            next += 1;
            MessageId::new(Uuid::from_u128(next))
        };
        let json = Bytes::copy_from_slice(json.as_bytes());
        reader.read(
            &key(),
            (provider, &json),
            Timestamp::default(),
            &mut next_id,
        )
    }

    /// Asserts that a reader with known arrays and a new one read the same.
    fn check(reader: &ArrayReader, provider: Provider, json: &str) -> usize {
        let alone = read(&ArrayReader::default(), provider, json);
        let (read, alone) = match (read(reader, provider, json), alone) {
            (Ok(read), Ok(alone)) => (read, alone),
            (read, alone) => {
                assert_eq!(read.unwrap_err(), alone.unwrap_err());
                return 0;
            }
        };
        let content = |array: &ReadArray| {
            let elements = array.elements.iter();
            let content = elements.map(|element| {
                let message = &element.message;
                (
                    element.digests,
                    message.role,
                    message.blocks.clone(),
                    message.extra.clone(),
                )
            });
            content.collect::<Vec<_>>()
        };
        assert_eq!(content(&read), content(&alone), "{json}");
        assert_eq!(
            (read.outside, &read.body, read.place),
            (alone.outside, &alone.body, alone.place),
            "{json}"
        );
        if let Some(place) = read.place {
            let bracket = |position: usize| json.as_bytes()[position];
            assert_eq!((bracket(place.open), bracket(place.close)), (b'[', b']'));
        }
        read.new.len()
    }

    fn message(number: u8) -> Value {
        let role = if number.is_multiple_of(2) {
            "user"
        } else {
            "assistant"
        };
        json!({"role": role, "content": format!("text \u{e9} ] , {number}")})
    }

    fn body(provider: Provider, messages: &[Value], shape: u8) -> String {
        let array = Value::from(messages.to_vec());
        let array = if shape & 1 == 0 {
            array.to_string()
        } else {
            json::pretty_print(&array.to_string())
        };
        let (name, system) = field_names(provider);
        let system = system.map_or(String::new(), |name| format!("\"{name}\":\"be brief\","));
        let tools = r#""tools":[{"name":"t"}],"#;
        match shape >> 1 & 7 {
            0 => array,
            1 => format!("{{{system}{tools}\"{name}\":{array},\"stream\":true}}"),
            2 => format!("{{\"model\":\"m\",\"{name}\":{array} ,{tools}{system}\"n\":1}}"),
            3 => format!("{{{system}\"{name}\":{array},{tools}{system}\"n\":1}}"),
            4 => format!("{{\"{name}\":{array},\"{name}\":{array}}}"),
            5 => format!("{{\"{name}\":{array}}} x"),
            6 => format!("{{\"{name}\":{array},\"type\":\"message\"}}"),
            _ => format!("{{{tools}\"{name}\":{array}}}"),
        }
    }

    proptest! {
        #[test]
        fn known_bytes_change_nothing(
            provider in prop::sample::select(PROVIDERS.to_vec()),
            steps in prop::collection::vec((0_u8..12, any::<u8>(), 0_u8..16), 1..10),
        ) {
            let reader = ArrayReader::default();
            let mut messages: Vec<Value> = Vec::new();
            for (count, edit, shape) in steps {
                if edit < 40 && !messages.is_empty() {
                    let at = usize::from(edit) % messages.len();
                    messages.truncate(at);
                }
                messages.extend((0..count).map(|number| message(number.wrapping_add(edit))));
                check(&reader, provider, &body(provider, &messages, shape));
            }
        }
    }

    #[test]
    fn only_new_messages_are_read_again() {
        for provider in PROVIDERS {
            for shape in [0, 1, 2, 3, 4, 14] {
                let reader = ArrayReader::default();
                let mut messages: Vec<Value> = (0..40).map(message).collect();
                check(&reader, provider, &body(provider, &messages, shape));
                messages.extend((40..43).map(message));
                let again = body(provider, &messages, shape);
                // A system prompt after the array is read again.
                let system = provider == Provider::Anthropic && shape >> 1 == 2;
                let new = check(&reader, provider, &again);
                assert_eq!(new, 3 + usize::from(system), "{provider:?} {shape}");
                let new = check(&reader, provider, &again);
                assert_eq!(new, usize::from(system), "{provider:?} {shape}");
            }
        }
    }

    #[test]
    fn known_arrays_are_bounded() {
        let reader = ArrayReader::default();
        let text = "x".repeat(MAX_ARRAY_BYTES / 2);
        let json = Bytes::from(json!([{"role": "user", "content": text}]).to_string());
        for number in 0..40 {
            let key = SessionKey::parse(&format!("projects/p/sessions/{number}")).unwrap();
            let mut next_id = || MessageId::new(Uuid::nil());
            let source = (Provider::Anthropic, &json);
            reader
                .read(&key, source, Timestamp::default(), &mut next_id)
                .unwrap();
            let known = reader.lock();
            assert!(known.bytes <= MAX_KNOWN_BYTES);
            assert_eq!(known.arrays.len(), known.order.len());
        }
        assert!(reader.lock().arrays.len() > 3);
    }
}

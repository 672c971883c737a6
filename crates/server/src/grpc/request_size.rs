//! Estimates the decoded size of a request before it is decoded. Two bytes on the wire can become a struct of hundreds
//! of bytes. The estimate takes one pass over the bytes and uses the contract's descriptors.

use std::collections::HashMap;

use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

/// The approximate size of an empty `String`, `Bytes` or `Vec`, and of a map entry, in bytes.
const HEAP_VALUE_BYTES: usize = 32;
const MAP_ENTRY_BYTES: usize = 96;
/// The size of a scalar in an `Option`, in bytes.
const SCALAR_BYTES: usize = 16;
/// The growth factor of a `Vec`, whose capacity can be twice its length.
const LIST_CAPACITY_FACTOR: usize = 2;
/// The maximum nesting depth that `prost` decodes.
const MAX_DEPTH: usize = 100;
/// The names of the fields that contain the session or project of a request.
const NAME_FIELDS: [&str; 2] = ["session", "parent"];

/// The request messages of all methods.
#[derive(Debug)]
pub(super) struct RequestShapes {
    methods: HashMap<String, RequestShape>,
    messages: Vec<MessageFields>,
}

/// The request message of one method.
#[derive(Debug, Clone)]
pub(super) struct RequestShape {
    message: usize,
    /// The path of field numbers to the resource name. Empty if there is none.
    name_path: Vec<u32>,
}

#[derive(Debug, Default)]
struct MessageFields {
    /// The size of the struct, in bytes.
    size: usize,
    fields: HashMap<u32, FieldInfo>,
}

#[derive(Debug, Clone, Copy)]
struct FieldInfo {
    is_list: bool,
    field_type: FieldType,
}

#[derive(Debug, Clone, Copy)]
enum FieldType {
    Scalar,
    Bytes,
    Message(usize),
}

/// The decoded request would exceed the memory limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestTooComplex;

impl RequestShapes {
    /// Builds the shapes of all methods from the contract's descriptors.
    pub(super) fn new() -> Self {
        let mut shapes = Self {
            methods: HashMap::new(),
            messages: Vec::new(),
        };
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET);
        let pool = pool.expect("the contract's descriptors are in the binary");
        // Message types occur in several methods, so each of their shapes is built once.
        let mut known = HashMap::new();
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let input = method.input();
                let shape = RequestShape {
                    message: shapes.add(&input, &mut known),
                    name_path: name_path_of(&input),
                };
                shapes.methods.insert(path, shape);
            }
        }
        shapes
    }

    /// Returns the shape of a method's request by its path.
    pub(super) fn of(&self, path: &str) -> Option<&RequestShape> {
        self.methods.get(path)
    }

    fn add(&mut self, message: &MessageDescriptor, known: &mut HashMap<String, usize>) -> usize {
        if let Some(index) = known.get(message.full_name()) {
            return *index;
        }
        let index = self.messages.len();
        // Registered before its fields are visited, because messages can contain themselves.
        known.insert(message.full_name().to_owned(), index);
        self.messages.push(MessageFields::default());
        let field = |field: FieldDescriptor| {
            let is = match field.kind() {
                Kind::Message(inner) => FieldType::Message(self.add(&inner, known)),
                Kind::String | Kind::Bytes => FieldType::Bytes,
                _ => FieldType::Scalar,
            };
            let is_list = field.is_list() || field.is_map();
            (
                field.number(),
                FieldInfo {
                    is_list,
                    field_type: is,
                },
            )
        };
        let of = message.fields().map(field).collect();
        self.messages[index] = MessageFields {
            size: size(message, &mut Vec::new()),
            fields: of,
        };
        index
    }

    /// Estimates the size of a decoded message, in bytes. Fails as soon as the estimate exceeds `limit`.
    ///
    /// A malformed message ends the estimate without an error, because the decoder rejects it.
    pub(super) fn decoded_size(
        &self,
        shape: &RequestShape,
        message: &[u8],
        limit: usize,
    ) -> Result<usize, RequestTooComplex> {
        let mut count = DecodeEstimator {
            shapes: self,
            bytes: 0,
            limit,
        };
        count.add(self.messages[shape.message].size)?;
        count.message(shape.message, message, 0)?;
        Ok(count.bytes)
    }
}

/// The state of one pass over a message.
struct DecodeEstimator<'a> {
    shapes: &'a RequestShapes,
    bytes: usize,
    limit: usize,
}

impl DecodeEstimator<'_> {
    fn add(&mut self, bytes: usize) -> Result<(), RequestTooComplex> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            return Err(RequestTooComplex);
        }
        Ok(())
    }

    fn message(
        &mut self,
        index: usize,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), RequestTooComplex> {
        // The decoder rejects deeper messages. The limit also bounds the recursion of this function.
        if depth > MAX_DEPTH {
            return Ok(());
        }
        let shapes = self.shapes;
        let fields = &shapes.messages[index];
        for (number, value) in WireFields(bytes) {
            // The decoder skips unknown fields without allocating memory.
            let Some(field) = fields.fields.get(&number) else {
                continue;
            };
            match (field.field_type, value) {
                (FieldType::Message(inner), Some(value)) => {
                    let size = shapes.messages[inner].size;
                    let entry = if field.is_list {
                        LIST_CAPACITY_FACTOR
                    } else {
                        1
                    };
                    self.add(size * entry)?;
                    self.message(inner, value, depth + 1)?;
                }
                (FieldType::Bytes, Some(value)) => {
                    let entry = if field.is_list {
                        LIST_CAPACITY_FACTOR * HEAP_VALUE_BYTES
                    } else {
                        0
                    };
                    self.add(value.len() + entry)?;
                }
                // A packed list: each element has at least one byte on the wire.
                (FieldType::Scalar, Some(value)) => {
                    // A scalar in a list is not in an `Option`, so it needs half of `SCALAR_BYTES`.
                    self.add(value.len() * LIST_CAPACITY_FACTOR * SCALAR_BYTES / 2)?;
                }
                (FieldType::Scalar, None) if field.is_list => {
                    self.add(LIST_CAPACITY_FACTOR * SCALAR_BYTES)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Iterates over the fields of a message: field number, and contents for length-delimited fields.
struct WireFields<'a>(&'a [u8]);

impl<'a> Iterator for WireFields<'a> {
    type Item = (u32, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok()?;
        let value = match tag & 7 {
            0 => {
                self.varint()?;
                None
            }
            1 => self.bytes(8).map(|_| None)?,
            5 => self.bytes(4).map(|_| None)?,
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Some(self.bytes(len)?)
            }
            // The contract has no groups. The decoder skips a group with its fields, which must not be read as fields
            // of this message: one of them could name another project, whose quota would pay for the call.
            3 => self.skip_group().map(|()| None)?,
            _ => return None,
        };
        Some((number, value))
    }
}

impl<'a> WireFields<'a> {
    /// Skips the rest of a group and the groups inside it.
    fn skip_group(&mut self) -> Option<()> {
        let mut open = 1_usize;
        while open > 0 {
            match self.varint()? & 7 {
                0 => self.varint().map(drop)?,
                1 => self.bytes(8).map(drop)?,
                2 => {
                    let len = usize::try_from(self.varint()?).ok()?;
                    self.bytes(len)?;
                }
                3 => open += 1,
                4 => open -= 1,
                5 => self.bytes(4).map(drop)?,
                _ => return None,
            }
        }
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        // 64 bits in groups of seven have at most ten bytes.
        for (at, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).ok()?)?;
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl RequestShape {
    /// Returns the resource name of a request, which may be truncated. Returns an empty string if the name is not
    /// found.
    pub(super) fn resource_name<'a>(&self, message: &'a [u8]) -> &'a str {
        let Some((last, outer)) = self.name_path.split_last() else {
            return "";
        };
        let mut messages = vec![message];
        for number in outer {
            messages = messages.iter().flat_map(|at| values(at, *number)).collect();
        }
        // As in the decoder, the last occurrence wins, and repeated occurrences of the outer message are merged.
        let names = messages.iter().flat_map(|at| values(at, *last));
        let name = names.last().map(str::from_utf8);
        name.and_then(Result::ok).unwrap_or("")
    }
}

/// Returns the contents of a field's occurrences.
fn values(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let fields = WireFields(message).filter(move |(found, _)| *found == number);
    fields.filter_map(|(_, value)| value)
}

fn name_path_of(input: &MessageDescriptor) -> Vec<u32> {
    for name in NAME_FIELDS {
        let Some(field) = input.get_field_by_name(name) else {
            continue;
        };
        match field.kind() {
            Kind::String => return vec![field.number()],
            // An update contains its session as a message. A creation does too, but has a `parent` as well.
            Kind::Message(inner) if input.get_field_by_name("parent").is_none() => {
                let name = inner.get_field_by_name("name");
                return name.map_or_else(Vec::new, |name| vec![field.number(), name.number()]);
            }
            _ => {}
        }
    }
    Vec::new()
}

/// Returns the size of a message's struct. Recursive messages are boxed and count as a pointer.
fn size(message: &MessageDescriptor, within: &mut Vec<String>) -> usize {
    // prost boxes recursive fields, so the recursion ends here.
    if within.iter().any(|name| name == message.full_name()) {
        return SCALAR_BYTES;
    }
    within.push(message.full_name().to_owned());
    let mut of = |field: &FieldDescriptor| match field.kind() {
        _ if field.is_map() => MAP_ENTRY_BYTES,
        _ if field.is_list() => HEAP_VALUE_BYTES,
        Kind::String | Kind::Bytes => HEAP_VALUE_BYTES,
        // The field is an `Option`, which adds a tag.
        Kind::Message(inner) => size(&inner, within) + SCALAR_BYTES / 2,
        _ => SCALAR_BYTES,
    };
    let plain = message.fields().filter(|field| {
        let oneof = field.containing_oneof();
        oneof.is_none_or(|oneof| oneof.is_synthetic())
    });
    let mut total: usize = plain.map(|field| of(&field)).sum();
    // A oneof becomes an enum, which is as large as its largest variant plus a tag.
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let largest = oneof.fields().map(|field| of(&field)).max();
        total += largest.unwrap_or(0) + SCALAR_BYTES / 2;
    }
    within.pop();
    total
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::{
        AppendMessagesRequest, MessageInput, Session, UpdateSessionRequest,
    };
    use prost::Message as _;

    use super::*;

    const APPEND: &str = "/palimpsest.context.v1.ContextService/AppendMessages";

    #[test]
    fn empty_entries_count_with_their_decoded_size() {
        let shapes = RequestShapes::new();
        let shape = shapes.of(APPEND).unwrap();
        let request = AppendMessagesRequest {
            session: "projects/p/sessions/s".into(),
            messages: vec![MessageInput::default(); 1_000],
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        let decoded = shapes.decoded_size(shape, &bytes, usize::MAX).unwrap();
        let real = 1_000 * size_of::<MessageInput>();
        assert!((real / 2..real * 6).contains(&decoded), "{decoded}, {real}");
        assert_eq!(
            shapes.decoded_size(shape, &bytes, 100_000),
            Err(RequestTooComplex)
        );
        assert_eq!(shape.resource_name(&bytes), "projects/p/sessions/s");
    }

    #[test]
    fn the_resource_name_is_found_in_every_request() {
        let shapes = RequestShapes::new();
        for (path, shape) in &shapes.methods {
            // This call is about all projects of a credential.
            let names_none = path.ends_with("/ListProjects");
            assert_eq!(shape.name_path.is_empty(), names_none, "{path}");
        }
        let update = shapes.of("/palimpsest.context.v1.SessionService/UpdateSession");
        let request = UpdateSessionRequest {
            session: Some(Session {
                name: "projects/p/sessions/s".into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(
            update.unwrap().resource_name(&request.encode_to_vec()),
            "projects/p/sessions/s"
        );
    }

    #[test]
    fn resource_names_inside_groups_are_ignored() {
        let shapes = RequestShapes::new();
        let shape = shapes.of(APPEND).unwrap();
        let named = |name: &str| {
            let request = AppendMessagesRequest {
                session: name.into(),
                ..Default::default()
            };
            request.encode_to_vec()
        };
        // The tags of a group with the unknown field number 1011: `1011 << 3 | 3` and `1011 << 3 | 4` as varints.
        let (start, end) = ([0x9b, 0x3f], [0x9c, 0x3f]);
        let mut bytes = named("projects/mine/sessions/s");
        bytes.extend(start);
        bytes.extend(start);
        bytes.extend(named("projects/other/sessions/s"));
        bytes.extend(end);
        bytes.extend(named("projects/other/sessions/s"));
        bytes.extend(end);
        // The decoder agrees.
        let decoded = AppendMessagesRequest::decode(&*bytes).unwrap();
        assert_eq!(decoded.session, "projects/mine/sessions/s");
        assert_eq!(shape.resource_name(&bytes), decoded.session);
    }

    #[test]
    fn the_resource_name_of_a_message_split_into_two_parts_is_found() {
        let shapes = RequestShapes::new();
        let update = shapes.of("/palimpsest.context.v1.SessionService/UpdateSession");
        let part = |session: Session| UpdateSessionRequest {
            session: Some(session),
            ..Default::default()
        };
        let name = "projects/p/sessions/s";
        let mut bytes = part(Session {
            name: name.into(),
            ..Default::default()
        })
        .encode_to_vec();
        bytes.extend(part(Session::default()).encode_to_vec());
        let decoded = UpdateSessionRequest::decode(&*bytes).unwrap();
        assert_eq!(decoded.session.unwrap().name, name);
        assert_eq!(update.unwrap().resource_name(&bytes), name);
    }

    #[test]
    fn the_size_estimate_accepts_malformed_bytes() {
        let shapes = RequestShapes::new();
        let shape = shapes.of(APPEND).unwrap();
        for len in 0..300 {
            let noise: Vec<u8> = (0..len).map(|n: u32| (n * 37 % 251) as u8).collect();
            assert!(shapes.decoded_size(shape, &noise, 1 << 20).is_ok());
            shape.resource_name(&noise);
        }
        assert!(shapes.decoded_size(shape, &[0xff; 64], 1 << 20).is_ok());
    }
}

//! Generates requests from the contract's descriptors and a pool of values.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    MethodDescriptor, Value,
};

/// Maximum depth to which messages are filled.
const MAX_DEPTH: usize = 7;
/// Maximum number of values that are collected from replies.
const MAX_LEARNT: usize = 256;
/// Longer texts are never names.
const MAX_LEARNT_BYTES: usize = 400;

/// Texts that refer to existing resources or have a meaning.
const TEXTS: &[&str] = &[
    "projects/p/sessions/a",
    "projects/p/sessions/b",
    "projects/q/sessions/a",
    "projects/p",
    "call_1",
    "call_2",
    "r1",
    "model-a",
    "Read",
    "Bash",
    "/src/main.rs",
    "",
    "*",
    "title,policy_overrides",
    "key",
    "some words that a person may say",
];

/// Payloads that are messages, and one that is almost one.
const PAYLOADS: &[&str] = &[
    r#"{"role":"user","content":"do it"}"#,
    r#"{"role":"assistant","content":[{"type":"text","text":"I will"},{"type":"tool_use","id":"call_1","name":"Read","input":{"file_path":"/src/main.rs"}}]}"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"fn main() {}"}]}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"call_2","name":"Bash","input":{"command":"ls"}}]}"#,
    r#"{"role":"assistant","content":"done"}"#,
    r#"{"role":"tool","tool_call_id":"call_2","content":"a b c"}"#,
    r#"[{"role":"user","content":"one"},{"role":"assistant","content":"two"}]"#,
    r#"{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}"#,
    r#"{"role":"user","content":[{"type":"text"}]}"#,
];

/// A call to make.
pub(super) struct Call {
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    /// The request in a printable form.
    pub(super) request: DynamicMessage,
    pub(super) reply: MessageDescriptor,
}

/// Generates requests and collects values from replies.
pub(super) struct Requests {
    methods: Vec<MethodDescriptor>,
    texts: Vec<String>,
    bytes: Vec<Bytes>,
}

impl Requests {
    pub(super) fn new() -> Self {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let ours = ["AdminService", "ContextService", "SessionService"];
        let services = pool.services().filter(|one| ours.contains(&one.name()));
        let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
        Self {
            methods: methods.collect(),
            texts: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Generates the next call.
    pub(super) fn next(&self, u: &mut Unstructured<'_>) -> Result<Call> {
        let method = u.choose(&self.methods)?;
        let request = self.message(u, &method.input(), 0)?;
        Ok(Call {
            path: format!("/{}/{}", method.parent_service().full_name(), method.name()),
            body: request.encode_to_vec(),
            request,
            reply: method.output(),
        })
    }

    /// Collects texts and bytes of a reply that later requests may contain.
    pub(super) fn learn(&mut self, reply: &MessageDescriptor, body: &Bytes) {
        let message = DynamicMessage::decode(reply.clone(), body.clone());
        self.keep_message(&message.expect("a reply is what the contract says"));
    }

    fn keep_message(&mut self, message: &DynamicMessage) {
        for (_, value) in message.fields() {
            self.keep(value);
        }
    }

    fn keep(&mut self, value: &Value) {
        let is_full = self.texts.len() + self.bytes.len() >= MAX_LEARNT;
        match value {
            Value::Message(message) => self.keep_message(message),
            Value::List(items) => items.iter().for_each(|item| self.keep(item)),
            Value::String(text) if !is_full && is_a_name(text.len()) => {
                self.texts.push(text.clone());
            }
            Value::Bytes(bytes) if !is_full && is_a_name(bytes.len()) => {
                self.bytes.push(bytes.clone());
            }
            _ => {}
        }
    }

    fn message(
        &self,
        u: &mut Unstructured<'_>,
        descriptor: &MessageDescriptor,
        depth: usize,
    ) -> Result<DynamicMessage> {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields() {
            // The first field of a request names the session, so it is almost always set. Other fields are often left
            // out.
            let wanted = match (depth, field.number()) {
                (0, 1) => u.ratio(31, 32)?,
                (0, _) => u.ratio(1, 3)?,
                _ => u.ratio(1, 2)?,
            };
            if wanted && depth < MAX_DEPTH {
                let value = self.field(u, &field, depth)?;
                message.set_field(&field, value);
            }
        }
        Ok(message)
    }

    fn field(
        &self,
        u: &mut Unstructured<'_>,
        field: &FieldDescriptor,
        depth: usize,
    ) -> Result<Value> {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else {
                return Ok(Value::Map(std::collections::HashMap::new()));
            };
            let key = MapKey::String(self.text(u)?);
            let value = self.value(u, &entry.map_entry_value_field(), depth)?;
            return Ok(Value::Map([(key, value)].into()));
        }
        if field.cardinality() == Cardinality::Repeated {
            let count = u.int_in_range(1..=3)?;
            let items = (0..count).map(|_| self.value(u, field, depth));
            return Ok(Value::List(items.collect::<Result<_>>()?));
        }
        self.value(u, field, depth)
    }

    fn value(
        &self,
        u: &mut Unstructured<'_>,
        field: &FieldDescriptor,
        depth: usize,
    ) -> Result<Value> {
        Ok(match field.kind() {
            Kind::Double => Value::F64(u.arbitrary()?),
            Kind::Float => Value::F32(u.arbitrary()?),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(small(u)?),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(small(u)?.into()),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(small(u)?.unsigned_abs()),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(small(u)?.unsigned_abs().into()),
            Kind::Bool => Value::Bool(u.arbitrary()?),
            Kind::String => Value::String(self.text(u)?),
            Kind::Bytes => Value::Bytes(self.some_bytes(u)?),
            Kind::Message(inner) => Value::Message(self.message(u, &inner, depth + 1)?),
            Kind::Enum(of) => {
                let values: Vec<_> = of.values().map(|value| value.number()).collect();
                // Newer clients can send values that this contract lacks.
                let number = if u.ratio(1, 16)? {
                    u.arbitrary()?
                } else {
                    *u.choose(&values)?
                };
                Value::EnumNumber(number)
            }
        })
    }

    fn text(&self, u: &mut Unstructured<'_>) -> Result<String> {
        Ok(match u.int_in_range(0..=7)? {
            0..=3 => (*u.choose(TEXTS)?).to_owned(),
            4..=6 if !self.texts.is_empty() => u.choose(&self.texts)?.clone(),
            _ => u.arbitrary()?,
        })
    }

    fn some_bytes(&self, u: &mut Unstructured<'_>) -> Result<Bytes> {
        Ok(match u.int_in_range(0..=7)? {
            0..=4 => Bytes::from_static(u.choose(PAYLOADS)?.as_bytes()),
            5 | 6 if !self.bytes.is_empty() => u.choose(&self.bytes)?.clone(),
            _ => u.arbitrary::<Vec<u8>>()?.into(),
        })
    }
}

fn is_a_name(len: usize) -> bool {
    (1..=MAX_LEARNT_BYTES).contains(&len)
}

/// Small numbers often refer to existing objects. Large numbers test bounds.
fn small(u: &mut Unstructured<'_>) -> Result<i32> {
    Ok(match u.int_in_range(0..=3)? {
        0 | 1 => u.int_in_range(0..=8)?,
        2 => u.int_in_range(0..=200_000)?,
        _ => u.arbitrary()?,
    })
}

//! The description of the REST API as an `OpenAPI` document, from the descriptors and comments of the contract.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind as Of, MessageDescriptor,
};
use serde_json::{Map, Value, json};

use crate::json::{
    Cardinality, Field, Form, Kind, Schema, WellKnown, is_left_out, shown_enum_name,
};
use crate::rest::routes::{Parameters, ROUTES, Resource, Route};
use crate::service::{BuildError, descriptors};

/// The package of the contract, which the names of schemas leave out.
const PACKAGE: &str = "palimpsest.context.v1.";

/// Returns the description of the REST API.
pub fn document() -> Result<Value, BuildError> {
    let pool = descriptors()?;
    let schema = Schema::new(&pool)?;
    Ok(of_contract(&pool, &schema))
}

pub(crate) fn of_contract(pool: &DescriptorPool, schema: &Schema) -> Value {
    let writer = Writer {
        pool,
        schema,
        inputs: BTreeSet::new(),
        schemas: BTreeMap::new(),
    };
    writer.document()
}

struct Writer<'a> {
    pool: &'a DescriptorPool,
    schema: &'a Schema,
    /// The messages that requests contain. Their fields are optional.
    inputs: BTreeSet<String>,
    schemas: BTreeMap<String, Value>,
}

impl Writer<'_> {
    fn document(mut self) -> Value {
        let rpcs: Vec<_> = ROUTES
            .iter()
            .filter_map(|route| Some((route, self.rpc(route)?)))
            .collect();
        for (_, rpc) in &rpcs {
            self.collect_inputs(&rpc.input());
        }
        let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (route, rpc) in &rpcs {
            let operation = self.operation(route, rpc);
            let path = paths.entry(route.template()).or_default();
            path.insert(route.method.name().to_ascii_lowercase(), operation);
        }
        let mut schemas = std::mem::take(&mut self.schemas);
        schemas.insert("Error".to_owned(), error_schema());
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Palimpsest",
                "version": env!("CARGO_PKG_VERSION"),
                "summary": "The context of LLM agents: whole conversations in, the array for the next model call out.",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "/", "description": "The server that serves this document" }],
            // The empty alternative is for servers without authentication.
            "security": [{ "key": [] }, {}],
            "tags": [
                { "name": "context", "description": "The calls of an agent's loop" },
                { "name": "sessions", "description": "Sessions, their transcripts and their events" },
            ],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "key": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "A key of Palimpsest or a JWT. Not needed if authentication is off.",
                    },
                },
            },
        })
    }

    fn rpc(&self, route: &Route) -> Option<prost_reflect::MethodDescriptor> {
        let service = self.pool.get_service_by_name(route.service)?;
        service.methods().find(|method| method.name() == route.rpc)
    }

    /// Collects a message and all messages in it.
    fn collect_inputs(&mut self, message: &MessageDescriptor) {
        if !self.inputs.insert(message.full_name().to_owned()) {
            return;
        }
        for field in message.fields() {
            if let Of::Message(inner) = field.kind() {
                self.collect_inputs(&inner);
            }
        }
    }

    fn operation(&mut self, route: &Route, rpc: &prost_reflect::MethodDescriptor) -> Value {
        let (input, output) = (rpc.input(), rpc.output());
        let description = comment_of(&rpc.parent_service().parent_file(), rpc.path());
        let mut parameters = vec![path_parameter("project", "The id of the project.")];
        if route.resource == Resource::Session {
            parameters.push(path_parameter("session", "The id of the session."));
        }
        // `session.name` of `UpdateSession` is in the message of its field `session`.
        let name = route.name_field.split('.').next().unwrap_or_default();
        let mut operation = Map::new();
        match route.parameters {
            Parameters::Query => parameters.extend(self.query_parameters(&input, name, "")),
            Parameters::Body => {
                let body = self.message(&input, Some(name));
                // A call without a body has an empty message.
                let schema = &self.schemas[&schema_name(input.full_name())];
                let is_required = schema.get("required").is_some();
                let body = json_body(&body, is_required);
                operation.insert("requestBody".to_owned(), body);
            }
            Parameters::ModelRequest => {
                let options = self.message(&input, Some(name));
                let body = json_body(&model_request(&options), true);
                operation.insert("requestBody".to_owned(), body);
            }
        }
        let output = self.message(&output, None);
        let content = if rpc.is_server_streaming() {
            json!({
                "application/x-ndjson": { "schema": output },
                "text/event-stream": { "schema": output },
            })
        } else {
            json!({ "application/json": { "schema": output } })
        };
        let tag = if route.service.ends_with("ContextService") {
            "context"
        } else {
            "sessions"
        };
        operation.insert("operationId".to_owned(), lower_first(route.rpc).into());
        operation.insert("summary".to_owned(), first_sentence(&description).into());
        operation.insert("description".to_owned(), description.into());
        operation.insert("tags".to_owned(), json!([tag]));
        operation.insert("parameters".to_owned(), parameters.into());
        let error = json!({ "application/json": { "schema": reference("Error") } });
        operation.insert(
            "responses".to_owned(),
            json!({
                "200": { "description": "The response.", "content": content },
                "4XX": { "description": "The request was rejected.", "content": error },
                "5XX": { "description": "The service cannot answer.", "content": error },
            }),
        );
        operation.into()
    }

    /// Returns the parameters of a query. Fields of messages have names such as `filter.text`.
    fn query_parameters(
        &mut self,
        message: &MessageDescriptor,
        left_out: &str,
        prefix: &str,
    ) -> Vec<Value> {
        let mut parameters = Vec::new();
        for (descriptor, field) in self.fields(message) {
            if field.is_hidden || (prefix.is_empty() && field.name == left_out) {
                continue;
            }
            let name = format!("{prefix}{}", field.name(Form::Plain));
            if let (Of::Message(inner), Kind::Message(index)) = (descriptor.kind(), field.kind) {
                if matches!(field.cardinality, Cardinality::Map(_)) {
                    // Names of entries have no description in a query.
                    continue;
                }
                // A query has no nested values, so `filter` becomes `filter.text` and its other fields.
                if self.schema.message(index).well_known.is_none() {
                    parameters.extend(self.query_parameters(&inner, "", &format!("{name}.")));
                    continue;
                }
            }
            let description = comment_of(&message.parent_file(), descriptor.path());
            let is_required = is_required(&description);
            let schema = self.value(&descriptor, &field);
            parameters.push(json!({
                "name": name,
                "in": "query",
                "required": is_required,
                "description": description,
                "schema": schema,
            }));
        }
        parameters
    }

    /// Returns the fields of a message in the order of their numbers.
    fn fields(&self, message: &MessageDescriptor) -> Vec<(FieldDescriptor, Field)> {
        let Some(index) = self.schema.find(message.full_name()) else {
            return Vec::new();
        };
        let fields = &self.schema.message(index).fields;
        let fields = fields
            .iter()
            .filter_map(|field| Some((message.get_field(field.number)?, field.clone())));
        fields.collect()
    }

    /// Returns a reference to the schema of a message, and adds the schema if it is new. `left_out` is in the path.
    fn message(&mut self, message: &MessageDescriptor, left_out: Option<&str>) -> Value {
        let name = schema_name(message.full_name());
        if !self.schemas.contains_key(&name) {
            // Registered before its fields are visited, because messages can contain themselves.
            self.schemas.insert(name.clone(), Value::Null);
            let schema = self.object(message, left_out);
            self.schemas.insert(name.clone(), schema);
        }
        reference(&name)
    }

    fn object(&mut self, message: &MessageDescriptor, left_out: Option<&str>) -> Value {
        let is_input = self.inputs.contains(message.full_name());
        let mut properties = Map::new();
        let mut required = Vec::new();
        self.add_properties(message, (left_out, ""), (&mut properties, &mut required));
        let mut schema = json!({
            "type": "object",
            "description": comment_of(&message.parent_file(), message.path()),
            "properties": properties,
        });
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        // Responses may get further fields in later versions, so only requests are closed.
        if is_input {
            schema["additionalProperties"] = false.into();
        }
        schema
    }

    fn add_properties(
        &mut self,
        message: &MessageDescriptor,
        (left_out, inline): (Option<&str>, &str),
        (properties, required): (&mut Map<String, Value>, &mut Vec<Value>),
    ) {
        let is_input = self.inputs.contains(message.full_name());
        for (descriptor, field) in self.fields(message) {
            // `UpdateSession` has a message in its field `session`, and only the name in it is a part of the path.
            let is_in_path = left_out == Some(&field.name) && field.name != "session"
                || left_out == Some(&field.name) && !matches!(field.kind, Kind::Message(_));
            if field.is_hidden || is_in_path || is_left_out(inline, &field.name) {
                continue;
            }
            let description = comment_of(&message.parent_file(), descriptor.path());
            let full_name = descriptor.full_name().to_owned();
            if let (true, Of::Message(inner)) = (field.is_inline, descriptor.kind()) {
                self.add_properties(&inner, (None, &full_name), (properties, required));
                continue;
            }
            let name = field.name(Form::Plain).to_owned();
            // The plain form leaves out JSON that is absent, and enums that say nothing.
            let can_be_left_out = matches!(field.kind, Kind::Json | Kind::Enum(_));
            let is_present = match field.cardinality {
                Cardinality::Optional => false,
                Cardinality::Implicit => !can_be_left_out,
                Cardinality::List | Cardinality::Map(_) => true,
            };
            if if is_input {
                is_required(&description)
            } else {
                is_present
            } {
                required.push(name.clone().into());
            }
            let mut schema = self.value(&descriptor, &field);
            if is_input && is_required(&description) {
                forbid_empty(&mut schema);
            }
            // A description beside a reference is permitted since OpenAPI 3.1.
            schema["description"] = description.into();
            properties.insert(name, schema);
        }
    }

    fn value(&mut self, descriptor: &FieldDescriptor, field: &Field) -> Value {
        let of = match field.cardinality {
            Cardinality::Map(_) => match descriptor.kind() {
                Of::Message(entry) => entry.map_entry_value_field().kind(),
                other => other,
            },
            _ => descriptor.kind(),
        };
        let one = self.kind(field.kind, &of);
        match field.cardinality {
            Cardinality::Implicit | Cardinality::Optional => one,
            Cardinality::List => json!({ "type": "array", "items": one }),
            Cardinality::Map(_) => json!({ "type": "object", "additionalProperties": one }),
        }
    }

    fn kind(&mut self, kind: Kind, of: &Of) -> Value {
        match kind {
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                json!({ "type": "integer", "format": "int32" })
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!({ "type": "integer", "format": "int64" })
            }
            Kind::Uint32 | Kind::Fixed32 => {
                json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
            }
            Kind::Uint64 | Kind::Fixed64 => {
                json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
            }
            Kind::Float | Kind::Double => json!({ "type": "number", "format": "double" }),
            Kind::String => json!({ "type": "string" }),
            Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Kind::Json => json!({}),
            Kind::Enum(_) => match of {
                Of::Enum(of) => self.enumeration(of),
                _ => json!({ "type": "string" }),
            },
            Kind::Message(index) => match (self.schema.message(index).well_known, of) {
                (Some(WellKnown::Timestamp), _) => {
                    json!({ "type": "string", "format": "date-time" })
                }
                (Some(WellKnown::Duration), _) => {
                    json!({ "type": "string", "pattern": r"^-?\d+(\.\d{1,9})?s$" })
                }
                (Some(WellKnown::FieldMask), _) => json!({ "type": "string" }),
                (None, Of::Message(of)) => self.message(of, None),
                (Some(WellKnown::Any) | None, _) => json!({ "type": "object" }),
            },
        }
    }

    fn enumeration(&mut self, of: &EnumDescriptor) -> Value {
        let name = schema_name(of.full_name());
        let file = of.parent_file();
        let description = || {
            let mut text = comment_of(&file, of.path());
            for value in of.values().filter(|value| value.number() != 0) {
                let comment = comment_of(&file, value.path());
                let name = plain_value(of, value.name());
                text.extend([
                    "
- `", &name, "`: ", &comment,
                ]);
            }
            text
        };
        let schema = || {
            let names = of.values().map(|value| plain_value(of, value.name()));
            // The plain form omits an unspecified value, so it is no choice.
            let names: Vec<_> = names.filter(|name| name != "unspecified").collect();
            json!({ "type": "string", "enum": names, "description": description() })
        };
        self.schemas.entry(name.clone()).or_insert_with(schema);
        reference(&name)
    }
}

fn plain_value(of: &EnumDescriptor, name: &str) -> String {
    shown_enum_name(&crate::json::enum_prefix(of.name()), name)
}

fn schema_name(full_name: &str) -> String {
    full_name
        .strip_prefix(PACKAGE)
        .unwrap_or(full_name)
        .to_owned()
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn json_body(schema: &Value, is_required: bool) -> Value {
    json!({ "required": is_required, "content": { "application/json": { "schema": schema } } })
}

fn path_parameter(name: &str, description: &str) -> Value {
    let pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": { "type": "string", "pattern": pattern },
    })
}

/// The body of a model request, as agents send it to their provider.
fn model_request(options: &Value) -> Value {
    let list =
        |description: &str| json!({ "type": "array", "items": {}, "description": description });
    json!({
        "type": "object",
        "description": "The body of a model request of any supported API, with the whole conversation.",
        "properties": {
            "messages": list("The conversation, for Anthropic Messages and OpenAI Chat Completions."),
            "input": list("The conversation, for OpenAI Responses."),
            "system": { "description": "The system prompt, for Anthropic Messages." },
            "instructions": { "description": "The system prompt, for OpenAI Responses." },
            "tools": list("The definitions of the tools."),
            "model": { "type": "string", "description": "The model that receives the view." },
            "palimpsest": options,
        },
        "anyOf": [{ "required": ["messages"] }, { "required": ["input"] }],
    })
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "description": "An error: `google.rpc.Status` as JSON.",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "status", "message", "details"],
                "properties": {
                    "code": { "type": "integer", "description": "The HTTP status." },
                    "status": { "type": "string", "description": "The name of the gRPC code, such as `NOT_FOUND`." },
                    "message": { "type": "string", "description": "What failed, why, and what to do." },
                    "details": {
                        "type": "array",
                        "description": "Details for programs. `google.rpc.ErrorInfo` has the reason, and \
                                        `google.rpc.RetryInfo` the time after which the call can be repeated.",
                        "items": {
                            "type": "object",
                            "required": ["@type"],
                            "properties": { "@type": { "type": "string" } },
                        },
                    },
                },
            },
        },
    })
}

/// Forbids the empty string and the empty list, which mean that a required field is missing.
fn forbid_empty(schema: &mut Value) {
    match schema["type"].as_str() {
        Some("string") => schema["minLength"] = 1.into(),
        Some("array") => schema["minItems"] = 1.into(),
        _ => {}
    }
}

/// Returns true for a field whose comment starts with `REQUIRED`.
fn is_required(comment: &str) -> bool {
    comment.starts_with("REQUIRED.")
}

fn lower_first(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_ascii_lowercase().to_string() + characters.as_str()
    })
}

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").or_else(|| text.find(".\n"));
    end.map_or(text, |end| &text[..end])
        .trim_end_matches('.')
        .to_owned()
}

/// Returns the comment of a declaration, with its lines joined.
fn comment_of(file: &FileDescriptor, path: &[i32]) -> String {
    let Some(info) = &file.file_descriptor_proto().source_code_info else {
        return String::new();
    };
    let location = info.location.iter().find(|location| location.path == path);
    let comment = location
        .and_then(|location| location.leading_comments.as_deref())
        .unwrap_or_default();
    let mut text = String::new();
    for line in comment.lines().map(str::trim) {
        let starts_block = line.is_empty() || line.starts_with("- ");
        if !text.is_empty() {
            text.push(if starts_block || text.ends_with('\n') {
                '\n'
            } else {
                ' '
            });
        }
        text.push_str(line);
    }
    text.trim().to_owned()
}

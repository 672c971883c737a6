//! Tests of rules for the whole contract, on the descriptors that reflection serves.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use palimpsest_proto::{FILE_DESCRIPTOR_SET, context::v1};
use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

const PACKAGE: &str = "palimpsest.context.v1";

// Field numbers in `google/protobuf/descriptor.proto`. The paths of comments consist of them.
const FILE_MESSAGE: i32 = 4;
const FILE_ENUM: i32 = 5;
const FILE_SERVICE: i32 = 6;
const MESSAGE_FIELD: i32 = 2;
const MESSAGE_ENUM: i32 = 4;
const MESSAGE_ONEOF: i32 = 8;
const ENUM_VALUE: i32 = 2;
const SERVICE_METHOD: i32 = 2;

/// Returns the files of the contract, without the well-known types.
fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the descriptors decode");
    let own: Vec<_> = set
        .file
        .into_iter()
        .filter(|file| file.package() == PACKAGE)
        .collect();
    assert!(!own.is_empty());
    own
}

/// Returns each named element of the contract with its leading comment.
fn comments() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in files() {
        let by_path: BTreeMap<&[i32], &str> = file
            .source_code_info
            .iter()
            .flat_map(|info| &info.location)
            .filter_map(|at| Some((at.path.as_slice(), at.leading_comments.as_deref()?.trim())))
            .collect();
        let mut add = |path: &[i32], name: String| {
            let comment = by_path.get(path).copied().unwrap_or_default();
            found.push((name, comment.to_owned()));
        };
        for (path, message) in (0..).zip(&file.message_type) {
            walk_message(&mut add, &[FILE_MESSAGE, path], "", message);
        }
        for (path, declared) in (0..).zip(&file.enum_type) {
            walk_enum(&mut add, &[FILE_ENUM, path], "", declared);
        }
        for (i, service) in (0..).zip(&file.service) {
            add(&[FILE_SERVICE, i], service.name().to_owned());
            for (j, method) in (0..).zip(&service.method) {
                let name = format!("{}.{}", service.name(), method.name());
                add(&[FILE_SERVICE, i, SERVICE_METHOD, j], name);
            }
        }
    }
    found
}

fn walk_message(
    add: &mut impl FnMut(&[i32], String),
    path: &[i32],
    parent: &str,
    message: &DescriptorProto,
) {
    let is_map_entry = message
        .options
        .as_ref()
        .is_some_and(prost_types::MessageOptions::map_entry);
    if is_map_entry {
        return;
    }
    let name = format!("{parent}{}", message.name());
    add(path, name.clone());
    for (i, field) in (0..).zip(&message.field) {
        add(
            &[path, &[MESSAGE_FIELD, i]].concat(),
            format!("{name}.{}", field.name()),
        );
    }
    for (i, oneof) in (0..).zip(&message.oneof_decl) {
        // The compiler generates a oneof for each `optional` field.
        if !oneof.name().starts_with('_') {
            add(
                &[path, &[MESSAGE_ONEOF, i]].concat(),
                format!("{name}.{}", oneof.name()),
            );
        }
    }
    for (i, declared) in (0..).zip(&message.enum_type) {
        walk_enum(
            add,
            &[path, &[MESSAGE_ENUM, i]].concat(),
            &format!("{name}."),
            declared,
        );
    }
}

fn walk_enum(
    add: &mut impl FnMut(&[i32], String),
    path: &[i32],
    parent: &str,
    declared: &EnumDescriptorProto,
) {
    let name = format!("{parent}{}", declared.name());
    add(path, name.clone());
    for (i, value) in (0..).zip(&declared.value) {
        add(
            &[path, &[ENUM_VALUE, i]].concat(),
            format!("{name}.{}", value.name()),
        );
    }
}

#[test]
fn the_services_have_exactly_the_documented_methods() {
    let methods: BTreeMap<String, Vec<String>> = files()
        .iter()
        .flat_map(|file| &file.service)
        .map(|service| {
            let names = service.method.iter().map(|m| m.name().to_owned());
            (service.name().to_owned(), names.collect())
        })
        .collect();
    let promised = [
        (
            "AdminService",
            "ListStoredSessions ReadStoredSession ReadStoredFile ListProjects",
        ),
        (
            "ContextService",
            "AppendMessages PrepareContext SyncContext StreamContext Compact CommitSummary Snip PersistToolResult \
             ReadToolResult GetSessionMemory UpdateSessionMemory UpdateWorkingState RestoreContext \
             RewindSession ListTools CallTool",
        ),
        ("HookService", "PreCompact PostCompact SessionStart"),
        (
            "SessionService",
            "CreateSession ForkSession GetSession UpdateSession DeleteSession ListSessions GetView ListMessages \
             SearchMessages ListEvents WatchSession ExportTranscript",
        ),
    ];
    let promised = promised.map(|(service, names)| {
        let names = names.split_whitespace().map(str::to_owned);
        (service.to_owned(), names.collect())
    });
    assert_eq!(methods, BTreeMap::from(promised));
}

#[test]
fn every_method_has_its_own_request_and_response() {
    let mut seen = BTreeSet::new();
    for method in files()
        .iter()
        .flat_map(|f| &f.service)
        .flat_map(|s| &s.method)
    {
        let name = method.name();
        assert_eq!(method.input_type(), format!(".{PACKAGE}.{name}Request"));
        assert_eq!(method.output_type(), format!(".{PACKAGE}.{name}Response"));
        assert!(seen.insert(name.to_owned()), "{name} is declared twice");
    }
}

#[test]
fn every_proto_element_has_a_comment() {
    let bare: Vec<_> = comments()
        .into_iter()
        .filter(|(_, comment)| comment.is_empty())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(bare, Vec::<String>::new());
}

#[test]
fn every_request_field_is_marked_required_or_optional() {
    let words = ["REQUIRED. ", "OPTIONAL. "];
    let hooks = [
        "PreCompactRequest",
        "PostCompactRequest",
        "SessionStartRequest",
    ];
    let requests: BTreeSet<String> = files()
        .iter()
        .flat_map(|file| &file.message_type)
        .map(|message| message.name().to_owned())
        // The server fills the requests of hooks, so all their fields are output.
        .filter(|name| name.ends_with("Request") && !hooks.contains(&name.as_str()))
        .filter(|name| name != "DelegatedRequest")
        .collect();
    // The comment of a oneof applies to all its fields.
    let in_oneof: BTreeSet<String> = files()
        .iter()
        .flat_map(|file| &file.message_type)
        .flat_map(|message| {
            message
                .field
                .iter()
                .filter(|field| field.oneof_index.is_some() && !field.proto3_optional())
                .map(move |field| format!("{}.{}", message.name(), field.name()))
        })
        .collect();
    let silent: Vec<_> = comments()
        .into_iter()
        .filter(|(name, _)| {
            let message = name.split_once('.').map(|(message, _)| message);
            message.is_some_and(|message| requests.contains(message)) && !in_oneof.contains(name)
        })
        .filter(|(_, comment)| !words.iter().any(|word| comment.starts_with(word)))
        .collect();
    assert_eq!(silent, Vec::new());
}

#[test]
fn every_writing_method_has_a_request_id() {
    // A deletion leaves no session that could record the id, so `allow_missing` makes its repeats safe.
    let repeatable = |name: &str, field: &str| {
        field == "request_id" || (name == "DeleteSessionRequest" && field == "allow_missing")
    };
    let writing = [
        "AppendMessages",
        "PrepareContext",
        "Compact",
        "CommitSummary",
        "Snip",
        "PersistToolResult",
        "UpdateSessionMemory",
        "UpdateWorkingState",
        "RestoreContext",
        "RewindSession",
        "CallTool",
        "CreateSession",
        "ForkSession",
        "UpdateSession",
        "DeleteSession",
    ];
    let files = files();
    for method in writing {
        let request = format!("{method}Request");
        let message = files
            .iter()
            .flat_map(|file| &file.message_type)
            .find(|message| message.name() == request)
            .expect("the request is not declared");
        assert!(
            message.field.iter().any(|f| repeatable(&request, f.name())),
            "{request} has no field that makes repeats safe"
        );
    }
}

#[test]
fn zero_means_unspecified_in_every_enum() {
    for declared in files().iter().flat_map(|file| &file.enum_type) {
        let first = declared.value.first().expect("an enum has a value");
        assert_eq!(first.number(), 0, "{}", declared.name());
        assert!(first.name().ends_with("_UNSPECIFIED"), "{}", first.name());
    }
}

#[test]
fn no_value_is_reserved_by_a_comment() {
    let unused: Vec<_> = comments()
        .into_iter()
        .filter(|(name, comment)| {
            comment.starts_with("Never returned.") && !name.ends_with("_UNSPECIFIED")
        })
        .map(|(name, _)| name)
        .collect();
    assert_eq!(unused, Vec::<String>::new());
}

#[test]
fn decoded_bytes_share_the_received_buffer() {
    let received = Bytes::from_static(b"{\"role\":\"user\",\"content\":\"hi\"}");
    let payload = v1::Payload {
        format: v1::Format::AnthropicMessages.into(),
        json: received.clone(),
    };
    let wire = Bytes::from(payload.encode_to_vec());
    let decoded = v1::Payload::decode(wire.clone()).expect("the payload cannot be decoded");
    assert_eq!(decoded.json, received);
    assert!(wire.as_ptr_range().contains(&decoded.json.as_ptr()));
}

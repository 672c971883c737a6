//! Fuzzes the bodies of requests: the reading of their arrays, and the replacement of a conversation by a view.

use bytes::Bytes;
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::view::Provider;
use palimpsest_engine::turn::{ArrayReader, JsonParts, ReadArray};
use palimpsest_gateway::{AddedTools, with_messages};
use uuid::Uuid;

const PROVIDERS: [Provider; 3] = [
    Provider::Anthropic,
    Provider::OpenAi,
    Provider::OpenAiResponses,
];
/// Ends a body in an input.
const END: u8 = 0x1e;
/// The messages of the view.
const VIEW: &str =
    r#"{"role":"user","content":"a view"},{"role":"user","content":"of two messages"}"#;
const TOOL: &str = r#"{"type":"function","name":"own_read","function":{"name":"own_read"}}"#;

/// Asserts that a body is read equally whether the one before it is known or not, whatever its frames are, and that the
/// view replaces the conversation and nothing else.
///
/// The first byte selects the API. The second one is the size of the frames.
pub(crate) fn run(data: &[u8]) {
    let [selector, size, bodies @ ..] = data else {
        return;
    };
    let provider = PROVIDERS[usize::from(*selector) % 3];
    let size = usize::from(*size).max(1);
    let reader = ArrayReader::default();
    for body in bodies.split(|byte| *byte == END) {
        let frames = JsonParts::new(body.chunks(size).map(Bytes::copy_from_slice).collect());
        assert_eq!(&frames.whole()[..], body);
        let whole = JsonParts::from(Bytes::copy_from_slice(body));
        let (after, alone) = (
            read(&reader, provider, &frames),
            read(&ArrayReader::default(), provider, &whole),
        );
        let (Some(after), Some(alone)) = (&after, &alone) else {
            assert_eq!(after.is_some(), alone.is_some());
            continue;
        };
        assert_eq!(content(after), content(alone));
        assert_eq!(
            (after.outside, &after.body, after.place),
            (alone.outside, &alone.body, alone.place)
        );
        replace(provider, &frames, after);
    }
}

fn read(reader: &ArrayReader, provider: Provider, json: &JsonParts) -> Option<ReadArray> {
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let mut next = 0_u128;
    let mut next_id = || {
        next += 1;
        MessageId::new(Uuid::from_u128(next))
    };
    let now = Timestamp::default();
    let array = reader.compare(&key, provider, json.clone());
    // A reader that knows the previous body reads only the new part. Otherwise it reads the whole body.
    let rest = reader.read_rest(&key, &array, now, &mut next_id);
    rest.or_else(|| reader.read_whole(&key, &array, now, &mut next_id).ok())
}

/// Returns the parts of the elements that do not depend on their ids.
fn content(array: &ReadArray) -> Vec<String> {
    let elements = array.elements.iter();
    let content = elements.map(|element| {
        let message = &element.message;
        format!(
            "{:?} {:?} {:?}",
            message.role, message.blocks, message.extra
        )
    });
    content.collect()
}

/// Asserts that the body with a view has the operator messages of the old one, the messages of the view, the agent's
/// tools and one more, and equal other fields.
fn replace(provider: Provider, body: &JsonParts, array: &ReadArray) {
    let (Some(place), Some(fields)) = (array.place, &array.body) else {
        return;
    };
    let has_tools = fields.tools.as_ref().is_some_and(|tools| {
        let tools = tools.as_str();
        tools.starts_with('[') && tools != "[]" && tools[1..].trim_start() != "]"
    });
    let added = has_tools.then(|| AddedTools {
        names: ["own_read".to_owned()].into(),
        definitions: TOOL.to_owned(),
    });
    let view = JsonParts::from(Bytes::from_static(VIEW.as_bytes()));
    let (changed, offered) = with_messages(body, place, &view, added);
    assert_eq!(offered.is_some(), has_tools);
    let read = read(&ArrayReader::default(), provider, &changed);
    let read = read.unwrap_or_else(|| panic!("{}", changed.whole().escape_ascii()));
    let (options, system) = (&fields.options, &fields.system);
    let changed_fields = read.body.as_ref().unwrap();
    assert_eq!(
        (&changed_fields.options, &changed_fields.system),
        (options, system)
    );
    if let Some(tools) = &fields.tools {
        let tools = tools.as_str();
        let expected = if has_tools {
            // The reader has accepted the array, so its last byte is `]`.
            let others = &tools[..tools.len() - 1];
            format!("{others},{TOOL}]")
        } else {
            tools.to_owned()
        };
        assert_eq!(changed_fields.tools.as_ref().unwrap().as_str(), expected);
    }
    let is_operator = |text: &String| text.starts_with("System") || text.starts_with("Developer");
    let lead = content(array).into_iter().take_while(is_operator);
    let lead: Vec<String> = lead.collect();
    let shown = content(&read);
    assert!(shown.starts_with(&lead), "{shown:?}");
    // The view has two messages.
    assert_eq!(shown.len(), lead.len() + 2, "{shown:?}");
    if let Some(offered) = offered {
        let whole = changed.whole();
        assert!(whole[..offered.array_end].ends_with(VIEW.as_bytes()));
        assert_eq!(whole[offered.array_end..].trim_ascii_start()[0], b']');
    }
}

//! Fuzzes providers' JSON: decoding of messages, and encoding of the resulting views.

use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::command::{Append, Command, ServeView};
use palimpsest_core::ids::MessageId;
use palimpsest_core::json;
use palimpsest_core::message::{CanonicalDigests, Message};
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Provider, Target};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

/// Unknown fields and block types are sent as received, because a newer version of the API may accept them. A message
/// with such a part is sent as a whole.
const SENT_AS_RECEIVED: [&str; 3] = [
    "extra inputs are not permitted",
    "the part is empty",
    "this part is not allowed here",
];

/// Fuzzes a Messages API payload.
pub(crate) fn anthropic(data: &[u8]) {
    payload(Provider::Anthropic, data);
}

/// Fuzzes a Chat Completions payload.
pub(crate) fn openai(data: &[u8]) {
    payload(Provider::OpenAi, data);
}

/// Fuzzes a payload of the Responses API.
pub(crate) fn responses(data: &[u8]) {
    payload(Provider::OpenAiResponses, data);
}

/// Asserts that white space does not change canonical digests, that decoded messages give a valid array for every
/// provider, and that encoded messages can be decoded again.
fn payload(provider: Provider, data: &[u8]) {
    let mut world = SessionHarness::new();
    let Ok(messages) = codec::read(provider, data, &mut ids(1)) else {
        return;
    };
    digest(provider, data, &messages);
    let append = Append {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..Append::default()
    };
    // A payload that is too large, or that contains duplicates, is rejected.
    if world.try_run(Command::Append(append)).is_err() {
        return;
    }
    for to in [
        Provider::Anthropic,
        Provider::OpenAi,
        Provider::OpenAiResponses,
    ] {
        let target = Target {
            provider: to,
            model: "model".into(),
            thinking: true,
            system_messages: false,
        };
        show(&mut world, &target);
    }
}

fn digest(provider: Provider, data: &[u8], messages: &[Message]) {
    let digests: Vec<_> = messages.iter().map(CanonicalDigests::of).collect();
    // The codec has read the data, so it is valid UTF-8.
    let spaced = json::pretty_print(std::str::from_utf8(data).unwrap());
    let again = codec::read(provider, spaced.as_bytes(), &mut ids(1)).unwrap();
    let again: Vec<_> = again.iter().map(CanonicalDigests::of).collect();
    assert_eq!(digests, again);
    // The alignment of arrays compares loose digests alone.
    for one in &digests {
        let same = digests.iter().filter(|other| other.strict == one.strict);
        assert!(same.into_iter().all(|other| other.loose == one.loose));
    }
}

fn show(world: &mut SessionHarness, target: &Target) {
    world.run(Command::ServeView(ServeView {
        target: target.clone(),
        interrupt_open_calls: true,
        ..ServeView::default()
    }));
    world.load_content();
    let view = world.session.view(target, None).unwrap();
    let written: Vec<Vec<u8>> = (view.messages.iter())
        .map(|message| {
            let mut out = Vec::new();
            codec::write(target.provider, message, &mut out);
            out
        })
        .collect();
    if view.not_sendable.is_none() {
        let mut violations = validate(target, &written);
        violations.retain(|violation| !SENT_AS_RECEIVED.contains(&violation.rule));
        assert!(violations.is_empty(), "{violations:#?}");
    }
    for message in &written {
        let again = codec::read(target.provider, message, &mut ids(1 << 64));
        again.expect("written messages must be readable");
    }
}

fn ids(mut next: u128) -> impl FnMut() -> MessageId {
    move || {
        next += 1;
        MessageId::new(Uuid::from_u128(next))
    }
}

//! Tests that encoded records decode to the same values for any history, and that records of earlier
//! versions remain readable.

use std::sync::Arc;

use palimpsest_core::array::LinkKind;
use palimpsest_core::codec;
use palimpsest_core::command::{Command, ServeView};
use palimpsest_core::event::{Event, Visibility};
use palimpsest_core::ids::{CallKey, Ordinal, SessionKey};

use palimpsest_core::levels::results::Verdict;
use palimpsest_core::message::MessageOrigin;
use palimpsest_core::session::Session;
use palimpsest_histories::{Operation, SessionHarness, operation, serving};
use palimpsest_store::encoding::{
    DecodeError, decode_frame, decode_list_row, decode_snapshot, encode_frame, encode_list_row,
    encode_snapshot,
};
use proptest::prelude::*;

fn world(operations: &[Operation]) -> SessionHarness {
    let mut world = SessionHarness::new();
    for operation in operations {
        world.step(operation);
        if let Operation::Serve { interrupt, .. } = operation {
            world.run(Command::ServeView(ServeView {
                interrupt_open_calls: *interrupt,
                ..serving()
            }));
        }
    }
    world
}

proptest! {
    #[test]
    fn events_snapshots_and_rows_survive_a_round_trip(
        operations in prop::collection::vec(operation(), 1..12)
    ) {
        let world = world(&operations);
        let frame = decode_frame(&encode_frame(&world.log)).unwrap();
        prop_assert_eq!(&frame, &world.log);
        let snapshot = world.session.snapshot();
        let key = world.session.key().clone();
        let decoded = decode_snapshot(key, &encode_snapshot(&snapshot)).unwrap();
        prop_assert_eq!(&decoded, &snapshot);
        let about = world.session.info();
        prop_assert_eq!(&decode_list_row(&encode_list_row(about)).unwrap(), about);
    }

    #[test]
    fn damaged_bytes_are_detected(
        operations in prop::collection::vec(operation(), 1..6),
        at in any::<prop::sample::Index>(),
        with in 1_u8..,
        keep in any::<prop::sample::Index>(),
    ) {
        let world = world(&operations);
        let mut bytes = encode_frame(&world.log).to_vec();
        let index = at.index(bytes.len());
        bytes[index] ^= with;
        prop_assert!(decode_frame(&bytes).is_err());
        bytes[index] ^= with;
        prop_assert!(decode_frame(&bytes[..keep.index(bytes.len())]).is_err());
        let mut bytes = encode_snapshot(&world.session.snapshot()).to_vec();
        let index = at.index(bytes.len());
        bytes[index] ^= with;
        prop_assert!(decode_snapshot(world.session.key().clone(), &bytes).is_err());
    }
}

#[test]
fn a_newer_version_is_distinguished_from_damage() {
    assert_eq!(
        decode_frame(&[200, 0, 1]),
        Err(DecodeError::Newer { found: 200 })
    );
    assert_eq!(decode_frame(&[]), Err(DecodeError::Damaged("no envelope")));
}

/// Decodes records of version 1 and compares the resulting view. Never regenerate these bytes. A new
/// version adds its own (`examples/write_golden.rs`).
#[test]
fn golden_bytes_of_version_1_are_read() {
    golden(
        include_bytes!("golden/frame-v1.bin"),
        include_bytes!("golden/snapshot-v1.bin"),
        include_str!("golden/view-v1.jsonl"),
    );
}

/// The same check for records with persist decisions.
#[test]
fn golden_bytes_with_persist_decisions_are_read() {
    let session = golden(
        include_bytes!("golden/offers-frame-v1.bin"),
        include_bytes!("golden/offers-snapshot-v1.bin"),
        include_str!("golden/offers-view-v1.jsonl"),
    );
    let waiting: Vec<_> = session.persist_decisions().iter().collect();
    assert_eq!(waiting.len(), 2);
    assert_eq!(&*waiting[0].tool_use_id, "call_4");
    assert!(waiting[0].stored.is_some() && waiting[1].verdict == Verdict::Empty);
    let in_files = session
        .stored_results()
        .iter()
        .map(|(.., stored)| stored.original_only_in_file);
    assert_eq!(in_files.collect::<Vec<_>>(), [false, true, false]);
}

/// The same check for records with the array of a caller.
#[test]
fn golden_bytes_of_arrays_are_read() {
    let session = golden(
        include_bytes!("golden/arrays-frame-v1.bin"),
        include_bytes!("golden/arrays-snapshot-v1.bin"),
        include_str!("golden/arrays-view-v1.jsonl"),
    );
    let array = session.array();
    assert!(array.is_current() && array.format == MessageOrigin::Anthropic);
    assert_eq!((array.lead.len(), array.abandoned.len()), (1, 1));
    // The second array had two messages less, and one message was appended later.
    let kinds: Vec<_> = array.links.iter().map(|link| link.kind).collect();
    assert_eq!(
        kinds,
        [LinkKind::Content, LinkKind::Empty, LinkKind::Content]
    );
    assert_eq!(array.links[2].message, Ordinal::new(5));
}

/// The same check for records with recorded responses.
#[test]
fn golden_bytes_of_responses_are_read() {
    let frame = include_bytes!("golden/responses-frame-v1.bin");
    let session = golden(
        frame,
        include_bytes!("golden/responses-snapshot-v1.bin"),
        include_str!("golden/responses-view-v1.jsonl"),
    );
    let waiting: Vec<_> = session.array().responses.iter().flatten().collect();
    assert_eq!(waiting.len(), 1);
    let entry = session.transcript().get(waiting[0].message);
    assert_eq!(
        entry.map(|entry| entry.visibility),
        Some(Visibility::Unconfirmed)
    );
    let events = decode_frame(frame).expect("the frame cannot be decoded");
    let has = |is: fn(&Event) -> bool| events.iter().any(|recorded| is(&recorded.event));
    assert!(has(
        |event| matches!(event, Event::ArraySynced(event) if event.confirmed == [Ordinal::new(2)])
    ));
    assert!(has(
        |event| matches!(event, Event::ContextRestored(event) if event.remapped == [CallKey::new(1)])
    ));
    assert!(has(|event| {
        let mut messages = event.messages().iter();
        messages.any(|message| message.replaces.is_some())
    }));
}

fn golden(frame: &[u8], snapshot: &[u8], expected: &str) -> Session {
    let key = SessionKey::parse("projects/p/sessions/s").expect("the session name is invalid");
    let log = decode_frame(frame).expect("the frame cannot be decoded");
    let mut replayed =
        Session::replay(key.clone(), log.iter().cloned()).expect("the log cannot be replayed");
    let contents = log.iter().filter_map(|recorded| match &recorded.event {
        Event::MessagesAppended(event) => Some(event),
        _ => None,
    });
    let messages = contents.flat_map(|event| event.messages.iter());
    let messages: Vec<_> = messages
        .map(|appended| Arc::clone(&appended.message))
        .collect();
    // An undo makes messages visible whose contents are read from the log.
    replayed.load_content(messages.iter().cloned());
    // The view must stay the same as well, because providers have cached it.
    assert_eq!(view(&replayed), expected);

    let snapshot = decode_snapshot(key, snapshot).expect("the snapshot cannot be decoded");
    let restored = snapshot.restore(messages).expect("content is missing");
    assert_eq!(restored, replayed);
    replayed
}

fn view(session: &Session) -> String {
    let target = session.last_served().target.clone();
    let mut out = Vec::new();
    let whole = session.view(&target, None).expect("everything is held");
    for message in &whole.messages {
        codec::write(target.provider, message, &mut out);
        out.push(b'\n');
    }
    String::from_utf8(out).expect("a view is text")
}

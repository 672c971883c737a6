//! Tests of message filters.

use palimpsest_core::ids::{Ordinal, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::Message;
use palimpsest_core::session::{Session, Visibility};
use palimpsest_proto::context::v1;

use super::{anthropic, append, read, world};
use crate::convert::{event_kinds, message_filter, session_filter};

const AGAIN: &str = r#"{"role":"assistant","content":"a","id":"z"}"#;

/// Builds a session with a system prompt, a question, a call, its result, an answer, and a re-emission of the
/// answer. The messages are one second apart.
fn session() -> Session {
    let mut world = world(&[
        r#"{"role":"system","content":"s"}"#,
        r#"{"role":"user","content":"q"}"#,
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"Read","input":{}}]}"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"r"}]}"#,
        AGAIN,
    ]);
    append(&mut world, &[AGAIN]);
    world.session
}

/// Returns the ordinals of the matching messages.
#[track_caller]
fn check(change: impl FnOnce(&mut v1::MessageFilter), expected: &[u32]) {
    let session = session();
    let mut filter = v1::MessageFilter::default();
    change(&mut filter);
    let filter = message_filter(Some(filter), &Limits::default()).unwrap();
    let filter = filter.resolve(&session).unwrap();
    let range = filter.range(session.transcript().len());
    // The transcript keeps no content of a re-emission, so the test supplies it for the sixth message.
    let re_emitted = read(vec![anthropic(AGAIN)], &Limits::default()).unwrap();
    let mut found = Vec::new();
    for (ordinal, entry) in session.transcript().entries() {
        let original = session.transcript().content(ordinal);
        let message = original.map_or(&re_emitted[0].message, |message| message);
        let mut message = Message::clone(message);
        let arrived = Timestamp::from_millis(i64::from(ordinal.get()) * 1_000);
        message.at.get_or_insert(arrived);
        let matches = filter.matches(&session, (ordinal, entry), &message);
        let admits = filter.admits(ordinal, entry);
        // `admits` and `range` select without content. They may let too much through, but never drop a match.
        assert!(admits || !matches);
        assert!(filter.needs_content() || admits == matches);
        assert!(range.contains(&ordinal.index()) || !matches);
        if matches {
            // The contract counts messages from 1.
            found.push(ordinal.get() + 1);
        }
    }
    assert_eq!(found, expected);
}

fn id(number: u128) -> String {
    uuid::Uuid::from_u128(number).to_string()
}

fn at(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

#[test]
fn messages_are_filtered_by_role_and_visibility() {
    let last = session()
        .transcript()
        .get(Ordinal::new(5))
        .unwrap()
        .visibility;
    assert!(matches!(last, Visibility::Reemission(_)));
    check(|_| {}, &[1, 2, 3, 4, 5, 6]);
    // Role 1 is the user, whose messages are the question and the result. Role 3 is the system.
    check(|f| f.roles = vec![1], &[2, 4]);
    check(|f| f.roles = vec![1, 3], &[1, 2, 4]);
    let re_emission = v1::Visibility::ReEmission.into();
    check(|f| f.visibilities = vec![re_emission], &[6]);
}

#[test]
fn ordinals_count_from_one_and_ranges_are_inclusive() {
    check(|f| f.first_message_id = id(5), &[5, 6]);
    check(|f| f.last_message_id = id(2), &[1, 2]);
    check(
        |f| (f.first_ordinal, f.last_ordinal) = (2, Some(3)),
        &[2, 3],
    );
    check(
        // The later of both bounds applies.
        |f| (f.first_ordinal, f.first_message_id) = (2, id(4)),
        &[4, 5, 6],
    );
    check(|f| f.last_ordinal = Some(0), &[]);
    check(|f| f.first_ordinal = u64::MAX, &[]);
    check(|f| f.last_ordinal = Some(u64::MAX), &[1, 2, 3, 4, 5, 6]);
    check(|f| (f.first_ordinal, f.last_ordinal) = (4, Some(2)), &[]);
}

#[test]
fn messages_are_filtered_by_kind_time_tool_and_user_turn() {
    check(|f| f.kinds = vec![1], &[1, 2, 3, 4, 5, 6]);
    check(|f| f.kinds = vec![2], &[]);
    check(
        // The n-th message arrived at second n - 1, and the end of the period is exclusive.
        |f| (f.from_time, f.before_time) = (Some(at(1)), Some(at(3))),
        &[2, 3],
    );
    check(
        |f| f.tool_names = vec!["Grep".into(), "Read".into()],
        &[3, 4],
    );
    check(|f| f.tool_names = vec!["Grep".into()], &[]);
    // The result has the role of the user too, but begins no turn.
    check(|f| f.user_turns_only = true, &[2]);
}

#[test]
fn unknown_message_ids_in_a_filter_are_rejected() {
    for filter in [
        v1::MessageFilter {
            first_message_id: id(99),
            ..v1::MessageFilter::default()
        },
        v1::MessageFilter {
            last_message_id: id(99),
            ..v1::MessageFilter::default()
        },
    ] {
        let filter = message_filter(Some(filter), &Limits::default()).unwrap();
        assert!(filter.resolve(&session()).is_err());
    }
}

#[test]
fn the_number_of_filter_values_is_bounded() {
    let limits = Limits::default();
    let message = |change: fn(&mut v1::MessageFilter)| {
        let mut filter = v1::MessageFilter::default();
        change(&mut filter);
        let error = message_filter(Some(filter), &Limits::default()).unwrap_err();
        error.to_string()
    };
    // The values are invalid too. The error names the count, so the count is checked first.
    let many = "must have at most 64 entries, has 65";
    assert_eq!(
        message(|f| f.roles = vec![1; 65]),
        format!("filter.roles {many}")
    );
    assert_eq!(
        message(|f| f.kinds = vec![1; 65]),
        format!("filter.kinds {many}")
    );
    assert_eq!(
        message(|f| f.visibilities = vec![1; 65]),
        format!("filter.visibilities {many}")
    );
    assert_eq!(
        message(|f| f.tool_names = vec![String::new(); 65]),
        "filter.tool_names must have at most 64 entries, has 65"
    );
    assert_eq!(
        message(|f| f.tool_names = vec!["Read".into(), "x".repeat(257)]),
        "filter.tool_names[1] has 257 bytes, and the limit is 256 bytes"
    );
    assert_eq!(
        message(|f| f.collapse_id = "x".repeat(257)),
        "filter.collapse_id has 257 bytes, and the limit is 256 bytes"
    );
    let session = |change: fn(&mut v1::SessionFilter)| {
        let mut filter = v1::SessionFilter::default();
        change(&mut filter);
        session_filter(Some(filter), &limits)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        session(|f| f.states = vec![1; 65]),
        format!("filter.states {many}")
    );
    assert_eq!(
        session(|f| f.text = "x".repeat(1_025)),
        "filter.text has 1025 bytes, and the limit is 1024 bytes"
    );
    assert_eq!(
        session(|f| f.branch = "x".repeat(1_025)),
        "filter.branch has 1025 bytes, and the limit is 1024 bytes"
    );
    assert_eq!(
        session(|f| f.attributes = (0..65).map(|n| (n.to_string(), String::new())).collect()),
        "filter.attributes must have at most 64 entries, has 65"
    );
    assert_eq!(
        session(|f| f.attributes = [("a".to_owned(), "x".repeat(1 << 20))].into()),
        "filter.attributes has an attribute of more than 16384 bytes"
    );
    let kinds = event_kinds(&vec![1; 65]).unwrap_err().to_string();
    assert_eq!(kinds, format!("kinds {many}"));
}

#[test]
fn an_invalid_filter_is_rejected_with_its_path() {
    let path = |change: fn(&mut v1::MessageFilter)| {
        let mut filter = v1::MessageFilter::default();
        change(&mut filter);
        message_filter(Some(filter), &Limits::default())
            .unwrap_err()
            .path
    };
    // The path contains the index of the first invalid value.
    assert_eq!(path(|f| f.roles = vec![1, 0]), "filter.roles[1]");
    assert_eq!(path(|f| f.kinds = vec![99]), "filter.kinds[0]");
    assert_eq!(
        path(|f| f.visibilities = vec![-1]),
        "filter.visibilities[0]"
    );
    assert_eq!(
        path(|f| f.first_message_id = "x".into()),
        "filter.first_message_id"
    );
    assert_eq!(
        path(|f| f.last_message_id = "x".into()),
        "filter.last_message_id"
    );
    assert_eq!(
        path(|f| f.from_time = Some(at(i64::MAX))),
        "filter.from_time"
    );
    assert_eq!(
        path(|f| f.before_time = Some(at(i64::MIN))),
        "filter.before_time"
    );
}

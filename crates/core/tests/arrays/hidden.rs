//! Calls that a gateway runs itself within a response: the caller gets neither the calls nor their results.

use std::sync::Arc;

use palimpsest_core::array::{
    ArrayOutcome, Element, Hints, Identity, Incoming, KnownContent, LinkKind, ResponseUse,
    SyncPlan, plan,
};
use palimpsest_core::command::{Append, AppendSource, Command, ConfirmResponse};
use palimpsest_core::event::{CallState, Visibility};
use palimpsest_core::ids::Ordinal;
use palimpsest_core::message::{Message, MessageOrigin};
use palimpsest_core::session::ContentNotLoaded;
use palimpsest_histories::SessionHarness;

use crate::recorded::{message, serve, synced, view};
use crate::world::element;

struct Contents<'a>(&'a SessionHarness);

impl KnownContent for Contents<'_> {
    fn message(&self, ordinal: Ordinal) -> Result<Arc<Message>, ContentNotLoaded> {
        let content = self.0.session.transcript().content(ordinal);
        content.cloned().ok_or(ContentNotLoaded)
    }
}

fn record(world: &mut SessionHarness, lines: &[&str], origin: MessageOrigin) {
    let messages = (2_u128..).zip(lines).map(|(id, line)| {
        let mut message = Message::clone(&message(line, id));
        message.origin = origin;
        Arc::new(message)
    });
    let after = world.session.array().head();
    world.run(Command::Append(Append {
        messages: messages.collect(),
        source: AppendSource::Response { after },
        ..Append::default()
    }));
}

/// Plans the array of these lines, and returns the use of the response.
fn use_of(world: &SessionHarness, lines: &[&str]) -> (ArrayOutcome, ResponseUse) {
    let elements: Vec<Element> = lines.iter().map(|line| element(line)).collect();
    let incoming = Incoming::new(&elements, true);
    let array = world.session.array();
    let planned = plan(
        array,
        &incoming,
        Identity::Named,
        &Hints::default(),
        &Contents(world),
    );
    match planned.unwrap() {
        SyncPlan::Change(change) => (change.outcome, change.response),
        other => panic!("{other:?}"),
    }
}

const ROUNDS: [&str; 4] = [
    "model: ~a|look|!own",
    "user: =own found",
    "model: ~b|now|!agents|!own2",
    "user: =own2 more",
];
const CONFIRMED: ResponseUse = ResponseUse::Confirmed { response: 0 };

#[test]
fn a_response_without_its_hidden_calls_confirms_all_of_it() {
    let mut world = synced();
    record(&mut world, &ROUNDS, MessageOrigin::Anthropic);
    world.session = world.loaded();
    world.load_content();
    let sent = [
        "user: question",
        "model: ~a|look|~b|now|!agents",
        "user: =agents out",
    ];
    assert_eq!(use_of(&world, &sent), (ArrayOutcome::Extended, CONFIRMED));
    world.run(Command::ConfirmResponse(ConfirmResponse {
        response: Some(0),
    }));
    let kinds: Vec<_> = world
        .session
        .array()
        .links
        .iter()
        .map(|link| link.kind)
        .collect();
    let (content, part) = (LinkKind::Content, LinkKind::Part);
    // The question, the response, and the three further messages of its record.
    assert_eq!(kinds, [content, content, part, part, part]);
    assert_eq!(
        use_of(&world, &sent),
        (ArrayOutcome::Extended, ResponseUse::Unused)
    );
    // The view is what the model got: its own calls are answered, and the agent's call is open until its result arrives.
    let states: Vec<_> = world
        .session
        .calls()
        .iter()
        .map(|(_, call)| call.state)
        .collect();
    assert!(matches!(
        states[..],
        [
            CallState::Answered { .. },
            CallState::Open,
            CallState::Answered { .. }
        ]
    ));
    world.run(Command::Append(Append {
        messages: vec![message("user: =agents out", 9)],
        source: AppendSource::Array { replaced: None },
        ..Append::default()
    }));
    serve(&mut world);
    let view = view(&mut world);
    for shown in ["look", "own2", "found", "more", "agents", "out"] {
        assert!(view.contains(shown), "{shown}: {view}");
    }
}

#[test]
fn the_callers_own_form_replaces_a_response_with_hidden_calls() {
    let mut world = synced();
    record(&mut world, &ROUNDS, MessageOrigin::Anthropic);
    let replaced = ResponseUse::Replaced {
        response: 0,
        elements: 1,
    };
    let sent = ["user: question", "model: look now|!agents"];
    assert_eq!(
        use_of(&world, &sent),
        (ArrayOutcome::ResponseReplaced, replaced)
    );
    // A text of Chat Completions is one string.
    let mut world = synced();
    record(
        &mut world,
        &["model: a|!own", "user: =own found", "model: b"],
        MessageOrigin::OpenAi,
    );
    assert_eq!(
        use_of(&world, &["user: question", "model: ab"]).1,
        CONFIRMED
    );
}

#[test]
fn hidden_items_belong_to_the_next_item_that_the_caller_gets() {
    let mut world = synced();
    let items = [
        "model: ~a", "model: !own", "user: =own found", "model: ~b", "model: text",
    ];
    record(&mut world, &items, MessageOrigin::OpenAiResponses);
    let sent = ["user: question", "model: ~a", "model: ~b", "model: text"];
    assert_eq!(use_of(&world, &sent), (ArrayOutcome::Extended, CONFIRMED));
    world.run(Command::ConfirmResponse(ConfirmResponse {
        response: Some(0),
    }));
    let links = world.session.array().links[1..].iter();
    let links: Vec<_> = links.map(|link| (link.message.get(), link.kind)).collect();
    let (empty, content, part) = (LinkKind::Empty, LinkKind::Content, LinkKind::Part);
    assert_eq!(
        links,
        // The hidden call, its result and `~b` (2 to 4) are one element. It is empty, because `~b` has only thinking.
        [(1, empty), (2, empty), (3, part), (4, part), (5, content)]
    );
    assert_eq!(use_of(&world, &sent).1, ResponseUse::Unused);
}

#[test]
fn only_results_of_the_responses_own_calls_are_recorded() {
    let mut world = synced();
    // A result of another call, a result before its call, and a result beside a text.
    for lines in [
        &["model: !own", "user: =other found"][..],
        &["user: =own found", "model: !own"],
        &["model: !own", "user: =own found|text"],
    ] {
        let before = world.session.revision();
        let messages = (2_u128..).zip(lines).map(|(id, line)| message(line, id));
        let after = world.session.array().head();
        let rejected = world.try_run(Command::Append(Append {
            messages: messages.collect(),
            source: AppendSource::Response { after },
            ..Append::default()
        }));
        assert!(rejected.is_err(), "{lines:?}");
        assert_eq!(world.session.revision(), before);
    }
    record(&mut world, &ROUNDS, MessageOrigin::Anthropic);
    let entries = world.session.transcript().entries().skip(1);
    assert!(
        entries
            .map(|(_, entry)| entry.visibility)
            .all(|one| one == Visibility::Unconfirmed)
    );
}

//! Tests of invalid arguments.

use palimpsest_proto::context::v1::compact_request::Range;
use palimpsest_proto::context::v1::{CompactionOverrides, CompactionStrategy};

use super::*;

fn turns(session: &str, turns: &[&str]) -> Ask {
    Ask::Snip(SnipRequest {
        turn_ids: turns.iter().map(ToString::to_string).collect(),
        ..snip(session)
    })
}

fn messages(session: &str, ids: &[u64]) -> Ask {
    Ask::Snip(SnipRequest {
        message_ids: ids.iter().map(|id| uuid(*id)).collect(),
        ..snip(session)
    })
}

fn blocks(session: &str, blocks: &[(u64, u32)]) -> Ask {
    let block = |(id, block_index): &(u64, u32)| BlockRef {
        message_id: uuid(*id),
        block_index: *block_index,
    };
    Ask::Snip(SnipRequest {
        blocks: blocks.iter().map(block).collect(),
        ..snip(session)
    })
}

fn part(selection: Selection) -> ReadToolResultRequest {
    ReadToolResultRequest {
        selection: Some(selection),
        ..of("refuse-all", id("once"))
    }
}

pub(super) fn snips(place: &Place) -> Vec<Case> {
    let session = "refuse-all";
    let case = |what, ask, code, reason, named: &[(&'static str, &str)]| Case {
        what,
        ask,
        code,
        reason,
        named: named
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()))
            .collect(),
    };
    let (missing, precondition) = (Code::NotFound, Code::FailedPrecondition);
    let field = |what, ask, path: &str| {
        case(
            what,
            ask,
            Code::InvalidArgument,
            "INVALID_FIELD",
            &[("field", path)],
        )
    };
    let view = |etag: &bytes::Bytes, message_index| {
        Ask::Snip(SnipRequest {
            view_blocks: Some(ViewBlocks {
                etag: etag.clone(),
                positions: vec![WirePosition {
                    message_index,
                    block_index: None,
                }],
            }),
            ..snip(session)
        })
    };
    let turn = |name: &str| [("turn_id", name.to_owned())];
    let of_turn = |what, name: &str, code, reason| Case {
        what,
        ask: turns(session, &[name]),
        code,
        reason,
        named: turn(name).into(),
    };
    let (four, six, ninety) = (uuid(4), uuid(6), uuid(90));
    vec![
        field("nothing", turns(session, &[]), "turn_ids"),
        of_turn("an unknown turn", "zzzzzz", missing, "TURN_NOT_FOUND"),
        of_turn("no name of a turn", "é", missing, "TURN_NOT_FOUND"),
        of_turn(
            "a stranger's turn", &place.elsewhere, missing, "TURN_NOT_FOUND",
        ),
        of_turn("a subagent's turn", &place.foreign, missing, "TURN_FOREIGN"),
        of_turn(
            "the current turn", &place.current, precondition, "TURN_IS_CURRENT",
        ),
        of_turn(
            "a snipped turn",
            &place.snipped,
            precondition,
            "TURN_ALREADY_SNIPPED",
        ),
        case(
            "a rewound turn",
            turns(session, &[&place.rewound]),
            precondition,
            "TURN_NOT_VISIBLE",
            &[("turn_id", &place.rewound), ("visibility", "REWOUND")],
        ),
        case(
            "a good turn and a bad one",
            turns(session, &[&place.open, "zzzzzz"]),
            missing,
            "TURN_NOT_FOUND",
            &[("turn_id", "zzzzzz")],
        ),
        field(
            "a turn twice",
            turns(session, &[&place.open, &place.open]),
            "turn_ids[1]",
        ),
        field(
            "a message twice",
            messages(session, &[4, 4]),
            "message_ids[1]",
        ),
        field(
            "a block twice",
            blocks(session, &[(4, 0), (4, 0)]),
            "blocks[1]",
        ),
        field(
            "a block that none can have",
            // The index fits in a `u32`, but messages count their blocks in a `u16`.
            blocks(session, &[(4, 1 << 20)]),
            "blocks[0].block_index",
        ),
        case(
            "an unknown message",
            messages(session, &[4, 90]),
            missing,
            "MESSAGE_NOT_FOUND",
            &[("message_id", &ninety)],
        ),
        case(
            "a block past the end",
            blocks(session, &[(4, 7)]),
            missing,
            "MESSAGE_NOT_FOUND",
            &[("message_id", &four), ("block_index", "7")],
        ),
        case(
            "a snipped message",
            messages(session, &[1]),
            precondition,
            "MESSAGE_NOT_VISIBLE",
            &[("message_id", &uuid(1)), ("visibility", "SNIPPED")],
        ),
        case(
            "a rewound message",
            messages(session, &[13]),
            precondition,
            "MESSAGE_NOT_VISIBLE",
            &[("message_id", &uuid(13)), ("visibility", "REWOUND")],
        ),
        case(
            "a snipped block",
            blocks(session, &[(6, 0)]),
            precondition,
            "MESSAGE_NOT_VISIBLE",
            &[
                ("message_id", &six),
                ("block_index", "0"),
                ("visibility", "SNIPPED"),
            ],
        ),
        case(
            "a view that was",
            view(&place.stale, 0),
            // The etag is that of an earlier view of this session, so the caller can prepare again and retry.
            Code::Aborted,
            "VIEW_CHANGED",
            &[],
        ),
        field(
            "a place past the end",
            view(&place.array.etag, 99),
            "view_blocks.positions[0]",
        ),
        field("no etag of ours", view(&"x".into(), 0), "view_blocks.etag"),
        case(
            "a session that is not there",
            turns("refuse-none", &["zzzzzz"]),
            missing,
            "SESSION_NOT_FOUND",
            &[],
        ),
    ]
}

pub(super) fn reads() -> Vec<Case> {
    let session = "refuse-all";
    let none = |what, whose| Case {
        what,
        ask: Ask::Read(of(session, whose)),
        code: Code::NotFound,
        reason: "RESULT_NOT_FOUND",
        named: vec![],
    };
    let invalid = |what, ask, reason, path: &str| Case {
        what,
        ask,
        code: Code::InvalidArgument,
        reason,
        named: vec![("field", path.to_owned())],
    };
    let find = |pattern, context_lines| {
        Ask::Read(part(Selection::Search(LineSearch {
            pattern,
            context_lines,
        })))
    };
    // The syntax is valid, but a million repetitions exceed the memory limit of a compiled pattern.
    let bomb = "(a{1000}){1000}";
    let search = SearchMessagesRequest {
        session: name(session),
        pattern: Some(regex(bomb)),
        ..SearchMessagesRequest::default()
    };
    let lines = LineRange {
        first_line: 0,
        lines: None,
    };
    let mut page = of(session, id("once"));
    page.page_token = "nonsense".into();
    vec![
        none("a call that never was", id("never")),
        none("a key that no call has", key("c99", "")),
        none("a call without its result", id("open")),
        none(
            "another project's reference",
            Whose::Reference("palimpsest://q/refuse-all/tool-results/c0-00.txt".into()),
        ),
        none(
            "a reference out of its folder",
            Whose::Reference("palimpsest://p/refuse-all/tool-results/../c0-00.txt".into()),
        ),
        none(
            "a reference that is none",
            Whose::Reference("nonsense".into()),
        ),
        Case {
            what: "an id of two calls",
            ask: Ask::Read(of(session, id("twice"))),
            code: Code::InvalidArgument,
            reason: "AMBIGUOUS_TOOL_USE_ID",
            named: vec![],
        },
        Case {
            what: "an id and the key of another",
            // `c0` is the key of the call `once`.
            ask: Ask::Read(of(session, key("c0", "twice"))),
            code: Code::InvalidArgument,
            reason: "CALL_MISMATCH",
            named: vec![("call_key", "c0".into()), ("tool_use_id", "twice".into())],
        },
        invalid(
            "a pattern that grows",
            find(Some(regex(bomb)), 0),
            "INVALID_FIELD",
            "search.pattern.regex",
        ),
        invalid(
            "a broken pattern",
            find(Some(regex("(")), 0),
            "INVALID_PATTERN",
            "search.pattern.regex",
        ),
        invalid(
            "no pattern",
            find(None, 0),
            "INVALID_FIELD",
            "search.pattern",
        ),
        invalid(
            "too much around it",
            find(Some(regex("x")), 1 << 20),
            "INVALID_FIELD",
            "search.context_lines",
        ),
        invalid(
            "such a pattern elsewhere",
            Ask::Search(search),
            "INVALID_FIELD",
            "pattern.regex",
        ),
        invalid(
            "a line before the first",
            Ask::Read(part(Selection::LineRange(lines))),
            "INVALID_FIELD",
            "line_range.first_line",
        ),
        Case {
            what: "a page that is none",
            ask: Ask::Read(page),
            code: Code::InvalidArgument,
            reason: "INVALID_PAGE_TOKEN",
            named: vec![],
        },
    ]
}

pub(super) fn ways_back(place: &Place) -> Vec<Case> {
    let session = name("refuse-all");
    let restore = |to_revision| {
        Ask::Restore(RestoreContextRequest {
            session: session.clone(),
            to_revision,
            ..RestoreContextRequest::default()
        })
    };
    let rewind = |number| {
        Ask::Rewind(RewindSessionRequest {
            session: session.clone(),
            target_message: Some(TargetMessage::ToMessageId(uuid(number))),
            ..RewindSessionRequest::default()
        })
    };
    let compact = |level: Level| {
        Ask::Compact(CompactRequest {
            session: session.clone(),
            level: level.into(),
            ..CompactRequest::default()
        })
    };
    let compact_to = |number| {
        Ask::Compact(CompactRequest {
            session: session.clone(),
            range: Some(Range::UpToMessageId(uuid(number))),
            ..CompactRequest::default()
        })
    };
    let with_instructions = |strategy: CompactionStrategy| {
        Ask::Compact(CompactRequest {
            session: session.clone(),
            strategy: strategy.into(),
            overrides: Some(CompactionOverrides {
                instructions: "be short".into(),
                ..CompactionOverrides::default()
            }),
            ..CompactRequest::default()
        })
    };
    let memory_up_to = |number| {
        Ask::Compact(CompactRequest {
            session: session.clone(),
            strategy: CompactionStrategy::SessionMemory.into(),
            range: Some(Range::UpToMessageId(uuid(number))),
            ..CompactRequest::default()
        })
    };
    let case = |what, ask, code, reason, named| Case {
        what,
        ask,
        code,
        reason,
        named,
    };
    let (none, not_now) = (Code::NotFound, Code::FailedPrecondition);
    let (invalid, field) = (Code::InvalidArgument, "INVALID_FIELD");
    vec![
        case(
            "a revision to come",
            restore(place.revision + 1),
            none,
            "REVISION_NOT_FOUND",
            vec![("current_revision", place.revision.to_string())],
        ),
        case(
            "no revision",
            restore(0),
            invalid,
            field,
            vec![("field", "to_revision".into())],
        ),
        case(
            "an unknown message",
            rewind(90),
            none,
            "MESSAGE_NOT_FOUND",
            vec![("message_id", uuid(90))],
        ),
        case(
            "a rewound message",
            rewind(13),
            not_now,
            "MESSAGE_NOT_VISIBLE",
            vec![("message_id", uuid(13)), ("visibility", "REWOUND".into())],
        ),
        case(
            "a summary up to a snipped message",
            compact_to(1),
            not_now,
            "MESSAGE_NOT_VISIBLE",
            vec![("message_id", uuid(1)), ("visibility", "SNIPPED".into())],
        ),
        case(
            "instructions for a summary that exists",
            with_instructions(CompactionStrategy::SessionMemory),
            invalid,
            field,
            vec![("field", "overrides.instructions".into())],
        ),
        case(
            "instructions for a summary without a model",
            with_instructions(CompactionStrategy::Extractive),
            invalid,
            field,
            vec![("field", "overrides.instructions".into())],
        ),
        case(
            "a range of a summary that exists",
            memory_up_to(4),
            invalid,
            field,
            vec![("field", "up_to_message_id".into())],
        ),
        case(
            "a level that is asked otherwise",
            compact(Level::Snip),
            invalid,
            field,
            vec![("field", "level".into())],
        ),
        case(
            "nothing to clear",
            compact(Level::Microcompact),
            not_now,
            "NOTHING_TO_COMPACT",
            vec![],
        ),
        case(
            "nothing to fold",
            compact(Level::Collapse),
            not_now,
            "NOTHING_TO_COMPACT",
            vec![],
        ),
    ]
}

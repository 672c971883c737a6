//! Repairs of a view in the form of the API.

use palimpsest_core::ids::CallKey;
use palimpsest_core::message::MediaProblem;
use palimpsest_core::session::Session;
use palimpsest_core::view::{Repair, RepairKind};
use palimpsest_proto::context::v1;

use super::append_result::call_ref;
use super::scalars::export_message_id;

/// The maximum length of a mapped id, which both providers accept.
const MAX_WIRE_ID_LEN: usize = 40;

/// Converts the repairs of a view.
pub fn repairs(session: &Session, repairs: &[Repair]) -> Vec<v1::Repair> {
    repairs
        .iter()
        .map(|repair| self::repair(session, repair))
        .collect()
}

fn repair(session: &Session, repair: &Repair) -> v1::Repair {
    let (kind, detail) = described(session, repair.kind);
    let call = call_of(repair.kind);
    // Synthetic content has no block. An interruption refers to the block of the call.
    let (message, block) = match repair.kind {
        RepairKind::Opening => (repair.message, None),
        RepairKind::InterruptedCall(key) => match session.calls().get(key) {
            Some(call) => (call.message, Some(call.block)),
            None => (repair.message, None),
        },
        _ => (repair.message, Some(repair.block)),
    };
    v1::Repair {
        kind: kind.into(),
        message_id: export_message_id(session, message),
        block_index: block.map(u32::from),
        call: call.map(|key| call_ref(session, key)),
        view_tool_use_id: match repair.kind {
            RepairKind::MappedCallId(key) => {
                session.calls().wire_id(key, MAX_WIRE_ID_LEN).into_owned()
            }
            _ => String::new(),
        },
        detail: detail.to_owned(),
    }
}

const fn call_of(kind: RepairKind) -> Option<CallKey> {
    match kind {
        RepairKind::DuplicateResult(call)
        | RepairKind::LateResult(call)
        | RepairKind::LateResultHidden(call)
        | RepairKind::InterruptedCall(call)
        | RepairKind::MappedCallId(call) => Some(call),
        RepairKind::BlankText
        | RepairKind::OrphanResult
        | RepairKind::Media(_)
        | RepairKind::TrailingThinking
        | RepairKind::UnsignedThinking
        | RepairKind::WrongRole
        | RepairKind::UnsupportedBlock
        | RepairKind::RepeatedItem
        | RepairKind::Opening => None,
    }
}

fn described(session: &Session, kind: RepairKind) -> (v1::RepairKind, &'static str) {
    use v1::RepairKind as Out;
    match kind {
        RepairKind::BlankText => (Out::BlankTextDropped, "Blank text was left out."),
        RepairKind::DuplicateResult(_) => (
            Out::DuplicateResultDropped,
            "A second result of the call was left out; the first counts.",
        ),
        RepairKind::OrphanResult => (
            Out::OrphanResultAsText,
            "No call has the id of this result; it is shown as text.",
        ),
        RepairKind::LateResult(_) => (
            Out::LateResultAsText,
            "The result arrived after its call was reported as interrupted. The view shows it as text.",
        ),
        RepairKind::LateResultHidden(_) => (
            Out::LateResultDropped,
            "The result's call is no longer in the view, so the result is not shown.",
        ),
        RepairKind::InterruptedCall(_) => (
            Out::CallInterrupted,
            "The conversation continued without a result. The view contains an error result instead.",
        ),
        RepairKind::Media(problem) => (Out::MediaAsMarker, media(problem)),
        RepairKind::TrailingThinking => (
            Out::ThinkingDropped,
            "A message must not end with thinking; it was left out.",
        ),
        RepairKind::UnsignedThinking => (
            Out::ThinkingDropped,
            "The provider does not accept thinking without a signature; it was left out.",
        ),
        RepairKind::WrongRole => (
            Out::UnsupportedBlockReplaced,
            "A message of this role cannot contain such a block; it was left out.",
        ),
        RepairKind::UnsupportedBlock => (
            Out::UnsupportedBlockReplaced,
            "The format of the target has no such block; it was left out or replaced by a text.",
        ),
        RepairKind::RepeatedItem => (
            Out::RepeatedItemDropped,
            "An earlier item of the view has the same id; this item was left out.",
        ),
        RepairKind::Opening => (
            Out::FirstUserMessageAdded,
            "The conversation begins with the model; a user message was put first.",
        ),
        // One repair of the domain has two kinds in the contract, by the reason for the mapping.
        RepairKind::MappedCallId(key) if is_illegal(session, key) => (
            Out::IllegalToolUseIdMapped,
            "The provider does not allow this tool_use id; the view shows another.",
        ),
        RepairKind::MappedCallId(_) => (
            Out::RepeatedToolUseIdMapped,
            "An earlier call has this tool_use id; the view shows another.",
        ),
    }
}

/// Returns true if a call is mapped because its id is illegal. A call is also mapped if an earlier call has its id.
/// In that case the first call with the id is not mapped.
fn is_illegal(session: &Session, key: CallKey) -> bool {
    let calls = session.calls();
    let first = calls
        .get(key)
        .and_then(|call| calls.with_id(&call.id).first());
    first
        .and_then(|first| calls.get(*first))
        .is_some_and(|first| first.uses_service_id)
}

const fn media(problem: MediaProblem) -> &'static str {
    match problem {
        MediaProblem::TooManyBytes => {
            "The image has more bytes than the provider accepts. The view contains a marker instead."
        }
        MediaProblem::TooManyPixels => {
            "The image has more pixels than the provider accepts. The view contains a marker instead."
        }
        MediaProblem::BadType => {
            "The provider does not accept this image type. The view contains a marker instead."
        }
        MediaProblem::TooMany => {
            "The request already has the maximum number of images. The view contains a marker instead."
        }
    }
}

/// Returns warnings for repairs that hide content the caller may expect.
pub fn repair_warnings(session: &Session, repairs: &[Repair]) -> Vec<v1::Warning> {
    repairs
        .iter()
        .filter_map(|repair| match repair.kind {
            RepairKind::LateResultHidden(key) => Some(v1::Warning {
                code: v1::WarningCode::LateResult.into(),
                detail: "A result arrived for a call that is no longer in the view.".to_owned(),
                message_id: export_message_id(session, repair.message),
                call: Some(call_ref(session, key)),
            }),
            _ => None,
        })
        .collect()
}

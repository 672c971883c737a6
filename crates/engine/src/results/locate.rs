//! The location of a tool result: in a message, or in a file.

use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::levels::results::{file_from_reference, reference};
use palimpsest_core::session::{PersistDecision, Session, TranscriptEntry};

/// The assumed number of bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// The name of a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultName {
    /// The call that the result answers.
    Call(CallName),
    /// The reference that replaces the result in the view.
    Reference(String),
}

/// The name of a call: its key, the provider's id, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallName {
    /// The key.
    pub key: Option<CallKey>,
    /// The provider's id. Empty if the caller does not state it.
    pub tool_use_id: String,
}

/// The reason for which a name leads to no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocateError {
    /// There is no result of this name.
    NotFound(String),
    /// The key and the id name different calls.
    Mismatch(CallKey),
    /// The id is that of several calls.
    Ambiguous(Vec<CallKey>),
    /// Neither a key nor an id is stated.
    Unnamed,
}

/// The location of an original.
#[derive(Debug, Clone)]
pub enum ResultLocation {
    /// In a message of the transcript.
    Message {
        /// The message and its index entry.
        entry: (Ordinal, TranscriptEntry),
        /// The index of the block.
        block: u16,
    },
    /// In a file: the message is not appended yet, or it contains a replacement.
    File {
        /// The name of the file.
        file: Box<str>,
        /// The SHA-256 of its content.
        sha256: [u8; 32],
    },
}

/// A located result.
#[derive(Debug, Clone)]
pub struct LocatedResult {
    /// The key of the call. `None` if the call is not appended yet.
    pub call: Option<CallKey>,
    /// The provider's id of the call.
    pub tool_use_id: String,
    /// The name of the tool.
    pub tool_name: String,
    /// The reference that replaces the result in the view. Empty if the result is not stored.
    pub reference: String,
    /// The approximate size of the original in bytes.
    pub bytes: u64,
    /// The location.
    pub location: ResultLocation,
}

/// Locates a result.
pub fn locate(session: &Session, name: &ResultName) -> Result<LocatedResult, LocateError> {
    match name {
        ResultName::Call(call) => locate_by_call(session, call),
        ResultName::Reference(reference) => locate_by_reference(session, reference),
    }
}

fn locate_by_call(session: &Session, named: &CallName) -> Result<LocatedResult, LocateError> {
    let offers = session.persist_decisions();
    let call = match find_call(session, named) {
        // A result may be stored before the message of its call is appended.
        Err(missing @ LocateError::NotFound(_)) => {
            let offer = offers.find_unbound(&named.tool_use_id);
            let offer = offer.filter(|_| named.key.is_none());
            let found = offer.and_then(|offer| locate_pending(session, offer));
            return found.ok_or(missing);
        }
        call => call?,
    };
    let missing = || LocateError::NotFound(call.to_string());
    let known = session.calls().get(call).ok_or_else(missing)?;
    // The current result comes first, then a stored result, then the one that a rewind removed.
    let came = |place: Option<(Ordinal, u16)>| locate_in_block(session, call, place?);
    came(known.result())
        .or_else(|| locate_pending(session, offers.find_by_call(call)?))
        .or_else(|| came(known.result_position))
        .ok_or_else(missing)
}

fn locate_by_reference(session: &Session, reference: &str) -> Result<LocatedResult, LocateError> {
    let template = &session.policy().tool_results.reference_template;
    let stored = session.stored_results();
    let own = file_from_reference(template, session.key(), reference);
    let found = own
        .or_else(|| file_of_origin(session, reference))
        .and_then(|file| {
            // A result in the transcript has a position. Otherwise only the decision names its file.
            match stored.position_of_file(file).zip(stored.find_by_file(file)) {
                Some((place, stored)) => locate_in_block(session, stored.call, place),
                None => locate_pending(session, session.persist_decisions().find_by_file(file)?),
            }
        });
    found.ok_or_else(|| LocateError::NotFound(reference.to_owned()))
}

/// Returns the file of a reference that a fork shares with its origin. The view of the fork contains the name of the origin,
/// because it has the bytes of the origin's view. The fork has a copy of the file under the same name.
fn file_of_origin<'a>(session: &'a Session, reference: &str) -> Option<&'a str> {
    let (origin, reference) = (session.info().forked_from.as_ref()?, reference.trim());
    let template = &session.policy().tool_results.reference_template;
    let stored = session.stored_results();
    if let Some(file) = file_from_reference(template, &origin.session, reference) {
        return Some(&stored.find_by_file(file)?.file);
    }
    // The origin can be a fork too.
    let mut all = stored.iter().map(|(_, _, stored)| stored);
    let found = all
        .find(|stored| reference.contains(&*stored.file) && stored.replacement.contains(reference));
    Some(&found?.file)
}

/// Locates the result in a block of the transcript.
fn locate_in_block(
    session: &Session,
    call: CallKey,
    place: (Ordinal, u16),
) -> Option<LocatedResult> {
    let (message, block) = place;
    let entry = session.transcript().get(message)?;
    let stored = session.stored_results().at(message, block);
    let known = session.calls().get(call);
    let reference = stored.map(|stored| reference_to(session, &stored.file));
    Some(LocatedResult {
        call: Some(call),
        tool_use_id: known.map(|call| call.id.to_string()).unwrap_or_default(),
        tool_name: known.map(|call| call.name.to_string()).unwrap_or_default(),
        reference: reference.unwrap_or_default(),
        // The size of a result within its message is estimated, because the message is not read here.
        bytes: stored.map_or(
            u64::from(entry.size.result_tokens) * BYTES_PER_TOKEN,
            |stored| stored.bytes,
        ),
        location: match stored {
            Some(stored) if stored.original_only_in_file => ResultLocation::File {
                file: stored.file.clone(),
                sha256: stored.sha256,
            },
            _ => ResultLocation::Message {
                entry: (message, entry.clone()),
                block,
            },
        },
    })
}

/// Locates a result that was stored before its message was appended.
fn locate_pending(session: &Session, offer: &PersistDecision) -> Option<LocatedResult> {
    let kept = offer.stored.as_ref()?;
    let known = offer.call.and_then(|call| session.calls().get(call));
    let id = known.map_or(&offer.tool_use_id, |call| &call.id);
    Some(LocatedResult {
        call: offer.call,
        tool_use_id: id.to_string(),
        tool_name: offer.tool.to_string(),
        reference: reference_to(session, &kept.file),
        bytes: kept.bytes,
        location: ResultLocation::File {
            file: kept.file.clone(),
            sha256: kept.sha256,
        },
    })
}

fn reference_to(session: &Session, file: &str) -> String {
    let template = &session.policy().tool_results.reference_template;
    reference(template, session.key(), file)
}

/// Returns the call of a name.
fn find_call(session: &Session, named: &CallName) -> Result<CallKey, LocateError> {
    let (calls, id) = (session.calls(), named.tool_use_id.as_str());
    // A call key is unique. If the caller also sends the provider's id, both must name the same call.
    if let Some(key) = named.key {
        let not_found = || LocateError::NotFound(key.to_string());
        let call = calls.get(key).ok_or_else(not_found)?;
        let agrees = id.is_empty() || *call.id == *id;
        return agrees.then_some(key).ok_or(LocateError::Mismatch(key));
    }
    if id.is_empty() {
        return Err(LocateError::Unnamed);
    }
    // The view may show the call under an id that the service assigned.
    if let Some(key) = calls.find_by_service_id(id) {
        return Ok(key);
    }
    match calls.with_id(id) {
        [] => Err(LocateError::NotFound(id.to_owned())),
        [call] => Ok(*call),
        several => Err(LocateError::Ambiguous(several.to_vec())),
    }
}

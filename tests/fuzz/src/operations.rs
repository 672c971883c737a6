//! Fuzzes histories of operations against the properties that [`InvariantChecker`] checks with its naive callers.

use arbitrary::{Result, Unstructured};
use palimpsest_histories::{BlockDraft, InvariantChecker, ItemDraft, MessageDraft, Operation};

/// Maximum length of a history. Longer histories find no additional defects.
const MAX_OPERATIONS: usize = 64;

pub(crate) fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let mut operations = Vec::new();
    while !bytes.is_empty() && operations.len() < MAX_OPERATIONS {
        match operation(&mut bytes) {
            Ok(operation) => operations.push(operation),
            Err(_) => break,
        }
    }
    InvariantChecker::play(&operations);
}

fn operation(u: &mut Unstructured<'_>) -> Result<Operation> {
    Ok(match u.int_in_range(0..=15)? {
        0..=3 => Operation::Append(some(u, 4, draft)?),
        4..=6 => Operation::Serve {
            target: u.int_in_range(0..=4)?,
            interrupt: u.arbitrary()?,
        },
        7 => Operation::Rewind(u.arbitrary()?),
        8 => Operation::Snip {
            turn: u.arbitrary()?,
            message: u.arbitrary()?,
            block: u.int_in_range(0..=3)?,
            what: u.int_in_range(0..=3)?,
        },
        9 => Operation::Clear(u.int_in_range(0..=59)?),
        10 => Operation::Collapse {
            stage: u.arbitrary()?,
            target: u.arbitrary()?,
        },
        11 => Operation::Offer {
            call: u.int_in_range(0..=5)?,
            shape: u.int_in_range(0..=5)?,
            rule: u.int_in_range(0..=3)?,
            by_key: u.arbitrary()?,
        },
        12 => Operation::Compact {
            how: u.arbitrary()?,
            place: u.arbitrary()?,
        },
        13 if u.ratio(1, 3)? => Operation::Drive(u.arbitrary()?),
        13 => Operation::Note(u.arbitrary()?),
        14 => Operation::Work {
            what: u.arbitrary()?,
            which: u.arbitrary()?,
        },
        _ => match u.int_in_range(0..=4)? {
            0 => Operation::Restore(u.int_in_range(0..=2)?),
            1 => Operation::Wait,
            2 => Operation::Sync(u.arbitrary()?),
            3 => Operation::Count(u.int_in_range(0..=2)?),
            _ => Operation::Reload,
        },
    })
}

fn draft(u: &mut Unstructured<'_>) -> Result<MessageDraft> {
    Ok(match u.int_in_range(0..=9)? {
        0..=2 => MessageDraft::User {
            meta: u.ratio(1, 4)?,
            parts: some(u, 3, part)?,
        },
        3..=5 => MessageDraft::Assistant {
            response: u.int_in_range(0..=3)?,
            parts: some(u, 3, part)?,
        },
        6 => MessageDraft::System(part(u)?),
        7 | 8 => MessageDraft::Item(item(u)?),
        _ => MessageDraft::Again(u.arbitrary()?),
    })
}

fn item(u: &mut Unstructured<'_>) -> Result<ItemDraft> {
    Ok(match u.int_in_range(0..=6)? {
        0 => ItemDraft::User(u.arbitrary()?),
        1 => ItemDraft::Model(u.arbitrary()?),
        2 => ItemDraft::Reasoning {
            encrypted: u.arbitrary()?,
        },
        3 => ItemDraft::Call {
            id: u.int_in_range(0..=3)?,
            kind: u.int_in_range(0..=4)?,
        },
        4 => ItemDraft::Output {
            id: u.int_in_range(0..=3)?,
            kind: u.int_in_range(0..=4)?,
        },
        5 => ItemDraft::Search,
        _ => ItemDraft::Compaction,
    })
}

fn part(u: &mut Unstructured<'_>) -> Result<BlockDraft> {
    Ok(match u.int_in_range(0..=11)? {
        0 | 1 => BlockDraft::Words(u.arbitrary()?),
        2 => BlockDraft::Blank,
        3 => BlockDraft::Picture {
            good: u.arbitrary()?,
        },
        4 | 5 => BlockDraft::Call(u.int_in_range(0..=5)?),
        6 => BlockDraft::OddCall,
        7 | 8 => BlockDraft::Result {
            call: u.int_in_range(0..=5)?,
            error: u.arbitrary()?,
            shape: u.int_in_range(0..=5)?,
        },
        9 => BlockDraft::Given {
            call: u.int_in_range(0..=5)?,
            block: u.arbitrary()?,
        },
        10 => BlockDraft::Thought {
            signed: u.arbitrary()?,
        },
        _ if u.arbitrary()? => BlockDraft::Redacted,
        _ => BlockDraft::Unknown,
    })
}

/// Returns a list of at most `most` values.
fn some<T>(
    u: &mut Unstructured<'_>,
    most: usize,
    one: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| one(u)).collect()
}

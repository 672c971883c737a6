//! The names of lanes: sessions for arrays that arrive under the name of another conversation.

use std::fmt::Write as _;

use super::links::{ChainHead, Element, Incoming};

/// Length of a name, in bytes of the digest.
const NAME_BYTES: usize = 4;

/// Returns the name of the lane for an array that does not belong to the session. All arrays of one conversation have the
/// same name: it depends on the operator messages and the first element, or on the abandoned end that the array continues.
pub fn lane(incoming: &Incoming<'_>, abandoned: Option<ChainHead>) -> String {
    let end = abandoned.unwrap_or_else(|| {
        let lead = incoming.lead_digests();
        let first = incoming.rest.iter().find(|one| !one.digests.is_optional());
        let first = first.map(Element::key);
        let digests = lead.into_iter().chain(first);
        digests.fold(ChainHead::default(), ChainHead::then)
    });
    let mut name = String::with_capacity(2 * NAME_BYTES);
    // A digest has 16 bytes. Four of them distinguish the few conversations under one name.
    for byte in &end.chain.as_bytes()[..NAME_BYTES] {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

//! The form in which views are compared.

use super::target::{Target, WireRole};
use super::wire::WireMessage;
use crate::codec;

/// The view as the sequence that prompt caches see: a role and the bytes of one block, in order.
/// Views are compared in this form.
pub fn flatten(target: &Target, messages: &[WireMessage<'_>]) -> Vec<(WireRole, Vec<u8>)> {
    let mut flat = Vec::new();
    for message in messages {
        for block in &message.blocks {
            let mut bytes = Vec::new();
            codec::write_block(target.provider, block, &mut bytes);
            flat.push((message.role, bytes));
        }
    }
    flat
}

//! The flattened form in which views are compared.

use super::target::{Target, WireRole};
use super::wire::WireMessage;
use crate::codec;

/// Returns the view as prompt caches see it: a sequence of roles and block bytes. Views are compared in this form.
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

//! Policies between the contract and the domain: [`overlay`] inward, [`policy`] outward.
//!
//! A setting has one name in the contract, in the domain and in configuration files, so all of this
//! goes by the descriptors of `message Policy`: a new field needs no line here.

mod change;
mod inward;
mod outward;
#[cfg(test)]
mod tests;

use palimpsest_core::policy::OverlayError;

pub use change::PolicyChange;
pub(super) use change::masked_path;
pub use inward::overlay;
pub use outward::{changed_paths, policy};

use super::FieldError;

/// Where requests have overrides.
pub(super) const OVERRIDES: &str = "session.policy_overrides";

/// The path in a request of a field of a resolved policy, as the domain names it.
pub fn in_overrides(path: &str) -> String {
    let inner = path.strip_prefix("policy").unwrap_or(path);
    let inner = inner.strip_prefix('.').unwrap_or(inner);
    match inner {
        "" => OVERRIDES.to_owned(),
        inner => format!("{OVERRIDES}.{inner}"),
    }
}

/// What is wrong with overrides of a request that make no policy.
pub fn bad_overrides(error: OverlayError) -> FieldError {
    FieldError::invalid(in_overrides(&error.path), error.what)
}

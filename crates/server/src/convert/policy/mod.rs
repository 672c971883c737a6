//! Conversion of policies: [`overlay`] for requests, [`policy`] for replies.
//!
//! A setting has the same name in the contract, the domain and the configuration. The conversion uses the
//! descriptors of `message Policy`, so a new field needs no code here.

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

/// The field of a request that contains overrides.
pub(super) const OVERRIDES: &str = "session.policy_overrides";

/// Returns the request path of a field of the resolved policy.
pub fn in_overrides(path: &str) -> String {
    let inner = path.strip_prefix("policy").unwrap_or(path);
    let inner = inner.strip_prefix('.').unwrap_or(inner);
    match inner {
        "" => OVERRIDES.to_owned(),
        inner => format!("{OVERRIDES}.{inner}"),
    }
}

/// Converts the error for overrides that do not form a valid policy.
pub fn invalid_overrides(error: OverlayError) -> FieldError {
    FieldError::invalid(in_overrides(&error.path), error.message)
}

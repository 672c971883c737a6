//! Shared code of the bench programs: the handlers in this process. Each program documents its purpose.

#![expect(
    clippy::disallowed_methods,
    reason = "calls are timed by the machine's clock"
)]

pub mod in_process;

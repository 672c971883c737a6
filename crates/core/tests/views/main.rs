//! Tests of view layouts. Each case is a short conversation with the expected wire messages. A line of `----` serves
//! the view, which seals everything before it.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::format_push_string,
    reason = "a case that is written wrongly should stop where it stands"
)]

mod formats;
mod fragments;
mod offers;
mod repairs;
mod results;
mod rewinds;
mod system;
mod thinking;
mod world;

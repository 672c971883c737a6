//! What a view makes of a transcript, case by case: a conversation in a few lines goes in, the wire
//! comes out. A line of `----` stands for a serving, which seals what came before it.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::format_push_string,
    reason = "a case that is written wrongly should stop where it stands"
)]

mod fragments;
mod offers;
mod repairs;
mod results;
mod rewinds;
mod system;
mod thinking;
mod world;

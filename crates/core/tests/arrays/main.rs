//! Whole arrays: canonical digests of elements, and the plans for arrays.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "a failed test should stop at the line that failed"
)]

mod call_ids;
mod canonical;
mod compacted;
mod hidden;
mod order;
mod random;
mod recorded;
mod returned;
mod spelling;
mod table;
mod world;

//! Whole arrays: canonical digests of elements.

mod canonical;
mod spelling;

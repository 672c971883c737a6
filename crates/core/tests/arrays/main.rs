//! Whole arrays: canonical digests of elements, and the plans for arrays.

mod canonical;
mod random;
mod spelling;
mod table;
mod world;

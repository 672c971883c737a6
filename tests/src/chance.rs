//! Numbers that look random, from a seed that can be given again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

/// A number that differs from run to run, unless `PALIMPSEST_TEST_SEED` says which.
pub fn seed() -> u64 {
    match std::env::var("PALIMPSEST_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => RandomState::new().hash_one(0),
    }
}

/// Xorshift: a next number that looks random.
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

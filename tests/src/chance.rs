//! Pseudorandom numbers with a repeatable seed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

/// Returns a seed that differs between runs. `PALIMPSEST_TEST_SEED` overrides it.
pub fn seed() -> u64 {
    match std::env::var("PALIMPSEST_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => RandomState::new().hash_one(0),
    }
}

/// Returns the next number of an xorshift generator.
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

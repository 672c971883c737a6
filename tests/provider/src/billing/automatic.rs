//! OpenAI's prompt cache: automatic, for prompts of at least 1,024 tokens, in steps of 128 tokens.

use std::time::Duration;

use blake3::Hash;

use super::entries::Entries;
use super::{Block, Charge};

const LEAST_TOKENS: u64 = 1_024;
const STEP: u64 = 128;
/// Number of cached steps.
const MOST: usize = 262_144;

/// The cached prefixes of all credentials.
pub(super) struct Automatic(Entries);

impl Default for Automatic {
    fn default() -> Self {
        Self(Entries::new(MOST))
    }
}

impl Automatic {
    /// Returns the tokens that are read, and caches all steps of the prompt.
    pub(super) fn look_up(
        &mut self,
        charge: &Charge<'_>,
        cache_key: &str,
        lifetime: Duration,
        blocks: &[Block],
    ) -> u64 {
        // Requests with another key are routed to another cache.
        let steps = steps(charge, cache_key, blocks);
        let hit = steps
            .iter()
            .rposition(|step| self.0.is_live(step, charge.now));
        // The minimum is a multiple of the step, so the step at this index ends here.
        let read = hit.map_or(0, |at| LEAST_TOKENS + STEP * at as u64);
        for step in steps {
            self.0.hold(step, lifetime, charge.now);
        }
        read
    }
}

/// Returns the digest of each cacheable prefix, shortest first. The last token of a prompt is never cached.
fn steps(charge: &Charge<'_>, cache_key: &str, blocks: &[Block]) -> Vec<Hash> {
    let mut hasher = blake3::Hasher::new();
    for part in [charge.credential.0.as_str(), charge.model, cache_key] {
        // The length separates the parts. Otherwise `ab` and `c` would share a cache with `a` and `bc`.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let total: u64 = blocks.iter().map(|block| block.tokens).sum();
    let mut steps = Vec::new();
    let mut tokens = 0;
    for block in blocks {
        let mut start = 0;
        for number in 1..=block.tokens {
            // A token is an equal share of the block's bytes.
            let end = block.bytes.len() as u64 * number / block.tokens;
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            hasher.update(&block.bytes[start..end]);
            start = end;
            tokens += 1;
            if tokens >= LEAST_TOKENS && tokens % STEP == 0 && tokens < total {
                steps.push(hasher.finalize());
            }
        }
        hasher.update(&block.bytes[start..]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Block, Charge};
    use super::Automatic;
    use crate::credential::Credential;

    /// Builds a prompt of one block per letter. Each letter has 100 tokens.
    fn look_up(cache: &mut Automatic, now_s: u64, key: &str, prompt: &str) -> u64 {
        let charge = Charge {
            credential: &Credential::of_key("k"),
            model: "m",
            now: Duration::from_secs(now_s),
            output: 0,
        };
        let blocks: Vec<Block> = prompt
            .bytes()
            .map(|letter| Block {
                bytes: vec![letter; 400],
                tokens: 100,
                marker: None,
            })
            .collect();
        cache.look_up(&charge, key, Duration::from_mins(10), &blocks)
    }

    #[test]
    fn prefixes_are_read_in_steps() {
        let mut cache = Automatic::default();
        assert_eq!(look_up(&mut cache, 0, "", "abcdefghij"), 0);
        assert_eq!(look_up(&mut cache, 0, "", "abcdefghij"), 0, "1,000 tokens");
        assert_eq!(look_up(&mut cache, 0, "", "abcdefghijkl"), 0);
        // 1,200 tokens have two steps: 1,024 and 1,152.
        assert_eq!(look_up(&mut cache, 0, "", "abcdefghijkl"), 1_152);
        // The prompts differ after 1,100 tokens.
        assert_eq!(look_up(&mut cache, 0, "", "abcdefghijkx"), 1_024);
        assert_eq!(look_up(&mut cache, 0, "", "abcdefghijklmno"), 1_152);
        assert_eq!(look_up(&mut cache, 0, "other", "abcdefghijkl"), 0);
        assert_eq!(look_up(&mut cache, 599, "", "abcdefghijklmno"), 1_408);
        // The read at 599 has refreshed the prefix until 1,199.
        assert_eq!(look_up(&mut cache, 1_198, "", "abcdefghijklmno"), 1_408);
        assert_eq!(look_up(&mut cache, 1_798, "", "abcdefghijklmno"), 0);
    }
}

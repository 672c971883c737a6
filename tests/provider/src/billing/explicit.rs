//! Anthropic's prompt cache: prefixes that end at markers, read again by a look-back from each marker.

use super::entries::Entries;
use super::{Block, Charge, Counted, Lifetime};

/// Number of positions that the look-back from a marker checks, the marker's own included.
const LOOK_BACK: usize = 20;
/// Number of cached prefixes.
const MOST: usize = 65_536;
/// Minimum tokens of a cached prefix by a part of the model's name. The last row is for all others.
const LEAST_TOKENS: [(&str, u64); 11] = [
    ("opus-5", 512),
    ("fable-5", 512),
    ("mythos-5", 512),
    ("opus-4-8", 1_024),
    ("opus-4-7", 2_048),
    ("opus-4-6", 4_096),
    ("opus-4-5", 4_096),
    ("haiku-4-5", 4_096),
    ("3-5-haiku", 2_048),
    ("3-haiku", 2_048),
    ("", 1_024),
];

/// The cached prefixes of all credentials.
pub(super) struct Explicit(Entries);

impl Default for Explicit {
    fn default() -> Self {
        Self(Entries::new(MOST))
    }
}

/// The end of a block: the digest of the prompt so far, and its tokens.
type Position = (blake3::Hash, u64);

impl Explicit {
    /// Counts the tokens of a request by their price, and caches its marked prefixes.
    pub(super) fn look_up(&mut self, charge: &Charge<'_>, blocks: &[Block]) -> Counted {
        let ends = positions(charge, blocks);
        let total = ends.last().map_or(0, |(_, tokens)| *tokens);
        let least = least_tokens(charge.model);
        let marked: Vec<(usize, Lifetime)> = blocks
            .iter()
            .enumerate()
            .filter_map(|(at, block)| Some((at, block.marker?)))
            // The provider ignores a marker on a short prefix and reports no error.
            .filter(|(at, _)| ends[*at].1 >= least)
            .collect();
        // The last marker has the longest prefix, so its hit is preferred.
        let hit = marked.iter().rev().find_map(|(marker, _)| {
            let mut checked = (0..=*marker).rev().take(LOOK_BACK);
            checked.find(|at| self.0.is_live(&ends[*at].0, charge.now))
        });
        let read = hit.map_or(0, |at| ends[at].1);
        // The prices of writes follow from three ends: the hit, the last marker of an hour, and the last marker.
        let last_of = |lifetime: Option<Lifetime>| {
            let mut ends_of = marked
                .iter()
                .filter(|(_, its)| lifetime.is_none_or(|lifetime| lifetime == *its))
                .map(|(at, _)| ends[*at].1);
            ends_of.next_back().unwrap_or(0).max(read)
        };
        let (hour_end, end) = (last_of(Some(Lifetime::Hour)), last_of(None));
        // The hit is live and keeps its own lifetime. The five minutes here have no effect.
        if let Some(at) = hit {
            self.0
                .hold(ends[at].0, Lifetime::FiveMinutes.time(), charge.now);
        }
        for (at, lifetime) in &marked {
            self.0.hold(ends[*at].0, lifetime.time(), charge.now);
        }
        Counted {
            input: total - end,
            read,
            // Validation puts markers of an hour before those of five minutes, so `read <= hour_end <= end`.
            written_5m: end - hour_end,
            written_1h: hour_end - read,
            output: 0,
        }
    }
}

fn positions(charge: &Charge<'_>, blocks: &[Block]) -> Vec<Position> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(charge.credential.0.as_bytes());
    hasher.update(charge.model.as_bytes());
    let mut tokens = 0;
    blocks
        .iter()
        .map(|block| {
            hasher.update(&(block.bytes.len() as u64).to_le_bytes());
            hasher.update(&block.bytes);
            tokens += block.tokens;
            (hasher.finalize(), tokens)
        })
        .collect()
}

fn least_tokens(model: &str) -> u64 {
    let row = LEAST_TOKENS.iter().find(|(part, _)| model.contains(part));
    row.map_or(0, |(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Block, Charge, Counted, Lifetime};
    use super::Explicit;
    use crate::credential::Credential;

    /// Builds a prompt of blocks with 1,000 tokens each. `*` marks the block before it for five minutes, `+` for an
    /// hour.
    fn blocks(prompt: &str) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for letter in prompt.bytes() {
            match (letter, blocks.last_mut()) {
                (b'*', Some(last)) => last.marker = Some(Lifetime::FiveMinutes),
                (b'+', Some(last)) => last.marker = Some(Lifetime::Hour),
                _ => blocks.push(Block {
                    bytes: vec![letter],
                    tokens: 1_000,
                    marker: None,
                }),
            }
        }
        blocks
    }

    struct Cache {
        explicit: Explicit,
        now: u64,
        model: &'static str,
        key: &'static str,
    }

    fn cache() -> Cache {
        Cache {
            explicit: Explicit::default(),
            now: 0,
            model: "claude-sonnet-4-5",
            key: "k",
        }
    }

    impl Cache {
        /// Asserts the input, the read and both kinds of written tokens, in thousands.
        #[track_caller]
        fn check(&mut self, prompt: &str, expected: [u64; 4]) {
            let charge = Charge {
                credential: &Credential::of_key(self.key),
                model: self.model,
                now: Duration::from_secs(self.now),
                output: 0,
            };
            let counted = self.explicit.look_up(&charge, &blocks(prompt));
            let [input, read, short, long] = expected.map(|count| count * 1_000);
            let expected = Counted {
                input,
                read,
                written_5m: short,
                written_1h: long,
                output: 0,
            };
            assert_eq!(counted, expected, "{prompt}");
        }
    }

    #[test]
    fn a_prefix_is_written_once_and_read_afterwards() {
        let mut cache = cache();
        cache.check("ts*uv", [2, 0, 2, 0]);
        cache.check("ts*uv", [2, 2, 0, 0]);
        // The look-back from `u` finds `ts`.
        cache.check("tsu*v", [1, 2, 1, 0]);
        // A changed first block changes all later prefixes.
        cache.check("xsu*v", [1, 0, 3, 0]);
        cache.key = "other";
        cache.check("ts*uv", [2, 0, 2, 0]);
        cache.model = "claude-sonnet-4";
        cache.check("ts*uv", [2, 0, 2, 0]);
        cache.check("tsuv", [4, 0, 0, 0]);
    }

    #[test]
    fn prefixes_expire_and_reads_refresh_them() {
        let mut cache = cache();
        cache.check("ts*", [0, 0, 2, 0]);
        cache.now = 299;
        cache.check("ts*", [0, 2, 0, 0]);
        // The read at 299 has refreshed the prefix until 599.
        cache.now = 598;
        cache.check("ts*", [0, 2, 0, 0]);
        // Exactly five minutes after the read at 598, the prefix has expired.
        cache.now = 898;
        cache.check("ts*", [0, 0, 2, 0]);
        cache.check("uv+", [0, 0, 0, 2]);
        cache.now += 3_599;
        cache.check("uv+", [0, 2, 0, 0]);
        cache.now += 3_600;
        cache.check("uv+", [0, 0, 0, 2]);
    }

    #[test]
    fn both_lifetimes_are_billed_in_one_request() {
        let mut cache = cache();
        cache.check("tt+m*n", [1, 0, 1, 2]);
        cache.check("tt+mno*p", [1, 3, 2, 0]);
        // `m` has expired, `tt` lives for an hour.
        cache.now = 300;
        cache.check("tt+mno*p", [1, 2, 3, 0]);
    }

    #[test]
    fn short_prefixes_are_not_cached() {
        let mut cache = cache();
        // 1,000 tokens are below the minimum of 1,024, which applies to all other models.
        cache.check("a*b", [2, 0, 0, 0]);
        cache.check("ab*", [0, 0, 2, 0]);
        cache.model = "claude-haiku-4-5";
        cache.check("abcd*", [4, 0, 0, 0]);
        cache.check("abcde*", [0, 0, 5, 0]);
        cache.model = "claude-opus-5-5";
        cache.check("a*", [0, 0, 1, 0]);
    }

    #[test]
    fn the_look_back_checks_twenty_positions() {
        let mut cache = cache();
        cache.check("ab*", [0, 0, 2, 0]);
        let nineteen = "x".repeat(19);
        // The marker is at index 20 and `b` at index 1, the last of 20 positions. One more block hides `b`.
        cache.check(&format!("ab{nineteen}*"), [0, 2, 19, 0]);
        let mut cache = self::cache();
        cache.check("ab*", [0, 0, 2, 0]);
        cache.check(&format!("ab{nineteen}y*"), [0, 0, 22, 0]);
        // Each marker has its own look-back.
        let mut cache = self::cache();
        cache.check("ab*", [0, 0, 2, 0]);
        cache.check(&format!("abx*{nineteen}y*"), [0, 2, 21, 0]);
    }
}

//! The prompt cache: finds the prefix of a prompt that was cached before.

use std::collections::{HashSet, VecDeque};

/// Minimum tokens of a cached prefix.
const LEAST_TOKENS: u64 = 1_024;
/// Number of blocks before a breakpoint in which an older breakpoint is found.
const LOOK_BACK: usize = 20;
/// Number of cached prefixes.
const REMEMBERED: usize = 4_096;

/// One block of a prompt, in the provider's order.
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tokens: u64,
    /// True if a cached prefix can end here.
    pub(crate) breakpoint: bool,
}

/// Tokens that were read from the cache and written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cached {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

#[derive(Default)]
pub(crate) struct Cache {
    seen: HashSet<blake3::Hash>,
    order: VecDeque<blake3::Hash>,
}

impl Cache {
    /// Finds the longest cached prefix. Candidates are this request's breakpoints and the twenty blocks before each.
    /// Then caches the prefixes of this request.
    pub(crate) fn look_up(&mut self, model: &str, blocks: &[Block]) -> Cached {
        let mut hasher = blake3::Hasher::new();
        hasher.update(model.as_bytes());
        let mut tokens = 0;
        let mut starts = Vec::new();
        for block in blocks {
            hasher.update(&(block.bytes.len() as u64).to_le_bytes());
            hasher.update(&block.bytes);
            tokens += block.tokens;
            starts.push((hasher.finalize(), tokens));
        }
        let breakpoints: Vec<usize> = (0..blocks.len())
            .filter(|at| blocks[*at].breakpoint && starts[*at].1 >= LEAST_TOKENS)
            .collect();
        let Some(last) = breakpoints.last() else {
            return Cached::default();
        };
        let found = breakpoints.iter().rev().find_map(|at| {
            let near = (at.saturating_sub(LOOK_BACK)..=*at).rev();
            near.map(|at| starts[at])
                .find(|(hash, _)| self.seen.contains(hash))
        });
        let read = found.map_or(0, |(_, tokens)| tokens);
        for at in &breakpoints {
            self.remember(starts[*at].0);
        }
        Cached {
            read,
            written: starts[*last].1.saturating_sub(read),
        }
    }

    fn remember(&mut self, hash: blake3::Hash) {
        if !self.seen.insert(hash) {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Cache, Cached};

    fn blocks(texts: &[(&str, bool)]) -> Vec<Block> {
        let block = |(text, breakpoint): &(&str, bool)| Block {
            bytes: text.as_bytes().to_vec(),
            tokens: 2_000,
            breakpoint: *breakpoint,
        };
        texts.iter().map(block).collect()
    }

    #[test]
    fn a_prefix_is_written_once_and_read_afterwards() {
        let mut cache = Cache::default();
        let first = blocks(&[("a", false), ("b", true), ("c", false)]);
        assert_eq!(
            cache.look_up("m", &first),
            Cached {
                read: 0,
                written: 4_000
            }
        );
        assert_eq!(
            cache.look_up("m", &first),
            Cached {
                read: 4_000,
                written: 0
            }
        );
        let longer = blocks(&[("a", false), ("b", false), ("d", true)]);
        assert_eq!(
            cache.look_up("m", &longer),
            Cached {
                read: 4_000,
                written: 2_000
            }
        );
        let other = blocks(&[("x", false), ("b", true)]);
        assert_eq!(cache.look_up("m", &other).read, 0);
        assert_eq!(cache.look_up("other", &first).read, 0);
    }
}

//! Tests that compare the session's ledger of the prompt cache with the replay's cache, which
//! compares the bytes that were sent.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::event::ChangeKind;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::{Millis, Policy};
use palimpsest_core::tokens::Calibration;
use palimpsest_core::view::Provider;
use proptest::prelude::*;

use super::caller::BlockId;
use super::driver::{Driver, replay};
use super::options::ReplayOptions;
use super::prefix_cache::{MIN_CACHEABLE_TOKENS, PrefixCache, TIME_TO_LIVE_MS};
use super::tests::{Op, Writer, op, policies};
use super::{PrepareFrequency, RecordedSession};

/// The maximum difference between the two estimates of a message, marker or tag, in tokens.
const ERROR_TOKENS: u64 = 12;
/// The size of the frame around a user text that arrived while the model was working, in tokens.
const FRAME_TOKENS: u64 = 40;

/// The agreement between the ledger and the cache.
#[derive(Debug, Default)]
struct Agreement {
    /// The number of views that were sent while the cache was warm.
    warm: usize,
    /// The number of these views that lost a part of the cached prefix.
    invalidated: usize,
    /// The number of these views that start with a rewritten summary.
    made_again: usize,
}

/// Compares the ledger and the cache at every view that a recorded session sends.
fn compare(tape: &RecordedSession, provider: Provider, mut policy: Policy) -> Agreement {
    policy.microcompact.time.idle = Millis::new(TIME_TO_LIVE_MS);
    let error_tokens = if policy.snip.wrap_interjections {
        FRAME_TOKENS
    } else {
        ERROR_TOKENS
    };
    let setup = ReplayOptions {
        provider,
        policy: Arc::new(policy),
        window: palimpsest_core::policy::WindowHint::default(),
        frequency: PrepareFrequency::PerResponse,
        levels: true,
        calibration: Calibration::default(),
    };
    let mut cache = PrefixCache::default();
    let mut sent: Vec<BlockId> = Vec::new();
    let mut sent_at = None;
    let mut agreement = Agreement::default();
    replay(tape, setup, |driver: &Driver, look| {
        if !look.sendable {
            return;
        }
        let tokens = |part: &[BlockId]| driver.caller.tokens(part, Calibration::default());
        let flat = driver.caller.flat();
        let split = cache.send(flat, driver.now, tokens);
        let expired = |at: Timestamp| driver.now.millis_since(at) >= TIME_TO_LIVE_MS;
        let is_cold = sent_at.is_none_or(expired);
        let report = driver
            .session
            .cache_report(driver.caller.target(), driver.now);
        // A response that answers no request of the replay makes the ledger count the cache as used.
        // A prefix below the minimum size is missing in the ledger.
        let messages = error_tokens * (2 + flat.len() as u64);
        let bound = split.cache_read / 50 + messages;
        // A withdrawn and rewritten summary may have identical text. The ledger follows events and
        // treats it as a different one.
        let cause = report.cause.map(|change| change.kind);
        let made_again =
            cause == Some(ChangeKind::Restored) && report.reused + bound < split.cache_read;
        if is_cold {
            assert!(!report.cold || report.reused + report.invalidated == 0);
        } else if made_again {
            agreement.made_again += 1;
        } else if split.cache_read >= MIN_CACHEABLE_TOKENS {
            let off = report.reused.abs_diff(split.cache_read);
            assert!(off <= bound, "reads {} of {split:?}", report.reused);
            let again = sent_again(flat, &sent);
            let again: u64 = again.iter().map(|block| tokens(&[*block])).sum();
            let off = report.invalidated.abs_diff(again);
            let bound = again / 50 + messages;
            assert!(
                off <= bound,
                "{} written again of {again}",
                report.invalidated
            );
            assert_eq!(report.cause.is_some(), !flat.starts_with(&sent));
            agreement.warm += 1;
            agreement.invalidated += usize::from(again > 0);
        }
        sent_at = Some(driver.now);
        sent = flat.to_vec();
    });
    agreement
}

/// Returns the blocks after the first difference that were sent before.
fn sent_again(view: &[BlockId], sent: &[BlockId]) -> Vec<BlockId> {
    let same = |(a, b): &(&BlockId, &BlockId)| a == b;
    let shared = view.iter().zip(sent).take_while(same).count();
    let mut held: HashMap<BlockId, usize> = HashMap::new();
    for block in &sent[shared..] {
        *held.entry(*block).or_default() += 1;
    }
    let mut again = view[shared..].to_vec();
    again.retain(|block| {
        let left = held.get_mut(block).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    });
    again
}

proptest! {
    #[test]
    fn the_ledger_matches_the_bytes(
        ops in prop::collection::vec(op(), 0..60), which in 0_usize..6, openai in any::<bool>()
    ) {
        let provider = if openai { Provider::OpenAi } else { Provider::Anthropic };
        compare(&Writer::write(&ops), provider, policies().swap_remove(which));
    }
}

/// An hour of work in which results are cleared because of the size of the view.
#[test]
fn the_ledger_of_a_long_session_matches_the_bytes() {
    let turn = [
        Op::Say,
        Op::Run {
            chars: 5_000,
            fails: false,
        },
        Op::Run {
            chars: 2_000,
            fails: false,
        },
        Op::Answer,
    ];
    let ops: Vec<Op> = std::iter::repeat_n(turn, 40).flatten().collect();
    let tight = policies().swap_remove(5);
    let agreement = compare(&Writer::write(&ops), Provider::Anthropic, tight);
    assert!(agreement.warm > 100, "{agreement:?}");
    assert!(agreement.invalidated > 3, "{agreement:?}");
}

#[test]
fn a_repeated_summary_is_counted_as_new() {
    let run = |chars| Op::Run {
        chars,
        fails: false,
    };
    let fail = |chars| Op::Run { chars, fails: true };
    let mut ops = vec![
        Op::Say,
        Op::Say,
        fail(478),
        fail(991),
        run(1_749),
        run(1_947),
    ];
    ops.extend([
        fail(1_324),
        Op::Say,
        Op::Say,
        run(1_763),
        fail(2_061),
        Op::Say,
    ]);
    ops.extend([
        fail(1_244),
        fail(3_161),
        fail(1_887),
        fail(1_504),
        run(1_154),
    ]);
    ops.extend([
        run(2_052),
        fail(2_680),
        Op::Answer,
        Op::Say,
        fail(3_595),
        run(912),
    ]);
    // The rewind withdraws the summary, and the next view has an equal one again.
    ops.extend([Op::Say, Op::Rewind { back: 6 }, Op::Say]);
    let mut tight = policies().swap_remove(5);
    tight.autocompact.min_input_tokens = 2_000;
    let agreement = compare(&Writer::write(&ops), Provider::Anthropic, tight);
    assert_eq!(agreement.made_again, 1, "{agreement:?}");
}

/// A rewind removes a placeholder, and the next one has another text at the same message.
#[test]
fn the_text_of_a_new_placeholder_was_not_sent_before() {
    let run = |chars| Op::Run {
        chars,
        fails: false,
    };
    let fail = |chars| Op::Run { chars, fails: true };
    let mut ops = vec![Op::Say, fail(0), Op::Say, Op::Say, run(506), fail(2_139)];
    ops.extend([run(2_116), run(2_160), run(0), Op::Answer, run(0), run(0)]);
    ops.extend([fail(1_800), run(2_136), run(0), run(0), run(0), fail(1_824)]);
    ops.extend([
        run(2_136),
        fail(336),
        run(0),
        run(1_632),
        run(2_112),
        run(2_136),
    ]);
    ops.extend([
        fail(2_136),
        run(3_696),
        run(0),
        run(2_208),
        run(2_160),
        run(0),
    ]);
    ops.extend([run(2_424), fail(0), run(0), fail(0), Op::Say, Op::Say]);
    ops.extend([Op::Rewind { back: 1 }, Op::Say, run(816)]);
    let folding = policies().swap_remove(6);
    compare(&Writer::write(&ops), Provider::Anthropic, folding);
}

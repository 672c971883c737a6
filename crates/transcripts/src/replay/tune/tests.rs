use std::sync::Arc;

use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::{Policy, Prices, WindowHint};
use palimpsest_core::view::Provider;
use proptest::prelude::*;

use super::{CompactionModel, PolicyRun, SentRequest, lowest_cost_milli, run_policy};
use crate::replay::no_levels;
use crate::replay::tests::{Op, Writer, economy, op};

fn requests(steps: &[(u64, i64)]) -> Vec<SentRequest> {
    let (mut tokens, mut minute) = (0, 0);
    let mut requests = Vec::new();
    for (growth, pause) in steps {
        tokens += growth;
        minute += pause;
        requests.push(SentRequest {
            at: Timestamp::from_millis(minute * 60_000),
            tokens,
        });
    }
    requests
}

/// Returns the cost with compactions before the given requests.
fn cost_of(requests: &[SentRequest], model: CompactionModel, places: u32) -> Option<u64> {
    let prices = Prices::default();
    let (write, read) = (prices.cache_write.milli(), prices.cache_read.milli());
    let (mut cost, mut view) = (0, 0);
    for (at, request) in requests.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| requests[before]);
        let new = request.tokens - before.map_or(0, |before| before.tokens);
        let is_cold =
            before.is_none_or(|before| request.at.millis_since(before.at) >= 5 * 60 * 1_000);
        let grown = view + new;
        // Bit `at` stands for a compaction before the request.
        if places & (1 << at) == 0 {
            let cached = if is_cold { 0 } else { view };
            cost += cached * u64::from(read) + (grown - cached) * u64::from(write);
            view = grown;
        } else {
            let size = model.compacted_tokens.max(new);
            if grown < model.min_view_tokens || grown <= size {
                return None;
            }
            cost += size * u64::from(write);
            view = size;
        }
    }
    Some(cost)
}

proptest! {
    #[test]
    fn no_set_of_compactions_costs_less_than_the_optimum(
        steps in prop::collection::vec((2_000_u64..30_000, 0_i64..8), 1..9),
        compacted_tokens in 2_000_u64..20_000,
        min_view_tokens in 0_u64..60_000,
    ) {
        let requests = requests(&steps);
        let model = CompactionModel { compacted_tokens, min_view_tokens };
        let all = (0..1_u32 << requests.len()).filter_map(|places| cost_of(&requests, model, places));
        let lowest = lowest_cost_milli(&requests, model, &Prices::default());
        prop_assert_eq!(Some(lowest), all.min());
    }
}

fn run(ops: &[Op], policy: Policy) -> PolicyRun {
    let tape = Writer::write(ops);
    let window = WindowHint::default();
    run_policy(&tape, Provider::Anthropic, &Arc::new(policy), window)
}

fn work() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::Say),
        12 => (0_usize..4_000).prop_map(|chars| Op::Run { chars, fails: false }),
        1 => Just(Op::Answer),
        1 => (0_i64..9).prop_map(|minutes| Op::Wait { minutes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn economy_is_never_dearer_than_no_change(
        ops in prop::collection::vec(prop_oneof![6 => work(), 1 => op()], 1..90)
    ) {
        let prices = Prices::default();
        let economy = run(&ops, economy());
        let unchanged = run(&ops, no_levels());
        prop_assert!(
            economy.token_split.cost_milli(&prices) <= unchanged.token_split.cost_milli(&prices),
            "{} compactions", economy.compacted_tokens.len()
        );
    }
}

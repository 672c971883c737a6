//! Tests of the guarantees of every replay, on synthetic sessions of an agent with two tools.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Percent, Policy, Preset, WindowHint};
use palimpsest_core::session::Strategy as Means;
use palimpsest_core::view::Provider;
use palimpsest_histories::flatten;
use proptest::prelude::*;

use super::driver::{Driver, replay};
use super::options::ReplayOptions;
use super::probe_kind::ProbeKind;
use super::recorded_session::{RecordedSession, RecordedStep};
use super::{PrepareFrequency, ProbeCounts, ReplayMetrics, measure, no_levels};

/// One step of a synthetic session.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// A user input.
    Say,
    /// A command with a result or an error of `chars` characters.
    Run { chars: usize, fails: bool },
    /// A command without a result.
    Hang,
    /// An answer of the model.
    Answer,
    /// A pause.
    Wait { minutes: i64 },
    /// A rewind that removes the last `back` messages.
    Rewind { back: usize },
}

/// A writer of synthetic sessions.
pub(super) struct Writer {
    tape: RecordedSession,
    now: i64,
    said: Vec<MessageId>,
}

impl Writer {
    pub(super) fn write(ops: &[Op]) -> RecordedSession {
        let mut writer = Self {
            tape: RecordedSession {
                steps: Vec::new(),
                model: "m".into(),
                subagent: false,
                defects: Vec::new(),
            },
            now: 1_000_000,
            said: Vec::new(),
        };
        for op in ops {
            writer.op(op);
        }
        writer.tape
    }

    fn op(&mut self, op: &Op) {
        // A message that is repeated after a rewind must be distinct from the original.
        let number = self.tape.steps.len();
        match op {
            Op::Say => {
                let words = Block::text(format!("Question {number}. And more of it."));
                self.message(Role::User, words);
            }
            Op::Answer => {
                self.message(Role::Assistant, Block::text(format!("So it is: {number}.")));
            }
            Op::Hang => self.call(number),
            Op::Run { chars, fails } => {
                self.call(number);
                let line = format!("line {number} of what it says\n");
                let text = line.repeat(chars / line.len() + 1);
                let result = Block::ToolResult(ToolResult {
                    tool_use_id: format!("toolu_{}", number % 7).into(),
                    content: ResultContent::Text(text.into()),
                    is_error: fails.then_some(true),
                    extra: UnknownFields::default(),
                });
                self.message(Role::User, result);
            }
            Op::Wait { minutes } => self.now += minutes * 60_000,
            Op::Rewind { back } => {
                let left = self.said.len().saturating_sub(*back);
                self.said.truncate(left);
                self.tape
                    .steps
                    .push(RecordedStep::Rewind(self.said.last().copied()));
            }
        }
    }

    fn call(&mut self, number: usize) {
        let input =
            format!(r#"{{"command":"run --number {number}","file_path":"/work/{number}"}}"#);
        let call = Block::ToolUse(ToolUse {
            id: format!("toolu_{}", number % 7).into(),
            name: "Bash".into(),
            input: ToolInput::parse(&input),
            extra: UnknownFields::default(),
        });
        self.message(Role::Assistant, call);
    }

    fn message(&mut self, role: Role, block: Block) {
        self.now += 1_000;
        let line = self.tape.steps.len() + 1;
        let id = MessageId::new(uuid::Uuid::from_u128(line as u128));
        let mut message = Message::new(id, role, vec![block]);
        message.at = Some(Timestamp::from_millis(self.now));
        self.said.push(id);
        let message = Arc::new(message);
        self.tape
            .steps
            .push(RecordedStep::Message { line, message });
    }
}

pub(super) fn policies() -> Vec<Policy> {
    let mut policies = Preset::ALL.map(Preset::policy).to_vec();
    // The same policy with thresholds that small sessions reach.
    let mut tight = Policy::default();
    tight.tool_results.max_result_chars = 3_000;
    tight.tool_results.max_message_chars = 6_000;
    tight.microcompact.time.keep_results = 1;
    tight.microcompact.size.enabled = true;
    tight.microcompact.size.target_tokens = 1_000;
    tight.microcompact.size.min_freed_tokens = 0;
    tight.tokens.default_window_tokens = Some(36_000);
    let mut folding = tight.clone();
    folding.collapse.enabled = true;
    folding.collapse.min_freed_tokens = 1;
    folding.collapse.pass_every_tokens = 500;
    folding.collapse.commit_at_percent = Percent::new(10);
    folding.collapse.target_percent = Percent::new(5);
    folding.microcompact.enabled = false;
    policies.push(tight);
    policies.push(folding);
    policies.push(no_levels());
    policies.push(compacting());
    policies.push(economy());
    policies
}

/// Returns a policy with level 5 thresholds that small sessions reach.
fn compacting() -> Policy {
    let mut policy = Policy::default();
    policy.tokens.default_window_tokens = Some(36_000);
    policy.autocompact.min_input_tokens = 0;
    policy.session_memory.start_tokens = 1_000;
    policy.session_memory.update_tokens = 500;
    policy.session_memory.keep_min_tokens = 500;
    policy.session_memory.keep_min_messages = 1;
    policy
}

/// Returns the preset `economy` with sizes that small sessions reach.
pub(super) fn economy() -> Policy {
    let mut policy = Preset::Economy.policy();
    policy.economy.min_view_tokens = 2_000;
    policy.autocompact.min_input_tokens = 0;
    policy.session_memory.start_tokens = 1_000;
    policy.session_memory.update_tokens = 500;
    policy.session_memory.keep_min_tokens = 300;
    policy.session_memory.keep_min_messages = 1;
    policy
}

fn measured(ops: &[Op], policy: Policy) -> ReplayMetrics {
    measure(
        &Writer::write(ops),
        Provider::Anthropic,
        &Arc::new(policy),
        WindowHint::default(),
    )
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Say),
        6 => (0_usize..6_000, any::<bool>()).prop_map(|(chars, fails)| Op::Run { chars, fails }),
        1 => Just(Op::Hang),
        3 => Just(Op::Answer),
        2 => (0_i64..90).prop_map(|minutes| Op::Wait { minutes }),
        1 => (1_usize..8).prop_map(|back| Op::Rewind { back }),
    ]
}

proptest! {
    #[test]
    fn every_policy_keeps_all_invariants(
        ops in prop::collection::vec(op(), 0..40), which in any::<prop::sample::Index>(), openai in any::<bool>()
    ) {
        let provider = if openai { Provider::OpenAi } else { Provider::Anthropic };
        let policy = Arc::new(which.get(&policies()).clone());
        let measured = measure(&Writer::write(&ops), provider, &policy, WindowHint::default());
        prop_assert!(measured.is_ok(), "{measured:#?}");
        prop_assert_eq!(&measured.defects, &vec![]);
        prop_assert_eq!(measured.token_split.total(), measured.view_tokens.iter().sum::<u64>());
        prop_assert_eq!(measured.view_tokens.len(), measured.sendable);
        prop_assert_eq!(measured.largest_view, measured.view_tokens.iter().copied().max().unwrap_or(0));
    }

    #[test]
    fn without_levels_only_rewinds_change_the_view(ops in prop::collection::vec(op(), 0..60)) {
        let measured = measured(&ops, no_levels());
        prop_assert_eq!(measured.level_changes(), 0);
        prop_assert_eq!((measured.stored, measured.cleared), (0, 0));
        prop_assert_eq!(measured.probe_totals().recoverable, 0);
    }

    /// A block that the caller recognizes by its address has the same encoding.
    #[test]
    fn equal_sizes_mean_equal_bytes(
        ops in prop::collection::vec(op(), 0..40), which in 0_usize..8, openai in any::<bool>()
    ) {
        let setup = ReplayOptions {
            provider: if openai { Provider::OpenAi } else { Provider::Anthropic },
            policy: Arc::new(policies().swap_remove(which)),
            window: WindowHint::default(),
            frequency: PrepareFrequency::PerLine,
            levels: true,
            calibration: palimpsest_core::tokens::Calibration::default(),
        };
        let mut bytes_of = HashMap::new();
        let mut number_of = HashMap::new();
        replay(&Writer::write(&ops), setup, |driver: &Driver, look| {
            let target = driver.caller.target();
            let view = driver.session.view(target, None).unwrap();
            let flat = [flatten(target, &view.system), flatten(target, &view.messages)].concat();
            assert_eq!(flat.len(), driver.caller.flat().len());
            for ((role, bytes), shown) in flat.into_iter().zip(driver.caller.flat()) {
                let bytes = (role as u8, bytes);
                assert_eq!(number_of.entry(bytes.clone()).or_insert(*shown), shown);
                assert_eq!(bytes_of.entry(*shown).or_insert_with(|| bytes.clone()), &bytes);
            }
            let mut json = Vec::new();
            for message in &view.messages {
                codec::write(target.provider, message, &mut json);
            }
            assert_eq!(look.bytes, json.len());
        });
    }
}

#[test]
fn a_full_view_is_compacted_and_reports_lost_facts() {
    let mut ops = Vec::new();
    // More paths than session memory remembers.
    for _ in 0..100 {
        ops.push(Op::Say);
        let run = Op::Run {
            chars: 3_000,
            fails: false,
        };
        ops.extend([run.clone(), run, Op::Answer]);
    }
    let with_memory = measured(&ops, compacting());
    let mut without = compacting();
    without.session_memory.enabled = false;
    let from_structure = measured(&ops, without);
    for (measured, strategy) in [
        (&with_memory, Means::SessionMemory),
        (&from_structure, Means::Extractive),
    ] {
        let all = &measured.compactions;
        assert!(all.iter().any(|it| it.strategy == strategy), "{all:#?}");
        assert!(all.iter().all(|it| it.after_tokens < it.before_tokens));
        assert_eq!(measured.compacted_at.len(), all.len());
        assert!(measured.is_ok(), "{measured:#?}");
        let told = measured.survival().combined();
        assert!(told.total > 0 && told.kept * 2 >= told.total, "{told:?}");
        // All other facts are recoverable through the tools that the summary names.
        let retained = measured.probe_totals();
        assert!(retained.recoverable > 0 && retained.lost == 0);
    }
}

/// Rewound messages followed by a compaction.
#[test]
fn a_compaction_after_a_rewind_passes_the_replay_checks() {
    let run = |chars, fails| Op::Run { chars, fails };
    let ops = [
        Op::Say,
        Op::Say,
        Op::Say,
        run(2047, true),
        Op::Answer,
        run(0, true),
        Op::Say,
        run(2737, false),
        run(408, false),
        run(936, false),
        Op::Say,
        Op::Hang,
        Op::Hang,
        run(0, false),
        Op::Rewind { back: 5 },
        run(3816, false),
    ];
    let measured = measured(&ops, compacting());
    assert!(measured.is_ok(), "{measured:#?}");
}

/// A rewind that also removes the messages that a summary covers.
#[test]
fn a_rewind_before_a_summary_removes_the_summary() {
    let run = |chars, fails| Op::Run { chars, fails };
    let ops = [
        run(5_003, true),
        run(3_134, true),
        run(3_684, false),
        Op::Rewind { back: 6 },
        Op::Say,
        Op::Answer,
        Op::Say,
    ];
    let measured = measured(&ops, compacting());
    assert_eq!(measured.compactions.len(), 1);
    assert!(measured.is_ok(), "{measured:#?}");
}

#[test]
fn without_read_tools_facts_outside_the_summary_are_lost() {
    let mut ops = vec![Op::Say];
    ops.extend(vec![
        Op::Run {
            chars: 4_000,
            fails: true
        };
        8
    ]);
    ops.extend([Op::Say, Op::Answer]);
    let found = measured(&ops, compacting());
    assert!(found.probe_totals().recoverable > 0 && found.lost.is_empty());
    let mut policy = compacting();
    policy.model_tools.enabled_tools.clear();
    let lost = measured(&ops, policy);
    assert!(!lost.lost.is_empty());
    assert_eq!(lost.lost.len(), lost.probe_totals().lost);
}

/// Returns a failure, further results that make it old, and a long pause.
fn old_failure(chars: usize) -> Vec<Op> {
    let mut ops = vec![Op::Say, Op::Run { chars, fails: true }];
    ops.extend(vec![
        Op::Run {
            chars: 100,
            fails: false
        };
        6
    ]);
    ops.extend([Op::Answer, Op::Wait { minutes: 61 }, Op::Say, Op::Answer]);
    ops
}

#[track_caller]
fn check_errors(ops: &[Op], policy: Policy, visible: usize, recoverable: usize, lost: usize) {
    let measured = measured(ops, policy);
    let expected = ProbeCounts {
        visible,
        recoverable,
        lost,
    };
    assert_eq!(measured.probes[&ProbeKind::Error], expected);
    assert_eq!(measured.lost.len(), lost);
}

#[test]
fn a_cleared_failure_is_found_through_its_call() {
    let ops = old_failure(100);
    check_errors(&ops, no_levels(), 1, 0, 0);
    // The pause is longer than the idle time of an hour, so old results are cleared.
    check_errors(&ops, Policy::default(), 0, 1, 0);
    let measured = measured(&ops, Policy::default());
    assert_eq!(measured.changes["results cleared by time"], 1);
    // Of the seven results, the five latest stay.
    assert_eq!(measured.cleared, 2);
}

#[test]
fn without_the_read_tool_a_stored_result_is_lost() {
    let mut policy = Policy::default();
    policy.model_tools.enabled_tools.clear();
    check_errors(&old_failure(100), policy, 0, 0, 1);
}

#[test]
fn a_stored_failure_is_found_through_its_reference() {
    let mut policy = Policy::default();
    policy.tool_results.max_result_chars = 1_000;
    // The preview contains the first line of the error.
    check_errors(&old_failure(5_000), policy.clone(), 1, 0, 0);
    policy.microcompact.time.enabled = false;
    policy.microcompact.size.enabled = true;
    policy.microcompact.size.target_tokens = 0;
    policy.microcompact.size.min_freed_tokens = 0;
    policy.tool_results.max_result_chars = 50_000;
    policy.tokens.default_window_tokens = Some(34_000);
    check_errors(&old_failure(5_000), policy, 0, 1, 0);
}

#[test]
fn rewound_messages_are_not_probed() {
    let ops = [Op::Say, Op::Answer, Op::Say, Op::Rewind { back: 1 }];
    let measured = measured(&ops, Policy::default());
    // The second question was rewound, so only the first one is a probe.
    assert_eq!(measured.probe_totals().visible, 1);
    assert_eq!(measured.level_changes(), 0);
    assert_eq!(measured.changes.len(), 1);
}

#[test]
fn a_pause_expires_the_cache_and_a_change_invalidates_the_rest() {
    let quick = [
        Op::Say,
        Op::Run {
            chars: 9_000,
            fails: false,
        },
        Op::Say,
        Op::Answer,
    ];
    let mut slow = quick.to_vec();
    slow.insert(2, Op::Wait { minutes: 5 });
    let (quick, slow) = (measured(&quick, no_levels()), measured(&slow, no_levels()));
    assert_eq!(quick.token_split.total(), slow.token_split.total());
    // The pause equals the lifetime of the cache.
    assert_eq!(slow.token_split.cache_read, 0);
    assert!(quick.token_split.cache_read < quick.token_split.total());
}

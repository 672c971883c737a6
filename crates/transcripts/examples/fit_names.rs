//! Fits the weights of `crates/facts/src/names/score.rs` on transcripts.
//!
//! Each name of a conversation before a compaction is a sample, unless the summary contains it apart from its list of
//! names. The sample is positive if one of the next tool calls uses the name. The weights of each kind of name come from
//! a logistic regression.
//!
//! ```text
//! cargo run --release -p palimpsest-transcripts --example fit_names -- FORMAT WINDOW_TOKENS FILE…
//! ```

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on should fail"
)]
#![expect(clippy::print_stdout, reason = "the weights are the output")]

use std::collections::HashSet;

use palimpsest_core::memory::fact::NameKind;
use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::view::Provider;
use palimpsest_facts::names::{NameCounts, OTHER_NAMES_LEAD, logarithm, recency};
use palimpsest_transcripts::import::{self, ImportFormat};
use palimpsest_transcripts::replay::RecordedSession;
use palimpsest_transcripts::replay::recall::{MeasuredCompaction, RecallOptions, recall};

/// The number of weights: the base, the model's messages, and the last mention.
const WEIGHTS: usize = 3;
/// The strength of the pull towards zero. It keeps weights finite if a kind has few samples.
const RIDGE: f64 = 1.0;
/// The number of steps of Newton's method, which converges in fewer.
const STEPS: usize = 25;

type Vector = [f64; WEIGHTS];

struct Sample {
    kind: NameKind,
    features: Vector,
    is_needed: bool,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let format = arguments.next().unwrap();
    let (format, provider) = match &*format {
        "claude-code" => (ImportFormat::ClaudeCode, Provider::Anthropic),
        "openai" => (ImportFormat::OpenAi, Provider::OpenAi),
        other => panic!("the format {other} is not one of claude-code and openai"),
    };
    let window: u32 = arguments.next().unwrap().parse().unwrap();
    let mut policy = Policy::default();
    policy.tokens.default_window_tokens = Some(window);
    let reserve = &mut policy.autocompact.output_reserve_tokens;
    *reserve = (*reserve).min(window / 8);
    let options = RecallOptions {
        provider,
        policy: &policy,
        window: WindowHint::default(),
        texts: &[],
    };
    let mut samples = Vec::new();
    for path in arguments {
        let bytes = std::fs::read(path).unwrap();
        for session in &import::read(format, &bytes).sessions {
            let tape = RecordedSession::new(session);
            for one in recall(&tape, options) {
                samples.extend(samples_of(&tape, &one));
            }
        }
    }
    for kind in [NameKind::Path, NameKind::Identifier] {
        let samples: Vec<&Sample> = samples.iter().filter(|one| one.kind == kind).collect();
        let needed = samples.iter().filter(|one| one.is_needed).count();
        let [base, said, recent] = fit(&samples).map(|weight| (weight * 1_000.0).round());
        println!(
            "{kind:?}: base {base}, said {said}, recent {recent} ({needed} of {} names are needed)",
            samples.len()
        );
    }
}

/// Returns the names of the conversation before a compaction.
fn samples_of(tape: &RecordedSession, one: &MeasuredCompaction) -> Vec<Sample> {
    let mut counts = NameCounts::default();
    for (_, message) in tape.messages().take_while(|(line, _)| *line <= one.line) {
        counts.record(message, one.root.as_deref());
    }
    let lines = one.summary.lines();
    let others = lines.filter(|line| !line.starts_with(OTHER_NAMES_LEAD));
    let others = others.collect::<Vec<_>>().join("\n");
    let needs: HashSet<&str> = one.needs.iter().map(|need| &*need.text).collect();
    let names = counts.iter().filter(|name| !others.contains(name.text));
    let samples = names.map(|name| Sample {
        kind: name.kind,
        features: [1_000, logarithm(name.said), recency(name.age)].map(thousandths),
        is_needed: needs.contains(name.text),
    });
    samples.collect()
}

fn thousandths(value: i32) -> f64 {
    f64::from(value) / 1_000.0
}

/// Returns the weights with the highest likelihood, by Newton's method.
fn fit(samples: &[&Sample]) -> Vector {
    let mut weights = [0.0; WEIGHTS];
    for _ in 0..STEPS {
        let mut gradient = [0.0; WEIGHTS];
        let mut curvature = [[0.0; WEIGHTS]; WEIGHTS];
        for sample in samples {
            let sum: f64 = dot(&sample.features, &weights);
            let probability = 1.0 / (1.0 + (-sum).exp());
            let error = probability - f64::from(u8::from(sample.is_needed));
            let certainty = probability * (1.0 - probability);
            for (row, feature) in sample.features.iter().enumerate() {
                gradient[row] += feature * error;
                for (value, other) in curvature[row].iter_mut().zip(&sample.features) {
                    *value += certainty * feature * other;
                }
            }
        }
        for at in 1..WEIGHTS {
            gradient[at] += RIDGE * weights[at];
            curvature[at][at] += RIDGE;
        }
        let step = solve(curvature, gradient);
        for (weight, change) in weights.iter_mut().zip(step) {
            *weight -= change;
        }
    }
    weights
}

fn dot(one: &Vector, other: &Vector) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// Solves a system of linear equations by elimination.
fn solve(mut matrix: [Vector; WEIGHTS], mut right: Vector) -> Vector {
    for pivot in 0..WEIGHTS {
        for row in 0..WEIGHTS {
            if row == pivot {
                continue;
            }
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            let of_pivot = matrix[pivot];
            for (value, other) in matrix[row].iter_mut().zip(of_pivot) {
                *value -= factor * other;
            }
            right[row] -= factor * right[pivot];
        }
    }
    for (at, row) in matrix.iter().enumerate() {
        right[at] /= row[at];
    }
    right
}

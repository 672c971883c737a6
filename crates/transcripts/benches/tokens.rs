//! A benchmark of the three estimators: their cost and, with `TRANSCRIPTS=folder`, their error
//! against the usage that providers reported in Claude Code transcripts.
//!
//! The benchmark only prints and never fails. A cost is the minimum of several rounds. An error
//! applies to the growth of the view between two usage reports of the same model.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench prints and looks at the clock"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palimpsest_core::ids::{Epoch, MessageId, Ordinal};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{Message, ResultContent, Role, ToolResult};
use palimpsest_core::policy::{Policy, TokenEstimator};
use palimpsest_core::tokens::{TokenCounter, TokenLedger};
use palimpsest_transcripts::import::{self, ImportFormat, ImportStep, ImportedSession};
use uuid::Uuid;

const ESTIMATORS: [(&str, TokenEstimator); 3] = [
    ("bytes", TokenEstimator::Bytes),
    ("o200k", TokenEstimator::O200k),
    ("cl100k", TokenEstimator::Cl100k),
];
/// The number of bytes that one count encodes completely.
const READ_BYTES: usize = 16 * 1024;
const LARGE_BYTES: usize = 300_000;
const ROUNDS: usize = 9;
/// The minimum growth in tokens. A smaller growth is too noisy, and the ledger does not learn from
/// it.
const MIN_TOKENS: u64 = 500;
/// A window above all real ones, so that every report counts as credible.
const WINDOW: u64 = 10_000_000;

fn main() {
    costs();
    if let Some(folder) = std::env::var_os("TRANSCRIPTS") {
        errors(Path::new(&folder));
    } else {
        println!("\nTRANSCRIPTS=folder prints how far each is from reported usage.");
    }
}

fn counter(estimator: TokenEstimator) -> TokenCounter {
    Policy::default().counter().by(estimator)
}

fn costs() {
    println!("made ready, the first time:");
    for (name, estimator) in ESTIMATORS {
        let begun = Instant::now();
        counter(estimator).prepare();
        println!("  {name:8}{:9.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("\nms a MB that is read whole | µs for one result of 300 KB");
    for (kind, text) in texts() {
        print!("  {kind:14}");
        let part = &text[..text.floor_char_boundary(READ_BYTES)];
        for (name, estimator) in ESTIMATORS {
            let counter = counter(estimator);
            let per_mb = least(|| counter.text(part)).as_secs_f64() * 1e9 / part.len() as f64;
            print!("  {name} {per_mb:7.2}");
        }
        print!("  |");
        let result = ToolResult {
            tool_use_id: "x".into(),
            content: ResultContent::Text(text.as_str().into()),
            is_error: None,
            extra: UnknownFields::default(),
        };
        for (name, estimator) in ESTIMATORS {
            let took = least(|| counter(estimator).result(&result));
            print!("  {name} {:6.0}", took.as_secs_f64() * 1e6);
        }
        println!();
    }
}

fn least(count: impl Fn() -> u32) -> Duration {
    let once = |_| {
        let begun = Instant::now();
        std::hint::black_box(count());
        begun.elapsed()
    };
    (0..ROUNDS).map(once).min().unwrap()
}

/// Returns typical tool output, and worst cases for an encoder with superlinear time.
fn texts() -> Vec<(&'static str, String)> {
    // An xorshift generator with a fixed seed makes all runs comparable.
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut logs = String::new();
    while logs.len() < LARGE_BYTES {
        let (id, number) = (next(), next() % 10_000);
        let line = format!(
            "{{\"level\":\"info\",\"id\":\"{id:016x}\",\"took_ms\":{number},\"path\":\"/v1/items/{number}\"}}\n"
        );
        logs.push_str(&line);
    }
    let mut of = |letters: &str| {
        let letters: Vec<char> = letters.chars().collect();
        let mut any = || letters[usize::try_from(next()).unwrap_or(0) % letters.len()];
        let mut text = String::new();
        while text.len() < LARGE_BYTES {
            text.push(any());
        }
        text
    };
    let alphabet = "abcdefghijklmnopqrstuvwxyz";
    let base64 = format!("{alphabet}{}0123456789+/", alphabet.to_uppercase());
    let wide: String = ('\u{4e00}'..'\u{7e00}').collect();
    let code = include_str!("../../types/src/tokens/counter.rs");
    vec![
        ("code", code.repeat(LARGE_BYTES / code.len() + 1)),
        ("JSON logs", logs),
        ("base64", of(&base64)),
        ("random letters", of(alphabet)),
        ("CJK", of(&wide)),
        ("one letter", "a".repeat(LARGE_BYTES)),
        ("spaces", " ".repeat(LARGE_BYTES)),
        ("line of =", "=".repeat(LARGE_BYTES)),
    ]
}

/// The errors of the estimates for one model, in thousandths of the reported growth.
#[derive(Default)]
struct Errors {
    raw: Vec<u64>,
    calibrated: Vec<u64>,
    /// The total estimate. `reported` is the total reported growth.
    estimated: u64,
    reported: u64,
}

type OfModels = BTreeMap<Box<str>, [Errors; 3]>;

fn errors(folder: &Path) {
    let mut all = OfModels::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in &files {
        // Directories and unreadable files are skipped.
        let Ok(bytes) = std::fs::read(file) else {
            continue;
        };
        for session in &import::read(Some(ImportFormat::ClaudeCode), &bytes).sessions {
            measure(session, &mut all);
        }
    }
    println!("\nerror of the growth between two reports, in % of it: median and p90");
    for (model, of_model) in &all {
        println!("  {model}, {} growths", of_model[0].raw.len());
        for ((name, _), errors) in ESTIMATORS.iter().zip(of_model) {
            let ratio = errors.reported as f64 / errors.estimated.max(1) as f64;
            let [raw, calibrated] = [&errors.raw, &errors.calibrated].map(|all| {
                let mut all = all.clone();
                all.sort_unstable();
                let at = |tenths: usize| all[(all.len() * tenths / 10).min(all.len() - 1)] as f64;
                format!("{:5.1} {:5.1}", at(5) / 10.0, at(9) / 10.0)
            });
            println!(
                "    {name:8} as it is {raw}   calibrated {calibrated}   reported / estimated {ratio:.2}"
            );
        }
    }
}

/// Measures one session with a ledger per estimator.
fn measure(session: &ImportedSession<'_>, all: &mut OfModels) {
    let mut ledgers: [TokenLedger; 3] = Default::default();
    let mut last_model: Box<str> = Box::default();
    let forget = |ledgers: &mut [TokenLedger; 3]| {
        for ledger in ledgers {
            *ledger = TokenLedger {
                calibration: ledger.calibration,
                ..TokenLedger::default()
            };
        }
    };
    for (number, step) in (0_u32..).zip(&session.steps) {
        let message = match step {
            ImportStep::Message(message) => message,
            // Earlier reports do not apply to the remaining view.
            ImportStep::Rewind(_) | ImportStep::Compacted(_) | ImportStep::Removed { .. } => {
                forget(&mut ledgers);
                continue;
            }
        };
        let id = MessageId::new(Uuid::from_u128(number.into()));
        let Ok(message) = message.decode(id) else {
            continue;
        };
        if message.transcript_only {
            continue;
        }
        let model = message.model.clone().unwrap_or_default();
        if message.role == Role::Assistant && model != last_model {
            forget(&mut ledgers);
            last_model.clone_from(&model);
        }
        for (index, ((_, estimator), ledger)) in ESTIMATORS.iter().zip(&mut ledgers).enumerate() {
            if let Some(grown) = growth(ledger, &message) {
                let errors = &mut all.entry(model.clone()).or_default()[index];
                let off = |estimate: u64| estimate.abs_diff(grown) * 1_000 / grown;
                errors.raw.push(off(ledger.tail));
                errors
                    .calibrated
                    .push(off(ledger.calibration.apply(ledger.tail)));
                errors.estimated += ledger.tail;
                errors.reported += grown;
            }
            let size = counter(*estimator).message(&message);
            ledger.add(
                &message,
                Ordinal::new(number),
                size,
                Epoch::default(),
                WINDOW,
            );
        }
    }
}

/// Returns the reported growth of the view up to this response. Returns `None` if the growth is
/// unknown or too small.
fn growth(ledger: &TokenLedger, message: &Message) -> Option<u64> {
    let (usage, before) = (message.usage?, ledger.anchor.as_ref()?);
    let goes_on = before.provider_message_id.is_some()
        && before.provider_message_id == message.provider_message_id;
    if message.role != Role::Assistant || goes_on || ledger.tail < MIN_TOKENS {
        return None;
    }
    let prompt = usage.total_tokens().checked_sub(usage.output_tokens)?;
    let grown = prompt.checked_sub(before.usage.total_tokens())?;
    (grown >= MIN_TOKENS).then_some(grown)
}

//! Synthetic conversations from a seed, equal in each run. An agent reads, searches, edits and runs commands, with
//! results of all sizes. A user asks from time to time.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::conversation::Conversation;

/// Number of model responses per conversation.
const ANSWERS: usize = 160;
/// The vocabulary of the texts.
const WORDS: [&str; 32] = [
    "account", "balance", "the", "of", "ledger", "entry", "returns", "a", "value", "that", "is",
    "posted", "when", "transfer", "fails", "with", "error", "in", "module", "test", "expected",
    "but", "found", "cents", "currency", "batch", "0x3f", "line", "struct", "fn", "->",
    "Result<(), Error>",
];

/// Creates `count` conversations, with seeds from 1.
pub(crate) fn make(count: u64) -> Vec<Conversation> {
    let one = |seed| {
        let messages = messages(&mut fastrand::Rng::with_seed(seed));
        Conversation::new(format!("made-{seed}"), messages)
            .expect("what was just made can be written as JSON")
    };
    (1..=count).map(one).collect()
}

fn messages(chance: &mut fastrand::Rng) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "user", "content": text(chance, 300) })];
    let mut number = 0;
    for _ in 0..ANSWERS {
        let said = chance.usize(20..400);
        let mut answer = vec![json!({ "type": "text", "text": text(chance, said) })];
        let mut results = Vec::new();
        // One of eight responses ends the turn, and the user writes the next input.
        if chance.usize(0..8) > 0 {
            for _ in 0..chance.usize(1..=3) {
                number += 1;
                let id = format!("toolu_{number:06}");
                let (call, result) = call(chance, &id);
                answer.push(call);
                results.push(result);
            }
        } else {
            let asked = chance.usize(40..600);
            results.push(json!({ "type": "text", "text": text(chance, asked) }));
        }
        messages.push(json!({ "role": "assistant", "content": answer }));
        messages.push(json!({ "role": "user", "content": results }));
    }
    messages.push(json!({ "role": "assistant", "content": "Done." }));
    messages
}

/// Returns a call and its result.
fn call(chance: &mut fastrand::Rng, id: &str) -> (Value, Value) {
    let path = format!("/src/module_{}/part_{}.rs", chance.u8(..), chance.u8(..));
    let (name, input) = match chance.usize(0..4) {
        0 => ("Read", json!({ "file_path": path })),
        1 => ("Grep", json!({ "pattern": text(chance, 12), "path": path })),
        2 => (
            "Edit",
            json!({ "file_path": path, "old_string": text(chance, 200), "new_string": text(chance, 260) }),
        ),
        _ => (
            "Bash",
            json!({ "command": format!("cargo test -p {}", chance.u8(..)) }),
        ),
    };
    // Most results are short, some are long, and one of forty is very long.
    let size = match chance.usize(0..40) {
        0 => chance.usize(20_000..90_000),
        1..=8 => chance.usize(4_000..16_000),
        _ => chance.usize(60..2_500),
    };
    let call = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    let result =
        json!({ "type": "tool_result", "tool_use_id": id, "content": lines(chance, size) });
    (call, result)
}

fn text(chance: &mut fastrand::Rng, size: usize) -> String {
    let mut text = String::with_capacity(size + 20);
    while text.len() < size {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(WORDS[chance.usize(..WORDS.len())]);
    }
    text
}

fn lines(chance: &mut fastrand::Rng, size: usize) -> String {
    let mut lines = String::with_capacity(size + 120);
    let mut number = 0;
    while lines.len() < size {
        number += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{number:>6}  {}", text(chance, 60));
    }
    lines
}

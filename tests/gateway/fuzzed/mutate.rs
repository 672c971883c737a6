//! Changes to bodies and streams: bytes, JSON values and events.

use fastrand::Rng;
use serde_json::{Value, json};

/// Changes a few bytes: flips, deletions, insertions and repetitions.
pub(crate) fn bytes(random: &mut Rng, input: &mut Vec<u8>) {
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(0..=input.len());
        let rest = input.len() - at;
        match random.u8(0..7) {
            // At the end of the input, no byte can change. The last arm then truncates nothing.
            0 | 1 if rest > 0 => input[at] ^= 1 << random.u8(0..8),
            2 if rest > 0 => input[at] = random.u8(..),
            3 => drop(input.drain(at..at + random.usize(0..=rest.min(40)))),
            4 => {
                let again = input[at..at + random.usize(0..=rest.min(200))].to_vec();
                input.splice(at..at, again);
            }
            5 => {
                let fresh: Vec<u8> = (0..random.usize(1..=8)).map(|_| random.u8(..)).collect();
                input.splice(at..at, fresh);
            }
            _ => input.truncate(at),
        }
    }
}

/// Changes the events of a stream: some are dropped, repeated, moved or replaced.
pub(crate) fn events(random: &mut Rng, stream: &[u8]) -> Vec<u8> {
    let mut events = split_events(stream);
    for _ in 0..random.usize(1..=3) {
        if events.is_empty() {
            break;
        }
        let at = random.usize(0..events.len());
        match random.u8(0..8) {
            0 => drop(events.remove(at)),
            1 => events.insert(at, events[at].clone()),
            2 => {
                let other = random.usize(0..events.len());
                events.swap(at, other);
            }
            3 => events.insert(at, foreign_event(random)),
            4 => events[at] = with_changed_json(random, &events[at]),
            5 => events[at] = with_huge_field(random, &events[at]),
            6 => events.truncate(at),
            _ => bytes(random, &mut events[at]),
        }
    }
    events.concat()
}

/// Splits a stream after each blank line.
fn split_events(stream: &[u8]) -> Vec<Vec<u8>> {
    let (mut events, mut begin, mut at) = (Vec::new(), 0, 0);
    while at < stream.len() {
        let end = [&b"\n\n"[..], b"\r\n\r\n"];
        match end.iter().find(|end| stream[at..].starts_with(end)) {
            Some(end) => {
                at += end.len();
                events.push(stream[begin..at].to_vec());
                begin = at;
            }
            None => at += 1,
        }
    }
    events.push(stream[begin..].to_vec());
    events
}

fn foreign_event(random: &mut Rng) -> Vec<u8> {
    let events: [&[u8]; 8] = [
        b": a comment\n\n",
        b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
        b"data: {\"type\":\"content_block_delta\",\"index\":77,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
        b"data: {\"type\":\"response.output_item.done\",\"output_index\":18446744073709551615,\"item\":{}}\n\n",
        b"data: [DONE]\n\n",
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":4294967296}]}},{\"index\":1}]}\n\n",
        b"data: \xff\xfe{\"type\":\"\xc3\x28\"}\n\n",
        b"id: 1\nretry: 1\ndata\ndata: \n\r\n",
    ];
    random.choice(events).unwrap_or_default().to_vec()
}

/// Changes a value in the JSON of an event.
fn with_changed_json(random: &mut Rng, event: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let Some((before, after)) = text.split_once("data: ") else {
        return event.to_vec();
    };
    let line = after.lines().next().unwrap_or_default();
    let Ok(mut value) = serde_json::from_str::<Value>(line) else {
        return event.to_vec();
    };
    json_value(random, &mut value);
    format!("{before}data: {value}{}", &after[line.len()..]).into_bytes()
}

/// Adds a field of up to 300 KB to the JSON of an event.
fn with_huge_field(random: &mut Rng, event: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let size = random.usize(1_000..300_000);
    let huge = format!("data: {{\"padding\":\"{}\",", "p".repeat(size));
    text.replacen("data: {", &huge, 1).into_bytes()
}

/// Changes a value at a random place.
pub(crate) fn json_value(random: &mut Rng, value: &mut Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() && random.u8(0..8) > 0 => {
            let at = random.usize(0..fields.len());
            let name = fields.keys().nth(at).cloned().unwrap_or_default();
            match random.u8(0..12) {
                0 => drop(fields.remove(&name)),
                1 => {
                    let renamed = format!("{name}_");
                    let moved = fields.remove(&name).unwrap_or_default();
                    fields.insert(renamed, moved);
                }
                _ => json_value(random, &mut fields[&name]),
            }
        }
        Value::Array(items) if !items.is_empty() && random.u8(0..8) > 0 => {
            let at = random.usize(0..items.len());
            match random.u8(0..10) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, items[at].clone()),
                2 => {
                    let other = random.usize(0..items.len());
                    items.swap(at, other);
                }
                _ => json_value(random, &mut items[at]),
            }
        }
        _ => *value = odd_value(random),
    }
}

fn odd_value(random: &mut Rng) -> Value {
    match random.u8(0..14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1.5e300),
        5 => json!(""),
        6 => json!("\u{0}\u{feff}\u{202e}"),
        7 => json!([]),
        8 => json!({}),
        9 => json!([[[{"type": "text", "text": {"text": 1}}]]]),
        10 => json!({"type": "tool_use", "id": "", "name": "", "input": "x"}),
        11 => json!({"type": "tool_result", "tool_use_id": "none", "content": [null]}),
        12 => json!({"role": "system", "content": [{"type": "image"}]}),
        _ => json!("x".repeat(random.usize(0..20_000))),
    }
}

/// Changes the text of a JSON body in a way that a parser of values does not show: repeated keys, deep nesting, other
/// numbers, lone surrogates, white space and text after the end.
pub(crate) fn json_text(random: &mut Rng, text: &str) -> Vec<u8> {
    let body = text.strip_prefix('{').unwrap_or(text);
    let changed = match random.u8(0..9) {
        0 => format!("{{\"messages\":[],{body}"),
        1 => format!("{{\"model\":\"other\",\"model\":null,{body}"),
        2 => {
            let depth = random.usize(1..3_000);
            let nested = "[".repeat(depth) + &"]".repeat(depth);
            format!("{{\"nested\":{nested},{body}")
        }
        3 => text.replacen("\"text\"", "\"te\\u0078t\"", random.usize(1..3)),
        4 => text.replacen("question", "quest\\ud800ion", 1),
        5 => text.replace(':', " :\n\t "),
        6 => format!("\u{feff}{text}"),
        7 => format!("{text} {text}"),
        _ => text.replacen('}', ",}", 1),
    };
    changed.into_bytes()
}

//! Tests of the estimators against the encodings' own counts and for generated texts.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "made-up lengths, and ratios that are looked at roughly"
)]

use proptest::prelude::*;

use super::bpe::{Encoding, MAX_READ_BYTES, SampledCount};
use super::bytes::{self, TextKind};
use super::*;
use crate::json::UnknownFields;
use crate::message::{Block, Message, ResultContent, Role, ToolResult};
use crate::policy::{Policy, TokenEstimator};

const ALL: [TokenEstimator; 3] = [
    TokenEstimator::Bytes,
    TokenEstimator::O200k,
    TokenEstimator::Cl100k,
];

fn counter(estimator: TokenEstimator) -> TokenCounter {
    Policy::default().counter().by(estimator)
}

/// Counts the tokens of a text without the overhead of a message.
fn count(encoding: Encoding, text: &str) -> u64 {
    SampledCount::new(encoding, text.len()).text(text, TextKind::Prose)
}

/// Texts with their tokens in `o200k` and `cl100k`. Three independent implementations agree on these
/// counts.
const TABLE: [(&str, u64, u64); 35] = [
    ("", 0, 0),
    ("a", 1, 1),
    (" ", 1, 1),
    ("\n", 1, 1),
    ("Hello, world!", 4, 4),
    ("hello world", 2, 2),
    ("The quick brown fox jumps over the lazy dog.", 10, 10),
    ("don't", 1, 2),
    ("I'LL", 3, 3),
    ("   leading and trailing   ", 5, 5),
    ("a\n\n\nb", 3, 3),
    (
        "\t\tfn main() {\n\t\t\tprintln!(\"{}\", 1);\n\t\t}\n",
        15,
        14,
    ),
    ("{\"a\": [1, 2, 3], \"b\": null}", 17, 17),
    ("1234567890", 4, 4),
    ("3.14159", 4, 4),
    ("日本語のテキスト", 6, 8),
    ("中文字符测试", 3, 4),
    ("한국어 텍스트", 5, 7),
    ("Привет, мир", 4, 6),
    ("مرحبا بالعالم", 4, 10),
    ("👩\u{200d}👩\u{200d}👧\u{200d}👦 family", 12, 19),
    ("café naïve", 4, 4),
    ("cafe\u{301}", 3, 3),
    ("<|endoftext|>", 7, 7),
    ("https://example.com/a/b?c=d&e=%20f#g", 14, 14),
    ("0x1f4a9deadbeef", 10, 10),
    ("aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQ=", 22, 27),
    ("================", 1, 1),
    ("________________________________", 1, 1),
    ("snake_case_name camelCaseName SCREAMING_CASE", 10, 10),
    ("\0\u{1}\u{2}", 3, 3),
    (".\n/", 1, 2),
    ("\r\n\r\n", 1, 1),
    ("  \n  \n", 1, 1),
    ("x = y +\u{a0}z", 6, 6),
];

#[test]
fn the_encodings_match_the_reference_counts() {
    for (text, o200k, cl100k) in TABLE {
        assert_eq!(count(Encoding::O200k, text), o200k, "{text:?}");
        assert_eq!(count(Encoding::Cl100k, text), cl100k, "{text:?}");
    }
}

fn result(content: ResultContent) -> Block {
    Block::ToolResult(ToolResult {
        tool_use_id: "x".into(),
        content,
        is_error: None,
        extra: UnknownFields::default(),
    })
}

#[test]
fn an_image_has_the_tokens_of_the_policy() {
    let mut policy = Policy::default();
    policy.tokens.unknown_image_tokens = 700;
    let picture = Block::Media(crate::message::Media {
        kind: crate::message::MediaKind::Image,
        source: crate::message::MediaSource::Url("https://example.com/a.png".into()),
        extra: UnknownFields::default(),
    });
    for estimator in ALL {
        assert_eq!(policy.counter().by(estimator).block(&picture), 700);
        assert_eq!(counter(estimator).block(&picture), 2_000);
    }
}

/// Returns a deterministic pseudo-random number generator.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Returns about 300 KB of each kind of tool output.
fn output() -> Vec<(&'static str, String)> {
    let mut next = numbers(88_172_645_463_325_252);
    let mut logs = String::new();
    while logs.len() < 300_000 {
        let (a, b) = (next(), next() % 10_000);
        let line = format!(
            "{{\"at\":\"12:{:02}:{:02}\",\"id\":\"{a:016x}\",\"took_ms\":{b},\"path\":\"/v1/items/{b}\"}}\n",
            a % 60,
            b % 60
        );
        logs.push_str(&line);
    }
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let base64 = (0..300_000).map(|_| letters[next() as usize % 64] as char);
    let base64: String = base64.collect();
    let wide = (0..100_000).map(|_| char::from_u32(0x4e00 + (next() % 0x3000) as u32).unwrap());
    let code = include_str!("counter.rs").repeat(40);
    vec![
        (
            "mixed",
            [&logs[..100_000], &base64[..50_000], &code[..150_000]].concat(),
        ),
        ("logs", logs),
        ("base64", base64),
        ("code", code),
        ("cjk", wide.collect()),
        ("one letter", "a".repeat(300_000)),
        ("spaces", " ".repeat(300_000)),
        ("words", "lorem ipsum dolor ".repeat(16_000)),
    ]
}

/// Counts a whole text in parts that are small enough to be encoded completely.
fn read_whole(encoding: Encoding, text: &str) -> u64 {
    let (mut rest, mut tokens) = (text, 0);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_READ_BYTES));
        tokens += count(encoding, part);
        rest = after;
    }
    tokens
}

#[test]
fn samples_of_large_texts_approximate_the_whole() {
    for (name, text) in output() {
        for encoding in [Encoding::O200k, Encoding::Cl100k] {
            let (whole, sampled) = (read_whole(encoding, &text), count(encoding, &text));
            let off = whole.abs_diff(sampled) as f64 / whole as f64;
            // Each cut adds about one token. A token of spaces is as long as a quarter of a sample.
            let most = if name == "spaces" { 0.1 } else { 0.05 };
            assert!(off < most, "{name}: {sampled} of {whole}");
        }
    }
}

/// Texts of one count are sampled in proportion to their lengths, and the unread parts still count.
#[test]
fn a_combined_count_equals_the_sum_of_single_counts() {
    let mut next = numbers(7);
    let message = |text: &str| {
        let block = result(ResultContent::Text(text.into()));
        let id = crate::ids::MessageId::new(uuid::Uuid::nil());
        Message::new(id, Role::User, vec![block])
    };
    let output = output();
    let messages: Vec<Message> = (0..400)
        .map(|_| {
            let (_, text) = &output[next() as usize % 4];
            let length = 20 + next() as usize % 6_000;
            let start = next() as usize % (text.len() - length);
            message(&text[start..start + length])
        })
        .collect();
    for estimator in ALL {
        let counter = counter(estimator);
        let alone: u64 = messages
            .iter()
            .map(|message| u64::from(counter.message(message).tokens))
            .sum();
        let bytes = messages.iter().map(Message::content_bytes).sum();
        let mut tally = counter.tally(bytes);
        let sizes = messages.iter().map(|message| tally.message(message));
        let together: u64 = sizes.map(|size| u64::from(size.tokens)).sum();
        let off = alone.abs_diff(together) as f64 / alone as f64;
        assert!(off < 0.1, "{estimator:?}: {together} of {alone}");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => any::<String>(),
        2 => prop::collection::vec(any::<u8>(), 0..600)
            .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        2 => ("[a-zA-Z0-9 \n\t=(){}/*'\"-]{0,40}", 1..200_usize).prop_map(|(text, n)| text.repeat(n)),
        1 => (any::<char>(), 0..40_000_usize).prop_map(|(c, n)| c.to_string().repeat(n)),
    ]
}

proptest! {
    #[test]
    fn a_joined_text_has_about_the_tokens_of_its_parts(a in text(), b in text()) {
        for encoding in [Encoding::O200k, Encoding::Cl100k] {
            let (whole, parts) = (format!("{a}{b}"), count(encoding, &a) + count(encoding, &b));
            if whole.len() <= MAX_READ_BYTES {
                let whole = count(encoding, &whole);
                // Words at the boundary may be joined or split, which affects the tokens up to the
                // next space.
                prop_assert!(whole <= parts + 20, "{} of {}", whole, parts);
                prop_assert!(whole + 40 + whole / 20 >= parts, "{} of {}", whole, parts);
            }
        }
    }

    #[test]
    fn no_text_has_more_tokens_than_bytes(text in text()) {
        for encoding in [Encoding::O200k, Encoding::Cl100k] {
            let tokens = count(encoding, &text);
            // The count of a sampled text is an extrapolation.
            let most = if text.len() <= MAX_READ_BYTES { text.len() } else { text.len() * 2 };
            prop_assert!(tokens <= most as u64);
            prop_assert_eq!(tokens == 0, text.is_empty());
        }
        prop_assert_eq!(bytes::count(&text, TextKind::Code) == 0, text.is_empty());
    }

    #[test]
    fn counts_are_deterministic(texts in prop::collection::vec(text(), 0..20)) {
        for estimator in ALL {
            let blocks = texts.iter().map(|text| result(ResultContent::Text(text.as_str().into())));
            let id = crate::ids::MessageId::new(uuid::Uuid::nil());
            let message = Message::new(id, Role::User, blocks.collect());
            let counter = counter(estimator);
            prop_assert_eq!(counter.message(&message), counter.message(&message));
        }
    }
}

//! Generated source files.

use std::fmt::Write as _;

use fastrand::Rng;

use super::files::SourceFile;

const TYPES: [&str; 6] = [
    "i64", "u32", "Timestamp", "Arc<str>", "BTreeMap<Key, i64>", "Option<u64>",
];
const WHY: [&str; 10] = [
    "The order matters: what was reserved first is released first.",
    "A retry finds the same row, so nothing is booked twice.",
    "Checked here and not by the caller, because two callers forgot it.",
    "The remainder goes to the last part; it is never dropped.",
    "Amounts are minor units: a float would lose a cent in a million.",
    "The lease is renewed by whoever works on it, and expires with them.",
    "An empty page is no error: the period had no movements.",
    "The provider sends this twice on a Monday after a holiday.",
    "It is compared by value, because ids of the old system repeat.",
    "Bounded, so that one customer cannot fill the queue of all.",
];

/// Generates a file with at least a number of lines.
pub(super) fn file(rng: &mut Rng, place: &SourceFile, lines: usize) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = header(&mut out, rng, place);
    let mut number = 0;
    while out.lines().count() < lines {
        number += 1;
        let _ = match rng.u8(0..5) {
            0 => check(&mut out, rng, place, number),
            1 => fold(&mut out, rng, place, number),
            2 => choose(&mut out, rng, place, number),
            3 => test(&mut out, rng, place, number),
            _ => step(&mut out, rng, place, number),
        };
    }
    out
}

/// Adds line numbers, like a tool that reads files.
pub(super) fn numbered(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8 * 300);
    for (number, line) in (1..).zip(text.lines()) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{number:>6}\t{line}");
    }
    out
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn header(out: &mut String, rng: &mut Rng, place: &SourceFile) -> std::fmt::Result {
    let SourceFile { noun, fields, .. } = place;
    writeln!(
        out,
        "//! {noun}: what it holds and what may be done with it.\n\nuse std::collections::BTreeMap;\n\
         use std::sync::Arc;\n\nuse crate::error::{{Error, Result}};\nuse crate::ids::{{Key, Timestamp}};\n\n\
         /// A {} of the ledger.\n#[derive(Debug, Clone, PartialEq, Eq)]\npub struct {noun} {{",
        noun.to_lowercase()
    )?;
    for field in fields {
        let why = pick(rng, &WHY);
        let of = TYPES[rng.usize(..TYPES.len())];
        writeln!(out, "    /// {why}\n    pub {field}: {of},")?;
    }
    writeln!(out, "}}\n")
}

fn check(out: &mut String, rng: &mut Rng, place: &SourceFile, number: u32) -> std::fmt::Result {
    let (noun, verb) = (place.noun, pick(rng, &place.verbs));
    let (field, other) = (pick(rng, &place.fields), pick(rng, &place.fields));
    let why = pick(rng, &WHY);
    let limit = rng.u32(1..90_000);
    writeln!(
        out,
        "impl {noun} {{\n    /// Whether this may {verb} now. {why}\n    \
         pub fn can_{verb}_{number}(&self, at: Timestamp) -> Result<()> {{\n        \
         if self.{field} > {limit} {{\n            \
         return Err(Error::refused(\"{noun}\", \"{field} is over {limit}: {verb} less, or raise it\"));\n        }}\n        \
         // {why}\n        let left = {limit}_i64.saturating_sub(self.{other}.into());\n        \
         tracing::debug!(left, %at, \"{verb}\");\n        Ok(())\n    }}\n}}\n"
    )
}

fn fold(out: &mut String, rng: &mut Rng, place: &SourceFile, number: u32) -> std::fmt::Result {
    let (noun, verb, field) = (
        place.noun,
        pick(rng, &place.verbs),
        pick(rng, &place.fields),
    );
    let why = pick(rng, &WHY);
    writeln!(
        out,
        "/// The sum over all that {verb}. {why}\n\
         pub fn {verb}_all_{number}(items: &[{noun}]) -> Result<i64> {{\n    \
         let mut sum = 0_i64;\n    for item in items {{\n        \
         let part = i64::try_from(item.{field}.clone())?;\n        \
         sum = sum.checked_add(part).ok_or(Error::Overflow)?;\n    }}\n    \
         // {why}\n    Ok(sum)\n}}\n"
    )
}

fn choose(out: &mut String, rng: &mut Rng, place: &SourceFile, number: u32) -> std::fmt::Result {
    let SourceFile {
        noun,
        verbs,
        fields,
        ..
    } = place;
    writeln!(
        out,
        "/// What comes of a {} in state `{}`.\npub fn outcome_{number}(state: State, item: &{noun}) -> Outcome {{\n    match state {{",
        noun.to_lowercase(),
        pick(rng, fields)
    )?;
    for (verb, state) in verbs.iter().zip(["Open", "Pending", "Settled", "Failed"]) {
        let field = pick(rng, fields);
        let code = rng.u16(100..999);
        writeln!(
            out,
            "        State::{state} if item.{field}.is_some() => Outcome::after(\"{verb}\", {code}),"
        )?;
    }
    writeln!(
        out,
        "        // {}\n        _ => Outcome::Nothing,\n    }}\n}}\n",
        pick(rng, &WHY)
    )
}

fn step(out: &mut String, rng: &mut Rng, place: &SourceFile, number: u32) -> std::fmt::Result {
    let (noun, verb) = (place.noun, pick(rng, &place.verbs));
    let (field, other) = (pick(rng, &place.fields), pick(rng, &place.fields));
    let why = pick(rng, &WHY);
    writeln!(
        out,
        "/// {why}\npub async fn {verb}_{number}(store: &Store, key: Key, now: Timestamp) -> Result<{noun}> {{\n    \
         let mut row = store.load::<{noun}>(key).await?;\n    \
         let before = row.{field}.clone();\n    row.{field} = next_{other}(&row, now)?;\n    \
         if row.{field} == before {{\n        // {why}\n        return Ok(row);\n    }}\n    \
         store.save(key, &row, Expect::revision(row.revision)).await?;\n    \
         metrics::counter!(\"{}_{verb}_total\").increment(1);\n    Ok(row)\n}}\n",
        noun.to_lowercase()
    )
}

fn test(out: &mut String, rng: &mut Rng, place: &SourceFile, number: u32) -> std::fmt::Result {
    let (noun, verb, field) = (
        place.noun,
        pick(rng, &place.verbs),
        pick(rng, &place.fields),
    );
    let (given, wanted) = (rng.u32(1..99_999), rng.u32(1..99_999));
    writeln!(
        out,
        "#[test]\nfn {verb}_keeps_{field}_{number}() {{\n    let item = {noun}::example({given});\n    \
         let after = item.clone().{verb}({wanted}).unwrap();\n    \
         assert_eq!(after.{field}, item.{field}, \"{verb} must leave {field} alone\");\n    \
         assert_eq!(after.total(), {wanted});\n}}\n"
    )
}

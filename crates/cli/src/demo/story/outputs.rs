//! Generated outputs of tools: test runs, searches, diffs and logs.

use std::fmt::Write as _;

use fastrand::Rng;

use super::files::{PLACES, SourceFile};

/// Generates the output of a test run, with at most one failure.
pub(super) fn tests(
    rng: &mut Rng,
    place: &SourceFile,
    count: usize,
    failing: Option<&str>,
) -> String {
    let mut out = format!(
        "   Compiling {0} v0.9.3 (/work/ledgerd/crates/{0})\n    Finished `test` profile [unoptimized + debuginfo] target(s) in {1}.{2:02}s\n     Running unittests src/lib.rs (target/debug/deps/{0}-{3:016x})\n\nrunning {count} tests\n",
        place.krate(),
        rng.u8(3..40),
        rng.u8(0..100),
        rng.u64(..)
    );
    let at = failing.map(|_| rng.usize(..count));
    for number in 0..count {
        let of = if rng.bool() {
            *place
        } else {
            PLACES[rng.usize(..PLACES.len())]
        };
        let (verb, field) = (of.verbs[rng.usize(..4)], of.fields[rng.usize(..4)]);
        let (name, how) = match (at, failing) {
            (Some(at), Some(name)) if at == number => (name.to_owned(), "FAILED"),
            _ => (
                format!("{}::tests::{verb}_keeps_{field}_{number}", of.module()),
                "ok",
            ),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "test {name} ... {how}");
    }
    let Some(name) = failing else {
        let _ = writeln!(
            out,
            "\ntest result: ok. {count} passed; 0 failed; 0 ignored; finished in {}.{:02}s",
            rng.u8(0..9),
            rng.u8(0..100)
        );
        return out;
    };
    let (line, left, right) = (rng.u16(40..400), rng.u32(1_000..99_999), rng.u8(1..9));
    let wrong = left + u32::from(right);
    let _ = writeln!(
        out,
        "\nfailures:\n\n---- {name} stdout ----\n\nthread '{name}' panicked at {}:{line}:9:\nassertion `left == right` failed: the parts must add up to the whole\n  left: {wrong}\n right: {left}\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\n\nfailures:\n    {name}\n\ntest result: FAILED. {} passed; 1 failed; 0 ignored; finished in {}.{:02}s\n\nerror: test failed, to rerun pass `-p {} --lib`",
        place.path,
        count - 1,
        rng.u8(0..9),
        rng.u8(0..100),
        place.krate(),
    );
    out
}

/// Generates the output of a search.
pub(super) fn matches(rng: &mut Rng, word: &str, count: usize) -> String {
    let mut out = String::new();
    for _ in 0..count {
        let place = PLACES[rng.usize(..PLACES.len())];
        let (line, verb, field) = (
            rng.u16(8..420),
            place.verbs[rng.usize(..4)],
            place.fields[rng.usize(..4)],
        );
        let code = match rng.u8(0..4) {
            0 => format!("let {field} = item.{verb}({word}, now)?;"),
            1 => format!("/// Calls `{word}` before it may {verb}."),
            2 => format!("assert_eq!({word}(&{field}), {});", rng.u32(1..9_999)),
            _ => format!("use crate::{}::{{{word}, {}}};", place.module(), place.noun),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}:{line}:    {code}", place.path);
    }
    out
}

pub(super) fn diff(rng: &mut Rng, places: &[SourceFile], hunks: usize) -> String {
    let mut out = String::new();
    for place in places {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "diff --git a/{0} b/{0}\nindex {1:07x}..{2:07x} 100644\n--- a/{0}\n+++ b/{0}",
            place.path,
            rng.u32(..1 << 28),
            rng.u32(..1 << 28)
        );
        for _ in 0..hunks {
            let (at, verb, field) = (
                rng.u16(10..400),
                place.verbs[rng.usize(..4)],
                place.fields[rng.usize(..4)],
            );
            let (noun, limit) = (place.noun, rng.u32(1..9_999));
            let _ = writeln!(
                out,
                "@@ -{at},8 +{at},11 @@ impl {noun} {{\n     let mut row = store.load::<{noun}>(key).await?;\n-    row.{field} = {verb}(&row).unwrap_or_default();\n+    // The remainder is carried, so that the parts add up.\n+    let ({field}, rest) = {verb}_exact(&row, {limit})?;\n+    row.{field} = {field};\n+    row.carry(rest)?;\n     store.save(key, &row).await?;\n     metrics::counter!(\"{verb}_total\").increment(1);\n     Ok(row)"
            );
        }
    }
    out
}

/// Generates the log of a service, which is too large for a context window.
pub(super) fn log(rng: &mut Rng, place: &SourceFile, lines: usize) -> String {
    let mut out = String::with_capacity(lines * 120);
    let mut millis = rng.u32(0..20_000_000);
    for number in 0..lines {
        millis += rng.u32(5..900);
        let (verb, field) = (place.verbs[rng.usize(..4)], place.fields[rng.usize(..4)]);
        let level = match rng.u8(0..100) {
            0 => "ERROR",
            1..6 => " WARN",
            _ => " INFO",
        };
        let said = match level {
            "ERROR" => format!(
                "{verb} failed: {field} does not match, expected {} found {}",
                rng.u32(..99_999),
                rng.u32(..99_999)
            ),
            " WARN" => format!(
                "{verb} was slow: {field} waited {} ms for a connection",
                rng.u16(200..4_000)
            ),
            _ => format!("{verb} of {field} done"),
        };
        let (hour, minute, second) = (
            millis / 3_600_000 % 24,
            millis / 60_000 % 60,
            millis / 1_000 % 60,
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "2026-03-04T{hour:02}:{minute:02}:{second:02}.{:03}Z {level} {}::{} request={number:06} trace={:016x} took={}us {said}",
            millis % 1_000,
            place.krate(),
            place.module(),
            rng.u64(..),
            rng.u32(80..90_000),
        );
    }
    out
}

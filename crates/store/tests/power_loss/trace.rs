//! Parser for `strace -f -xx` output.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// A system call. Its times are line numbers of the trace. The order of overlapping calls is unknown.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) args: Vec<Arg>,
    pub(crate) result: i64,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arg {
    Text(Vec<u8>),
    Word(String),
}

impl Call {
    pub(crate) fn text(&self, index: usize) -> &[u8] {
        match &self.args[index] {
            Arg::Text(text) => text,
            Arg::Word(word) => panic!("{}: {word} is no text", self.name),
        }
    }

    /// Returns true if the trace contains other bytes than were written. Under load, `strace` sometimes
    /// joins the start and the end of different calls.
    pub(crate) fn is_garbled(&self) -> bool {
        let writes = matches!(self.name.as_str(), "write" | "pwrite64");
        writes && i64::try_from(self.text(1).len()).ok() != Some(self.result)
    }

    pub(crate) fn word(&self, index: usize) -> &str {
        match &self.args[index] {
            Arg::Word(word) => word,
            Arg::Text(_) => panic!("{}: argument {index} is text", self.name),
        }
    }

    pub(crate) fn number(&self, index: usize) -> i64 {
        let word = self.word(index);
        word.parse()
            .unwrap_or_else(|_| panic!("{}: {word}", self.name))
    }

    /// Returns a path argument. Its index depends on the call.
    pub(crate) fn path(&self, index: usize) -> String {
        String::from_utf8(self.text(index).to_vec()).unwrap()
    }
}

/// Returns all successful calls in the order of their ends. Calls without an end are omitted.
pub(crate) fn read(trace: File) -> Vec<Call> {
    let mut unfinished: HashMap<u32, (u64, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (number, line) in (0..).zip(BufReader::with_capacity(1 << 20, trace).lines()) {
        let line = line.unwrap();
        let (pid, rest) = line.split_once(' ').unwrap();
        let pid: u32 = pid.parse().unwrap();
        let rest = rest.trim_start();
        // Lines about exits and signals are not calls.
        if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        }
        if let Some(begin) = rest.strip_suffix(" <unfinished ...>") {
            let mut begin = begin.to_owned();
            if begin.starts_with("close(") {
                // The file descriptor is free from the start of `close`: another thread may reuse it before the end.
                calls.extend(parse(&format!("{begin}) = 0"), number, number));
                begin.clear();
            }
            unfinished.insert(pid, (number, begin));
            continue;
        }
        let (begun, whole) = match rest.strip_prefix("<... ") {
            None => (number, rest.to_owned()),
            Some(resumed) => {
                let (_, end) = resumed.split_once(" resumed>").unwrap();
                let (begun, head) = unfinished.remove(&pid).unwrap();
                if head.is_empty() {
                    continue;
                }
                (begun, head + end)
            }
        };
        calls.extend(parse(&whole, begun, number));
    }
    calls
}

/// Returns true if calls that set the length of a file overlap. sled makes several at once, and the last one in the
/// trace may not be the one that determines the length.
pub(crate) fn has_overlapping_resizes(calls: &[Call]) -> bool {
    let resizes = || calls.iter().filter(|call| call.name == "ftruncate");
    // The calls are in the order of their ends.
    resizes()
        .zip(resizes().skip(1))
        .any(|(a, b)| b.begun < a.ended)
}

/// Parses a call. Returns `None` if it failed or never returned.
fn parse(line: &str, begun: u64, ended: u64) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (rest, result) = rest.rsplit_once(" = ")?;
    let result: i64 = result.split(' ').next()?.parse().ok()?;
    let args = args(rest.trim_end().strip_suffix(')')?);
    (result >= 0).then(|| Call {
        name: name.to_owned(),
        args,
        result,
        begun,
        ended,
    })
}

fn args(mut rest: &str) -> Vec<Arg> {
    let mut args = Vec::new();
    while !rest.is_empty() {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(text) = rest.strip_prefix('"') {
            let (hex, after) = text.split_once('"').unwrap();
            assert!(!after.starts_with("..."), "the trace was cut off");
            args.push(Arg::Text(unhex(hex)));
            rest = after;
        } else {
            // Vectors are not parsed, because no file of the store is written with them.
            let end = rest.find(',').unwrap_or(rest.len());
            args.push(Arg::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    args
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    };
    hex.as_bytes()
        .chunks_exact(4)
        .map(|byte| digit(byte[2]) << 4 | digit(byte[3]))
        .collect()
}

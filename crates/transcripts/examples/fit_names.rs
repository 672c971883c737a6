//! Measures values of `palimpsest_facts::names::OFFSET` on transcripts.
//!
//! For each compaction, the summary without its list of names gets a list with another offset. The number of needs that
//! the new lists contain is printed for each value.
//!
//! ```text
//! cargo run --release -p palimpsest-transcripts --example fit_names -- FORMAT WINDOW_TOKENS FILE…
//! ```

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on should fail"
)]
#![expect(clippy::print_stdout, reason = "the shares are the output")]

use std::collections::HashSet;

use palimpsest_core::message::Message;
use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::view::Provider;
use palimpsest_facts::names::{MemoryRest, Names, OTHER_NAMES_LEAD, update};
use palimpsest_transcripts::import::{self, ImportFormat};
use palimpsest_transcripts::replay::RecordedSession;
use palimpsest_transcripts::replay::recall::{RecallOptions, recall};

const OFFSETS: [u32; 7] = [0, 100, 200, 500, 1_000, 2_000, 5_000];

/// The needs of a compaction that the summary does not contain apart from its list of names.
struct Sample<'a> {
    messages: Vec<&'a Message>,
    summary: String,
    root: Option<Box<str>>,
    needs: Vec<Box<str>>,
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
    // The reserve of the policy would take most of a small window.
    let reserve = &mut policy.autocompact.output_reserve_tokens;
    *reserve = (*reserve).min(window / 8);
    let options = RecallOptions {
        provider,
        policy: &policy,
        window: WindowHint::default(),
        texts: &[],
    };
    let mut sessions = Vec::new();
    for path in arguments {
        let bytes = std::fs::read(path).unwrap();
        let read = import::read(Some(format), &bytes);
        sessions.extend(read.sessions.iter().map(RecordedSession::new));
    }
    let mut samples = Vec::new();
    for session in &sessions {
        samples.extend(samples_of(session, options));
    }
    let needs: usize = samples.iter().map(|sample| sample.needs.len()).sum();
    println!(
        "{} summaries lack {needs} names apart from their lists",
        samples.len()
    );
    for offset in OFFSETS {
        let shown: usize = samples.iter().map(|sample| shown(sample, offset)).sum();
        println!("offset {offset}: the lists contain {shown} of {needs}");
    }
}

fn samples_of<'a>(session: &'a RecordedSession, options: RecallOptions<'_>) -> Vec<Sample<'a>> {
    let measured = recall(session, options).compactions.into_iter();
    let samples = measured.map(|one| {
        let before = session.messages().take_while(|(line, _)| *line <= one.line);
        let lines = one.summary.lines();
        let lines: Vec<&str> = lines
            .filter(|line| !line.starts_with(OTHER_NAMES_LEAD))
            .collect();
        let summary = lines.join("\n");
        let needs = one.needs.into_iter().map(|need| need.text);
        Sample {
            messages: before.map(|(_, message)| message).collect(),
            needs: needs.filter(|need| !summary.contains(&**need)).collect(),
            summary,
            root: one.root,
        }
    });
    samples.collect()
}

/// Returns the number of needs in the list of names.
fn shown(sample: &Sample<'_>, offset: u32) -> usize {
    let mut names = Names::with_offset(offset);
    for message in &sample.messages {
        names.record(message);
    }
    let rest = MemoryRest {
        text: &sample.summary,
        root: sample.root.as_deref(),
    };
    let known = update(None, &names, rest);
    let shown = known.names.iter().filter(|known| known.is_shown);
    let shown: HashSet<&str> = shown.map(|known| &*known.name).collect();
    let needs = sample.needs.iter();
    needs.filter(|need| shown.contains(&***need)).count()
}

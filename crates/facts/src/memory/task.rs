//! The sections of the title and the task, in the user's own words.

use std::borrow::Cow;
use std::collections::HashSet;

use palimpsest_types::memory::heading;

use super::content::body;
use super::fact::{MemoryFact, Request};
use super::render::block_quote;
use super::section::{is_blank, join};
use crate::facts::{Facts, UserInput};
use crate::text::{one_line, sentences, truncate};
use crate::timeline::Timeline;

const MAX_TITLE: usize = 80;
/// The maximum length of the first and of later requests, in characters. Longer requests are plans
/// and logs, which remain in the transcript.
const MAX_FIRST: usize = 2_400;
const MAX_LATER: usize = 800;

/// Inputs without a request of their own.
const GO_ON: [&str; 27] = [
    "continue", "go on", "go ahead", "proceed", "yes", "y", "yes please", "ok", "okay", "sure",
    "thanks", "thank you", "great", "perfect", "good", "next", "weiter", "mach weiter", "ja",
    "danke", "sí", "continúa", "oui", "继续", "好的", "好", "はい",
];

/// Returns true if an input contains no request of its own.
pub(super) fn is_continuation(words: &str) -> bool {
    let lower = words.to_lowercase();
    let bare = lower.trim_matches(|c: char| !c.is_alphanumeric());
    bare.is_empty() || GO_ON.contains(&bare)
}

fn inputs<'a>(facts: &'a Facts, timeline: &Timeline<'a>) -> impl Iterator<Item = &'a UserInput> {
    facts
        .old_inputs()
        .chain(timeline.inputs().collect::<Vec<_>>())
}

/// Derives the title from the first request. An existing title is kept.
pub(super) fn title(
    known: Vec<MemoryFact>,
    facts: &Facts,
    timeline: &Timeline<'_>,
) -> Vec<MemoryFact> {
    if !known.iter().all(is_blank) {
        return known;
    }
    let mut requests = inputs(facts, timeline).map(|asked| &*asked.words);
    let request = requests.find(|words| !is_continuation(words));
    let title = request.map(|request| MemoryFact::Title(title_of(request).into()));
    title.into_iter().collect()
}

/// The maximum number of lines in which a title is searched.
const NEAR: usize = 4;

/// Returns the heading of a request that contains a plan, or the beginning of its first sentence.
fn title_of(words: &str) -> String {
    // A tag alone on its line encloses a part of the request and is no title.
    let is_tag = |line: &&str| line.starts_with('<') && line.ends_with('>') && !line.contains(' ');
    let lines = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !is_tag(line));
    let lines: Vec<&str> = lines.take(NEAR).collect();
    let Some((first, rest)) = lines.split_first() else {
        return truncate(&one_line(words), MAX_TITLE);
    };
    // A line such as `Implement this plan:` announces the title below it.
    let announces = first.ends_with([':', '：']);
    let titled = |line: &&'_ str| {
        heading(line)
            .filter(|title| !title.is_empty())
            .map(str::to_owned)
    };
    let below = || {
        rest.iter()
            .find_map(titled)
            .or_else(|| rest.first().map(|line| (*line).to_owned()))
    };
    let title = titled(first).or_else(|| if announces { below() } else { None });
    let title = title.unwrap_or_else(|| first_request(first).to_owned());
    let title = title.strip_prefix("Plan:").unwrap_or(&title).trim();
    truncate(&one_line(title), MAX_TITLE)
}

/// Returns the first sentence that is longer than a greeting.
fn first_request(line: &str) -> &str {
    // A script such as Chinese needs fewer characters for a request than English for a greeting.
    let says_more = |sentence: &&str| sentence.chars().count() >= 12 || !sentence.is_ascii();
    sentences(line).find(says_more).unwrap_or(line)
}

/// Returns the name of an input for other sections. A long input is represented by its title.
pub(super) fn short_name(words: &str) -> Cow<'_, str> {
    if words.chars().nth(MAX_TITLE).is_some() {
        Cow::Owned(title_of(words))
    } else {
        Cow::Borrowed(words)
    }
}

/// Appends every input with a request, verbatim and in order. Skips inputs that the section quotes
/// already.
pub(super) fn task(
    known: Vec<MemoryFact>,
    facts: &Facts,
    timeline: &Timeline<'_>,
) -> Vec<MemoryFact> {
    let text = body(&known);
    let mut said: HashSet<Cow<'_, str>> = quotes(&text).map(Cow::Borrowed).collect();
    let mut paragraphs = vec![known];
    for asked in inputs(facts, timeline).filter(|asked| !is_continuation(&asked.words)) {
        let is_first = paragraphs.len() == 1 && text.is_empty();
        let max = if is_first { MAX_FIRST } else { MAX_LATER };
        let words = truncate(&asked.words, max);
        if said.insert(Cow::Owned(block_quote(&words))) {
            paragraphs.push(vec![MemoryFact::Request(Request {
                is_first,
                words: words.into(),
            })]);
        }
    }
    join(paragraphs)
}

/// Returns the block quotes of a section.
fn quotes(body: &str) -> impl Iterator<Item = &str> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let begins = |line: &&str| line.starts_with('>');
        let skipped = rest.split_inclusive('\n').take_while(|line| !begins(line));
        rest = &rest[skipped.map(str::len).sum::<usize>()..];
        let quoted = rest.split_inclusive('\n').take_while(begins);
        let (quote, after) = rest.split_at(quoted.map(str::len).sum());
        rest = after;
        (!quote.is_empty()).then(|| quote.trim_end())
    })
}

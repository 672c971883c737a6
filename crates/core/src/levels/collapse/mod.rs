//! Level 4: selects spans of old rounds and writes their placeholders.
//!
//! A round is one model response and the tool results that answer its calls. User input and the final answers of the
//! model stay. Only the work in between is collapsed. The selection of spans reads the whole view and runs in the
//! background. The insertion of placeholders does not.

mod describe;
mod rounds;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use self::describe::{SpanDescription, describe, paths};
use self::rounds::{Round, runs};
use crate::event::{Placeholder, Span};
use crate::ids::{Ordinal, SpanKey, TurnNumber};
use crate::message::Message;
use crate::policy::{ModelTool, Policy, Risk};
use crate::quoting::escape_tags;
use crate::session::{ContentNotLoaded, Session};

/// Maximum number of rounds in a span. One tool result can then show the whole span.
const MAX_ROUNDS: usize = 12;
/// Maximum estimated tokens of a span. A single larger round forms a span of its own.
const MAX_TOKENS: u32 = 12_000;
/// Maximum number of staged spans.
const MAX_STAGED: usize = 256;

/// Returns the spans to stage, in the order of the transcript. Each has at most the risk that the policy accepts. If
/// there are too many spans, those with the highest worth are returned.
pub fn choose(session: &Session) -> Result<Vec<Span>, ContentNotLoaded> {
    let Some(current) = session.current_turn() else {
        return Ok(Vec::new());
    };
    let runs = runs(session);
    let mentions = last_mentions(session)?;
    let policy = &session.policy().collapse;
    let mut spans = Vec::new();
    for chunk in runs.iter().flat_map(|run| split_run(session, run)) {
        let Some(span) = span(session, chunk, current, &mentions)? else {
            continue;
        };
        if span.risk <= policy.max_risk && span.freed_tokens >= policy.min_freed_tokens.max(1) {
            spans.push(span);
        }
    }
    // The spans are sorted by worth for the selection and then by position for the caller.
    if spans.len() > MAX_STAGED {
        spans.sort_by_key(|span| std::cmp::Reverse(worth(span)));
        spans.truncate(MAX_STAGED);
        spans.sort_by_key(Span::first);
    }
    assign_keys(session, &mut spans);
    Ok(spans)
}

/// Assigns keys to spans. A span with the same first and last message as a staged span keeps that key and the summary
/// of a model. Others get new keys.
fn assign_keys(session: &Session, spans: &mut [Span]) {
    let place = |span: &Span| (span.first(), span.last());
    let staged = session.spans().staged().iter();
    let known: HashMap<_, _> = staged.map(|span| (place(span), span)).collect();
    let mut next = session.spans().next_key().get();
    for span in spans {
        let staged = known.get(&place(span)).copied();
        span.key = staged.map_or_else(
            || {
                next += 1;
                SpanKey::new(next - 1)
            },
            |staged| staged.key,
        );
        // The messages between the same ends can differ, and the summary would then describe other messages.
        let is_same = |staged: &&Span| !staged.model.is_empty() && staged.messages == span.messages;
        let written = staged.filter(is_same).and_then(|staged| {
            with_summary(session.policy(), span, &staged.summary, &staged.model)
        });
        if let Some(written) = written {
            *span = written;
        }
    }
}

/// Returns the span with a summary that a model wrote. `None` if its placeholder would free too little.
pub(crate) fn with_summary(policy: &Policy, span: &Span, text: &str, model: &str) -> Option<Span> {
    let written = Span {
        summary: text.into(),
        model: model.into(),
        ..span.clone()
    };
    // The placeholders differ in the summary only, so the difference of their sizes is the difference of the gain.
    let of_structure = placeholder(policy, span).tokens;
    let of_model = placeholder(policy, &written).tokens;
    // A placeholder that is larger than its span frees nothing.
    let freed_tokens = (span.freed_tokens + of_structure).checked_sub(of_model)?;
    (freed_tokens >= policy.collapse.min_freed_tokens.max(1)).then_some(Span {
        freed_tokens,
        ..written
    })
}

/// Returns true if the view has grown by `pass_every_tokens` since the last selection, and the level is enabled.
pub fn is_due(session: &Session) -> bool {
    let policy = &session.policy().collapse;
    let grown = session.spans().pass_tokens() + u64::from(policy.pass_every_tokens);
    policy.enabled && session.tokens().tokens >= grown
}

/// A staged span in the current view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollapsibleSpan {
    /// The placeholder that replaces the span.
    pub placeholder: Placeholder,
    /// The range of pieces to replace.
    pub pieces: Range<usize>,
    /// The estimated tokens that the replacement frees.
    pub freed_tokens: u32,
}

/// Returns those of some spans that the view still contains completely and whose replacement frees tokens.
pub fn collapsible_spans(session: &Session, spans: &[Span]) -> Vec<CollapsibleSpan> {
    if spans.is_empty() {
        return Vec::new();
    }
    let runs = runs(session);
    let mut at: HashMap<Ordinal, (usize, usize)> = HashMap::new();
    for (run, rounds) in runs.iter().enumerate() {
        // A round is never empty, so it has a first message.
        for (round, first) in rounds.iter().map(|round| round.messages[0]).enumerate() {
            at.insert(first, (run, round));
        }
    }
    spans
        .iter()
        .filter_map(|span| {
            let (run, from) = *at.get(&span.first())?;
            let rounds = &runs[run][from..];
            let ends = |round: &Round| round.messages.contains(&span.last());
            let rounds = &rounds[..=rounds.iter().position(ends)?];
            // The view may have changed since the span was staged.
            if messages_of(rounds) != span.messages {
                return None;
            }
            let tokens = rounds
                .iter()
                .map(|round| round.tokens(session))
                .sum::<u32>();
            let placeholder = placeholder(session.policy(), span);
            let freed_tokens = tokens.saturating_sub(placeholder.tokens);
            (freed_tokens > 0).then(|| CollapsibleSpan {
                pieces: rounds[0].pieces.start..rounds[rounds.len() - 1].pieces.end,
                freed_tokens,
                placeholder,
            })
        })
        .collect()
}

/// Returns the placeholder of a span. The text names the tool that reads the originals, if the policy enables it.
pub fn placeholder(policy: &Policy, span: &Span) -> Placeholder {
    // Without the tool the model cannot read the originals, so the text must not mention it.
    let tools = &policy.model_tools;
    let way_back = if tools.enabled_tools.contains(&ModelTool::ReadTranscript) {
        let (prefix, key) = (&tools.name_prefix, span.key);
        format!("\nTo read the originals, call {prefix}ReadTranscript with collapse_id \"{key}\".")
    } else {
        String::new()
    };
    // The summary quotes tools and files, so tags with authority are removed.
    let summary = escape_tags(&span.summary);
    let text = format!(
        "[{}: this summary replaces {} earlier messages.\n{}{way_back}]",
        span.key,
        span.messages.len(),
        summary,
    );
    Placeholder {
        span: span.clone(),
        tokens: policy.counter().text(&text),
        text: text.into(),
    }
}

fn messages_of(rounds: &[Round]) -> Vec<Ordinal> {
    let messages = rounds
        .iter()
        .flat_map(|round| round.messages.iter().copied());
    let mut messages: Vec<Ordinal> = messages.collect();
    messages.sort_unstable();
    messages
}

/// Returns the worth of a span: the freed tokens, multiplied by 1,000 minus the risk in thousandths.
fn worth(span: &Span) -> u64 {
    // `Risk` is at most 1,000, so the difference is not negative.
    u64::from(span.freed_tokens) * u64::from(1_000 - span.risk.milli())
}

/// Splits a run into chunks within the limits for rounds and tokens.
fn split_run<'r>(session: &Session, run: &'r [Round]) -> Vec<&'r [Round]> {
    let mut chunks = Vec::new();
    let (mut from, mut tokens) = (0, 0_u32);
    for (at, round) in run.iter().enumerate() {
        let size = round.tokens(session);
        // `at > from` prevents an empty chunk before a round that alone exceeds the limit.
        if at > from && (at - from >= MAX_ROUNDS || tokens.saturating_add(size) > MAX_TOKENS) {
            chunks.push(&run[from..at]);
            (from, tokens) = (at, 0);
        }
        tokens = tokens.saturating_add(size);
    }
    chunks.push(&run[from..]);
    chunks
}

/// Creates a span from some rounds. Its key is provisional until `assign_keys` assigns one.
fn span(
    session: &Session,
    rounds: &[Round],
    current: TurnNumber,
    mentions: &BTreeMap<Box<str>, Ordinal>,
) -> Result<Option<Span>, ContentNotLoaded> {
    let messages = messages_of(rounds);
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Ok(None);
    };
    let contents = messages
        .iter()
        .map(|message| session.transcript().require_content(*message));
    let contents: Vec<&Message> = contents
        .map(|held| held.map(AsRef::as_ref))
        .collect::<Result<_, _>>()?;
    let described = describe(&contents);
    let risk = risk(session, (*first, *last), &described, current, mentions);
    // `freed_tokens` depends on the placeholder, and the placeholder on the span, so the span is completed in two steps.
    let mut span = Span {
        key: session.spans().next_key(),
        messages,
        summary: described.summary.into(),
        risk,
        freed_tokens: 0,
        model: "".into(),
    };
    let tokens = rounds
        .iter()
        .map(|round| round.tokens(session))
        .sum::<u32>();
    span.freed_tokens = tokens.saturating_sub(placeholder(session.policy(), &span).tokens);
    Ok(Some(span))
}

/// Returns the risk of losing something, in thousandths. Recent work, work that was referenced later, unresolved
/// failures and decisions increase the risk. Repeated work reduces it.
fn risk(
    session: &Session,
    (first, last): (Ordinal, Ordinal),
    described: &SpanDescription,
    current: TurnNumber,
    mentions: &BTreeMap<Box<str>, Ordinal>,
) -> Risk {
    const BASE_RISK: u64 = 100;
    const RISK_RECENT: u64 = 400;
    const RISK_REFERENCED: u64 = 300;
    const RISK_FAILED: u64 = 150;
    const RISK_DECISION: u64 = 50;
    const MAX_DECIDED: u64 = 150;
    const RISK_REPEATED: u64 = 100;
    let turn = session.turns().of(first).map_or(0, TurnNumber::get);
    // The risk from recency falls with the number of user turns since.
    let back = u64::from(current.get().saturating_sub(turn).max(1));
    let later = |path: &str| mentions.get(path).is_some_and(|at| *at > last);
    let referred = described.paths.iter().filter(|path| later(path)).count() as u64;
    let share = |part: u64, of: u64| (part.min(of) * 1_000).checked_div(of).unwrap_or(0);
    let risk = BASE_RISK
        // Example: 400 for the user turn before the current one, 200 for the one before it.
        + RISK_RECENT / back
        + RISK_REFERENCED * share(referred, described.paths.len() as u64) / 1_000
        + RISK_FAILED * u64::from(described.ends_in_failure)
        + (RISK_DECISION * described.decisions).min(MAX_DECIDED);
    // Repeated work appears elsewhere too, so its loss costs less.
    let repeated = RISK_REPEATED * described.repeated_milli / 1_000;
    Risk::from_milli(u16::try_from(risk.saturating_sub(repeated)).unwrap_or(u16::MAX))
}

/// Returns the last message whose tool input names each path.
fn last_mentions(session: &Session) -> Result<BTreeMap<Box<str>, Ordinal>, ContentNotLoaded> {
    let mut mentions = BTreeMap::new();
    let mut before = None;
    for (_, call) in session.calls().iter() {
        // Calls of one message are neighbours, so each message is read once.
        if before == Some(call.message) || !session.transcript().is_in_view(call.message) {
            continue;
        }
        before = Some(call.message);
        for path in paths(session.transcript().require_content(call.message)?) {
            mentions.insert(path, call.message);
        }
    }
    Ok(mentions)
}

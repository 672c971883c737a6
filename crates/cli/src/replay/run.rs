//! Replays files under several policies.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use palimpsest_core::policy::{Policy, Prices, Thresholds, WindowHint};
use palimpsest_transcripts::replay::{RecordedSession, ReplayMetrics, measure};

use crate::agent_logs::{FileOutcome, Transcripts};
use crate::each_file::{each_file, file_name};
use crate::files;
use crate::policies::{ModelChoice, PolicyChoice};

/// The results of all files.
#[derive(Debug)]
pub(super) struct ReplayResults {
    /// The names of the policies. All results are in this order.
    pub(super) policies: Vec<String>,
    /// The context window and the thresholds of each policy, in tokens.
    pub(super) thresholds: Vec<Thresholds>,
    pub(super) files: Vec<FileResult>,
    /// The sums over all files, by policy.
    pub(super) totals: Vec<ReplayMetrics>,
    /// The model whose prices apply.
    pub(super) model: Option<ModelChoice>,
}

/// The input of a replay.
#[derive(Debug)]
pub(super) struct ReplayInput<'a> {
    pub(super) transcripts: &'a Transcripts,
    pub(super) choices: &'a [PolicyChoice],
    pub(super) model: Option<ModelChoice>,
}

/// The results of one file.
#[derive(Debug)]
pub(super) struct FileResult {
    pub(super) file: String,
    /// The sums over its sessions, by policy.
    pub(super) measured: Vec<ReplayMetrics>,
    pub(super) unreadable: Vec<String>,
    /// The reason if the file does not have the format.
    pub(super) unrecognized: Option<String>,
    /// The tokens of each request in the longest session, by policy.
    pub(super) longest: Vec<Vec<u64>>,
    /// The requests after compactions in the longest session, counted from 0, by policy.
    pub(super) compacted_at: Vec<Vec<usize>>,
}

impl ReplayResults {
    /// Returns the prices of input, relative to that of uncached input.
    pub(super) fn prices(&self) -> Prices {
        let of_model = self.model.and_then(|model| model.relative_prices());
        of_model.unwrap_or_default()
    }

    pub(super) fn sessions(&self) -> usize {
        self.totals.first().map_or(0, |total| total.sessions)
    }

    /// Returns the outcome of each file.
    pub(super) fn outcomes(&self) -> Vec<FileOutcome> {
        let files = self.files.iter();
        let outcomes = files.map(|file| FileOutcome {
            sessions: file.measured.first().map_or(0, |total| total.sessions),
            is_recognized: file.unrecognized.is_none(),
        });
        outcomes.collect()
    }
}

impl FileResult {
    /// Returns the number of requests in the longest session.
    pub(super) fn requests(&self) -> usize {
        self.longest.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// Replays all files under all policies.
pub(super) fn replay(input: &ReplayInput<'_>) -> anyhow::Result<ReplayResults> {
    let ReplayInput {
        transcripts,
        choices,
        model,
    } = *input;
    let window = model.map(|model| model.limits).unwrap_or_default();
    let policies: Vec<Arc<Policy>> = choices
        .iter()
        .map(|choice| Arc::clone(&choice.policy))
        .collect();
    let files = each_file(transcripts.files(), |file| {
        replay_file(file, transcripts, (&policies, window))
    })?;
    let mut totals = vec![ReplayMetrics::default(); choices.len()];
    for file in &files {
        for (total, measured) in totals.iter_mut().zip(&file.measured) {
            total.add(measured);
        }
    }
    Ok(ReplayResults {
        policies: choices.iter().map(|choice| choice.name.clone()).collect(),
        thresholds: policies
            .iter()
            .map(|policy| policy.thresholds(window))
            .collect(),
        files,
        totals,
        model,
    })
}

fn replay_file(
    file: &Path,
    transcripts: &Transcripts,
    (policies, window): (&[Arc<Policy>], WindowHint),
) -> anyhow::Result<FileResult> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let imported = transcripts.read(file, &text);
    let mut replayed = FileResult {
        file: file_name(file),
        measured: vec![ReplayMetrics::default(); policies.len()],
        unreadable: imported.defects.iter().map(ToString::to_string).collect(),
        unrecognized: imported.unrecognized.clone(),
        longest: Vec::new(),
        compacted_at: Vec::new(),
    };
    for session in &imported.sessions {
        let tape = RecordedSession::new(session);
        let of_session = policies
            .iter()
            .map(|policy| measure(&tape, files::provider_of(&imported), policy, window));
        let of_session: Vec<ReplayMetrics> = of_session.collect();
        for (sum, measured) in replayed.measured.iter_mut().zip(&of_session) {
            sum.add(measured);
        }
        // The chart shows one session, so only the curves of the longest one are kept.
        let curves = of_session
            .into_iter()
            .map(|one| (one.view_tokens, one.compacted_at));
        let (curves, compacted_at): (Vec<_>, Vec<_>) = curves.unzip();
        // The policies of a session can have different numbers of requests, so the longest curve counts.
        if curves.iter().map(Vec::len).max().unwrap_or(0) > replayed.requests() {
            replayed.longest = curves;
            replayed.compacted_at = compacted_at;
        }
    }
    Ok(replayed)
}

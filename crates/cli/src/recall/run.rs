//! Measures the compactions of all files.

use std::path::Path;

use anyhow::Context as _;
use palimpsest_core::policy::WindowHint;
use palimpsest_transcripts::replay::RecordedSession;
use palimpsest_transcripts::replay::recall::{self, MeasuredCompaction, RecallOptions};

use crate::agent_logs::{FileOutcome, Transcripts};
use crate::each_file::{each_file, file_name};
use crate::files;
use crate::policies::PolicyChoice;

/// The input of a measurement.
#[derive(Debug)]
pub(super) struct RecallInput<'a> {
    pub(super) transcripts: &'a Transcripts,
    pub(super) choice: &'a PolicyChoice,
    pub(super) window: WindowHint,
    pub(super) texts: &'a [String],
}

/// The results of all files.
#[derive(Debug)]
pub(super) struct RecallResults {
    pub(super) files: Vec<FileRecall>,
}

/// The results of one file.
#[derive(Debug)]
pub(super) struct FileRecall {
    pub(super) file: String,
    pub(super) sessions: usize,
    pub(super) compactions: Vec<MeasuredCompaction>,
    /// The number of compactions after which the agent needed nothing.
    pub(super) without_needs: usize,
    pub(super) unreadable: Vec<String>,
    /// The reason if the file does not have the format.
    pub(super) unrecognized: Option<String>,
}

impl RecallResults {
    pub(super) fn sessions(&self) -> usize {
        self.files.iter().map(|file| file.sessions).sum()
    }

    /// Returns the outcome of each file.
    pub(super) fn outcomes(&self) -> Vec<FileOutcome> {
        let files = self.files.iter();
        let outcomes = files.map(|file| FileOutcome {
            sessions: file.sessions,
            is_recognized: file.unrecognized.is_none(),
        });
        outcomes.collect()
    }

    /// Returns all compactions with their files.
    pub(super) fn compactions(&self) -> impl Iterator<Item = (&FileRecall, &MeasuredCompaction)> {
        let files = self.files.iter();
        files.flat_map(|file| file.compactions.iter().map(move |one| (file, one)))
    }

    /// Returns the number of compactions after which the agent needed nothing.
    pub(super) fn without_needs(&self) -> usize {
        self.files.iter().map(|file| file.without_needs).sum()
    }

    /// Returns the unrecognized files with the reasons.
    pub(super) fn unrecognized(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(|file| {
            let reason = file.unrecognized.as_ref()?;
            Some(format!("{} {reason}", file.file))
        })
    }
}

/// Measures all files.
pub(super) fn recall(input: &RecallInput<'_>) -> anyhow::Result<RecallResults> {
    let files = each_file(input.transcripts.files(), |file| recall_file(file, input))?;
    Ok(RecallResults { files })
}

fn recall_file(file: &Path, input: &RecallInput<'_>) -> anyhow::Result<FileRecall> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let imported = input.transcripts.read(file, &text);
    let options = RecallOptions {
        provider: files::provider_of(&imported),
        policy: &input.choice.policy,
        window: input.window,
        texts: input.texts,
    };
    let mut compactions = Vec::new();
    let mut without_needs = 0;
    for session in &imported.sessions {
        let of_session = recall::recall(&RecordedSession::new(session), options);
        compactions.extend(of_session.compactions);
        without_needs += of_session.without_needs;
    }
    Ok(FileRecall {
        file: file_name(file),
        sessions: imported.sessions.len(),
        compactions,
        without_needs,
        unreadable: imported.defects.iter().map(ToString::to_string).collect(),
        unrecognized: imported.unrecognized.clone(),
    })
}

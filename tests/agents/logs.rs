//! The agents' own logs of a conversation, read by the importers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use palimpsest_core::ids::MessageId;
use palimpsest_core::message::{Block, Message};
use palimpsest_tests::files_below;
use palimpsest_transcripts::import::{self, ImportFormat, ImportStep};
use serde_json::Value;

use crate::job::{FIRST_ANSWER, Job, NEXT_ANSWER, output};
use crate::kinds::{Kind, Way};

/// Asserts that the log of a job contains both prompts, both answers, and a result for each of the calls.
#[track_caller]
pub(crate) fn assert_complete(job: &Job, calls: u64) {
    let (format, files) = logs(job);
    let mut messages = Vec::new();
    for file in &files {
        messages.extend(messages_of(format, file));
    }
    let blocks = || messages.iter().flat_map(|message| &message.blocks);
    let text: String = blocks()
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    for part in [&*job.first(), FIRST_ANSWER, &*job.next(), NEXT_ANSWER] {
        assert!(
            text.contains(part),
            "{:?}: {part:?} is not in {text}",
            job.kind
        );
    }
    let count = |is: fn(&Block) -> bool| blocks().filter(|block| is(block)).count() as u64;
    let counts = [
        count(|block| matches!(block, Block::ToolUse(_))),
        count(|block| matches!(block, Block::ToolResult(_))),
    ];
    assert_eq!(counts, [calls, calls], "{:?}: {files:?}", job.kind);
}

fn messages_of(format: ImportFormat, file: &Path) -> Vec<Message> {
    let bytes = fs::read(file).unwrap();
    let imported = import::read(None, &bytes);
    assert_eq!(imported.unrecognized, None);
    assert_eq!(
        (imported.format, &imported.defects),
        (Some(format), &vec![])
    );
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let messages = steps.map(|step| match step {
        ImportStep::Message(message) => message.decode(MessageId::new(uuid::Uuid::nil())).unwrap(),
        other => panic!("the conversation was neither compacted nor rewound: {other:?}"),
    });
    messages.collect()
}

/// Returns the files of a job's log, and their format.
fn logs(job: &Job) -> (ImportFormat, Vec<PathBuf>) {
    let home = job.home.path();
    let below = |folder: &str| {
        let mut files = files_below(&home.join(folder));
        files.retain(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
        assert!(!files.is_empty(), "{:?} wrote no log in {folder}", job.kind);
        files
    };
    match job.kind {
        Kind::Codex => (ImportFormat::Codex, below(".codex/sessions")),
        Kind::OpenCode => (ImportFormat::OpenCode, vec![export(job)]),
        Kind::Pi => (ImportFormat::Pi, below(".pi/agent/sessions")),
        Kind::ClaudeCode => (ImportFormat::ClaudeCode, below(".claude/projects")),
    }
}

/// Exports the session of OpenCode, which keeps its sessions in a database.
fn export(job: &Job) -> PathBuf {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(job.kind.program());
        command.args(arguments);
        let home = job.home.path();
        job.kind
            .set_environment(&mut command, home, &job.key, Way::Run);
        let output = output(&command);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let listed: Value =
        serde_json::from_slice(&run(&["session", "list", "--format", "json"])).unwrap();
    let session = listed[0]["id"].as_str().unwrap();
    let file = job.home.path().join("export.json");
    fs::write(&file, run(&["export", session])).unwrap();
    file
}

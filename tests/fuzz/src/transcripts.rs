//! Fuzzes transcripts of other programs and exports of this one.

use palimpsest_core::ids::MessageId;
use palimpsest_store::archive::hex;
use palimpsest_transcripts::import::{ImportFormat, ImportStep, read};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The first byte selects the format.
pub(crate) fn run(data: &[u8]) {
    let Some((format, text)) = data.split_first() else {
        return;
    };
    let sealed;
    let (format, text) = match format {
        128.. => {
            sealed = self::sealed(text);
            (Some(ImportFormat::Palimpsest), sealed.as_slice())
        }
        _ => match format % 10 {
            0 => (Some(ImportFormat::ClaudeCode), text),
            1 => (Some(ImportFormat::OpenAi), text),
            2 => (Some(ImportFormat::Anthropic), text),
            3 => (Some(ImportFormat::Codex), text),
            4 => (Some(ImportFormat::CopilotCli), text),
            5 => (Some(ImportFormat::Pi), text),
            6 => (Some(ImportFormat::OpenAiResponses), text),
            8 => (Some(ImportFormat::GeminiCli), text),
            9 => (Some(ImportFormat::OpenCode), text),
            _ => (None, text),
        },
    };
    let lines = text.split(|byte| *byte == b'\n').count();
    let imported = read(format, text);
    for step in imported.sessions.iter().flat_map(|session| &session.steps) {
        let message = match step {
            ImportStep::Message(message) => message,
            ImportStep::Compacted(compaction) => &compaction.summary,
            ImportStep::Rewind(_) | ImportStep::Removed { .. } => continue,
        };
        assert!((1..=lines).contains(&message.line), "no such line");
        let _ = message.decode(MessageId::new(Uuid::from_u128(1)));
    }
    for defect in &imported.defects {
        assert!((1..=lines).contains(&defect.line), "no such line");
    }
}

/// Adds the first and the last line of a valid export. Without them the lines would not be read.
fn sealed(lines: &[u8]) -> Vec<u8> {
    let mut file = b"{\"palimpsest\":\"transcript\",\"version\":1}\n".to_vec();
    file.extend_from_slice(lines);
    file.push(b'\n');
    let messages = file.split(|byte| *byte == b'\n');
    // All lines except the first one, which states the format.
    let messages = messages
        .filter(|line| !line.trim_ascii().is_empty())
        .count()
        - 1;
    let sha256 = hex(&Sha256::digest(&file));
    let end = format!("{{\"messages\":{messages},\"sha256\":\"{sha256}\"}}\n");
    file.extend_from_slice(end.as_bytes());
    file
}

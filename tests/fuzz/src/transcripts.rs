//! Other programs' transcripts.

use palimpsest_core::ids::MessageId;
use palimpsest_core::import::{ImportFormat, Step, read};
use uuid::Uuid;

/// The first byte chooses the format.
pub(crate) fn run(data: &[u8]) {
    let Some((format, text)) = data.split_first() else {
        return;
    };
    let format = match format % 3 {
        0 => ImportFormat::ClaudeCode,
        1 => ImportFormat::OpenAi,
        _ => ImportFormat::Anthropic,
    };
    let lines = text.split(|byte| *byte == b'\n').count();
    let imported = read(format, text);
    for step in imported.sessions.iter().flat_map(|session| &session.steps) {
        let message = match step {
            Step::Message(message) => message,
            Step::Compacted(compaction) => &compaction.summary,
            Step::Rewind(_) | Step::Removed { .. } => continue,
        };
        assert!((1..=lines).contains(&message.line), "no such line");
        let _ = message.decode(MessageId::new(Uuid::from_u128(1)));
    }
    for defect in &imported.defects {
        assert!((1..=lines).contains(&defect.line), "no such line");
    }
}

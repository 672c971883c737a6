//! Fuzzes texts that people and models write: session memory, model responses and provider errors.

use palimpsest_core::memory::{MemoryDocument, apply_sections};
use palimpsest_core::policy::SummaryStyle;
use palimpsest_core::summary::{SummaryDocument, parse_summary, standing_instructions};
use palimpsest_summarize::{prompt_too_long, redact};

/// The first byte selects the options for the text.
pub(crate) fn run(data: &[u8]) {
    let Some((flags, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let truncated = flags & 1 == 1;
    memory(text, truncated);
    for style in [SummaryStyle::NineSections, SummaryStyle::Brief] {
        if let Ok(accepted) = parse_summary(text, truncated, &SummaryDocument::new(style)) {
            assert!(!accepted.document.render().trim().is_empty());
        }
    }
    let _ = standing_instructions(text);
    let _ = prompt_too_long(Some(400), text);
    let once = redact(text).text.into_owned();
    assert_eq!(redact(&once).text, once, "redaction is not idempotent");
}

/// Asserts that a parsed document is equal after rendering and parsing, and that it fits its limits.
fn memory(text: &str, truncated: bool) {
    let memory = MemoryDocument::parse(text);
    assert_eq!(MemoryDocument::parse(&memory.render()), memory);
    let fitted = memory.fit(2_000, 12_000).memory;
    assert!(fitted.tokens() <= 12_000);
    assert_eq!(MemoryDocument::parse(&fitted.render()), fitted);
    if let Ok(applied) = apply_sections(&memory, text, truncated) {
        let rendered = applied.memory.render();
        assert_eq!(MemoryDocument::parse(&rendered), applied.memory);
    }
}

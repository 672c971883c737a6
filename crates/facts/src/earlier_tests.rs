//! Tests of the conversion of summaries back into session memory.

use palimpsest_types::memory::SectionKind;
use palimpsest_types::policy::SummaryStyle;

use super::earlier_summary::{SummaryWriter, parse_earlier_summary};
use super::memory::{MemoryContent, update};
use super::tests::{body, does, session};
use super::{Facts, UserInputs, build_summary};

/// Returns the text that replaces the summarized messages in a view.
fn framed(document: &palimpsest_types::summary::SummaryDocument) -> String {
    palimpsest_types::summary::frame(
        &document.render(),
        palimpsest_types::summary::SummaryFrame::default(),
    )
}

#[test]
fn lines_of_an_earlier_summary_return_to_their_memory_sections() {
    let all = session();
    let facts = Facts::of(&all);
    let content = update(&MemoryContent::default(), &facts);
    for style in [SummaryStyle::NineSections, SummaryStyle::Brief] {
        let text = framed(&build_summary(
            style,
            &MemoryContent::default(),
            &facts,
            UserInputs::default(),
        ));
        let back = parse_earlier_summary(&text, SummaryWriter::Service);
        let mut same = vec![SectionKind::Files];
        if style == SummaryStyle::NineSections {
            same.push(SectionKind::Errors);
            assert!(body(&back, SectionKind::State).contains("“Type” (under way)"));
        }
        for kind in same {
            assert_eq!(
                body(&back, kind),
                body(&content, kind),
                "{style:?} {kind:?}"
            );
        }
        let results = body(&back, SectionKind::Results);
        assert!(results.starts_with("The user's rule") || results.starts_with("On “Please"));
        assert!(results.contains("It edited `src/parser.rs`"));
        // The next summary contains these lines once, and the new facts.
        let again = build_summary(style, &back, &facts, UserInputs::default()).render();
        assert_eq!(again.matches("Paths are relative to").count(), 1, "{again}");
        assert!(again.matches("The work is on files").count() < 2, "{again}");
    }
}

#[test]
fn text_of_a_model_is_kept_by_later_summaries() {
    let text = "## 1. Primary Request and Intent\n\nThe parser must be exact.\n\n## 3. Files and Code Sections\n\n\
        - `parser.rs` holds the loop.\n\n## 5. Problem Solving\n\nThe loop ended too early.\n\n## 9. Optional Next Step\n\nGo on.";
    let said = ["Fix the parser."];
    let mut previous = parse_earlier_summary(text, SummaryWriter::Other);
    // Each summary is the previous one of the next, as in ten compactions.
    for n in 0..10 {
        let new = does(
            "Bash",
            &format!(r#"{{"command":"make step{n}"}}"#),
            "ok",
            None,
        );
        let inputs = UserInputs {
            all: &said,
            is_last_visible: true,
            max_tokens: 1_000,
        };
        let document = build_summary(
            SummaryStyle::NineSections,
            &previous,
            &Facts::of(&new),
            inputs,
        );
        previous = parse_earlier_summary(&framed(&document), SummaryWriter::Service);
    }
    let text = &**previous.text();
    for kept in [
        "The parser must be exact.",
        "`parser.rs` holds the loop.",
        "The loop ended too early.",
        "make step0",
        "make step9",
    ] {
        assert_eq!(text.matches(kept).count().min(1), 1, "{kept}\n{text}");
    }
    // The next step is written anew each time, and the text does not grow with each compaction.
    assert!(!text.contains("Go on.") && text.len() < 4_000, "{text}");
    let free = format!("No sections. {}", "Words of a kind. ".repeat(40));
    let free = parse_earlier_summary(&free, SummaryWriter::Other);
    assert!(body(&free, SectionKind::Results).starts_with("No sections."));
    assert!(body(&free, SectionKind::Title).is_empty());
}

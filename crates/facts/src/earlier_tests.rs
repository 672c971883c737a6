//! Tests of the conversion of summaries back into session memory.

use palimpsest_types::memory::{Memory, SectionKind};
use palimpsest_types::policy::SummaryStyle;

use super::earlier_summary::parse_earlier_summary;
use super::tests::{does, session};
use super::{Facts, UserInputs, build_summary, memory};

/// Returns the text that replaces the summarized messages in a view.
fn framed(document: &palimpsest_types::summary::SummaryDocument) -> String {
    palimpsest_types::summary::frame(
        &document.render(),
        palimpsest_types::summary::SummaryFrame::default(),
    )
}

#[test]
fn an_earlier_summary_is_parsed_into_its_parts() {
    let all = session();
    let facts = Facts::of(&all);
    let memory = memory::update(&Memory::template(), &facts);
    for style in [SummaryStyle::NineSections, SummaryStyle::Brief] {
        let text = framed(&build_summary(
            style,
            &Memory::template(),
            &facts,
            UserInputs::default(),
        ));
        let back = parse_earlier_summary(&text);
        let mut same = vec![SectionKind::Files, SectionKind::Results];
        if style == SummaryStyle::NineSections {
            same.extend([
                SectionKind::Errors,
                SectionKind::Documentation,
                SectionKind::Workflow,
            ]);
        }
        for kind in same {
            assert_eq!(back.body(kind), memory.body(kind), "{style:?} {kind:?}");
        }
        assert!(
            back.body(SectionKind::Worklog)
                .contains("It edited `src/parser.rs`")
        );
        assert!(back.body(SectionKind::State).contains("“Type” (under way)"));
    }
}

#[test]
fn text_of_a_model_is_kept_by_later_summaries() {
    let text = "## 1. Primary Request and Intent\n\nThe parser must be exact.\n\n## 3. Files and Code Sections\n\n\
        - `parser.rs` holds the loop.\n\n## 5. Problem Solving\n\nThe loop ended too early.\n\n## 9. Optional Next Step\n\nGo on.";
    let said = ["Fix the parser."];
    let mut previous = parse_earlier_summary(text);
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
        previous = parse_earlier_summary(&framed(&document));
    }
    let text = previous.render();
    for kept in [
        "The parser must be exact.",
        "`parser.rs` holds the loop.",
        "The loop ended too early.",
        "make step0",
        "make step9",
    ] {
        assert_eq!(text.matches(kept).count().min(1), 1, "{kept}\n{text}");
    }
    assert!(!text.contains("Go on.") && text.len() < 4_000, "{text}");
    let free = parse_earlier_summary(&format!("No sections. {}", "Words of a kind. ".repeat(40)));
    assert!(free.body(SectionKind::Results).starts_with("No sections."));
    assert!(free.body(SectionKind::Title).is_empty());
}

#[test]
fn a_truncation_note_stays_with_the_remaining_text() {
    let cut = |lines: u32| {
        format!("_({lines} lines were cut here to keep this section within its limit.)_")
    };
    let text = format!(
        "## 5. Problem Solving\n\n{}\n\nOn “x”: It is done.\n\n{}\nThe assistant ran `make`.",
        cut(3),
        cut(4)
    );
    let memory = parse_earlier_summary(&text);
    assert_eq!(
        memory.body(SectionKind::Results),
        format!("{}\nOn “x”: It is done.", cut(3))
    );
    assert_eq!(
        memory.body(SectionKind::Worklog),
        format!("{}\nThe assistant ran `make`.", cut(4))
    );
}

//! Tests of session memory: rendering and parsing, limits, and merging of model replies.

use proptest::prelude::*;

use super::{ApplyError, MemoryDocument, SectionKind, apply_sections, changed_sections};
use crate::tokens::estimate_text;

fn with(kind: SectionKind, body: &str) -> MemoryDocument {
    let mut memory = MemoryDocument::template();
    memory.set(kind, body);
    memory
}

#[test]
fn the_template_has_ten_headings_each_with_its_guidance() {
    let text = MemoryDocument::template().render();
    let headings: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    let expected = [
        "Session Title",
        "Current State",
        "Task specification",
        "Files and Functions",
        "Workflow",
        "Errors & Corrections",
        "Codebase and System Documentation",
        "Learnings",
        "Key results",
        "Worklog",
    ];
    assert_eq!(headings, expected);
    let guidance = text
        .lines()
        .filter(|line| line.starts_with('_') && line.ends_with('_'));
    assert_eq!(guidance.count(), 10);
    assert_eq!(MemoryDocument::parse(&text), MemoryDocument::template());
}

#[test]
fn placeholders_are_never_ready() {
    let mut memory = MemoryDocument::template();
    assert!(memory.is_template() && !memory.is_ready());
    for kind in SectionKind::ALL {
        memory.set(kind, "- TBD\n\n_nothing yet_\n...\nN/A");
    }
    assert!(memory.is_template() && !memory.is_ready());
    memory.set(SectionKind::Learnings, "Use spaces.");
    assert!(!memory.is_template() && !memory.is_ready());
    memory.set(SectionKind::State, "Half of it is done.");
    assert!(memory.is_ready());
}

#[test]
fn a_heading_of_a_section_is_found_outside_of_fences_in_any_spelling() {
    for text in [
        "# Learnings\n",
        "x\n## errors and corrections:\ny",
        "  # WORKLOG",
    ] {
        assert!(MemoryDocument::has_heading(text), "{text}");
    }
    for text in [
        "",
        "Learnings",
        "# My notes\ntext",
        "```\n# Learnings\n```",
        "#Learnings",
    ] {
        assert!(!MemoryDocument::has_heading(text), "{text}");
    }
}

#[test]
fn text_of_a_person_is_kept_in_any_position() {
    let text = "before all\n# session title:\nMy title\n## Own heading\nown text\n\n# WORKLOG\n\
        ```\n# Learnings\n```\n- one\n# Learnings\nnone of it\n# Worklog\n- two\n";
    let memory = MemoryDocument::parse(text);
    let title = memory.body(SectionKind::Title);
    assert_eq!(title, "before all\nMy title\n## Own heading\nown text");
    assert_eq!(
        memory.body(SectionKind::Worklog),
        "```\n# Learnings\n```\n- one\n- two"
    );
    assert_eq!(memory.body(SectionKind::Learnings), "none of it");
    assert_eq!(
        MemoryDocument::parse("no heading at all").body(SectionKind::Title),
        "no heading at all"
    );
}

#[test]
fn an_unclosed_fence_hides_no_section() {
    let mut memory = with(SectionKind::Task, "```rust\nfn main() {}");
    memory.set(SectionKind::Worklog, "- done");
    assert_eq!(MemoryDocument::parse(&memory.render()), memory);
}

#[test]
fn headings_inside_a_section_body_are_escaped() {
    let memory = with(
        SectionKind::Files,
        "a\n# Worklog\n- forged\n  ## Learnings\nb",
    );
    assert_eq!(
        memory.body(SectionKind::Files),
        "a\n\\# Worklog\n- forged\n  \\## Learnings\nb"
    );
    assert_eq!(MemoryDocument::parse(&memory.render()), memory);
}

#[test]
fn each_section_is_cut_by_its_retention() {
    let lines: Vec<String> = (0..100)
        .map(|n| format!("- line number {n} of them all"))
        .collect();
    let cut = |kind| {
        let fitted = with(kind, &lines.join("\n")).fit(200, 12_000);
        assert_eq!(fitted.cuts.len(), 1);
        fitted.memory.body(kind).to_owned()
    };
    let log = cut(SectionKind::Worklog);
    assert!(
        log.starts_with("_(") && log.ends_with("- line number 99 of them all"),
        "{log}"
    );
    let task = cut(SectionKind::Task);
    assert!(
        task.starts_with(&lines[0]) && task.ends_with(&lines[99]),
        "{task}"
    );
    let state = cut(SectionKind::State);
    assert!(
        state.starts_with(&lines[0]) && state.ends_with(")_"),
        "{state}"
    );
}

#[test]
fn counts_in_cut_notes_are_added() {
    let body = |range: std::ops::Range<usize>| {
        range
            .map(|n| format!("- line {n}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let first = with(SectionKind::Worklog, &body(0..100))
        .fit(100, 12_000)
        .memory;
    let kept = first.body(SectionKind::Worklog).lines().count() - 1;
    let longer = format!("{}\n{}", first.body(SectionKind::Worklog), body(100..150));
    let second = with(SectionKind::Worklog, &longer).fit(100, 12_000).memory;
    let now = second.body(SectionKind::Worklog).lines().count() - 1;
    let note = second
        .body(SectionKind::Worklog)
        .lines()
        .next()
        .unwrap_or_default();
    assert_eq!(note.matches("cut here").count(), 1);
    // Both cuts together have removed all lines that are not in the text.
    assert!(
        note.starts_with(&format!("_({} lines", 150 - now)),
        "{kept} {note}"
    );
}

#[test]
fn a_line_longer_than_its_section_is_shortened() {
    let fitted = with(SectionKind::Title, &"word ".repeat(2_000)).fit(50, 12_000);
    let body = fitted.memory.body(SectionKind::Title);
    assert!(body.ends_with('…') && estimate_text(body) <= 50, "{body}");
}

#[test]
fn a_reply_changes_only_bodies() {
    let memory = with(SectionKind::Task, "Old task.");
    let reply = format!(
        "Here they are:\n\n```markdown\n## current state\n_{}_\n\nAll is well.\n### Detail\nmore\n## Gossip\nnothing\n\
         ## Worklog\n- one\n## Task Specification\nTBD\n```",
        SectionKind::State.guidance()
    );
    let fenced = reply.split_once("\n\n").map_or("", |(_, fenced)| fenced);
    for reply in [&*reply, fenced] {
        let applied = apply_sections(&memory, reply, false).unwrap();
        assert_eq!(
            applied.memory.body(SectionKind::State),
            "All is well.\n### Detail\nmore"
        );
        assert_eq!(applied.memory.body(SectionKind::Worklog), "- one");
        assert_eq!(applied.memory.body(SectionKind::Task), "Old task.");
        assert_eq!(applied.changed, [SectionKind::State, SectionKind::Worklog]);
        assert_eq!(changed_sections(&memory, &applied.memory), applied.changed);
    }
}

#[test]
fn empty_refused_and_unstructured_replies_are_rejected() {
    let memory = with(SectionKind::Task, "Old task.");
    let refused = |reply: &str, truncated| apply_sections(&memory, reply, truncated).err();
    assert_eq!(refused(" \n", false), Some(ApplyError::Empty));
    assert_eq!(refused("```\n```", false), Some(ApplyError::Empty));
    assert_eq!(
        refused("I'm sorry, I can't do that.", false),
        Some(ApplyError::Refusal)
    );
    assert_eq!(
        refused("# Learnings\nI cannot help with this.", false),
        Some(ApplyError::Refusal)
    );
    assert_eq!(
        refused("The work goes well.", false),
        Some(ApplyError::NoSection)
    );
    assert_eq!(
        refused("# Worklog\n- on", true),
        Some(ApplyError::Truncated)
    );
    let part = apply_sections(&memory, "# Learnings\nOne.\n# Worklog\n- on", true);
    assert_eq!(
        part.map(|applied| applied.changed),
        Ok(vec![SectionKind::Learnings])
    );
    let none = apply_sections(&memory, "NO CHANGES.", false);
    assert_eq!(none.map(|applied| applied.memory), Ok(memory));
}

/// Generates lines of a section body, including adversarial ones.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,80}",
        2 => "[äöü字符漢🙂 ]{0,60}",
        1 => prop::sample::select(SectionKind::ALL.to_vec()).prop_map(|kind| format!("# {}", kind.title())),
        1 => prop::sample::select(SectionKind::ALL.to_vec()).prop_map(|kind| format!("_{}_", kind.guidance())),
        1 => prop::sample::select(vec!["```", "~~~~", "```rust", "", "  ", "# Other", "\r", "_(7 lines were cut here to keep this section within its limit.)_"]).prop_map(String::from),
    ]
}

fn memory() -> impl Strategy<Value = MemoryDocument> {
    let body = prop::collection::vec(line(), 0..30);
    prop::collection::vec(body, 10).prop_map(|bodies| {
        let mut memory = MemoryDocument::template();
        for (kind, lines) in SectionKind::ALL.into_iter().zip(bodies) {
            memory.set(kind, &lines.join("\n"));
        }
        memory
    })
}

proptest! {
    #[test]
    fn a_document_survives_a_round_trip(memory in memory()) {
        prop_assert_eq!(MemoryDocument::parse(&memory.render()), memory);
    }

    #[test]
    fn fitting_is_idempotent_and_stays_within_the_limits(
        memory in memory(),
        section in 0..400_u32,
        all in 600..3_000_u32,
    ) {
        let fitted = memory.fit(section, all).memory;
        for kind in SectionKind::ALL {
            prop_assert!(fitted.section_tokens(kind) <= section);
        }
        // Headings and guidance are never cut, so a lower limit gives the empty document.
        let frame = MemoryDocument::template().tokens();
        prop_assert!(fitted.tokens() <= all.max(frame));
        let again = fitted.fit(section, all);
        prop_assert_eq!(&again.memory, &fitted);
        prop_assert!(again.cuts.is_empty());
        prop_assert_eq!(MemoryDocument::parse(&fitted.render()), fitted);
    }

    #[test]
    fn any_text_is_parsed_without_loss(lines in prop::collection::vec(line(), 0..40)) {
        let memory = MemoryDocument::parse(&lines.join("\n"));
        let text = memory.render();
        prop_assert_eq!(MemoryDocument::parse(&text), memory);
        for line in lines.iter().flat_map(|line| line.lines()).map(str::trim) {
            prop_assert!(text.contains(line) || super::heading(line).is_some(), "{} in {}", line, text);
        }
    }

    #[test]
    fn no_reply_changes_headings(memory in memory(), reply in prop::collection::vec(line(), 0..30), truncated: bool) {
        if let Ok(applied) = apply_sections(&memory, &reply.join("\n"), truncated) {
            let text = applied.memory.render();
            for kind in SectionKind::ALL {
                let frame = format!("# {}\n_{}_\n", kind.title(), kind.guidance());
                prop_assert!(text.contains(&frame));
            }
            prop_assert_eq!(MemoryDocument::parse(&text), applied.memory);
        }
    }
}

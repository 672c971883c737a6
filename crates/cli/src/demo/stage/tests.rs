//! Frames of all sizes.

use palimpsest_core::policy::Prices;
use palimpsest_proto::context::v1::{
    Budget, BudgetState, MemorySection, MemorySectionKind, TokenBreakdown,
};

use super::{frame, progress, svg};
use crate::demo::picture::Picture;
use crate::demo::timeline::{Actor, TimelineEntry};
use crate::screen::Grid;

fn picture() -> Picture {
    let mut picture = Picture::new(1, 4, 2, Prices::default());
    picture.asked = 2;
    picture.budget = Budget {
        state: BudgetState::Warning.into(),
        window_tokens: 200_000,
        used_tokens: 150_000,
        warn_at_tokens: 147_000,
        compact_at_tokens: 167_000,
        block_at_tokens: 177_000,
        ..Budget::default()
    };
    picture.breakdown = TokenBreakdown {
        system_tokens: 10_000,
        messages_tokens: 40_000,
        results_tokens: 100_000,
        ..TokenBreakdown::default()
    };
    picture.with.sent = vec![50_000, 150_000];
    picture.without.sent = vec![50_000, 400_000];
    picture.without_at = vec![1, 2];
    picture.add(TimelineEntry {
        request: 2,
        actor: Actor::Level(3),
        text: "cleared 7 old results".into(),
        freed: Some(12_345),
    });
    picture.memory.version = 3;
    picture.memory.sections = vec![MemorySection {
        kind: MemorySectionKind::CurrentState.into(),
        body: "Working on posting.rs.\n".into(),
        ..MemorySection::default()
    }];
    picture.now = ("user", "Please go on.".into());
    picture
}

fn text(grid: &Grid) -> String {
    let row = |y| {
        let row = grid
            .row(y)
            .iter()
            .map(|cell| cell.glyph)
            .collect::<String>();
        row.trim_end().to_owned()
    };
    (0..grid.height).map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_80_by_24_terminal_shows_all_figures() {
    let shown = text(&frame::draw(&picture(), (80, 24), true));
    for wanted in [
        "150,000 of 200,000 tokens",
        "warning",
        "compact 167K",
        "request 2 of 4",
        "level 3 cleared 7 old results",
        "−12K",
        "summary.md  version 3",
        "Working on posting.rs.",
        "user Please go on.",
    ] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }
    // Exactly three quarters of the bar are filled.
    assert_eq!(
        shown.lines().nth(2).unwrap().matches('█').count(),
        76 * 3 / 4
    );
}

#[test]
fn drawing_succeeds_at_any_terminal_size() {
    for width in [0, 1, 7, 30, 60, 80, 132, 300] {
        for height in [0, 1, 3, 10, 20, 24, 29, 30, 50, 120] {
            for done in [false, true] {
                let mut picture = picture();
                picture.done = done;
                let grid = frame::draw(&picture, (width, height), true);
                assert_eq!((grid.width, grid.height), (width, height));
                // Before the first reply, all figures are zero.
                let empty = Picture::new(1, 0, 0, Prices::default());
                frame::draw(&empty, (width, height), false);
            }
        }
    }
}

#[test]
fn without_colors_bar_segments_have_distinct_glyphs() {
    let shown = text(&frame::draw(&picture(), (80, 24), false));
    let bar = shown.lines().nth(2).unwrap();
    assert!(
        bar.contains('▚') && bar.contains('█') && bar.contains('▒'),
        "{bar}"
    );
}

#[test]
fn plain_lines_and_the_svg_have_no_escape_codes() {
    let all = progress(&picture()) + &svg(&picture()) + &picture().timeline[0].line();
    assert!(!all.contains('\u{1b}'), "{all}");
    assert!(all.contains("150,000 tokens"), "{all}");
}

//! A chart of the requests of a session: one bar for each request, with its parts, the window and the thresholds.

use std::fmt::Write as _;

use maud::{Markup, html};
use palimpsest_proto::context::v1::TokenBreakdown;

use crate::format::{number, short};

const WIDTH: u32 = 1_000;
const HEIGHT: u32 = 240;
/// The space for labels at the left, and for marks of changes below the bars.
const LEFT: u32 = 56;
const BELOW: u32 = 22;
const TOP: u32 = 10;
/// The maximum width of a bar.
const MAX_BAR: f64 = 24.0;

/// The names and the classes of the parts, in the order of a request.
pub(crate) const PARTS: [(&str, &str); 6] = [
    ("system", "system"),
    ("tools", "tools"),
    ("memory", "memory"),
    ("messages", "messages"),
    ("results", "results"),
    ("attachments", "attachments"),
];

/// Returns the parts in the order of [`PARTS`].
pub(crate) fn parts(breakdown: &TokenBreakdown) -> [u32; 6] {
    [
        breakdown.system_tokens,
        breakdown.tools_tokens,
        breakdown.summary_tokens,
        breakdown.messages_tokens,
        breakdown.results_tokens,
        breakdown.attachments_tokens,
    ]
}

/// A bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// The revision of the request.
    pub(crate) revision: u64,
    pub(crate) tokens: u32,
    pub(crate) parts: [u32; 6],
    /// Tokens that the levels removed from the request.
    pub(crate) saved: u32,
    /// The changes of the view since the request before: their names.
    pub(crate) changes: Vec<&'static str>,
    /// The page of the request.
    pub(crate) path: String,
}

/// A horizontal line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) label: &'static str,
    pub(crate) class: &'static str,
    pub(crate) tokens: u32,
}

/// Draws the requests, oldest first.
pub(crate) fn requests(bars: &[Bar], lines: &[Line]) -> Markup {
    let scale = Scale::of(bars, lines);
    // One path for each part draws all bars. An element for each bar and part would be up to 1,800 elements.
    let mut paths = [const { String::new() }; 6];
    let mut unmanaged = String::new();
    let mut is_drawn = false;
    for (index, bar) in bars.iter().enumerate() {
        let (x, width) = scale.bar(index);
        let mut below = 0_u32;
        for (part, path) in bar.parts.iter().zip(&mut paths) {
            if *part > 0 {
                let (bottom, top) = (scale.y(below), scale.y(below + part));
                let _ = write!(path, "M{x:.1} {bottom:.1}V{top:.1}h{width:.1}V{bottom:.1}z");
            }
            below = below.saturating_add(*part);
        }
        let without = bar.tokens.saturating_add(bar.saved);
        // Above the chart, the line has a gap.
        let fits = scale.fits(without);
        if fits {
            // `L` connects the step to the one before, and `M` begins another line after a gap.
            let command = if is_drawn { 'L' } else { 'M' };
            let y = scale.y(without);
            let _ = write!(unmanaged, "{command}{x:.1} {y:.1}h{width:.1}");
        }
        is_drawn = fits;
    }
    let floor = scale.y(0);
    html! {
        a.skip href="#events" { "Skip the chart" }
        figure.chart {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby="chart-title" {
                title #chart-title { (summary(bars)) }
                @for (path, (_, class)) in paths.iter().zip(PARTS) {
                    path.{ "part-" (class) } d=(path) {}
                }
                path.unmanaged d=(unmanaged) {}
                @for line in lines.iter().filter(|line| line.tokens > 0) {
                    @let y = format!("{:.1}", scale.y(line.tokens));
                    line.{ "line-" (line.class) } x1=(LEFT) x2=(WIDTH) y1=(y) y2=(y) {}
                    text.axis x=(LEFT - 6) y=(y) text-anchor="end" dominant-baseline="middle" { (short(line.tokens.into())) }
                }
                @for (index, bar) in bars.iter().enumerate() {
                    @let (left, width) = scale.bar(index);
                    @let (x, width) = (format!("{left:.1}"), format!("{width:.1}"));
                    a href=(bar.path) {
                        title { (label(bar)) }
                        rect.target x=(x) y=(TOP) width=(width) height=(HEIGHT - TOP) {}
                        @if !bar.changes.is_empty() {
                            path.change d=(format!("M{left:.1} {:.1}l5 9h-10z", floor + 5.0)) {}
                        }
                    }
                }
            }
            figcaption {
                ul.legend {
                    @for (name, class) in PARTS {
                        li { span.{ "swatch part-" (class) } {} (name) }
                    }
                    li { span.swatch.unmanaged {} "without the levels, up to " (number(without_levels(bars).into())) }
                    @for line in lines.iter().filter(|line| line.tokens > 0) {
                        li { span.{ "swatch line-" (line.class) } {} (line.label) " " (number(line.tokens.into())) }
                    }
                    li { span.swatch.change {} "the view changed" }
                }
            }
        }
    }
}

/// Returns the largest request without the levels, in tokens.
fn without_levels(bars: &[Bar]) -> u32 {
    let all = bars.iter().map(|bar| bar.tokens.saturating_add(bar.saved));
    all.max().unwrap_or(0)
}

fn summary(bars: &[Bar]) -> String {
    let largest = bars.iter().map(|bar| bar.tokens).max().unwrap_or(0);
    let last = bars.last().map_or(0, |bar| bar.tokens);
    format!(
        "{} requests; the largest has {} tokens, the last one {}",
        number(bars.len() as u64),
        number(largest.into()),
        number(last.into())
    )
}

fn label(bar: &Bar) -> String {
    let mut text = format!(
        "Revision {}: {} tokens",
        number(bar.revision),
        number(bar.tokens.into())
    );
    for ((name, _), tokens) in PARTS.iter().zip(bar.parts) {
        if tokens > 0 {
            let _ = write!(text, ", {name} {}", number(tokens.into()));
        }
    }
    if !bar.changes.is_empty() {
        let _ = write!(text, "; before it: {}", bar.changes.join(", "));
    }
    text
}

/// Converts tokens and bars to positions.
struct Scale {
    tokens: f64,
    step: f64,
}

impl Scale {
    fn of(bars: &[Bar], lines: &[Line]) -> Self {
        // Without the levels, a request could be many times the window. It must not hide the rest.
        let window = lines.iter().map(|line| line.tokens).max().unwrap_or(0);
        let sent = bars.iter().map(|bar| bar.tokens).max().unwrap_or(0);
        let most = without_levels(bars).min(window.max(sent).saturating_mul(2));
        let most = most.max(window).max(sent).max(1);
        let step =
            f64::from(WIDTH - LEFT) / f64::from(u32::try_from(bars.len().max(1)).unwrap_or(1));
        Self {
            tokens: f64::from(most),
            step: step.min(MAX_BAR),
        }
    }

    fn fits(&self, tokens: u32) -> bool {
        f64::from(tokens) <= self.tokens
    }

    fn y(&self, tokens: u32) -> f64 {
        let height = f64::from(HEIGHT - BELOW - TOP);
        let share = (f64::from(tokens) / self.tokens).min(1.0);
        f64::from(TOP) + height * (1.0 - share)
    }

    /// Returns the left side and the width of a bar.
    fn bar(&self, index: usize) -> (f64, f64) {
        let index = f64::from(u32::try_from(index).unwrap_or(u32::MAX));
        // In narrow bars, the gap would take too much of the width.
        let gap = if self.step > 6.0 { 1.0 } else { 0.0 };
        (
            f64::from(LEFT) + index * self.step,
            (self.step - gap).max(0.2),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_without_levels_has_a_gap_above_the_chart() {
        let bar = |saved| Bar {
            revision: 1,
            tokens: 100,
            parts: [0, 0, 0, 100, 0, 0],
            saved,
            changes: Vec::new(),
            path: String::new(),
        };
        let window = Line {
            label: "context window",
            class: "window",
            tokens: 200,
        };
        // The chart ends at twice the window: 400 tokens. The requests would have 100, 400, 1,100 and 400 tokens.
        let bars = [bar(0), bar(300), bar(1_000), bar(300)];
        let chart = requests(&bars, &[window]).into_string();
        let line = chart.split_once("class=\"unmanaged\" d=\"").unwrap().1;
        let line = line.split_once('"').unwrap().0;
        // The first two requests are one line, the third is above the chart, and the last begins another line.
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert_eq!(line.matches('h').count(), 3, "{line}");
        assert!(chart.contains("without the levels, up to 1,100"), "{chart}");
    }
}

//! A chart of the tokens of each request, as an SVG without external resources that follows the light or dark theme.
//!
//! The chart shows only the longest session. A sum over sessions would fall whenever a session ends, which is
//! misleading.

use std::fmt::Write as _;

use super::NONE;
use super::run::{FileResult, ReplayResults};
use crate::output::{number, one_line};
use crate::svg::escaped;

const TITLE: &str = "Tokens of each request in the longest session";
/// The maximum length of a file name. A longer name would exceed the width of the chart.
const MAX_NAME_CHARS: usize = 100;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 112.0;
const BOTTOM: f64 = 58.0;
/// The maximum number of grid steps.
const TICKS: u64 = 5;

/// The colors of the policies in the light and the dark theme. Color-blind people can distinguish them.
const COLOURS: [(&str, &str); 4] = [
    ("#0072b2", "#56b4e9"),
    ("#c24d00", "#ff9d45"),
    ("#00785a", "#2fd0a5"),
    ("#a63d83", "#e59ccb"),
];

struct PlotScale {
    requests: u64,
    tokens: u64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "coordinates are below a thousand"
)]
impl PlotScale {
    fn x(&self, request: u64) -> f64 {
        // With one request, the distance between the first and the last one would be 0.
        let span = self.requests.saturating_sub(1).max(1) as f64;
        LEFT + (WIDTH - LEFT - RIGHT) * (request.saturating_sub(1) as f64 / span)
    }

    fn y(&self, tokens: u64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (tokens as f64 / self.tokens as f64)
    }
}

/// Draws the longest session of a replay.
pub(super) fn draw(replayed: &ReplayResults) -> String {
    let longest = replayed.files.iter().max_by_key(|file| file.requests());
    let mut svg = String::new();
    // Writing to a string cannot fail.
    if let Some(file) = longest {
        let _ = chart(&mut svg, replayed, file);
    }
    svg
}

fn chart(svg: &mut String, replayed: &ReplayResults, file: &FileResult) -> std::fmt::Result {
    let limits = limits(replayed);
    let most = file.longest.iter().flatten().copied();
    // The scale includes the limits, so that the line of the window is always visible.
    let most = most
        .chain(limits.iter().map(|limit| limit.tokens))
        .max()
        .unwrap_or(0);
    let step = step(most);
    let scale = PlotScale {
        requests: file.requests() as u64,
        tokens: most.div_ceil(step).max(1) * step,
    };
    let about = format!(
        "{}, {} requests",
        escaped(&one_line(&file.file, MAX_NAME_CHARS)),
        number(scale.requests)
    );
    write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{TITLE}: {about}" font-family="system-ui, -apple-system, 'Segoe UI', sans-serif" font-size="13">
<title>{TITLE}: {about}</title>
"#
    )?;
    style(svg)?;
    writeln!(svg, r#"<rect class="sheet" width="100%" height="100%"/>"#)?;
    writeln!(
        svg,
        r#"<text class="title" x="{LEFT}" y="30">{TITLE}</text><text x="{LEFT}" y="51">{about}</text>"#
    )?;
    let has_rings = file.compacted_at.iter().any(|places| !places.is_empty());
    legend(svg, &replayed.policies, has_rings)?;
    axes(svg, &scale, step)?;
    for limit in &limits {
        limit.draw(svg, &scale)?;
    }
    // The dashed line of `none` is drawn last, so that both lines are visible where they are equal.
    let lines = replayed.policies.iter().zip(&file.longest).enumerate();
    for (index, (policy, curve)) in lines {
        line(svg, &class(index, policy), curve, &scale)?;
    }
    let places = file.longest.iter().zip(&file.compacted_at).enumerate();
    for (index, (curve, places)) in places {
        marks(
            svg,
            &class(index, &replayed.policies[index]),
            (curve, places),
            &scale,
        )?;
    }
    svg.push_str("</svg>\n");
    Ok(())
}

fn style(svg: &mut String) -> std::fmt::Result {
    let (mut light, mut dark) = (String::new(), String::new());
    for (index, (of_light, of_dark)) in COLOURS.iter().enumerate() {
        write!(light, ".p{index}{{stroke:{of_light}}}")?;
        write!(dark, ".p{index}{{stroke:{of_dark}}}")?;
    }
    writeln!(
        svg,
        "<style>
.sheet{{fill:#ffffff}}text{{fill:#3d4451}}.title{{fill:#14171c;font-size:16px;font-weight:600}}
.grid{{stroke:#e3e6eb}}.axis{{stroke:#8b93a1}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round}}
.limit{{stroke-width:1;stroke-dasharray:2 4}}.window{{stroke:#c0392b}}.ring{{stroke:#6d7686}}.label{{font-size:11px}}
.none{{stroke:#8b93a1;stroke-dasharray:6 4}}{light}
@media (prefers-color-scheme:dark){{
.sheet{{fill:#14171c}}text{{fill:#b9c0cc}}.title{{fill:#f2f4f7}}
.grid{{stroke:#2b313b}}.axis{{stroke:#6d7686}}.none{{stroke:#8f98a8}}{dark}
}}
</style>"
    )
}

fn class(index: usize, policy: &str) -> String {
    if policy == NONE {
        NONE.to_owned()
    } else {
        format!("p{}", index % COLOURS.len())
    }
}

/// A horizontal line at the context window or at a compaction threshold.
struct LimitLine {
    tokens: u64,
    label: String,
    class: String,
}

impl LimitLine {
    fn draw(&self, svg: &mut String, scale: &PlotScale) -> std::fmt::Result {
        let (right, y) = (WIDTH - RIGHT, scale.y(self.tokens));
        let (base, class, label) = (y - 4.0, &self.class, &self.label);
        writeln!(
            svg,
            r#"<line class="limit {class}" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/><text class="label" x="{right}" y="{base:.1}" text-anchor="end">{label}</text>"#
        )
    }
}

/// Returns the windows and compaction thresholds of the policies without duplicates. `none` has no threshold.
fn limits(replayed: &ReplayResults) -> Vec<LimitLine> {
    let mut limits: Vec<LimitLine> = Vec::new();
    let mut add = |tokens: u64, label: String, class: String| {
        // Policies often have the same window, whose labels would overlap.
        if limits.iter().all(|limit| limit.tokens != tokens) {
            limits.push(LimitLine {
                tokens,
                label,
                class,
            });
        }
    };
    for (index, (policy, at)) in replayed
        .policies
        .iter()
        .zip(&replayed.thresholds)
        .enumerate()
    {
        let window = format!("window {}", number(at.window));
        add(at.window, window, "window".to_owned());
        if policy != NONE {
            let due = format!(
                "{}: compaction due at {}",
                escaped(policy),
                number(at.compact)
            );
            add(at.compact, due, class(index, policy));
        }
    }
    limits
}

fn legend(svg: &mut String, policies: &[String], has_rings: bool) -> std::fmt::Result {
    /// The width of an entry, which fits the longest preset name.
    const ENTRY: f64 = 172.0;
    let mut x = LEFT;
    for (index, policy) in policies.iter().enumerate() {
        let class = class(index, policy);
        let (end, words) = (x + 26.0, x + 33.0);
        writeln!(
            svg,
            r#"<line class="line {class}" x1="{x}" y1="76" x2="{end}" y2="76"/><text x="{words}" y="80">{}</text>"#,
            escaped(policy)
        )?;
        x += ENTRY;
    }
    if has_rings {
        let (middle, words) = (x + 13.0, x + 33.0);
        writeln!(
            svg,
            r#"<circle class="line ring" cx="{middle}" cy="76" r="4"/><text x="{words}" y="80">after a compaction</text>"#
        )?;
    }
    Ok(())
}

fn axes(svg: &mut String, scale: &PlotScale, step: u64) -> std::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tokens in (0..=scale.tokens / step).map(|n| n * step) {
        let y = scale.y(tokens);
        let class = if tokens == 0 { "axis" } else { "grid" };
        let (x, base, words) = (LEFT - 10.0, y + 4.0, short(tokens));
        writeln!(
            svg,
            r#"<line class="{class}" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/><text x="{x}" y="{base:.1}" text-anchor="end">{words}</text>"#
        )?;
    }
    let each = self::step(scale.requests);
    let marks = (1..=scale.requests / each).map(|n| n * each);
    // The first request has a label. A step of 1 would label it twice.
    for request in std::iter::once(1).chain(marks.filter(|request| *request > 1)) {
        let (x, top, base) = (scale.x(request), bottom + 5.0, bottom + 21.0);
        writeln!(
            svg,
            r#"<line class="axis" x1="{x:.1}" y1="{bottom}" x2="{x:.1}" y2="{top}"/><text x="{x:.1}" y="{base}" text-anchor="middle">{}</text>"#,
            number(request)
        )?;
    }
    let (middle, foot) = (f64::midpoint(LEFT, right), HEIGHT - 14.0);
    let (x, head) = (LEFT - 10.0, TOP - 12.0);
    writeln!(
        svg,
        r#"<text x="{middle}" y="{foot}" text-anchor="middle">request</text><text x="{x}" y="{head}" text-anchor="end">tokens</text>"#
    )
}

fn line(svg: &mut String, class: &str, curve: &[u64], scale: &PlotScale) -> std::fmt::Result {
    write!(svg, r#"<polyline class="line {class}" points=""#)?;
    for (request, tokens) in (1..).zip(curve) {
        write!(svg, "{:.1},{:.1} ", scale.x(request), scale.y(*tokens))?;
    }
    svg.push_str("\"/>\n");
    Ok(())
}

/// Draws a ring on the first request after each compaction.
fn marks(
    svg: &mut String,
    class: &str,
    (curve, places): (&[u64], &[usize]),
    scale: &PlotScale,
) -> std::fmt::Result {
    for place in places {
        if let Some(tokens) = curve.get(*place) {
            let (x, y) = (scale.x(*place as u64 + 1), scale.y(*tokens));
            writeln!(
                svg,
                r#"<circle class="line {class}" cx="{x:.1}" cy="{y:.1}" r="4"><title>compacted to {} tokens</title></circle>"#,
                number(*tokens)
            )?;
        }
    }
    Ok(())
}

/// Returns the distance between grid lines: 1, 2 or 5 times a power of ten.
fn step(most: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        for step in [1, 2, 5].map(|n: u64| n.saturating_mul(unit)) {
            if most.div_ceil(step) <= TICKS {
                return step;
            }
        }
        // The steps saturate at `u64::MAX`, where the quotient above is 1. The loop therefore ends.
        unit = unit.saturating_mul(10);
    }
}

/// Formats a label of the axis, with K for thousands and M for millions.
fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 if tokens.is_multiple_of(1_000) => format!("{} K", tokens / 1_000),
        1_000_000.. if tokens.is_multiple_of(1_000_000) => format!("{} M", tokens / 1_000_000),
        _ => number(tokens),
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::policy::{Policy, WindowHint};

    use super::*;

    fn drawn(curve: Vec<u64>, file: &str) -> String {
        let flat = vec![1; curve.len()];
        draw(&ReplayResults {
            policies: vec!["opencode".into(), NONE.into()],
            thresholds: vec![
                Policy::default().thresholds(WindowHint::default()),
                Policy::default().thresholds(WindowHint::default()),
            ],
            files: vec![FileResult {
                file: file.into(),
                measured: Vec::new(),
                unreadable: Vec::new(),
                unrecognized: None,
                longest: vec![flat, curve],
                compacted_at: vec![vec![1], Vec::new()],
            }],
            totals: Vec::new(),
            model: None,
        })
    }

    #[test]
    fn a_chart_has_a_line_for_each_policy_and_escapes_names() {
        let svg = drawn(vec![1_000, 90_000, 181_000], "a&b<.jsonl");
        assert_eq!(svg.matches("<polyline").count(), 2);
        // One ring on the chart, and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a&amp;b&lt;.jsonl, 3 requests"), "{svg}");
        // 181,000 tokens need four steps of 50,000.
        assert!(svg.contains(">200 K<") && svg.contains(">50 K<"), "{svg}");
        // The first request is at the left edge, and the last one at the right edge: 960 - 24.
        assert!(svg.contains("76.0,") && svg.contains("936.0,"), "{svg}");
        // A chart of one request or of none has no undefined coordinates.
        for curve in [vec![7], vec![]] {
            assert!(!drawn(curve, "x").contains("NaN"));
        }
    }

    #[test]
    fn a_chart_shows_the_window_the_threshold_and_a_legend() {
        let svg = drawn(vec![1_000, 90_000], "x");
        assert!(svg.contains(">window 200,000<"), "{svg}");
        assert!(
            svg.contains(">opencode: compaction due at 167,000<"),
            "{svg}"
        );
        assert!(svg.contains(">after a compaction<"), "{svg}");
        // Both policies have the same window, and `none` has no threshold.
        assert_eq!(svg.matches("class=\"limit").count(), 2, "{svg}");
    }

    #[test]
    fn axis_steps_are_round_numbers() {
        assert_eq!(
            [0, 1, 5, 6, 99, 181_000, 464_540].map(step),
            [1, 1, 1, 2, 20, 50_000, 100_000]
        );
        assert!(step(u64::MAX) > 1);
    }
}

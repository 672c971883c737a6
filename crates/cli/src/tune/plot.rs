//! A chart of cost against recall, as an SVG without external resources that follows the light or dark theme.

use std::fmt::Write as _;

use super::run::{CandidateResult, TuneResults, ratio};
use super::table::percent;
use crate::svg::escaped;

const TITLE: &str = "Cost and recall of policies";
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 62.0;
/// The average width of a character in a label.
const CHAR_WIDTH: f64 = 6.6;

/// A policy in the chart. Both values are shares.
struct Point<'a> {
    result: &'a CandidateResult,
    cost: f64,
    optimum: Option<f64>,
    recall: f64,
}

struct Scale {
    /// The highest cost.
    cost: f64,
    /// The lowest recall.
    recall: f64,
}

impl Scale {
    fn of(points: &[Point<'_>]) -> Self {
        let costs = points.iter().map(|point| point.cost);
        let recalls = points.iter().map(|point| point.recall);
        let lowest = recalls.fold(1.0, f64::min);
        Self {
            cost: (costs.fold(0.1, f64::max) * 10.0).ceil() / 10.0,
            // At least five percent are shown, and the lowest point has some space below.
            recall: (((lowest * 100.0 - 1.0) / 5.0).floor() * 0.05).clamp(0.0, 0.95),
        }
    }

    fn x(&self, cost: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * cost / self.cost
    }

    fn y(&self, recall: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - recall) / (1.0 - self.recall)
    }
}

/// Draws the results. `recommended` is the index of the recommended policy.
pub(super) fn draw(tuned: &TuneResults, recommended: Option<usize>) -> String {
    let unchanged = tuned.results.first().map_or(0, |first| first.cost_milli);
    // The first candidate is `none`, so its cost is that of the unchanged conversations.
    let share = |cost| ratio(cost, unchanged).unwrap_or(1.0);
    let points: Vec<Point<'_>> = tuned
        .results
        .iter()
        .map(|result| Point {
            result,
            cost: share(result.cost_milli),
            optimum: result.optimum_milli.map(share),
            recall: result.recall(),
        })
        .collect();
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = chart(&mut svg, &points, recommended);
    svg
}

fn chart(svg: &mut String, points: &[Point<'_>], recommended: Option<usize>) -> std::fmt::Result {
    write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{TITLE}" font-family="system-ui, -apple-system, 'Segoe UI', sans-serif" font-size="12">
<title>{TITLE}</title>
<style>
.sheet{{fill:#ffffff}}text{{fill:#3d4451}}.title{{fill:#14171c;font-size:16px;font-weight:600}}
.grid{{stroke:#e3e6eb}}.axis{{stroke:#8b93a1}}.point{{fill:#8b93a1}}.on{{fill:#0072b2}}
.frontier{{fill:none;stroke:#0072b2;stroke-width:2}}.optimum{{fill:none;stroke:#00785a}}.best{{fill:none;stroke:#c24d00;stroke-width:2}}
@media (prefers-color-scheme:dark){{
.sheet{{fill:#14171c}}text{{fill:#b9c0cc}}.title{{fill:#f2f4f7}}.grid{{stroke:#2b313b}}.axis{{stroke:#6d7686}}
.on{{fill:#56b4e9}}.frontier{{stroke:#56b4e9}}.optimum{{stroke:#2fd0a5}}.best{{stroke:#ff9d45}}
}}
</style>
<rect class="sheet" width="100%" height="100%"/>
<text class="title" x="{LEFT}" y="30">{TITLE}</text>
<text x="{LEFT}" y="51">Line: no policy costs less with the same recall. Diamond: the lowest cost in hindsight. Ring: recommended.</text>
"#
    )?;
    let scale = Scale::of(points);
    axes(svg, &scale)?;
    frontier(svg, points, &scale)?;
    let at = |point: &Point<'_>| (scale.x(point.cost), scale.y(point.recall));
    // All points are taken from the beginning, so that no label covers a point that is drawn later.
    let mut taken: Vec<Area> = points.iter().map(|it| Area::of_point(at(it))).collect();
    for (index, point) in points.iter().enumerate() {
        let (x, y) = at(point);
        if let Some(optimum) = point.optimum {
            let left = scale.x(optimum);
            writeln!(
                svg,
                r#"<path class="optimum" d="M{x:.1},{y:.1}H{left:.1}"/><path class="optimum" d="M{left:.1},{:.1}l4,4l-4,4l-4,-4z"/>"#,
                y - 4.0
            )?;
        }
        let class = if point.result.is_on_frontier {
            "point on"
        } else {
            "point"
        };
        let name = escaped(&point.result.name);
        writeln!(
            svg,
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4"><title>{name}: cost {}, recall {}</title></circle>"#,
            percent(point.cost),
            percent(point.recall)
        )?;
        if recommended == Some(index) {
            writeln!(
                svg,
                r#"<circle class="best" cx="{x:.1}" cy="{y:.1}" r="8"/>"#
            )?;
        }
        label(svg, &name, (x, y), &mut taken)?;
    }
    svg.push_str("</svg>\n");
    Ok(())
}

/// A label or a point, in the coordinates of the chart.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn of_point((x, y): (f64, f64)) -> Self {
        let radius = 5.0;
        Self {
            left: x - radius,
            right: x + radius,
            top: y - radius,
            bottom: y + radius,
        }
    }

    /// The area of a text that begins or ends at a position.
    fn of_label((x, base): (f64, f64), width: f64, is_right: bool) -> Self {
        let left = if is_right { x } else { x - width };
        Self {
            left,
            right: left + width,
            top: base - 10.0,
            bottom: base + 3.0,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn is_inside(&self) -> bool {
        self.left > LEFT && self.right < WIDTH && self.top > TOP && self.bottom < HEIGHT - BOTTOM
    }
}

/// Writes a name beside its point, at the nearest place that is free.
fn label(
    svg: &mut String,
    name: &str,
    (x, y): (f64, f64),
    taken: &mut Vec<Area>,
) -> std::fmt::Result {
    #[expect(clippy::cast_precision_loss, reason = "names are short")]
    let width = name.chars().count() as f64 * CHAR_WIDTH;
    // Distances of the baseline from the point: beside it first, then alternately below and above.
    let lines = [4.0, 18.0, -9.0, 32.0, -23.0, 46.0, -37.0];
    let mut places = lines
        .into_iter()
        .flat_map(|line| [(line, true), (line, false)]);
    let place = places.find_map(|(line, is_right)| {
        let at = (if is_right { x + 9.0 } else { x - 9.0 }, y + line);
        let area = Area::of_label(at, width, is_right);
        let is_free = area.is_inside() && !taken.iter().any(|other| other.overlaps(&area));
        is_free.then_some((at, area, is_right))
    });
    // Without a free place, the name is only in the title of the point.
    let Some(((at, base), area, is_right)) = place else {
        return Ok(());
    };
    taken.push(area);
    let anchor = if is_right { "start" } else { "end" };
    writeln!(
        svg,
        r#"<text x="{at:.1}" y="{base:.1}" text-anchor="{anchor}">{name}</text>"#
    )
}

fn frontier(svg: &mut String, points: &[Point<'_>], scale: &Scale) -> std::fmt::Result {
    let mut on: Vec<&Point<'_>> = points
        .iter()
        .filter(|it| it.result.is_on_frontier)
        .collect();
    on.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    svg.push_str(r#"<polyline class="frontier" points=""#);
    for point in on {
        write!(
            svg,
            "{:.1},{:.1} ",
            scale.x(point.cost),
            scale.y(point.recall)
        )?;
    }
    svg.push_str("\"/>\n");
    Ok(())
}

fn axes(svg: &mut String, scale: &Scale) -> std::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tenth in 0..=20_u32 {
        let cost = f64::from(tenth) / 10.0;
        // The tolerance keeps the last line of the grid if a product of floats is inexact.
        if cost > scale.cost + 1e-9 {
            break;
        }
        let (x, base) = (scale.x(cost), bottom + 18.0);
        writeln!(
            svg,
            r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/><text x="{x:.1}" y="{base}" text-anchor="middle">{} %</text>"#,
            tenth * 10
        )?;
    }
    let step = if scale.recall < 0.7 {
        10
    } else if scale.recall < 0.9 {
        5
    } else {
        1
    };
    for percent in (0..=100_u32).step_by(step) {
        let recall = f64::from(percent) / 100.0;
        if recall + 1e-9 < scale.recall {
            continue;
        }
        let (y, x) = (scale.y(recall), LEFT - 10.0);
        let base = y + 4.0;
        writeln!(
            svg,
            r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/><text x="{x}" y="{base:.1}" text-anchor="end">{percent} %</text>"#
        )?;
    }
    let (middle, low) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 16.0);
    let up = TOP - 10.0;
    writeln!(
        svg,
        r#"<text x="{middle}" y="{low}" text-anchor="middle">cost of the input, compared with no policy</text><text x="{LEFT}" y="{up}" text-anchor="start">recall: what tool calls used that the view shows</text>"#
    )
}

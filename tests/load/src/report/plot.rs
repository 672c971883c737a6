//! Line plots: latency against the length of a transcript, and a server against the number of its sessions.

use maud::{Markup, html};

use super::limits::{MEMORY_MB, READY_MS};
use super::sheet::{Scale, WIDTH, label, legend, n, series, sheet};
use super::{Crowd, Growth};
use palimpsest_load::figures::megabytes;

const HEIGHT: f64 = 440.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 112.0;
const BOTTOM: f64 = 58.0;
/// A factor above the largest value, so that a limit is not drawn at the edge.
const ROOM: f64 = 1.05;

/// A line with its name.
type Line = (&'static str, Vec<(f64, f64)>);

struct Plot<'a> {
    title: &'a str,
    under: &'a str,
    /// The labels of the axes.
    axes: (&'a str, &'a str),
    lines: Vec<Line>,
    limit: Option<(f64, &'a str)>,
    logarithmic: bool,
}

/// Plots latency against length.
pub(super) fn growth(rows: &[Growth]) -> String {
    type Figure = fn(&Growth) -> Option<f64>;
    let figures: [(&'static str, Figure); 5] = [
        ("append", |row| row.append_ms.0),
        ("delta", |row| row.delta_ms.0),
        ("snip", |row| row.snip_ms.0),
        ("full view", |row| row.full_ms.0),
        ("opening", |row| row.open_ms),
    ];
    let lines = figures.map(|(name, figure)| (name, points(rows, |row| row.messages, figure)));
    Plot {
        title: "Latency against the length of the transcript",
        under: "Medians over gRPC; both axes are logarithmic. A full view grows with what it holds.",
        axes: ("messages", "ms"),
        lines: lines.into(),
        limit: None,
        logarithmic: true,
    }
    .draw()
}

/// Plots the start time against the number of sessions.
pub(super) fn ready(rows: &[Crowd]) -> String {
    Plot {
        title: "Time until a server is ready",
        under: "From the start of the process, against the sessions on disk.",
        axes: ("sessions", "ms"),
        lines: vec![(
            "ready",
            points(rows, |row| row.sessions, |row| Some(row.ready_ms)),
        )],
        limit: Some((READY_MS, "limit: 2 s")),
        logarithmic: false,
    }
    .draw()
}

/// Plots memory against the number of sessions.
pub(super) fn memory(rows: &[Crowd]) -> String {
    let of = |figure: fn(&Crowd) -> Option<f64>| points(rows, |row| row.sessions, figure);
    Plot {
        title: "Memory of an idle server",
        under: "After a second without calls, against the sessions on disk.",
        axes: ("sessions", "MB"),
        lines: vec![
            ("resident", of(|row| Some(megabytes(row.resident)))),
            ("without mapped files", of(|row| Some(megabytes(row.own)))),
        ],
        limit: Some((MEMORY_MB, "limit: 200 MB")),
        logarithmic: false,
    }
    .draw()
}

#[expect(clippy::cast_precision_loss, reason = "a place on a sheet")]
fn points<T>(rows: &[T], x: fn(&T) -> usize, y: impl Fn(&T) -> Option<f64>) -> Vec<(f64, f64)> {
    let each = rows.iter();
    each.filter_map(|row| Some((x(row) as f64, y(row)?)))
        .collect()
}

impl Plot<'_> {
    fn draw(&self) -> String {
        let all = || self.lines.iter().flat_map(|(_, points)| points);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let x = Scale::logarithmic((LEFT, right), all().map(|point| point.0));
        let y = if self.logarithmic {
            Scale::logarithmic((bottom, TOP), all().map(|point| point.1))
        } else {
            let most = all()
                .map(|point| point.1)
                // The limit is inside of the plot, also if all values are far below it.
                .chain(self.limit.map(|limit| limit.0 * ROOM));
            Scale::linear((bottom, TOP), most.fold(0.0, f64::max))
        };
        let drawn = html! {
            (legend(LEFT, 78.0, self.lines.iter().map(|(name, _)| *name)))
            (self.axes(&x, &y))
            @if let Some((value, name)) = self.limit {
                @let at = y.place(value);
                line class="limit" x1=(LEFT) x2=(right) y1=(n(at)) y2=(n(at)) {}
                text class="of-limit" x=(right) y=(n(at - 7.0)) text-anchor="end" { (name) }
            }
            @for (index, (_, points)) in self.lines.iter().enumerate() {
                @let class = series(index);
                polyline class={"line " (class)} points=(places(points, &x, &y)) {}
                @for point in points {
                    circle class={(class) " dot"} cx=(n(x.place(point.0))) cy=(n(y.place(point.1))) r="3.5" {
                        title { (label(point.0)) " " (self.axes.0) ": " (palimpsest_load::figures::short(point.1)) " " (self.axes.1) }
                    }
                }
            }
        };
        sheet(HEIGHT, (self.title, self.under), &drawn)
    }

    fn axes(&self, x: &Scale, y: &Scale) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            @for (value, written) in y.ticks() {
                @let at = y.place(value);
                line class="grid" x1=(LEFT) x2=(right) y1=(n(at)) y2=(n(at)) {}
                @if written {
                    text x=(LEFT - 10.0) y=(n(at + 4.0)) text-anchor="end" { (label(value)) }
                }
            }
            line class="axis" x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
            @for (value, written) in x.ticks() {
                @if written {
                    @let at = x.place(value);
                    line class="axis" x1=(n(at)) x2=(n(at)) y1=(bottom) y2=(bottom + 5.0) {}
                    text x=(n(at)) y=(bottom + 21.0) text-anchor="middle" { (label(value)) }
                }
            }
            text x=(n(f64::midpoint(LEFT, right))) y=(HEIGHT - 14.0) text-anchor="middle" { (self.axes.0) }
            text x=(LEFT - 10.0) y=(TOP - 12.0) text-anchor="end" { (self.axes.1) }
        }
    }
}

fn places(points: &[(f64, f64)], x: &Scale, y: &Scale) -> String {
    let each = points.iter();
    let places = each.map(|point| format!("{},{}", n(x.place(point.0)), n(y.place(point.1))));
    places.collect::<Vec<_>>().join(" ")
}

//! A plot of the latencies of all runs of ghz, from the median to the 99th percentile. Each method and size has a band.

use maud::{Markup, html};

use super::Row;
use super::sheet::{Scale, WIDTH, label, legend, n, series, sheet};
use palimpsest_load::figures::short;

const LEFT: f64 = 300.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 122.0;
const BOTTOM: f64 = 50.0;
/// The distance between two runs of a band, and the padding of a band.
const EACH: f64 = 9.0;
const PADDING: f64 = 7.0;

/// Draws the plot.
pub(super) fn draw(rows: &[Row]) -> String {
    let kinds = distinct(rows, kind);
    let names: Vec<String> = kinds
        .iter()
        .map(|connections| match connections {
            None => "open loop, many connections".to_owned(),
            Some(1) => "closed loop, 1 connection".to_owned(),
            Some(connections) => format!("{connections} connections"),
        })
        .collect();
    let works = distinct(rows, |row| row.name);
    // The plot is drawn only if there are rows, so there is at least one kind.
    let band = EACH * count(kinds.len() - 1) + 2.0 * PADDING;
    let height = TOP + band * count(works.len()) + BOTTOM;
    let values = rows
        .iter()
        .flat_map(|row| [row.p50_ms, row.p99_ms])
        .flatten();
    let x = Scale::logarithmic((LEFT, WIDTH - RIGHT), values);
    let drawn = html! {
        (legend(24.0, 78.0, names.iter().map(String::as_str)))
        @for (index, name) in works.iter().enumerate() {
            @let top = TOP + band * count(index);
            @if index % 2 == 0 {
                rect class="band" x="0" width=(WIDTH) y=(n(top)) height=(n(band)) {}
            }
            @if let Some(row) = rows.iter().find(|row| row.name == *name) {
                text x=(LEFT - 14.0) y=(n(top + band / 2.0 + 4.0)) text-anchor="end" { (row.rpc) ", " (row.size) }
            }
        }
        (axis(&x, height))
        @for row in rows {
            @let band_at = works.iter().position(|name| *name == row.name).unwrap_or(0);
            @let of_kind = kinds.iter().position(|one| *one == kind(row)).unwrap_or(0);
            (range(row, of_kind, TOP + band * count(band_at) + PADDING + EACH * count(of_kind), &x))
        }
    };
    let about = (
        "Latency of each call, from the median to the 99th percentile",
        "A filled dot is the median, the end of the line the 99th percentile. The axis is logarithmic.",
    );
    sheet(height, about, &drawn)
}

/// Returns the kind of a run: the number of connections of a closed loop. `None` for an open loop, which uses as many
/// as it needs.
fn kind(row: &Row) -> Option<usize> {
    row.offered.is_none().then_some(row.connections)
}

fn range(row: &Row, kind: usize, y: f64, x: &Scale) -> Markup {
    let class = series(kind);
    html! {
        @if let (Some(p50), Some(p99)) = (row.p50_ms, row.p99_ms) {
            @let (from, to) = (x.place(p50), x.place(p99));
            line class={"line " (class)} x1=(n(from)) x2=(n(to)) y1=(n(y)) y2=(n(y)) {}
            line class={"line " (class)} x1=(n(to)) x2=(n(to)) y1=(n(y - 3.0)) y2=(n(y + 3.0)) {}
            circle class={(class) " dot"} cx=(n(from)) cy=(n(y)) r="3.5" {
                title { (row.rpc) ", " (row.size) ": " (short(p50)) " to " (short(p99)) " ms at " (short(row.rate)) "/s" }
            }
        }
    }
}

fn axis(x: &Scale, height: f64) -> Markup {
    let bottom = height - BOTTOM;
    html! {
        @for (value, written) in x.ticks() {
            @let at = n(x.place(value));
            line class="grid" x1=(at) x2=(at) y1=(TOP) y2=(n(bottom)) {}
            @if written {
                text x=(at) y=(n(bottom + 20.0)) text-anchor="middle" { (label(value)) }
                text x=(at) y=(n(TOP - 9.0)) text-anchor="middle" { (label(value)) }
            }
        }
        text x=(n(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(n(height - 10.0)) text-anchor="middle" { "ms" }
    }
}

/// Returns the distinct values, in the order of their first occurrence.
fn distinct<T: PartialEq>(rows: &[Row], of: impl Fn(&Row) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for one in rows.iter().map(of) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "a place on a sheet")]
fn count(number: usize) -> f64 {
    number as f64
}

//! Shared parts of the plots: colors, scales and the sheet.
//!
//! The SVG is written by hand, as in `palimpsest replay --plot`, and follows the reader's light or dark theme. Chart
//! libraries such as `plotters` write fixed colors into shapes and cannot do this.

use maud::{Markup, PreEscaped, html};

pub(super) const WIDTH: f64 = 960.0;

/// Colours for light and dark themes that readers with colour vision deficiencies can distinguish.
const COLOURS: [(&str, &str); 5] = [
    ("#0072b2", "#56b4e9"),
    ("#c24d00", "#ff9d45"),
    ("#00785a", "#2fd0a5"),
    ("#a63d83", "#e59ccb"),
    ("#6b6b00", "#d6d155"),
];

/// Renders a sheet with a title. Each sheet contains the style, so that its file is self-contained.
pub(super) fn sheet(height: f64, (title, under): (&str, &str), drawn: &Markup) -> String {
    let (light, dark): (String, String) = (0..COLOURS.len())
        .map(|index| {
            let (light, dark) = COLOURS[index];
            (colour(index, light), colour(index, dark))
        })
        .unzip();
    let style = format!(
        ".plot .sheet{{fill:#ffffff}}.plot text{{fill:#3d4451}}.plot .title{{fill:#14171c;font-size:16px;font-weight:600}}
.plot .grid{{stroke:#e3e6eb}}.plot .axis{{stroke:#8b93a1}}.plot .band{{fill:#f5f6f8}}
.plot .line{{fill:none;stroke-width:2;stroke-linejoin:round}}.plot .limit{{stroke:#b3261e;stroke-dasharray:6 4;stroke-width:1.5}}
.plot .of-limit{{fill:#b3261e}}{light}
@media (prefers-color-scheme:dark){{
.plot .sheet{{fill:#14171c}}.plot text{{fill:#b9c0cc}}.plot .title{{fill:#f2f4f7}}
.plot .grid{{stroke:#2b313b}}.plot .axis{{stroke:#6d7686}}.plot .band{{fill:#1b1f26}}
.plot .limit{{stroke:#ff8a80}}.plot .of-limit{{fill:#ff8a80}}{dark}
}}"
    );
    html! {
        svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox={"0 0 " (WIDTH) " " (height)}
            width=(WIDTH) height=(height) role="img" aria-label=(title)
            font-family="system-ui, -apple-system, 'Segoe UI', sans-serif" font-size="13" {
            title { (title) }
            style { (PreEscaped(style)) }
            rect class="sheet" width="100%" height="100%" {}
            text class="title" x="24" y="30" { (title) }
            text x="24" y="51" { (under) }
            (drawn)
        }
    }
    .into_string()
}

fn colour(index: usize, of: &str) -> String {
    format!(".plot .s{index}{{stroke:{of}}}.plot .s{index}.dot{{fill:{of}}}")
}

/// Returns the CSS class of a series.
pub(super) fn series(index: usize) -> String {
    format!("s{}", index % COLOURS.len())
}

/// Renders the names of the series with their colors, in a row.
pub(super) fn legend<'a>(left: f64, y: f64, names: impl IntoIterator<Item = &'a str>) -> Markup {
    let mut x = left;
    html! {
        @for (index, name) in names.into_iter().enumerate() {
            @let class = series(index);
            line class={"line " (class)} x1=(n(x)) y1=(n(y)) x2=(n(x + 22.0)) y2=(n(y)) {}
            circle class={(class) " dot"} cx=(n(x + 11.0)) cy=(n(y)) r="3.5" {}
            text x=(n(x + 29.0)) y=(n(y + 4.0)) { (name) }
            // Maud has no assignments, so a splice that renders nothing moves on by an estimated width of the name.
            ({ x += 58.0 + 7.0 * glyphs(name); "" })
        }
    }
}

/// Formats a coordinate with a precision of a tenth of a point.
pub(super) fn n(value: f64) -> String {
    format!("{value:.1}")
}

#[expect(clippy::cast_precision_loss, reason = "a width on a sheet")]
fn glyphs(text: &str) -> f64 {
    text.chars().count() as f64
}

/// Maps values to positions between two coordinates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// Creates a scale from zero to a round number above the largest value.
    pub(super) fn linear(places: (f64, f64), most: f64) -> Self {
        let step = step(most);
        let high = (most / step).ceil().max(1.0) * step;
        Self {
            from: places.0,
            to: places.1,
            low: 0.0,
            high,
            logarithmic: false,
        }
    }

    /// Creates a scale between two powers of ten.
    pub(super) fn logarithmic(places: (f64, f64), values: impl IntoIterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::MAX, f64::MIN_POSITIVE);
        for value in values.into_iter().filter(|value| *value > 0.0) {
            (least, most) = (least.min(value), most.max(value));
        }
        let low = least.min(most).log10().floor();
        let high = most.log10().ceil().max(low + 1.0);
        Self {
            from: places.0,
            to: places.1,
            low,
            high,
            logarithmic: true,
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        };
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + (self.to - self.from) * part
    }

    /// Returns the values of the grid lines. True marks a line with a label.
    pub(super) fn ticks(&self) -> Vec<(f64, bool)> {
        if self.logarithmic {
            let mut ticks = Vec::new();
            let mut power = self.low;
            while power <= self.high {
                ticks.push((10_f64.powf(power), true));
                if power < self.high {
                    ticks.extend([2.0, 5.0].map(|times| (times * 10_f64.powf(power), false)));
                }
                power += 1.0;
            }
            return ticks;
        }
        let step = step(self.high);
        let mut ticks = Vec::new();
        let mut value = 0.0;
        // Half a step of tolerance, because a sum of floats can miss the last value.
        while value <= self.high + step / 2.0 {
            ticks.push((value, true));
            value += step;
        }
        ticks
    }
}

/// Returns the distance between grid lines: one, two or five times a power of ten.
fn step(most: f64) -> f64 {
    let unit = 10_f64.powf((most.max(f64::MIN_POSITIVE) / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|times| times * unit);
    // For 181, the unit is 10, and 50 is the first step with at most five intervals.
    let fits = steps.into_iter().find(|step| most / step <= 5.0);
    fits.unwrap_or(10.0 * unit)
}

/// Formats the label of an axis.
pub(super) fn label(value: f64) -> String {
    match value {
        1_000_000.0.. => format!("{} M", value / 1e6),
        10_000.0.. => format!("{} K", value / 1e3),
        1_000.0.. => palimpsest_load::figures::grouped(value),
        // Powers of ten are not exact in binary.
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_contain_their_values_and_have_round_ticks() {
        let scale = Scale::logarithmic((0.0, 100.0), [0.3, 40.0]);
        assert_eq!(
            (n(scale.place(0.1)), n(scale.place(100.0))),
            ("0.0".into(), "100.0".into())
        );
        let written = |scale: Scale| {
            let ticks = scale.ticks().into_iter().filter(|tick| tick.1);
            ticks.map(|tick| label(tick.0)).collect::<Vec<_>>()
        };
        assert_eq!(written(scale), ["0.1", "1", "10", "100"]);
        assert_eq!(
            written(Scale::linear((0.0, 1.0), 181.0)),
            ["0", "50", "100", "150", "200"]
        );
        // An empty set of values must still give a valid scale.
        assert!(Scale::logarithmic((0.0, 1.0), []).place(1.0).is_finite());
        assert!(Scale::linear((0.0, 1.0), 0.0).place(0.0).is_finite());
    }
}

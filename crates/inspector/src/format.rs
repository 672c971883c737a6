//! Numbers, times and names of enum values for people.

use jiff::Timestamp;
use jiff::fmt::strtime;
use maud::{Markup, html};
use palimpsest_proto::context::v1::SessionTotals;

/// Returns a number with separators between thousands.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a number of tokens in at most four characters and a unit.
pub(crate) fn short(value: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = value / (unit / 10);
        let (whole, tenth) = (tenths / 10, tenths % 10);
        if whole >= 100 || tenth == 0 {
            whole.to_string()
        } else {
            format!("{whole}.{tenth}")
        }
    };
    match value {
        0..1_000 => value.to_string(),
        1_000..1_000_000 => format!("{}K", tenths(1_000)),
        1_000_000..1_000_000_000 => format!("{}M", tenths(1_000_000)),
        _ => format!("{}G", tenths(1_000_000_000)),
    }
}

/// Returns a share in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1_000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Returns saved tokens, and their share of what would have been sent without the levels.
pub(crate) fn saved(saved: u64, sent: u64) -> Markup {
    html! { (short(saved)) " (" (percent(saved, saved.saturating_add(sent))) ")" }
}

/// Returns the cost of prompts in percent of that without the levels.
pub(crate) fn cost(totals: &SessionTotals) -> Markup {
    html! {
        @if totals.unmanaged_cost_tokens == 0 { "–" }
        @else { (percent(totals.cost_tokens, totals.unmanaged_cost_tokens)) " of unmanaged" }
    }
}

/// Returns a time as an element that programs can read too.
pub(crate) fn time(time: Option<&prost_types::Timestamp>) -> Markup {
    let Some(time) = time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok()) else {
        return html! { "–" };
    };
    let text = strtime::format("%Y-%m-%d %H:%M:%S", time).unwrap_or_default();
    html! { time datetime=(time) { (text) " UTC" } }
}

/// Returns the name of an enum value in plain words: without its prefix, in lower case.
pub(crate) fn words(name: &str, prefix: &str) -> String {
    let name = name.strip_prefix(prefix).unwrap_or(name);
    name.to_lowercase().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact() {
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(short(999), "999");
        assert_eq!(short(1_000), "1K");
        assert_eq!(short(12_345), "12.3K");
        assert_eq!(short(167_000), "167K");
        assert_eq!(short(2_300_000), "2.3M");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 0), "100.0 %");
    }

    #[test]
    fn names_lose_their_prefix() {
        assert_eq!(words("BUDGET_STATE_NORMAL", "BUDGET_STATE_"), "normal");
        assert_eq!(
            words("SESSION_STATE_AWAITING_MODEL", "SESSION_STATE_"),
            "awaiting model"
        );
    }
}

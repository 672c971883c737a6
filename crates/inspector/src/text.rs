//! Content of conversations as text of a page. Markup is escaped by `maud`. Characters that control a terminal or the
//! direction of text are shown by their numbers.

use std::fmt::Write as _;

use maud::{Markup, html};

/// Returns true if a character could change how other text is shown.
const fn is_control(c: char) -> bool {
    // Tab and line feed are left out, because texts of several lines need them.
    matches!(
        c,
        '\u{0}'..='\u{8}'
            | '\u{b}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns a text with its control characters shown as their numbers.
pub(crate) fn shown(text: &str) -> Markup {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((at, control)) = rest.char_indices().find(|(_, c)| is_control(*c)) {
        parts.push((&rest[..at], Some(control)));
        rest = &rest[at + control.len_utf8()..];
    }
    parts.push((rest, None));
    html! {
        @for (plain, control) in parts {
            (plain)
            @if let Some(control) = control {
                span.control { "U+" (format!("{:04X}", u32::from(control))) }
            }
        }
    }
}

/// Returns a text with its control characters as their numbers, for places without markup.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) {
            let _ = write!(out, "U+{:04X}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns the first line of a text, at most `max` characters long.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    let mut out: String = line.chars().take(max).collect();
    if out.len() < text.trim_end().len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_shown_as_text() {
        let hostile = "<script>a</script>\u{1b}[2J\u{202e}b\r\u{9b}\n\tc";
        assert_eq!(
            shown(hostile).into_string(),
            "&lt;script&gt;a&lt;/script&gt;<span class=\"control\">U+001B</span>[2J\
             <span class=\"control\">U+202E</span>b<span class=\"control\">U+000D</span>\
             <span class=\"control\">U+009B</span>\n\tc"
        );
    }

    #[test]
    fn control_characters_are_shown_without_markup() {
        assert_eq!(plain("a\u{202e}b\u{1b}"), "aU+202EbU+001B");
    }

    #[test]
    fn one_line_marks_what_it_leaves_out() {
        assert_eq!(one_line("  a b", 10), "a b");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(one_line("a\nb", 10), "a…");
    }
}

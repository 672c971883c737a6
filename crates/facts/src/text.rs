//! Text helpers: shortening, quoting, sentence splitting and counting.

use std::fmt::Write as _;

/// Returns the text on one line with single spaces.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(1_024));
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Shortens a text to `max` characters, including `…`. Cuts at a word boundary if one is near.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    let text = text.trim();
    let Some((end, _)) = text.char_indices().nth(max) else {
        return text.to_owned();
    };
    // One of the characters is the ellipsis.
    let Some((keep, _)) = text.char_indices().nth(max.saturating_sub(1)) else {
        return String::new();
    };
    let begin = &text[..keep.min(end)];
    // A partial word is dropped unless it makes up most of the text.
    let cut = match begin.rfind(char::is_whitespace) {
        Some(space) if space >= begin.len() * 2 / 3 => &begin[..space],
        _ => begin,
    };
    format!("{}…", cut.trim_end())
}

/// Returns the text on one line in typographic quotes. Quotes inside are replaced.
pub(crate) fn quoted(text: &str, max: usize) -> String {
    format!("“{}”", quote(text, max))
}

/// Returns the content that `quoted` encloses in quotes.
pub(crate) fn quote(text: &str, max: usize) -> String {
    truncate(&one_line(text).replace(['“', '”'], "\""), max)
}

/// Joins paragraphs with blank lines. Skips empty paragraphs.
pub(crate) fn paragraphs(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Returns the text before the first escaped line break (`\n` as two characters). Programs that
/// print quoted output write line breaks in this form.
pub(crate) fn first_line(text: &str) -> &str {
    let text = text.trim_start_matches("\\n");
    text.split("\\n").next().unwrap_or(text)
}

/// Returns the text on one line in backticks. Backticks inside are replaced.
pub(crate) fn code(text: &str, max: usize) -> String {
    format!("`{}`", label(text, max))
}

/// Returns the content that `code` encloses in backticks.
pub(crate) fn label(text: &str, max: usize) -> String {
    truncate(&one_line(text).replace('`', "'"), max)
}

/// Formats a count with singular or plural: `1 file`, `2 files`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ if thing.ends_with("ch") => format!("{number} {thing}es"),
        _ => format!("{number} {thing}s"),
    }
}

/// Formats a repetition: `once`, `twice`, `3 times`.
pub(crate) fn format_times(number: usize) -> String {
    match number {
        1 => "once".into(),
        2 => "twice".into(),
        _ => format!("{number} times"),
    }
}

/// Formats a list: `a`, `a and b`, `a, b and c`. Beyond `max` items, states the number of the
/// others.
pub(crate) fn list(items: &[String], max: usize) -> String {
    let shown = if items.len() > max {
        &items[..max]
    } else {
        items
    };
    let mut out = String::new();
    let more = items.len() - shown.len();
    for (at, item) in shown.iter().enumerate() {
        let joint = match at {
            0 => "",
            _ if at + 1 == shown.len() && more == 0 => " and ",
            _ => ", ",
        };
        out.push_str(joint);
        out.push_str(item);
    }
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = write!(out, " and {more} more");
    }
    out
}

/// Splits a text into sentences. A line break ends a sentence.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(Sentences)
        .map(str::trim)
        .filter(|s| !s.is_empty())
}

/// An iterator over the sentences of one line.
struct Sentences<'a>(&'a str);

impl<'a> Iterator for Sentences<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        let mut in_code = false;
        let mut chars = self.0.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            in_code ^= c == '`';
            let next = chars.peek().map(|(_, next)| *next);
            let ends = match c {
                // No space follows these marks, so they end a sentence on their own.
                '。' | '！' | '？' => true,
                '.' | '!' | '?' => next.is_none_or(|next| {
                    next.is_whitespace()
                        && !in_code
                        && !numbers_an_item(&self.0[..at])
                        && begins_a_sentence(&self.0[at + 1..])
                }),
                _ => false,
            };
            if ends {
                let (sentence, rest) = self.0.split_at(at + c.len_utf8());
                self.0 = rest;
                return Some(sentence);
            }
        }
        Some(std::mem::take(&mut self.0))
    }
}

/// Returns true if a period belongs to the number of a list item, such as `1.`.
fn numbers_an_item(before: &str) -> bool {
    let number = before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default();
    let lead = &before[..before.len() - number.len()];
    (1..=2).contains(&number.len()) && (lead.is_empty() || lead.ends_with(' '))
}

/// Returns true if the following text is not in lower case, as it is after an abbreviation such as
/// `e.g.`.
fn begins_a_sentence(rest: &str) -> bool {
    rest.trim_start()
        .chars()
        .next()
        .is_none_or(|c| !c.is_lowercase())
}

/// Reduces Markdown to one line of whole sentences with at most `max` characters. Removes marks of
/// headings, lists and tables, and the content of fences.
pub(crate) fn first_sentences(markdown: &str, max: usize) -> String {
    let markdown = without_label(markdown);
    let prose = flatten_markdown(markdown, max, false);
    // If nearly the whole text is inside fences, their content is the message.
    if prose.len() < 80 && prose.len() * 3 < markdown.trim().len() {
        return flatten_markdown(markdown, max, true);
    }
    prose
}

/// Removes the label with which some models mark their reasoning.
pub(crate) fn without_label(text: &str) -> &str {
    let text = text.trim_start();
    let bare = text
        .strip_prefix("THOUGHT:")
        .or_else(|| text.strip_prefix("Thought:"));
    bare.unwrap_or(text)
}

fn flatten_markdown(markdown: &str, max: usize, with_fences: bool) -> String {
    let mut flat = String::new();
    let mut in_fence = false;
    for line in markdown.lines() {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            in_fence = !in_fence;
            continue;
        }
        if in_fence && !with_fences
            || line.is_empty()
            || line.chars().all(|c| "-=|*_:+ ".contains(c))
        {
            continue;
        }
        append(&mut flat, line);
        // A character has up to four bytes, and Markdown marks are removed later.
        if flat.len() > max * 8 {
            break;
        }
    }
    let flat = flat.replace("**", "").replace("__", "");
    whole_sentences(one_line(&flat).trim_end_matches(':'), max)
}

fn append(flat: &mut String, line: &str) {
    let title = palimpsest_types::memory::heading(line);
    let text = title.unwrap_or(line);
    let item = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
    let text = item.unwrap_or(text);
    let text = text
        .trim_matches('|')
        .replace(" | ", ", ")
        .replace("**", "");
    if !flat.is_empty() {
        // A line that ends with a mark needs no further one before the next line.
        let ended = flat.ends_with(['.', '!', '?', ':', ';', '。', '！', '？', '：', ',']);
        flat.push_str(match (ended, item.is_some()) {
            (true, _) => " ",
            (false, true) => "; ",
            (false, false) => ". ",
        });
    }
    flat.push_str(text.trim());
    if title.is_some() && !flat.ends_with([':', '.', '?', '!']) {
        flat.push(':');
    }
}

/// Returns as many whole sentences as fit into `max` characters, or the beginning of the first one.
pub(crate) fn whole_sentences(line: &str, max: usize) -> String {
    let (mut out, mut length) = (String::new(), 0);
    for sentence in Sentences(line) {
        let chars = sentence.chars().count();
        if length + chars > max {
            break;
        }
        length += chars;
        out.push_str(sentence);
    }
    let out = out.trim();
    // If whole sentences fill less than a third of the limit, a cut sentence says more.
    if out.chars().count() * 3 < line.chars().count().min(max) {
        return truncate(line, max);
    }
    out.trim_end_matches(':').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_between_words_and_characters() {
        assert_eq!(truncate("one two three", 9), "one two…");
        assert_eq!(truncate("äöüäöüäöü", 4), "äöü…");
        assert_eq!(truncate("short", 5), "short");
    }

    #[test]
    fn text_is_split_into_sentences() {
        let all = |text| sentences(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            all("Fix v1.2 now. Then rest!"),
            ["Fix v1.2 now.", "Then rest!"]
        );
        assert_eq!(
            all("See e.g. this\nand that"),
            ["See e.g. this", "and that"]
        );
        assert_eq!(all("修复它。不要改测试！"), ["修复它。", "不要改测试！"]);
    }

    #[test]
    fn markdown_is_flattened_into_one_line() {
        let text = "## Done\n\n- **one** thing\n- another\n\n```\ncode\n```\nThat is all.";
        assert_eq!(
            first_sentences(text, 200),
            "Done: one thing; another. That is all."
        );
    }

    #[test]
    fn lists_are_joined_as_in_a_sentence() {
        let items = ["a", "b", "c"].map(String::from);
        assert_eq!(list(&items, 3), "a, b and c");
        assert_eq!(list(&items, 2), "a, b and 1 more");
    }
}

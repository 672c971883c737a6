//! Recovers the content of a file from the output of a reading tool: line numbers and the tool's own text are removed.

const REMINDER: &str = "<system-reminder>";
const REMINDER_END: &str = "</system-reminder>";

/// The part of a file that a tool showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileExcerpt {
    pub(super) content: String,
    /// The number of the first shown line, starting at 1.
    pub(super) first_line: usize,
}

/// Returns the file content in a tool's output.
pub(super) fn parse_excerpt(output: &str) -> FileExcerpt {
    let text = without_reminders(output);
    numbered(text).unwrap_or_else(|| FileExcerpt {
        content: text.to_owned(),
        first_line: 1,
    })
}

/// Removes trailing reminders that a program appended for the model.
fn without_reminders(mut text: &str) -> &str {
    // Each pass removes at least one opening tag, so the loop ends.
    while text.trim_end().ends_with(REMINDER_END) {
        match text.rfind(REMINDER) {
            Some(at) => text = text[..at].trim_end_matches(['\n', ' ']),
            None => break,
        }
    }
    text
}

/// Parses lines with ascending numbers. At most two lines of the tool may precede them, and later text is ignored.
fn numbered(text: &str) -> Option<FileExcerpt> {
    let lines: Vec<&str> = text.split('\n').collect();
    let start = lines
        .iter()
        .take(3)
        .position(|line| number(line).is_some())?;
    let (first_line, _) = number(lines[start])?;
    let mut content = String::with_capacity(text.len());
    for (next, line) in (first_line..).zip(&lines[start..]) {
        let Some((_, rest)) = number(line).filter(|(number, _)| *number == next) else {
            break;
        };
        content.push_str(rest);
        content.push('\n');
    }
    // The output does not show whether the last line ends with a newline. Most files end with one, so one is added.
    Some(FileExcerpt {
        content,
        first_line,
    })
}

/// Returns the number of a line and the text after the separator.
fn number(line: &str) -> Option<(usize, &str)> {
    // Accepted forms, after optional spaces: `12→text`, `12<TAB>text` and `12| text`.
    let line = line.trim_start_matches(' ');
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    // A larger number is no line of a file, and could not be counted up.
    let number: u32 = line[..digits].parse().ok()?;
    let rest = &line[digits..];
    let arrow = rest.strip_prefix('→').or_else(|| rest.strip_prefix('\t'));
    let rest = arrow.or_else(|| rest.strip_prefix("| "))?;
    Some((usize::try_from(number).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, content: &str, first_line: usize) {
        let content = content.to_owned();
        let expected = FileExcerpt {
            content,
            first_line,
        };
        assert_eq!(parse_excerpt(output), expected);
    }

    #[test]
    fn line_numbers_and_tool_annotations_are_removed() {
        check("     1→fn a() {\n     2→\n     3→}", "fn a() {\n\n}\n", 1);
        check("9\tx\n10\ty\n", "x\ny\n", 9);
        check(
            "<file>\n00001| a\n00002| b\n(End of file)\n</file>",
            "a\nb\n",
            1,
        );
        check(
            "     1→a\n\n<system-reminder>\nBe careful.\n</system-reminder>\n",
            "a\n",
            1,
        );
        check("plain\n2 words\n", "plain\n2 words\n", 1);
        let huge = "18446744073709551615\tx\n";
        check(huge, huge, 1);
    }
}

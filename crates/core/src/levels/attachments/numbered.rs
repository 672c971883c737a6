//! What a reading tool showed, as the file has it: without the numbers of lines and the tool's words.

const REMINDER: &str = "<system-reminder>";
const REMINDER_END: &str = "</system-reminder>";

/// What a tool showed of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileExcerpt {
    pub(super) content: String,
    /// The first line that was shown, from 1.
    pub(super) first_line: usize,
}

/// The content that a tool's output shows.
pub(super) fn shown(output: &str) -> FileExcerpt {
    let text = without_reminders(output);
    numbered(text).unwrap_or_else(|| FileExcerpt {
        content: text.to_owned(),
        first_line: 1,
    })
}

/// The same without what a program appended for the model.
fn without_reminders(mut text: &str) -> &str {
    while text.trim_end().ends_with(REMINDER_END) {
        match text.rfind(REMINDER) {
            Some(at) => text = text[..at].trim_end_matches(['\n', ' ']),
            None => break,
        }
    }
    text
}

/// Lines that count up, after at most two that are the tool's own; what follows them is the tool's too.
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
    // A tool that numbers lines says nothing of the last line's end; most files have one.
    Some(FileExcerpt {
        content,
        first_line,
    })
}

/// The number of a line, and what follows it.
fn number(line: &str) -> Option<(usize, &str)> {
    let line = line.trim_start_matches(' ');
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let number = line[..digits].parse().ok()?;
    let rest = &line[digits..];
    let arrow = rest.strip_prefix('→').or_else(|| rest.strip_prefix('\t'));
    let rest = arrow.or_else(|| rest.strip_prefix("| "))?;
    Some((number, rest))
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
        assert_eq!(shown(output), expected);
    }

    #[test]
    fn numbers_and_the_tools_own_words_are_taken_off() {
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
    }
}

//! The words of the simple commands in a command line.

/// A word of a command without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) is_quoted: bool,
}

/// Splits a command line into simple commands. Lists, pipes, groups and line breaks separate them. The sign of a
/// redirection is a word. The content of here-documents is left out.
pub(super) fn simple_commands(line: &str) -> Vec<Vec<Word<'_>>> {
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let mut here_documents: Vec<&str> = Vec::new();
    let mut rest = line;
    // Each branch removes at least one character, so the loop ends.
    while let Some(next) = rest.chars().next() {
        if next == '\n' {
            commands.push(std::mem::take(&mut words));
            rest = &rest[1..];
            for end in here_documents.drain(..) {
                rest = after_here_document(rest, end);
            }
        } else if next.is_whitespace() {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() && c != '\n');
        } else if let Some(continued) = rest.strip_prefix("\\\n") {
            rest = continued;
        } else if matches!(next, ';' | '|' | '&' | '(' | ')') {
            commands.push(std::mem::take(&mut words));
            rest = &rest[1..];
        } else {
            let word;
            (word, rest) = next_word(rest);
            // A third sign begins a here-string, which is a word.
            if word.text == "<<" && !word.is_quoted {
                // `<<-EOF` allows indented lines. The dash is no part of the end word.
                let end;
                (end, rest) = next_word(rest.trim_start_matches(['-', ' ', '\t']));
                here_documents.push(end.text);
            } else {
                words.push(word);
            }
        }
    }
    // `&&` and `||` leave an empty command between their two signs.
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

/// Returns the first word of a text that does not begin with a space, and the text after it.
fn next_word(text: &str) -> (Word<'_>, &str) {
    let next = text.chars().next().unwrap_or_default();
    let (begin, end, width) = match next {
        '<' | '>' => {
            let width = text.len() - text.trim_start_matches(next).len();
            // `>&` and `>|` are redirections too.
            let signs = width + usize::from(text[width..].starts_with(['&', '|']));
            (0, width, signs)
        }
        '\'' | '"' => {
            let length = quoted_length(&text[1..], next);
            // Without a closing quote, the word extends to the end of the text.
            (1, 1 + length, (length + 2).min(text.len()))
        }
        _ => {
            let is_end = |c: char| c.is_whitespace() || ";|&()<>'\"".contains(c);
            let end = text.find(is_end).unwrap_or(text.len());
            (0, end, end)
        }
    };
    let word = Word {
        text: &text[begin..end],
        is_quoted: matches!(next, '\'' | '"'),
    };
    (word, &text[width..])
}

/// Returns the length of the text before the closing quote. A backslash escapes a sign in double quotes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            c if c == quote => return at,
            _ => {}
        }
    }
    text.len()
}

/// Returns the text after the line that ends a here-document.
fn after_here_document<'a>(text: &'a str, end: &str) -> &'a str {
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        if line.trim() == end {
            break;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<Vec<&str>> {
        let commands = simple_commands(line).into_iter();
        commands
            .map(|words| words.iter().map(|word| word.text).collect())
            .collect()
    }

    #[test]
    fn lists_pipes_and_groups_separate_commands() {
        assert_eq!(
            words("a b && (c \"d e\" | f) ; g \\\n h\ni"),
            [
                vec!["a", "b"],
                vec!["c", "d e"],
                vec!["f"],
                vec!["g", "h"],
                vec!["i"]
            ]
        );
        assert_eq!(words("a \"b \\\" c\" 'd\\'"), [["a", "b \\\" c", "d\\"]]);
        assert_eq!(words("a>b 2>&1"), [["a", ">", "b", "2", ">", "1"]]);
    }

    #[test]
    fn here_documents_are_left_out() {
        assert_eq!(
            words("cat <<-'E' > a\nx 'y\n E\nb <<< text"),
            [vec!["cat", ">", "a"], vec!["b", "<<<", "text"]]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_split(line in "[a-b'\"\\\\<>&|;()\n \u{e9}]{0,40}") {
            simple_commands(&line);
        }
    }
}

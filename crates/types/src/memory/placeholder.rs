//! Detection of lines that contain only a placeholder.

/// Lines without content, in lower case and without surrounding punctuation.
const PLACEHOLDERS: [&str; 37] = [
    "tbd", "tba", "tbc", "todo", "to do", "n/a", "na", "not applicable", "none", "none yet", "nil",
    "null", "nothing", "nothing yet", "nothing here yet", "nothing to report", "empty", "pending",
    "unknown", "placeholder", "to be filled", "to be filled in", "to be determined", "to be done",
    "fill in", "coming soon", "not yet", "no entries yet", "no content yet", "no updates yet",
    "no changes yet", "not started", "not set", "无", "暂无", "待定", "keine",
];

/// Returns true if a line is blank, only punctuation, or a placeholder.
pub(super) fn is_placeholder(line: &str) -> bool {
    let line = line.to_lowercase();
    let words = line.trim_matches(|c: char| !c.is_alphanumeric());
    words.is_empty() || PLACEHOLDERS.contains(&words)
}

#[cfg(test)]
mod tests {
    use super::is_placeholder;

    #[test]
    fn placeholders_are_recognized() {
        for line in [
            "", "- TBD", "_nothing yet_", "...", "[…]", "**N/A**", "---", "> None.", "（暂无）",
        ] {
            assert!(is_placeholder(line), "{line}");
        }
        for line in ["none of the tests pass", "1", "todo: call Ann", "已完成"] {
            assert!(!is_placeholder(line), "{line}");
        }
    }
}

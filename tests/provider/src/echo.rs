//! An answer that is derived from the prompt: the requested headings with lines of the conversation.

/// Returns the lines of a prompt that name a section: `## Title`, `1. Title: …`, `**Title**`.
fn headings(prompt: &str) -> Vec<String> {
    let heading = |line: &str| {
        let line = line.trim();
        let title = line
            .strip_prefix('#')
            .map(|rest| rest.trim_start_matches('#'))
            .or_else(|| line.strip_prefix("**"))
            .or_else(|| {
                let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
                (rest.len() < line.len()).then(|| rest.strip_prefix(". "))?
            })?;
        let title = title
            .split([':', '('])
            .next()?
            .trim()
            .trim_matches('*')
            .trim();
        (!title.is_empty() && title.len() <= 80).then(|| title.to_owned())
    };
    prompt.lines().filter_map(heading).take(20).collect()
}

/// Returns the answer. `conversation` contains the texts before the prompt, in order.
pub(crate) fn answer(conversation: &[String], prompt: &str) -> String {
    let mut lines = conversation
        .iter()
        .flat_map(|text| text.lines())
        // Keeps the lines of an earlier summary, without its tags, headings and frame.
        .map(|line| line.trim().trim_start_matches("- "))
        .filter(|line| {
            !line.is_empty() && !line.starts_with(['<', '#', '[']) && !line.ends_with(':')
        })
        .map(|line| line.chars().take(200).collect::<String>());
    let titles = headings(prompt);
    let body = if titles.is_empty() {
        let said: Vec<String> = lines.take(5).collect();
        format!("The conversation in short:\n{}", said.join("\n"))
    } else {
        let mut section = |title: &String| {
            let line = lines.next().unwrap_or_else(|| "N/A".to_owned());
            format!("## {title}\n- {line}")
        };
        titles
            .iter()
            .map(&mut section)
            .collect::<Vec<_>>()
            .join("\n\n")
    };
    if prompt.contains("<summary>") {
        format!("<analysis>\nRead in order.\n</analysis>\n\n<summary>\n{body}\n</summary>")
    } else {
        body
    }
}

#[cfg(test)]
mod tests {
    use super::answer;

    #[test]
    fn fake_summaries_contain_the_requested_sections() {
        let prompt = "Write a <summary> with:\n1. Primary Request: what\n2. Files (paths)\n## Pending\n**Next**\nplain";
        let text = answer(&["fix the bug\nnow".to_owned()], prompt);
        for part in [
            "<summary>",
            "## Primary Request\n- fix the bug",
            "## Files\n- now",
            "## Pending\n- N/A",
            "## Next",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(answer(&["hello".to_owned()], "sum up").contains("hello"));
    }
}

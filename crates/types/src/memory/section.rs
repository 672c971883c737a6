//! The ten sections of `summary.md`: titles, guidance, and the lines that are kept when a section is
//! too long.

/// One of the ten sections of `summary.md`, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SectionKind {
    /// A short name for the session.
    Title,
    /// The current state of the work.
    State,
    /// The goals of the user.
    Task,
    /// The relevant files and their relevant parts.
    Files,
    /// The commands that are run.
    Workflow,
    /// The errors and their corrections.
    Errors,
    /// The structure of the code base.
    Documentation,
    /// Practices to follow and to avoid.
    Learnings,
    /// The delivered results.
    Results,
    /// The work done, turn by turn.
    Worklog,
}

/// The lines of a section that are kept when it is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineRetention {
    /// The first lines.
    Head,
    /// The last lines.
    Tail,
    /// The first and the last lines. The middle is dropped.
    Ends,
}

impl SectionKind {
    /// All sections in their order.
    pub const ALL: [Self; 10] = [
        Self::Title,
        Self::State,
        Self::Task,
        Self::Files,
        Self::Workflow,
        Self::Errors,
        Self::Documentation,
        Self::Learnings,
        Self::Results,
        Self::Worklog,
    ];

    /// Returns the index of the section among the ten, counted from 0.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the title without the heading mark.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Title => "Session Title",
            Self::State => "Current State",
            Self::Task => "Task specification",
            Self::Files => "Files and Functions",
            Self::Workflow => "Workflow",
            Self::Errors => "Errors & Corrections",
            Self::Documentation => "Codebase and System Documentation",
            Self::Learnings => "Learnings",
            Self::Results => "Key results",
            Self::Worklog => "Worklog",
        }
    }

    /// Returns the guidance for the writer. The guidance is rendered in italics under the heading
    /// and never changes.
    pub const fn guidance(self) -> &'static str {
        match self {
            Self::Title => {
                "A name of five to ten words by which a person finds this session again."
            }
            Self::State => {
                "The state of the work now: the latest request, the step in progress, and the remaining steps."
            }
            Self::Task => {
                "What the user wants, in the user's own words, with every later correction and decision."
            }
            Self::Files => {
                "The files that matter: what was last done to each, and which parts of it count."
            }
            Self::Workflow => {
                "The commands that are run, in which order, and how to read what they print."
            }
            Self::Errors => {
                "What went wrong, what mended it, what the user set right, and what not to try again."
            }
            Self::Documentation => {
                "How the code base and its systems are built, and how their parts work together."
            }
            Self::Learnings => "What has worked and what has not; rules to go on with.",
            Self::Results => "What was delivered or found out: answers, tables, numbers, in full.",
            Self::Worklog => "What was done, step by step, each step in a line.",
        }
    }

    /// Returns the section with a title, independent of case and punctuation.
    pub fn of_title(title: &str) -> Option<Self> {
        let mut kinds = Self::ALL.into_iter();
        kinds.find(|kind| folded(kind.title()).eq(folded(title)))
    }

    pub(super) const fn retention(self) -> LineRetention {
        match self {
            // The first lines describe the current state. Other notes follow them.
            Self::Title | Self::State => LineRetention::Head,
            // The first request defines the work and the last correction refines it. Rules and
            // overviews are likewise learned at the beginning and corrected at the end.
            Self::Task | Self::Documentation | Self::Learnings => LineRetention::Ends,
            // The more recently a file, command, error or result was touched, the more it matters.
            Self::Files | Self::Workflow | Self::Errors | Self::Results | Self::Worklog => {
                LineRetention::Tail
            }
        }
    }
}

/// Normalizes a title to lower-case words: `**Errors and Corrections:**` equals `Errors &
/// Corrections`.
fn folded(title: &str) -> impl Iterator<Item = char> {
    let parts = title.split_inclusive('&').flat_map(|part| {
        let (words, and) = match part.strip_suffix('&') {
            Some(words) => (words, "and"),
            None => (part, ""),
        };
        [words, and]
    });
    let words = parts.flat_map(|part| part.split(|c: char| !c.is_alphanumeric()));
    let words = words.filter(|word| !word.is_empty());
    // The terminating space cannot be part of a word, so word boundaries are compared too.
    words.flat_map(|word| word.chars().flat_map(char::to_lowercase).chain([' ']))
}

/// Returns the title if a line is a Markdown heading of any level.
pub fn heading(line: &str) -> Option<&str> {
    let indented = line.trim_end();
    let line = indented.trim_start_matches(' ');
    let marks = line.len() - line.trim_start_matches('#').len();
    let title = &line[marks..];
    // Markdown allows three spaces before a heading of one to six marks. Four spaces begin a code block.
    let is_heading = indented.len() - line.len() <= 3
        && (1..=6).contains(&marks)
        && (title.is_empty() || title.starts_with([' ', '\t']));
    is_heading.then(|| title.trim().trim_end_matches('#').trim())
}

/// The state of Markdown code fences, tracked line by line.
#[derive(Debug, Default)]
pub(crate) struct Fence(Option<(char, usize)>);

impl Fence {
    /// Processes the next line. Returns true if the line belongs to a fence.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |mark| line.len() - line.trim_start_matches(mark).len());
        match (self.0, mark) {
            (None, Some(mark)) if length >= 3 => {
                // Three backticks with more backticks on the same line are inline code.
                if mark == '`' && line[length..].contains('`') {
                    return false;
                }
                self.0 = Some((mark, length));
                true
            }
            (None, _) => false,
            (Some((open, opened)), mark) => {
                // Markdown closes a fence with the same mark, at least as many times, and nothing after it.
                let closes = mark == Some(open) && length >= opened;
                if closes && line[length..].trim().is_empty() {
                    self.0 = None;
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_matched_in_any_spelling() {
        for title in [
            "Errors & Corrections",
            "errors and corrections",
            "**Errors & Corrections:**",
        ] {
            assert_eq!(SectionKind::of_title(title), Some(SectionKind::Errors));
        }
        assert_eq!(SectionKind::of_title("Errors"), None);
    }

    #[test]
    fn headings_are_recognized() {
        assert_eq!(heading("# Worklog"), Some("Worklog"));
        assert_eq!(heading("  ### Worklog ##"), Some("Worklog"));
        for line in [
            "#Worklog", "    # Worklog", "####### Worklog", "Worklog", "> # x",
        ] {
            assert_eq!(heading(line), None, "{line}");
        }
    }
}

//! The ten sections: their titles, what belongs into each, and what of it is kept when it is too long.

/// One of the ten sections of `summary.md`, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SectionKind {
    /// What the session is called.
    Title,
    /// Where the work stands.
    State,
    /// What the user wants.
    Task,
    /// Which files matter, and what in them.
    Files,
    /// Which commands are run.
    Workflow,
    /// What went wrong, and what followed.
    Errors,
    /// How the code base is built.
    Documentation,
    /// What to do and what to avoid.
    Learnings,
    /// What was delivered.
    Results,
    /// What was done, turn by turn.
    Worklog,
}

/// Which lines of a section stay when it is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineRetention {
    /// The first.
    Head,
    /// The last.
    Tail,
    /// Both: the middle goes.
    Ends,
}

impl SectionKind {
    /// All of them, in their order.
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

    /// Its place among the ten.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its heading, without the mark of a heading.
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

    /// What belongs into it. The line stands under the heading, in italics, and never changes.
    pub const fn guidance(self) -> &'static str {
        match self {
            Self::Title => {
                "A name of five to ten words by which a person finds this session again."
            }
            Self::State => {
                "Where the work stands at this moment: what was asked last, what is under way, what is left to do."
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

    /// The section with a title, however it is written.
    pub fn of_title(title: &str) -> Option<Self> {
        let mut kinds = Self::ALL.into_iter();
        kinds.find(|kind| folded(kind.title()).eq(folded(title)))
    }

    pub(super) const fn keep(self) -> LineRetention {
        match self {
            // What stands first is what is true now; notes of other kinds come after it.
            Self::Title | Self::State => LineRetention::Head,
            // The first request says what the work is and the last correction how it is wanted; rules
            // and overviews are learned at the beginning and corrected at the end.
            Self::Task | Self::Documentation | Self::Learnings => LineRetention::Ends,
            // A file, a command, an error or a result counts for more the later it was touched.
            Self::Files | Self::Workflow | Self::Errors | Self::Results | Self::Worklog => {
                LineRetention::Tail
            }
        }
    }
}

/// Letters and digits alone, in lower case: `**Errors and Corrections:**` is `Errors & Corrections`.
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
    // What ends each word cannot be a part of one.
    words.flat_map(|word| word.chars().flat_map(char::to_lowercase).chain([' ']))
}

/// The title in a line that is a heading of any level.
pub fn heading(line: &str) -> Option<&str> {
    let indented = line.trim_end();
    let line = indented.trim_start_matches(' ');
    let marks = line.len() - line.trim_start_matches('#').len();
    let title = &line[marks..];
    let is_heading = indented.len() - line.len() <= 3
        && (1..=6).contains(&marks)
        && (title.is_empty() || title.starts_with([' ', '\t']));
    is_heading.then(|| title.trim().trim_end_matches('#').trim())
}

/// Follows the code fences of a text, line by line.
#[derive(Debug, Default)]
pub(crate) struct Fence(Option<(char, usize)>);

impl Fence {
    /// Takes the next line; says whether it belongs to a fence.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |mark| line.len() - line.trim_start_matches(mark).len());
        match (self.0, mark) {
            (None, Some(mark)) if length >= 3 => {
                // Three backticks with more of them in the same line are code within a sentence.
                if mark == '`' && line[length..].contains('`') {
                    return false;
                }
                self.0 = Some((mark, length));
                true
            }
            (None, _) => false,
            (Some((open, opened)), mark) => {
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
    fn a_title_is_known_however_it_is_written() {
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
    fn headings_are_told_from_other_lines() {
        assert_eq!(heading("# Worklog"), Some("Worklog"));
        assert_eq!(heading("  ### Worklog ##"), Some("Worklog"));
        for line in [
            "#Worklog",
            "    # Worklog",
            "####### Worklog",
            "Worklog",
            "> # x",
        ] {
            assert_eq!(heading(line), None, "{line}");
        }
    }
}

//! The sections of a summary: nine sections, or six in the brief style.

use std::fmt::Write as _;

use crate::policy::SummaryStyle;

/// A section of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SummarySection {
    /// The goals of the user.
    Request,
    /// The techniques, systems and ideas that matter.
    Concepts,
    /// The relevant files and their relevant parts.
    Files,
    /// The errors and their fixes.
    Errors,
    /// The problems that were solved, and their solutions.
    Problems,
    /// All messages of the user.
    UserMessages,
    /// The tasks that remain.
    Pending,
    /// The work in progress.
    Current,
    /// The next step.
    Next,
    /// The finished work (brief).
    Done,
    /// The work in progress (brief).
    Doing,
    /// The relevant files (brief).
    BriefFiles,
    /// The next steps (brief).
    BriefNext,
    /// The user's requirements and prohibitions (brief).
    Constraints,
    /// The decisions and their reasons (brief).
    Decisions,
}

const NINE: [SummarySection; 9] = [
    SummarySection::Request,
    SummarySection::Concepts,
    SummarySection::Files,
    SummarySection::Errors,
    SummarySection::Problems,
    SummarySection::UserMessages,
    SummarySection::Pending,
    SummarySection::Current,
    SummarySection::Next,
];

const BRIEF: [SummarySection; 6] = [
    SummarySection::Done,
    SummarySection::Doing,
    SummarySection::BriefFiles,
    SummarySection::BriefNext,
    SummarySection::Constraints,
    SummarySection::Decisions,
];

impl SummarySection {
    /// Returns the sections of a style in their order.
    pub const fn of(style: SummaryStyle) -> &'static [Self] {
        match style {
            SummaryStyle::NineSections => &NINE,
            SummaryStyle::Brief => &BRIEF,
        }
    }

    /// Returns the section of files in a style.
    pub const fn files_of(style: SummaryStyle) -> Self {
        match style {
            SummaryStyle::NineSections => Self::Files,
            SummaryStyle::Brief => Self::BriefFiles,
        }
    }

    /// Returns the title of the section.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Request => "Primary Request and Intent",
            Self::Concepts => "Key Technical Concepts",
            Self::Files => "Files and Code Sections",
            Self::Errors => "Errors and fixes",
            Self::Problems => "Problem Solving",
            Self::UserMessages => "All user messages",
            Self::Pending => "Pending Tasks",
            Self::Current => "Current Work",
            Self::Next => "Optional Next Step",
            Self::Done => "Done",
            Self::Doing => "Doing",
            Self::BriefFiles => "Files",
            Self::BriefNext => "Next",
            Self::Constraints => "Constraints",
            Self::Decisions => "Decisions",
        }
    }

    /// Returns the instruction for the model that fills the section.
    pub(super) const fn guidance(self) -> &'static str {
        match self {
            Self::Request => {
                "All requests of the user, the intent behind them, and every later change or correction."
            }
            Self::Concepts => "The technologies, conventions and ideas that the work rests on.",
            Self::Files => {
                "Each file that was read, changed or created: why it matters, what changed, and the code that the next step needs, word for word."
            }
            Self::Errors => "Each error, its fix, and the user's comments on it.",
            Self::Problems => "What was solved, and what is still being looked into.",
            Self::UserMessages => {
                "Every message of the user's that is not the result of a tool, in order."
            }
            Self::Pending => "Requests of the user that are not done.",
            Self::Current => {
                "What was being done right before this request: files, code, the last command and its outcome."
            }
            Self::Next => {
                "The one step that continues the latest request, if the request calls for one. Quote, word for word, the user's and your own latest lines that show where the work stopped."
            }
            Self::Done => "What is finished.",
            Self::Doing => "What is under way, and how far it is.",
            Self::BriefFiles => "The files that matter, a line each: what was done there.",
            Self::BriefNext => "The steps that remain, in order.",
            Self::Constraints => "What the user demands or forbids, in the user's own words.",
            Self::Decisions => "What was decided, and why.",
        }
    }

    /// Returns the section with a title, independent of case, punctuation and numbering. Alternative
    /// short titles match only if `or_short` is true.
    pub(super) fn of_title(style: SummaryStyle, title: &str, or_short: bool) -> Option<Self> {
        let wanted = folded(title);
        let mut all = Self::of(style).iter().copied();
        all.find(|section| {
            let ours = folded(section.title());
            wanted == ours || or_short && section.short_titles().contains(&&*wanted)
        })
    }

    /// Returns alternative titles that models use for the section.
    const fn short_titles(self) -> &'static [&'static str] {
        match self {
            Self::Request => &["primary request", "request and intent", "request"],
            Self::Files => &["files", "files and code", "code sections"],
            Self::Errors => &["errors", "errors and their fixes"],
            Self::UserMessages => &["user messages", "all of the user messages"],
            Self::Pending => &["pending", "pending task", "remaining tasks"],
            Self::Current => &["current state", "current task"],
            Self::Next => &["next step", "next steps", "optional next steps"],
            Self::Doing => &["in progress", "current work"],
            Self::BriefNext => &["next steps", "next step"],
            Self::Done => &["completed"],
            _ => &[],
        }
    }

    /// Returns the required sections: a summary needs at least one section of each list.
    pub(super) const fn required(style: SummaryStyle) -> &'static [&'static [Self]] {
        match style {
            SummaryStyle::NineSections => &[&[Self::Request], &[Self::Current, Self::Pending]],
            SummaryStyle::Brief => &[&[Self::Done, Self::Doing], &[Self::BriefNext, Self::Doing]],
        }
    }
}

/// Normalizes a title: words and digits in lower case, without the leading number.
fn folded(title: &str) -> String {
    let title = title
        .trim_start_matches(|c: char| !c.is_alphabetic())
        .replace('&', " and ");
    let words = title
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

/// A summary as a set of sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryDocument {
    style: SummaryStyle,
    bodies: Vec<(SummarySection, String)>,
    /// The text of a model's answer that has no sections.
    pub(super) unsectioned: String,
}

impl SummaryDocument {
    /// Creates a summary without content.
    pub fn new(style: SummaryStyle) -> Self {
        Self {
            style,
            bodies: Vec::new(),
            unsectioned: String::new(),
        }
    }

    /// Returns the style of the summary.
    pub fn style(&self) -> SummaryStyle {
        self.style
    }

    /// Returns the body of a section, or `None` if the section is empty.
    pub fn body(&self, section: SummarySection) -> Option<&str> {
        let found = self.bodies.iter().find(|(other, _)| *other == section);
        found.map(|(_, body)| &**body)
    }

    /// Replaces the body of a section. Ignores sections of another style.
    pub fn set(&mut self, section: SummarySection, body: &str) {
        if !SummarySection::of(self.style).contains(&section) {
            return;
        }
        self.bodies.retain(|(other, _)| *other != section);
        if !body.trim().is_empty() {
            self.bodies.push((section, body.trim().to_owned()));
            // Equal documents have equal lists, whatever the order in which their sections were set.
            self.bodies.sort_by_key(|(section, _)| *section);
        }
    }

    /// Renders numbered sections. An empty section is rendered as `N/A`, so that a reader sees that
    /// it was considered.
    pub fn render(&self) -> String {
        let mut out = String::new();
        if !self.unsectioned.is_empty() {
            out.push_str(&self.unsectioned);
            out.push_str("\n\n");
        }
        for (at, section) in SummarySection::of(self.style).iter().enumerate() {
            let body = self.body(*section);
            // Free text may cover any section, so `N/A` beside it would be wrong.
            if body.is_none() && !self.unsectioned.is_empty() {
                continue;
            }
            let _ = write!(
                out,
                "## {}. {}\n\n{}\n\n",
                at + 1,
                section.title(),
                body.unwrap_or("N/A")
            );
        }
        out.truncate(out.trim_end().len());
        out
    }
}

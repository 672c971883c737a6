//! Colours and characters of the picture. The colors are those of the terminal's theme.

use anstyle::{AnsiColor, Style};
use palimpsest_proto::context::v1::{BudgetState, TokenBreakdown};

use crate::demo::timeline::Actor;

pub(super) fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(colour.into()))
}

pub(super) fn dim() -> Style {
    colour(AnsiColor::BrightBlack)
}

pub(super) fn bold() -> Style {
    Style::new().bold()
}

/// A category of tokens in the context window.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowShare {
    pub(super) name: &'static str,
    pub(super) tokens: u32,
    pub(super) colour: AnsiColor,
    /// The character of the category without colors.
    pub(super) glyph: char,
}

/// Returns the categories of tokens, in the order of a request.
pub(super) fn shares(parts: &TokenBreakdown) -> [WindowShare; 6] {
    let share = |name, tokens, colour, glyph| WindowShare {
        name,
        tokens,
        colour,
        glyph,
    };
    [
        share("system", parts.system_tokens, AnsiColor::Blue, '▚'),
        share("tools", parts.tools_tokens, AnsiColor::Cyan, '▞'),
        share("memory", parts.summary_tokens, AnsiColor::Magenta, '▓'),
        share("messages", parts.messages_tokens, AnsiColor::Green, '█'),
        share("results", parts.results_tokens, AnsiColor::Yellow, '▒'),
        share("attached", parts.attachments_tokens, AnsiColor::Red, '▤'),
    ]
}

/// Returns the name and the style of a budget state.
pub(super) fn state(state: BudgetState) -> (&'static str, Style) {
    match state {
        BudgetState::Unspecified => ("", dim()),
        BudgetState::Normal => ("normal", colour(AnsiColor::Green)),
        BudgetState::Warning => ("warning", colour(AnsiColor::Yellow)),
        BudgetState::Critical => ("critical", colour(AnsiColor::Red)),
        BudgetState::Exhausted => ("exhausted", colour(AnsiColor::Red).bold()),
    }
}

pub(super) fn actor(actor: Actor) -> Style {
    match actor {
        Actor::Level(1) => colour(AnsiColor::Yellow),
        Actor::Level(2) => colour(AnsiColor::Blue),
        Actor::Level(3) => colour(AnsiColor::Cyan),
        Actor::Level(4) => colour(AnsiColor::Red),
        Actor::Level(_) => colour(AnsiColor::Magenta).bold(),
        Actor::Model => colour(AnsiColor::Green),
        Actor::Time => dim(),
    }
}

//! Session memory as a summary: the oldest facts of the least value are left out, and names that the agent may need again
//! get the space.
//!
//! The content itself stays as it is. A later summary can contain facts again that this one leaves out.

use palimpsest_types::memory::SectionKind;

use super::content::{MemoryContent, RenderedSections};
use super::fact::{Answer, CommandRuns, MemoryFact, Request, Turn};
use super::files::root_of;
use super::other_names;
use super::render::render;
use super::section::is_blank;
use crate::names::{self, MemoryRest};
use crate::text::{truncate, whole_sentences};

/// The target for the length of the text in characters. Lines of persons and models are never left out, so a text can be
/// longer.
const TARGET_CHARS: usize = 12_400;
/// The limits of the list of other names in characters. The list also stays below two thirds of the rest.
const MIN_NAMES: usize = 1_500;
const MAX_NAMES: usize = 3_000;
/// The part of the target that is free for the list of other names if facts have to be left out.
const FREE_FOR_NAMES: usize = 2_000;

/// The number of the latest facts of a kind that stay as they are, and limits of shortened facts.
const WHOLE_TURNS: usize = 2;
const WHOLE_STEPS: usize = 10;
const KEPT_STEPS: usize = 6;
const FIXED_FAILURES: usize = 3;
const DOCUMENTS: usize = 4;
const EXPLANATIONS: usize = 6;
const COMMANDS_RUN_ONCE: usize = 8;
const OTHER_COMMANDS: usize = 2;
const FILES_READ: usize = 10;
const COMMAND_RUNS: usize = 8;
const WHOLE_ANSWERS: usize = 2;
const MAX_EARLY_ANSWER: usize = 160;
const WHOLE_REQUESTS: usize = 4;
const MAX_EARLY_REQUEST: usize = 240;

/// Returns the content for a summary.
pub(crate) fn brief(content: &MemoryContent) -> MemoryContent {
    let section = |kind| content.facts(kind).cloned().collect();
    let mut sections: [Vec<MemoryFact>; 10] = SectionKind::ALL.map(section);
    // The list of other names is chosen last, when the space that the other facts leave is known.
    let files = std::mem::take(&mut sections[SectionKind::Files.index()]);
    let (known, files) = other_names::take(files);
    sections[SectionKind::Files.index()] = files;
    let mut shortened = Shortened::new(sections, TARGET_CHARS - FREE_FOR_NAMES);
    shortened.leave_out();
    let mut sections = RenderedSections::new(shortened.sections);
    if let Some(mut known) = known {
        let text = sections.text();
        let rest = MemoryRest {
            text: &text,
            root: root_of(sections.facts(SectionKind::Files)),
        };
        let chars = text.chars().count();
        // The list gets the space that the facts leave below the target.
        let max = TARGET_CHARS
            .saturating_sub(chars)
            .clamp(MIN_NAMES, MAX_NAMES);
        names::show(
            &mut known.names,
            rest,
            // In a short text, the minimum outweighs the share of two thirds.
            max.min(chars * 2 / 3).max(MIN_NAMES),
        );
        other_names::push(&mut sections, known);
    }
    MemoryContent::unchecked(sections.into_facts())
}

/// The change of a fact that is left out or shortened.
enum Change {
    Keep,
    LeaveOut,
    Replace(MemoryFact),
}

/// Sections that are above a length.
struct Shortened {
    sections: [Vec<MemoryFact>; 10],
    /// The number of characters above the length.
    excess: usize,
}

impl Shortened {
    fn new(sections: [Vec<MemoryFact>; 10], max_chars: usize) -> Self {
        let facts = sections.iter().flatten();
        // Each fact ends with a line break.
        let chars: usize = facts.map(|fact| length(fact) + 1).sum();
        Self {
            sections,
            excess: chars.saturating_sub(max_chars),
        }
    }

    /// Leaves out facts until no character is in excess. Facts that the agent can look up again, and details of finished
    /// work, come before answers and requests.
    fn leave_out(&mut self) {
        use SectionKind::{Documentation, Errors, Results, Task, Workflow, Worklog};
        let is_step = |fact: &MemoryFact| matches!(fact, MemoryFact::Step(_));
        // The results contain the final statements.
        self.change(Worklog, WHOLE_TURNS, |fact| match fact {
            MemoryFact::Turn(turn) if turn.ended.is_some() => {
                Change::Replace(MemoryFact::Turn(Turn {
                    ended: None,
                    ..turn.clone()
                }))
            }
            _ => Change::Keep,
        });
        self.change(Worklog, WHOLE_STEPS, |fact| match fact {
            MemoryFact::Step(step) => step.shortened().map_or(Change::LeaveOut, |step| {
                Change::Replace(MemoryFact::Step(step))
            }),
            _ => Change::Keep,
        });
        self.leave_out_kind(
            Errors,
            FIXED_FAILURES,
            |fact| matches!(fact, MemoryFact::Failure(failure) if failure.is_fixed),
        );
        let is_document = |fact: &MemoryFact| matches!(fact, MemoryFact::Document(_));
        self.leave_out_kind(Documentation, DOCUMENTS, is_document);
        self.change(Workflow, 0, latest_commands);
        self.change(Results, WHOLE_ANSWERS, |fact| match fact {
            MemoryFact::Answer(answer) => Change::Replace(MemoryFact::Answer(Answer {
                text: whole_sentences(&answer.text, MAX_EARLY_ANSWER).into(),
                ..answer.clone()
            })),
            _ => Change::Keep,
        });
        self.leave_out_kind(Workflow, COMMAND_RUNS, |fact| {
            matches!(fact, MemoryFact::CommandRuns(_))
        });
        // The latest files are the most probable ones to be used again, and the list of names competes for the rest.
        self.change(SectionKind::Files, 0, |fact| match fact {
            MemoryFact::FilesRead(paths) => {
                Change::Replace(MemoryFact::FilesRead(latest(paths, FILES_READ)))
            }
            _ => Change::Keep,
        });
        self.leave_out_kind(Worklog, KEPT_STEPS, is_step);
        let is_explanation = |fact: &MemoryFact| matches!(fact, MemoryFact::Explanation(_));
        self.leave_out_kind(Documentation, EXPLANATIONS, is_explanation);
        self.change(Task, WHOLE_REQUESTS, |fact| match fact {
            MemoryFact::Request(request) if !request.is_first => {
                Change::Replace(MemoryFact::Request(Request {
                    is_first: false,
                    words: truncate(&request.words, MAX_EARLY_REQUEST).into(),
                }))
            }
            _ => Change::Keep,
        });
    }

    /// Leaves out the oldest facts that `is_it` accepts.
    fn leave_out_kind(
        &mut self,
        kind: SectionKind,
        kept: usize,
        is_it: impl Fn(&MemoryFact) -> bool,
    ) {
        self.change(kind, kept, |fact| {
            if is_it(fact) {
                Change::LeaveOut
            } else {
                Change::Keep
            }
        });
    }

    /// Changes the oldest facts of a section while characters are in excess. The latest `kept` facts for which `change`
    /// returns a change stay as they are.
    fn change(&mut self, kind: SectionKind, kept: usize, change: impl Fn(&MemoryFact) -> Change) {
        let facts = &mut self.sections[kind.index()];
        let changes = facts.iter().map(&change).enumerate();
        let mut changes: Vec<(usize, Change)> = changes
            .filter(|(_, change)| !matches!(change, Change::Keep))
            .collect();
        // Facts are in the order of time, so the end of the list contains the latest ones.
        changes.truncate(changes.len().saturating_sub(kept));
        let mut left_out = Vec::new();
        for (at, change) in changes {
            if self.excess == 0 {
                break;
            }
            let before = length(&facts[at]);
            let after = match change {
                Change::Keep => before,
                Change::LeaveOut => {
                    left_out.push(at);
                    0
                }
                Change::Replace(fact) => {
                    facts[at] = fact;
                    length(&facts[at])
                }
            };
            self.excess = self.excess.saturating_sub(before.saturating_sub(after));
        }
        if left_out.is_empty() {
            return;
        }
        // `left_out` is sorted, because the changes are visited in the order of the facts.
        let mut at = 0;
        facts.retain(|_| {
            at += 1;
            left_out.binary_search(&(at - 1)).is_err()
        });
        // The facts between two blank lines may be gone.
        let mut is_gap = true;
        facts.retain(|fact| {
            let was_gap = std::mem::replace(&mut is_gap, is_blank(fact));
            !(was_gap && is_gap)
        });
    }
}

/// Reduces a list of commands to the latest ones.
fn latest_commands(fact: &MemoryFact) -> Change {
    match fact {
        MemoryFact::CommandsRunOnce(commands) => Change::Replace(MemoryFact::CommandsRunOnce(
            latest(commands, COMMANDS_RUN_ONCE),
        )),
        MemoryFact::CommandRuns(runs) => Change::Replace(MemoryFact::CommandRuns(CommandRuns {
            others: latest(&runs.others, OTHER_COMMANDS),
            ..runs.clone()
        })),
        _ => Change::Keep,
    }
}

/// Returns the end of a list with at most `max` names.
fn latest(names: &[Box<str>], max: usize) -> Vec<Box<str>> {
    names[names.len().saturating_sub(max)..].to_vec()
}

fn length(fact: &MemoryFact) -> usize {
    render(fact).chars().count()
}

#[cfg(test)]
mod tests {
    use palimpsest_types::memory::MemoryDocument;

    use super::*;
    use crate::Facts;
    use crate::memory::{stand_in, update};
    use crate::tests::{does, session};

    /// A session with many commands, failures, answers and documents.
    fn long_session() -> MemoryContent {
        let mut memory = MemoryContent::default();
        for n in 0..60 {
            let mut messages = session();
            for message in &mut messages {
                for block in &mut message.blocks {
                    if let palimpsest_types::message::Block::Text { text, .. } = block {
                        let words = format!("Number {n}. {text} ").repeat(4);
                        *text = words.into();
                    }
                }
            }
            let command = format!(r#"{{"command":"tool{n} --option src/x{n}.rs"}}"#);
            messages.extend(does("Bash", &command, "gone wrong", Some(true)));
            messages.extend(does("Bash", &command, "ok", Some(false)));
            let read = format!(r#"{{"file_path":"/w/docs/d{n}.md"}}"#);
            messages.extend(does("Read", &read, "# One\n\n# Two", None));
            memory = update(&memory, &Facts::of(&messages)).fit(1_600, u32::MAX);
        }
        memory
    }

    #[test]
    fn the_oldest_facts_of_long_content_are_left_out() {
        let memory = long_session();
        let whole = memory.document().without_guidance();
        let short = stand_in(&memory, None);
        assert!(whole.len() > TARGET_CHARS + 4_000, "{}", whole.len());
        assert!(short.len() < TARGET_CHARS + 1_000, "{}", short.len());
        assert!(short.contains("tool59") && short.contains("Number 59."));
        let gaps = |text: &str| text.matches("\n\n\n").count();
        assert!(gaps(&short) <= gaps(&whole));
    }

    #[test]
    fn short_content_stays_as_it_is() {
        let memory = update(&MemoryContent::default(), &Facts::of(&session()));
        assert_eq!(
            stand_in(&memory, None),
            memory.document().without_guidance()
        );
    }

    #[test]
    fn lines_of_persons_are_never_left_out() {
        let memory = long_session();
        let mut document = memory.document();
        let lines: Vec<String> = (0..400).map(|n| format!("Own line {n}.")).collect();
        for kind in [SectionKind::Errors, SectionKind::Worklog] {
            let body = format!("{}\n{}", lines.join("\n"), document.body(kind));
            document.set(kind, &body);
        }
        let edited = memory.aligned(&MemoryDocument::parse(&document.render()));
        let short = stand_in(&edited, None);
        for line in lines {
            assert_eq!(short.matches(&line).count(), 2, "{line}");
        }
    }
}

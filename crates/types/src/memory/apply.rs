//! Merging of a model's reply, which contains the changed sections, into session memory.

use super::document::{MemoryDocument, changed_sections};
use super::section::{Fence, heading};
use super::{SectionKind, placeholder};
use crate::summary::refusal::is_refusal;

/// The model's reply if no section has to change.
pub(crate) const NO_CHANGES: &str = "NO CHANGES";

/// A document with a merged reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The document.
    pub memory: MemoryDocument,
    /// The sections that changed.
    pub changed: Vec<SectionKind>,
}

/// The reason why a reply was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The reply is empty.
    #[error("the model's reply is empty; retry, or update session memory without a model")]
    Empty,
    /// The model refused to write.
    #[error(
        "the model refused to write; use another model, or update session memory without a model"
    )]
    Refusal,
    /// The reply contains no heading of the document.
    #[error(
        "the reply contains no section of session memory; retry, or update session memory without a model"
    )]
    NoSection,
    /// The reply was cut at the output token limit before the first section was complete.
    #[error("the reply was truncated before the first section ended; raise the output limit")]
    Truncated,
}

/// Merges a reply into the document.
///
/// Only section bodies change. Repeated guidance, text before the first heading and unknown sections
/// are ignored. A placeholder never replaces content. `truncated` is true if the reply ended at the
/// output token limit, so that its last section is incomplete.
pub fn apply_sections(
    memory: &MemoryDocument,
    reply: &str,
    truncated: bool,
) -> Result<Applied, ApplyError> {
    let reply = without_fence(reply.trim());
    if reply.is_empty() {
        return Err(ApplyError::Empty);
    }
    if is_no_changes(reply) {
        return Ok(Applied {
            memory: memory.clone(),
            changed: Vec::new(),
        });
    }
    let mut sections = sections(reply);
    if sections.is_empty() {
        // The sections may be inside a fence that follows an introduction.
        let fenced = reply
            .find("\n```")
            .map(|at| without_fence(&reply[at + 1..]));
        sections = fenced.map(self::sections).unwrap_or_default();
    }
    if sections.is_empty() {
        return Err(if is_refusal(reply) {
            ApplyError::Refusal
        } else {
            ApplyError::NoSection
        });
    }
    // The last section is incomplete and would replace a complete one.
    if truncated {
        sections.pop();
        if sections.is_empty() {
            return Err(ApplyError::Truncated);
        }
    }
    let mut next = memory.clone();
    let (mut refused, mut taken) = (false, false);
    // One refused section does not discard the others. Only a reply of refusals alone is rejected.
    for (kind, body) in sections {
        if body.lines().all(placeholder::is_placeholder) && memory.has_content(kind) {
            continue;
        }
        if is_refusal(&body) {
            refused = true;
            continue;
        }
        taken = true;
        next.set(kind, &body);
    }
    if refused && !taken {
        return Err(ApplyError::Refusal);
    }
    let changed = changed_sections(memory, &next);
    Ok(Applied {
        memory: next,
        changed,
    })
}

fn is_no_changes(reply: &str) -> bool {
    let words = reply.trim_matches(|c: char| !c.is_alphanumeric());
    words.eq_ignore_ascii_case(NO_CHANGES)
}

/// Removes a fence that encloses the whole reply.
fn without_fence(reply: &str) -> &str {
    let mark = reply.chars().next().filter(|c| matches!(c, '`' | '~'));
    let length = mark.map_or(0, |mark| reply.len() - reply.trim_start_matches(mark).len());
    if length < 3 {
        return reply;
    }
    let inner = reply.split_once('\n').map_or("", |(_, inner)| inner);
    let closing = inner.rfind('\n').map_or(0, |at| at + 1);
    // Markdown closes a fence with the same mark, at least as many times as it was opened.
    let is_closed = inner[closing..].trim().len() >= length
        && inner[closing..].trim().chars().all(|c| Some(c) == mark);
    if is_closed {
        inner[..closing].trim()
    } else {
        // A truncated reply lacks the closing fence.
        inner.trim()
    }
}

/// Returns the sections of a reply. An unknown heading of the same or a higher level ends a section,
/// and the text below it is ignored.
fn sections(reply: &str) -> Vec<(SectionKind, String)> {
    let mut found: Vec<(SectionKind, String)> = Vec::new();
    let (mut open, mut level) = (false, usize::MAX);
    let mut fence = Fence::default();
    for line in reply.lines() {
        let in_fence = fence.take(line);
        let title = heading(line).filter(|_| !in_fence);
        match title.and_then(SectionKind::of_title) {
            Some(kind) => {
                // The first section sets the level of all. Headings below it belong to a body.
                if level == usize::MAX {
                    level = depth(line);
                }
                // A model may write a section twice. The last version counts.
                found.retain(|(other, _)| *other != kind);
                found.push((kind, String::new()));
                open = true;
            }
            None if title.is_some() && depth(line) <= level => open = false,
            None => {
                if let Some((_, body)) = found.last_mut().filter(|_| open) {
                    body.push_str(line);
                    body.push('\n');
                }
            }
        }
    }
    found
}

fn depth(line: &str) -> usize {
    let line = line.trim_start();
    line.len() - line.trim_start_matches('#').len()
}

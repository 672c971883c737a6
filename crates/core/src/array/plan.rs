//! Decides the difference between an array and the session that has it.

use super::align::{Prefix, overlap, prefix, repeated};
use super::change::{Adoption, ArrayOutcome, LinkSource, NewLink, PlannedChange, SyncPlan};
use super::compacted::OwnCompaction;
use super::hints::{Hints, KnownContent};
use super::links::{CallerArray, Element, Incoming, Link, LinkKind, parts};
use super::response::{ResponseUse, use_of};
use super::shrunk::{extended, is_shrunk};
use super::summary;
use crate::message::{Digest, Role};
use crate::session::ContentNotLoaded;

/// The origin of the session's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The caller named the session.
    Named,
    /// The session was found by the content of the array. Such a session is extended or forked, and never rewound: two
    /// conversations can begin with equal messages.
    Inferred,
}

/// Plans the change from the known array to the caller's array. The first case that applies wins.
///
/// # Errors
///
/// Returns an error if the plan depends on a message that is not in memory.
pub fn plan(
    array: &CallerArray,
    incoming: &Incoming<'_>,
    identity: Identity,
    hints: &Hints<'_>,
    known: &dyn KnownContent,
) -> Result<SyncPlan, ContentNotLoaded> {
    let head = prefix(&array.links, incoming.rest);
    let planner = Planner {
        array,
        incoming,
        identity,
        known,
        head,
        is_same_lead: array.lead == incoming.lead_digests(),
    };
    if array.is_empty() {
        return Ok(planner.first(hints));
    }
    // All known elements can precede the session's summary. A continuation would append this summary as an input.
    if let Some(plan) = planner.compacted(hints)? {
        return Ok(plan);
    }
    if head.is_whole
        && let Some(plan) = planner.continued()?
    {
        return Ok(plan);
    }
    if let Some(plan) = planner.without_middle()? {
        return Ok(plan);
    }
    if let Some(plan) = planner.extended_element()? {
        return Ok(plan);
    }
    if let Some(plan) = planner.shortened()? {
        return Ok(plan);
    }
    // The cases above remove no message from the view, so they come before a summary and a rewind.
    if let Some(plan) = planner.adopted(hints)? {
        return Ok(plan);
    }
    Ok(planner.diverged())
}

struct Planner<'a> {
    array: &'a CallerArray,
    incoming: &'a Incoming<'a>,
    identity: Identity,
    known: &'a dyn KnownContent,
    head: Prefix,
    is_same_lead: bool,
}

impl Planner<'_> {
    /// Takes the first array of the session.
    fn first(&self, hints: &Hints<'_>) -> SyncPlan {
        // A request for a title has no tools and can come first. It must not become the conversation of the session.
        if hints.side_requests && !self.incoming.has_tools {
            return SyncPlan::OtherArray { abandoned: None };
        }
        SyncPlan::Change(self.change(ArrayOutcome::New, 0, ResponseUse::Unused, 0))
    }

    /// Continues the known array, or repeats it.
    fn continued(&self) -> Result<Option<SyncPlan>, ContentNotLoaded> {
        let end = self.head.elements;
        let response = use_of(self.array, &self.incoming.rest[end..], self.known)?;
        let has_response = self.head.has_response || is_confirmed(response);
        // With another system message and equal user messages alone, the array can be a side request.
        if !self.is_same_lead && !has_response {
            return Ok(None);
        }
        let outcome = match response {
            ResponseUse::Replaced { .. } => ArrayOutcome::ResponseReplaced,
            ResponseUse::Unused if end == self.incoming.rest.len() => ArrayOutcome::Equal,
            _ => ArrayOutcome::Extended,
        };
        let keep = self.array.links.len();
        Ok(Some(self.own(self.change(outcome, keep, response, end))))
    }

    /// Accepts an array with the session's own summary. The session has compacted its view before, so even a session that
    /// was found by content takes the array.
    fn compacted(&self, hints: &Hints<'_>) -> Result<Option<SyncPlan>, ContentNotLoaded> {
        let Some(own) = hints.own_compaction else {
            return Ok(None);
        };
        let rest = self.incoming.rest;
        let Some(summary) = rest.iter().position(|one| one.key() == own.digest) else {
            return Ok(None);
        };
        let mut links = self.before_summary(summary);
        links.push(new_link(&rest[summary], LinkSource::Recorded(own.summary)));
        let end = self.after_summary(own, summary + 1, &mut links);
        let is_new = |link: &NewLink| matches!(link.source, LinkSource::Added(_));
        // A response in place of a recorded one must be the first appended message.
        let response = if links.iter().any(is_new) {
            ResponseUse::Unused
        } else {
            use_of(self.array, &rest[end..], self.known)?
        };
        // `links` lists the known elements too, because they can be on both sides of the summary. None stays in place.
        let mut change = self.change(ArrayOutcome::Adopted, 0, response, end);
        links.append(&mut change.links);
        change.links = links;
        Ok(Some(SyncPlan::Change(change)))
    }

    /// Returns the links of the elements before the session's summary. Known ones stay in their order: the summary covers
    /// them, or the view shows them.
    fn before_summary(&self, summary: usize) -> Vec<NewLink> {
        let mut links = Vec::new();
        let mut from = 0;
        for (at, element) in self.incoming.rest[..summary].iter().enumerate() {
            let known = self.array.links.iter().enumerate().skip(from);
            // The search continues after the last match, so known links stay in their order.
            let mut same = known.filter(|(_, link)| link.digest == element.key());
            let Some((index, _)) = same.next() else {
                links.push(new_link(element, LinkSource::Added(at)));
                continue;
            };
            from = self.push_known(element, index, &mut links);
        }
        links
    }

    /// Adds the links of the elements after the session's summary, up to the last one that the view shows there. Returns
    /// the end of these elements.
    fn after_summary(
        &self,
        own: &OwnCompaction,
        summary_end: usize,
        links: &mut Vec<NewLink>,
    ) -> usize {
        let (mut from, mut end) = (0, summary_end);
        let mut between = Vec::new();
        for (at, element) in self.incoming.rest.iter().enumerate().skip(summary_end) {
            let Some(shown) = own.repeated(from, element) else {
                between.push(new_link(element, LinkSource::Added(at)));
                continue;
            };
            // Elements between two repeated ones were added by the program. Those after the last one are left to
            // `change`.
            links.append(&mut between);
            let message = own.after[shown].message;
            let mut known = self.array.links.iter();
            match known.position(|link| link.message == message) {
                Some(index) => {
                    self.push_known(element, index, links);
                }
                None => links.push(new_link(element, LinkSource::Recorded(message))),
            }
            (from, end) = (shown + 1, at + 1);
        }
        end
    }

    /// Adds a known link with its further messages. Returns the index after them.
    fn push_known(&self, element: &Element, index: usize, links: &mut Vec<NewLink>) -> usize {
        let end = index + 1 + parts(&self.array.links[index + 1..]);
        links.push(new_link(element, LinkSource::Known(index)));
        links.extend((index + 1..end).map(|part| self.known_link(part)));
        end
    }

    /// Accepts an array whose caller left out known elements. No message leaves the view.
    fn without_middle(&self) -> Result<Option<SyncPlan>, ContentNotLoaded> {
        let links = &self.array.links[self.head.links..];
        let after = &self.incoming.rest[self.head.elements..];
        let tail = overlap(links, after);
        let end = tail.map_or(0, |tail| tail.elements);
        let response = use_of(self.array, &after[end..], self.known)?;
        let mut matches = tail.map_or(0, |tail| tail.matches);
        if let ResponseUse::Confirmed { response } = response {
            let items = self.array.responses[response].iter();
            matches += items.filter(|item| item.is_element()).count();
        }
        // Short user messages repeat by chance, so a response must be part of the match.
        let has_response = tail.is_some_and(|tail| tail.has_response) || is_confirmed(response);
        // A session that was found by content needs more matches: a wrong one would mix two conversations.
        let enough = match self.identity {
            Identity::Named => 2,
            Identity::Inferred => 4,
        };
        if tail.is_none() || !has_response || matches < enough {
            return Ok(None);
        }
        let (keep, end) = (self.array.links.len(), self.head.elements + end);
        Ok(Some(self.own(self.change(
            ArrayOutcome::Trimmed,
            keep,
            response,
            end,
        ))))
    }

    /// Adopts a summary of the caller.
    fn adopted(&self, hints: &Hints<'_>) -> Result<Option<SyncPlan>, ContentNotLoaded> {
        let (array, rest, head) = (self.array, self.incoming.rest, &self.head);
        let Some(evidence) = summary::find(array, rest, head, hints, self.known)? else {
            return Ok(None);
        };
        let tail = summary::tail(array, rest, head, &evidence);
        let leaving = head.links..tail.map_or(array.links.len(), |tail| tail.from);
        // A summary that replaces no content is an ordinary message.
        if array.links[leaving.clone()].iter().all(Link::is_skipped) {
            return Ok(None);
        }
        let end = evidence.end + tail.map_or(0, |tail| tail.elements);
        let response = use_of(array, &rest[end..], self.known)?;
        let mut change = self.change(ArrayOutcome::Adopted, head.links, response, end);
        let summary = new_link(&rest[evidence.summary], LinkSource::Summary);
        // The elements up to the evidence are ordinary messages.
        let answers = (evidence.summary + 1..evidence.end)
            .map(|element| new_link(&rest[element], LinkSource::Appended(element)));
        let tail = (leaving.end..array.links.len()).map(|index| self.known_link(index));
        let links = [summary]
            .into_iter()
            .chain(answers)
            .chain(tail)
            .chain(change.links);
        let links = links.collect();
        change.links = links;
        change.adoption = Some(Adoption {
            summary: evidence.summary,
            leaving,
        });
        Ok(Some(self.own(change)))
    }

    /// Accepts further blocks at the end of the last user message, such as a prompt for a summary.
    fn extended_element(&self) -> Result<Option<SyncPlan>, ContentNotLoaded> {
        let (link, element) = (self.head.links, self.head.elements);
        let (Some(last), Some(given)) =
            (self.array.links.get(link), self.incoming.rest.get(element))
        else {
            return Ok(None);
        };
        let links = &self.array.links[link..];
        let is_last = links[1..].iter().all(|link| link.kind == LinkKind::Part);
        if !is_last || !self.head.has_response || last.role != Role::User {
            return Ok(None);
        }
        let Some(from_block) = extended(links, given, self.known)? else {
            return Ok(None);
        };
        // The recorded responses answer the message without its further blocks, so the array repeats none of them.
        let response = ResponseUse::Unused;
        let mut change = self.change(ArrayOutcome::Extended, link, response, element + 1);
        let first = new_link(given, LinkSource::Known(link));
        let parts = (link + 1..self.array.links.len()).map(|index| self.known_link(index));
        let part = NewLink {
            digest: Digest::default(),
            role: Role::User,
            kind: LinkKind::Part,
            source: LinkSource::Part {
                element,
                from_block,
            },
        };
        let links = [first].into_iter().chain(parts).chain([part]);
        change.links = links.chain(change.links).collect();
        Ok(Some(self.own(change)))
    }

    /// Accepts an array in which the caller shortened known elements. No message leaves the view.
    fn shortened(&self) -> Result<Option<SyncPlan>, ContentNotLoaded> {
        let mut links = Vec::new();
        let mut has_response = self.head.has_response;
        let (mut after, mut end) = (self.head.links, self.head.elements);
        for (index, known) in self.array.links.iter().enumerate().skip(self.head.links) {
            if known.is_skipped() {
                links.push(self.known_link(index));
                continue;
            }
            let given = self.incoming.rest[end..].iter().zip(end..);
            let mut with_content = given.filter(|(element, _)| !element.digests.is_optional());
            // The array ends before the known one, so elements are missing, and not only shortened.
            let Some((given, element)) = with_content.next() else {
                return Ok(None);
            };
            end = element + 1;
            after = index + 1 + parts(&self.array.links[index + 1..]);
            let is_equal = known.digest == given.key();
            if !is_equal && !is_shrunk(&self.array.links[index..], given, self.known)? {
                return Ok(None);
            }
            has_response |= is_equal && known.role == Role::Assistant;
            links.push(new_link(given, LinkSource::Known(index)));
        }
        // Two conversations can begin with equal inputs. Only a common response shows that both arrays are one
        // conversation.
        if !has_response {
            return Ok(None);
        }
        end += repeated(&self.array.links[after..], &self.incoming.rest[end..]).1;
        let response = use_of(self.array, &self.incoming.rest[end..], self.known)?;
        let mut change = self.change(ArrayOutcome::Trimmed, self.head.links, response, end);
        links.append(&mut change.links);
        change.links = links;
        Ok(Some(self.own(change)))
    }

    /// Decides about an array that leaves the known one.
    fn diverged(&self) -> SyncPlan {
        // With another system prompt, equal inputs alone do not show that both arrays are one conversation.
        let is_certain = self.is_same_lead || self.head.has_response;
        let shared = if is_certain { self.head.links } else { 0 };
        let shares_input = self.array.links[..shared]
            .iter()
            .any(|link| link.role == Role::User);
        match self.identity {
            Identity::Inferred if shares_input => SyncPlan::Fork { links: shared },
            Identity::Named if shared > 0 => {
                let end = self.head.elements;
                let abandoned = self.array.abandoned_end(self.incoming.rest, end);
                // Two branches alternate under one name. A rewind would remove one branch with each request, so this
                // one gets a lane.
                if abandoned.is_some() {
                    return SyncPlan::OtherArray { abandoned };
                }
                self.rewind(ArrayOutcome::Rewound, shared, end)
            }
            // The known array had no tools, so it was a side request, such as one for a title, that came first.
            Identity::Named if self.array.is_provisional && self.incoming.has_tools => {
                self.rewind(ArrayOutcome::Displaced, 0, 0)
            }
            Identity::Inferred | Identity::Named => SyncPlan::OtherArray { abandoned: None },
        }
    }

    /// Plans a rewind to the first `keep` links, and the elements from `end` on.
    fn rewind(&self, outcome: ArrayOutcome, keep: usize, end: usize) -> SyncPlan {
        let mut change = self.change(outcome, keep, ResponseUse::Unused, end);
        change.rewinds = true;
        SyncPlan::Change(change)
    }

    /// Plans the elements from `end` on, after the use of a recorded response.
    fn change(
        &self,
        outcome: ArrayOutcome,
        keep: usize,
        response: ResponseUse,
        end: usize,
    ) -> PlannedChange {
        let mut links = Vec::new();
        let mut end = end;
        if let ResponseUse::Confirmed { response } = response {
            for item in &self.array.responses[response] {
                let source = LinkSource::Recorded(item.message);
                // A message that the caller does not get has no element in the array, so the index stays.
                links.push(if item.is_element() {
                    end += 1;
                    new_link(&self.incoming.rest[end - 1], source)
                } else {
                    NewLink {
                        digest: item.digests.key(),
                        role: Role::Assistant,
                        kind: LinkKind::Part,
                        source,
                    }
                });
            }
        }
        let appended = self.incoming.rest.iter().enumerate().skip(end);
        links.extend(appended.map(|(at, element)| new_link(element, LinkSource::Appended(at))));
        PlannedChange {
            outcome,
            keep,
            rewinds: false,
            adoption: None,
            response,
            links,
        }
    }

    /// Returns the change, or a fork if the change does more than append to an inferred session.
    fn own(&self, change: PlannedChange) -> SyncPlan {
        if self.identity == Identity::Inferred && change.adoption.is_some() {
            let links = self.array.links.len();
            return SyncPlan::Fork { links };
        }
        SyncPlan::Change(change)
    }

    fn known_link(&self, index: usize) -> NewLink {
        let link = &self.array.links[index];
        NewLink {
            digest: link.digest,
            role: link.role,
            kind: link.kind,
            source: LinkSource::Known(index),
        }
    }
}

fn is_confirmed(response: ResponseUse) -> bool {
    matches!(response, ResponseUse::Confirmed { .. })
}

fn new_link(element: &Element, source: LinkSource) -> NewLink {
    NewLink {
        digest: element.key(),
        role: element.message.role,
        kind: LinkKind::of(&element.digests),
        source,
    }
}

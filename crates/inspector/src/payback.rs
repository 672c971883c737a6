//! The cost of changes of the view, and the number of requests after which they are paid for. The provider must write a
//! part of the next request to its prompt cache, and each request is smaller.

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{EconomyPolicy, SessionEvent};

use crate::event_text::changes_view;

/// The prices of a policy without values, relative to an uncached input token.
const CACHE_WRITE_PRICE: f64 = 1.25;
const CACHE_READ_PRICE: f64 = 0.1;

/// The cost and the savings of the changes of the view before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payback {
    /// Number of changes before the request.
    pub(crate) changes: u32,
    /// Tokens of the request that the provider wrote to its prompt cache because of the changes.
    pub(crate) rewritten: u32,
    /// Number of requests that save as much as that cost. `None` if the changes made no request smaller.
    pub(crate) needed: Option<u64>,
    /// Number of requests since the changes, among the given events.
    pub(crate) requests: u64,
}

/// Computes the payback for the last change before each request. The result has an entry for each event.
pub(crate) fn of_changes(
    events: &[SessionEvent],
    prices: Option<&EconomyPolicy>,
) -> Vec<Option<Payback>> {
    let prices = Prices::of(prices);
    let mut paybacks = vec![None; events.len()];
    // The last change without a request after it, and the number of these changes.
    let mut open: Option<(usize, u32)> = None;
    let mut before: Option<u32> = None;
    let mut requests_before = Vec::new();
    let mut requests = 0_u64;
    for (index, event) in events.iter().enumerate() {
        if changes_view(event) {
            let changes = open.map_or(0, |(_, changes)| changes);
            open = Some((index, changes + 1));
        }
        let Some(Event::ViewServed(served)) = &event.event else {
            continue;
        };
        // Without an earlier request in the list, the savings before the changes are unknown.
        if let (Some((last, changes)), Some(before)) = (open.take(), before) {
            // `saved_tokens` is the sum over all changes of the session, so its growth belongs to these changes.
            let smaller_by = served.saved_tokens.saturating_sub(before);
            paybacks[last] = Some(Payback {
                changes,
                rewritten: served.rewritten_tokens,
                needed: prices.break_even(served.rewritten_tokens, smaller_by),
                requests: 0,
            });
            requests_before.push((last, requests));
        }
        before = Some(served.saved_tokens);
        requests += 1;
    }
    for (index, earlier) in requests_before {
        if let Some(payback) = &mut paybacks[index] {
            // The total is known only at the end of the list.
            payback.requests = requests - earlier;
        }
    }
    paybacks
}

#[derive(Debug, Clone, Copy)]
struct Prices {
    write: f64,
    read: f64,
}

impl Prices {
    fn of(policy: Option<&EconomyPolicy>) -> Self {
        let write = policy.and_then(|policy| policy.cache_write_price);
        let read = policy.and_then(|policy| policy.cache_read_price);
        Self {
            write: write.unwrap_or(CACHE_WRITE_PRICE),
            read: read.unwrap_or(CACHE_READ_PRICE),
        }
    }

    /// Returns the number of requests after which the written tokens are paid for.
    fn break_even(self, rewritten: u32, smaller_by: u32) -> Option<u64> {
        // Without the change, the tokens would have been read from the cache. Only the difference is a cost of the
        // change.
        let extra = f64::from(rewritten) * (self.write - self.read).max(0.0);
        let saved = f64::from(smaller_by) * self.read;
        if saved <= 0.0 {
            return None;
        }
        // The quotient of two 32-bit numbers and prices is far below the maximum. Casts saturate.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let requests = (extra / saved).ceil() as u64;
        Some(requests)
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::{ResultsCleared, ViewServed};

    use super::*;

    fn request(saved_tokens: u32, rewritten_tokens: u32) -> SessionEvent {
        event(Event::ViewServed(ViewServed {
            saved_tokens,
            rewritten_tokens,
            ..ViewServed::default()
        }))
    }

    fn event(event: Event) -> SessionEvent {
        SessionEvent {
            event: Some(event),
            ..SessionEvent::default()
        }
    }

    #[test]
    fn the_last_change_before_a_request_has_the_cost_of_all() {
        let events = [
            request(0, 0),
            event(Event::ResultsCleared(ResultsCleared::default())),
            event(Event::Compacted(Box::default())),
            request(40_000, 10_000),
            request(40_000, 0),
            event(Event::ResultsCleared(ResultsCleared::default())),
        ];
        let paybacks = of_changes(&events, None);
        let expected = Payback {
            changes: 2,
            rewritten: 10_000,
            // 10,000 * (1.25 - 0.1) / (40,000 * 0.1) = 2.875
            needed: Some(3),
            requests: 2,
        };
        assert_eq!(
            paybacks,
            [None, None, Some(expected), None, None, None],
            "a change without a request has no cost yet"
        );
    }

    #[test]
    fn prices_of_the_policy_count() {
        let policy = EconomyPolicy {
            cache_write_price: Some(2.0),
            cache_read_price: Some(0.5),
            ..EconomyPolicy::default()
        };
        let prices = Prices::of(Some(&policy));
        // 1,000 * (2.0 - 0.5) / (1,000 * 0.5) = 3.
        assert_eq!(prices.break_even(1_000, 1_000), Some(3));
        assert_eq!(prices.break_even(0, 1_000), Some(0));
        assert_eq!(prices.break_even(1_000, 0), None);
    }
}

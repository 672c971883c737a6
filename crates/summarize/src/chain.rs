//! A summarizer that tries several models in order.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::breaker::{CircuitBreaker, CircuitBreakerSettings};
use crate::error::Error;
use crate::fault::Fault;
use crate::request::{Request, Stop, SummaryReply};
use crate::summarizer::Summarizer;

/// A list of models: the primary model and its fallbacks. The caller provides the extractive summary
/// if all of them fail.
pub struct Chain {
    links: Vec<Guarded>,
    slots: Semaphore,
}

/// One model of a chain.
pub struct Link {
    /// The name in telemetry.
    pub name: String,
    /// The client of the model.
    pub summarizer: Arc<dyn Summarizer>,
    /// The settings of the circuit breaker.
    pub breaker: CircuitBreakerSettings,
}

struct Guarded {
    name: String,
    summarizer: Arc<dyn Summarizer>,
    breaker: CircuitBreaker,
}

impl Chain {
    /// Creates a chain with at most `concurrency` concurrent requests. A chain without links returns
    /// the error that no model is configured.
    pub fn new(links: Vec<Link>, concurrency: usize) -> Self {
        let guarded = |link: Link| Guarded {
            name: link.name,
            summarizer: link.summarizer,
            breaker: CircuitBreaker::new(link.breaker),
        };
        Self {
            links: links.into_iter().map(guarded).collect(),
            slots: Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    /// Returns true if there are models and the circuit breakers of all are open. Used for telemetry.
    pub fn rests(&self) -> bool {
        !self.links.is_empty() && self.links.iter().all(|link| link.breaker.is_open())
    }
}

#[async_trait]
impl Summarizer for Chain {
    /// Returns the first usable answer. Moves to the next model after any error or refusal except
    /// [`Error::PromptTooLong`]. That error is returned to the caller, who can shorten the prompt.
    async fn summarize(&self, request: &Request) -> Result<SummaryReply, Error> {
        // The slot is held for all links, so a fallback does not wait a second time.
        let slot = timeout_at(request.deadline, self.slots.acquire()).await;
        let Ok(Ok(_slot)) = slot else {
            return Err(Error::Unavailable {
                retry_after: None,
                fault: Fault::here("as many requests as are allowed at a time are under way"),
            });
        };
        let mut outcome = Err(Error::bad_request("no model is configured"));
        let mut asked = request.clone();
        for link in &self.links {
            let result = link.ask(&asked).await;
            // Another provider does not have the requested model.
            asked.model = None;
            let goes_on = match &result {
                Ok(reply) => reply.stop == Stop::Refused,
                Err(error) => !matches!(error, Error::PromptTooLong(_)),
            };
            if !goes_on {
                return result;
            }
            let why = result.as_ref().map_or_else(Error::name, |_| "refused");
            tracing::warn!(
                model = link.name,
                purpose = request.purpose.name(),
                why,
                "a model gave no summary"
            );
            outcome = worth_telling(outcome, result);
            // The next link could not answer before the deadline.
            if Instant::now() >= request.deadline {
                break;
            }
        }
        outcome
    }
}

/// Returns the more informative outcome: an earlier refusal with text precedes a later error.
fn worth_telling(
    before: Result<SummaryReply, Error>,
    last: Result<SummaryReply, Error>,
) -> Result<SummaryReply, Error> {
    match (&before, &last) {
        (Ok(_), Err(_)) => before,
        _ => last,
    }
}

impl Guarded {
    async fn ask(&self, request: &Request) -> Result<SummaryReply, Error> {
        if let Some(wait) = self.breaker.rests() {
            return Err(Error::Unavailable {
                retry_after: Some(wait),
                fault: Fault::here("it failed too often and is given a rest"),
            });
        }
        let result = self.summarizer.summarize(request).await;
        match &result {
            Err(Error::Unavailable { retry_after, .. }) => self.breaker.failed(*retry_after),
            // A timeout at the caller's deadline gives no information about the endpoint.
            Err(Error::Timeout { .. }) if Instant::now() >= request.deadline => {}
            Err(Error::Timeout { .. }) => self.breaker.failed(None),
            // Any other answer shows that the endpoint is reachable.
            _ => self.breaker.succeeded(),
        }
        result
    }
}

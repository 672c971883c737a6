//! A summarizer that tries several models in order.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::breaker::{CircuitBreaker, CircuitBreakerSettings};
use crate::error::Error;
use crate::provider_error::ProviderError;
use crate::request::{StopReason, SummaryReply, SummaryRequest};
use crate::summarizer::Summarizer;

/// A list of models: the primary model and its fallbacks. The caller provides the extractive summary
/// if all of them fail.
pub struct FallbackChain {
    links: Vec<GuardedModel>,
    slots: Semaphore,
}

/// One model of a chain.
pub struct ModelLink {
    /// The name in telemetry.
    pub name: String,
    /// The client of the model.
    pub summarizer: Arc<dyn Summarizer>,
    /// The settings of the circuit breaker.
    pub breaker: CircuitBreakerSettings,
}

struct GuardedModel {
    name: String,
    summarizer: Arc<dyn Summarizer>,
    breaker: CircuitBreaker,
}

impl FallbackChain {
    /// Creates a chain with at most `concurrency` concurrent requests. A chain without links returns
    /// the error that no model is configured.
    pub fn new(links: Vec<ModelLink>, concurrency: usize) -> Self {
        let guarded = |link: ModelLink| GuardedModel {
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
    pub fn is_open(&self) -> bool {
        !self.links.is_empty() && self.links.iter().all(|link| link.breaker.is_open())
    }
}

#[async_trait]
impl Summarizer for FallbackChain {
    /// Returns the first usable answer. Moves to the next model after any error or refusal except
    /// [`Error::PromptTooLong`]. That error is returned to the caller, who can shorten the prompt.
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        // The slot is held for all links, so a fallback does not wait a second time.
        let slot = timeout_at(request.deadline, self.slots.acquire()).await;
        let Ok(Ok(_slot)) = slot else {
            return Err(Error::Unavailable {
                retry_after: None,
                fault: ProviderError::local(
                    "as many requests as are allowed at a time are under way",
                ),
            });
        };
        let mut outcome = Err(Error::bad_request("no model is configured"));
        let mut asked = request.clone();
        for link in &self.links {
            let result = link.ask(&asked).await;
            // Another provider does not have the requested model.
            asked.model = None;
            let goes_on = match &result {
                Ok(reply) => reply.stop == StopReason::Refusal,
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
                "a model returned no summary"
            );
            outcome = most_informative(outcome, result);
            // The next link could not answer before the deadline.
            if Instant::now() >= request.deadline {
                break;
            }
        }
        outcome
    }
}

/// Returns the more informative outcome: an earlier refusal with text precedes a later error.
fn most_informative(
    before: Result<SummaryReply, Error>,
    last: Result<SummaryReply, Error>,
) -> Result<SummaryReply, Error> {
    match (&before, &last) {
        (Ok(_), Err(_)) => before,
        _ => last,
    }
}

impl GuardedModel {
    async fn ask(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        if let Some(wait) = self.breaker.open_for() {
            return Err(Error::Unavailable {
                retry_after: Some(wait),
                fault: ProviderError::local("it failed too often, and its circuit breaker is open"),
            });
        }
        let result = self.summarizer.summarize(request).await;
        match &result {
            Err(Error::Unavailable { retry_after, .. }) => {
                self.breaker.record_failure(*retry_after);
            }
            // A timeout at the caller's deadline gives no information about the endpoint.
            Err(Error::Timeout { .. }) if Instant::now() >= request.deadline => {}
            Err(Error::Timeout { .. }) => self.breaker.record_failure(None),
            // Any other answer shows that the endpoint is reachable.
            _ => self.breaker.record_success(),
        }
        result
    }
}

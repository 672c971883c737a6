//! One model after another, until one answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::breaker::{CircuitBreaker, CircuitBreakerSettings};
use crate::error::Error;
use crate::fault::Fault;
use crate::request::{Request, Stop, SummaryReply};
use crate::summarizer::Summarizer;

/// A model, the fallback model, and so on. What comes after the last, the extractive summary, is the
/// caller's.
pub struct Chain {
    links: Vec<Guarded>,
    slots: Semaphore,
}

/// One model of a chain.
pub struct Link {
    /// Its name in telemetry.
    pub name: String,
    /// Who asks it.
    pub summarizer: Arc<dyn Summarizer>,
    /// When it is given a rest.
    pub breaker: CircuitBreakerSettings,
}

struct Guarded {
    name: String,
    summarizer: Arc<dyn Summarizer>,
    breaker: CircuitBreaker,
}

impl Chain {
    /// A chain that makes at most `concurrency` requests at a time. Without links it answers that no
    /// model is configured.
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

    /// Whether all of its models are given a rest, for telemetry.
    pub fn rests(&self) -> bool {
        self.links.iter().all(|link| link.breaker.is_open())
    }
}

#[async_trait]
impl Summarizer for Chain {
    /// The first answer that is none of: unavailable, refused, unauthorised, misunderstood, late, empty.
    /// A prompt that is too long goes back to the caller, who can make it shorter.
    async fn summarize(&self, request: &Request) -> Result<SummaryReply, Error> {
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
            // Another provider has models of other names.
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
            if Instant::now() >= request.deadline {
                break;
            }
        }
        outcome
    }
}

/// The last outcome, except that a rest of the breaker tells less than what was said before it.
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
            // A caller in a hurry tells nothing about the endpoint.
            Err(Error::Timeout { .. }) if Instant::now() >= request.deadline => {}
            Err(Error::Timeout { .. }) => self.breaker.failed(None),
            // Any other answer shows that the endpoint is up.
            _ => self.breaker.succeeded(),
        }
        result
    }
}

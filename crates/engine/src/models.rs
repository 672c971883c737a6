//! The models that write summaries, and the order of attempts.
//!
//! Connections and metrics are not part of this module: the server passes in finished clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::policy::Overlay;
use palimpsest_summarize::{FallbackChain, RedactingSummarizer, Summarizer};

/// The models that write summaries: the main one, and an optional fallback.
pub struct Models {
    main: Model,
    fallback: Option<Model>,
    allowed: ModelNames,
    limits: ModelLimits,
}

/// One model.
#[derive(Clone)]
pub struct Model {
    /// The name of the model.
    pub name: Box<str>,
    /// The breaker of its endpoint, and the limit of its requests in flight.
    pub chain: Arc<FallbackChain>,
    /// The client that calls it through `chain`.
    pub summarizer: Arc<dyn Summarizer>,
}

/// The limits that apply to all models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens that fit into one request and its answer.
    pub window_tokens: u64,
    /// Maximum tokens that a model writes.
    pub max_output_tokens: u32,
    /// Maximum duration of one request.
    pub timeout: Duration,
}

/// One attempt at a summary.
pub struct ModelAttempt {
    /// The model's name.
    pub model: Box<str>,
    /// The client that calls it.
    pub summarizer: Arc<dyn Summarizer>,
}

impl ModelAttempt {
    /// Returns the client of the attempt. With `redacts`, it removes secrets from requests and replies.
    pub fn client(&self, redacts: bool) -> Arc<dyn Summarizer> {
        let summarizer = Arc::clone(&self.summarizer);
        if redacts {
            Arc::new(RedactingSummarizer(summarizer))
        } else {
            summarizer
        }
    }
}

impl Models {
    /// The main model, the fallback, and the models that sessions and calls may choose besides.
    pub fn new(
        main: Model,
        fallback: Option<Model>,
        allowed: ModelNames,
        limits: ModelLimits,
    ) -> Self {
        Self {
            main,
            fallback,
            allowed,
            limits,
        }
    }

    /// The limits of all models.
    pub const fn limits(&self) -> ModelLimits {
        self.limits
    }

    /// The endpoints, each with true if its circuit breaker is open.
    pub fn breakers(&self) -> Vec<(&'static str, bool)> {
        let main = std::iter::once(("main", &self.main));
        let all = main.chain(self.fallback.iter().map(|one| ("fallback", one)));
        all.map(|(endpoint, one)| (endpoint, one.chain.is_open()))
            .collect()
    }

    /// The name of the main model.
    pub fn main(&self) -> &str {
        &self.main.name
    }

    /// Returns true if sessions and calls may choose the model.
    pub fn allows(&self, model: &str) -> bool {
        // The configured models are always allowed, whatever the list contains.
        let mut own = std::iter::once(&self.main).chain(&self.fallback);
        own.any(|one| *one.name == *model) || self.allowed.have(model)
    }

    /// Returns the first model in a policy overlay that is not allowed, with its field path.
    pub fn first_disallowed(&self, settings: &Overlay) -> Option<(&'static str, String)> {
        let fields = [
            ("policy.summary.model", "model"),
            ("policy.summary.fallback_model", "fallback_model"),
        ];
        fields.into_iter().find_map(|(path, name)| {
            let model = settings.get(&["summary", name])?.as_str()?;
            (!self.allows(model)).then(|| (path, model.to_owned()))
        })
    }

    /// Returns the attempts at a summary, in order. `model` and `fallback_model` are choices of a policy or call.
    ///
    /// Without a configured fallback, `fallback_model` is requested from the main model's endpoint. A chosen model
    /// that is no longer allowed is ignored.
    pub fn attempts(&self, model: Option<&str>, fallback_model: Option<&str>) -> Vec<ModelAttempt> {
        // The list of allowed models may have changed since the policy was stored with the session.
        let model = model.filter(|model| self.allows(model));
        let fallback_model = fallback_model.filter(|model| self.allows(model));
        let attempt = |one: &Model, model: Option<&str>| ModelAttempt {
            model: model.map_or_else(|| one.name.clone(), Box::from),
            summarizer: Arc::clone(&one.summarizer),
        };
        let mut attempts = vec![attempt(&self.main, model)];
        match (&self.fallback, fallback_model) {
            (Some(one), name) => attempts.push(attempt(one, name)),
            (None, Some(name)) => attempts.push(attempt(&self.main, Some(name))),
            (None, None) => {}
        }
        attempts
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("main", &self.main.name)
            .field("fallback", &self.fallback.as_ref().map(|one| &one.name))
            .finish_non_exhaustive()
    }
}

/// A list of model names. A name that ends with `*` is a prefix. An empty list contains every model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNames(String);

impl ModelNames {
    /// Creates the list from names separated by commas.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The names, separated by commas.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the list contains every model.
    pub fn are_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the list contains the model.
    pub fn have(&self, model: &str) -> bool {
        let is_it = |name: &str| match name.strip_suffix('*') {
            Some(start) => model.starts_with(start),
            None => model == name,
        };
        self.are_all() || self.0.split(',').map(str::trim).any(is_it)
    }
}

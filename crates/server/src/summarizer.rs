//! The models that write summaries, as the configuration names them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::policy::Overlay;
use palimpsest_summarize::{
    Anthropic, Auth, BreakerSettings, Chain, Endpoint, Error, Link, OpenAi, OutputCap, Reply,
    Request, SecretSource, Stop, Summarizer,
};
use tokio::time::Instant;

use crate::config::{ModelConfig, ModelNames, ModelProvider, SummarizerConfig};
use crate::metrics::Metrics;
use crate::telemetry::outgoing;

/// The models that write summaries: the main one, and perhaps one that is asked after it.
pub struct Models {
    main: One,
    fallback: Option<One>,
    allowed: ModelNames,
    /// Tokens that fit into one request and its answer.
    pub window_tokens: u64,
    /// Tokens that can be written at most.
    pub max_output_tokens: u32,
    /// How long one answer may take.
    pub timeout: Duration,
}

/// One model, with its limits.
#[derive(Clone)]
struct One {
    name: Box<str>,
    chain: Arc<Chain>,
    summarizer: Arc<dyn Summarizer>,
}

/// Asks a model, and measures how that went.
struct Measured {
    endpoint: &'static str,
    chain: Arc<Chain>,
    metrics: Metrics,
}

#[async_trait]
impl Summarizer for Measured {
    async fn summarize(&self, request: &Request) -> Result<Reply, Error> {
        let began = Instant::now();
        let result = self.chain.summarize(request).await;
        let outcome = match &result {
            Ok(reply) if reply.stop == Stop::Refused => ("refused", Some(reply.usage)),
            Ok(reply) => ("ok", Some(reply.usage)),
            Err(error) => (error.name(), None),
        };
        let purpose = request.purpose.name();
        self.metrics
            .asked_model(self.endpoint, purpose, outcome, began.elapsed());
        result
    }
}

/// Whom to ask, in this order, and by which name of a model.
pub struct Attempt {
    /// The model's name.
    pub model: Box<str>,
    /// Who asks it.
    pub summarizer: Arc<dyn Summarizer>,
}

impl Models {
    /// The configured models; none without a provider. No connection is made yet.
    pub fn from_config(
        config: &SummarizerConfig,
        metrics: &Metrics,
    ) -> Result<Option<Self>, Error> {
        if config.main.provider == ModelProvider::None {
            return Ok(None);
        }
        let fallback = &config.fallback;
        let fallback = if fallback.provider == ModelProvider::None {
            ModelConfig {
                model: fallback.model.clone(),
                ..config.main.clone()
            }
        } else {
            fallback.clone()
        };
        let has_fallback = fallback.model.is_some();
        Ok(Some(Self {
            main: one(("main", metrics), &config.main, config)?,
            fallback: has_fallback
                .then(|| one(("fallback", metrics), &fallback, config))
                .transpose()?,
            allowed: config.allowed_models.clone(),
            window_tokens: config.window_tokens,
            max_output_tokens: config.max_output_tokens,
            timeout: Duration::from_millis(config.timeout_ms),
        }))
    }

    /// The endpoints, and whether each is given a rest.
    pub fn breakers(&self) -> Vec<(&'static str, bool)> {
        let main = std::iter::once(("main", &self.main));
        let all = main.chain(self.fallback.iter().map(|one| ("fallback", one)));
        all.map(|(endpoint, one)| (endpoint, one.chain.rests()))
            .collect()
    }

    /// The name of the main model.
    pub fn main(&self) -> &str {
        &self.main.name
    }

    /// Whether sessions and calls may choose a model.
    pub fn allow(&self, model: &str) -> bool {
        let mut own = std::iter::once(&self.main).chain(&self.fallback);
        own.any(|one| *one.name == *model) || self.allowed.have(model)
    }

    /// The field and the model, when settings for a session choose one that they may not.
    pub fn refused(&self, settings: &Overlay) -> Option<(&'static str, String)> {
        let fields = [
            ("policy.summary.model", "model"),
            ("policy.summary.fallback_model", "fallback_model"),
        ];
        fields.into_iter().find_map(|(path, name)| {
            let model = settings.get(&["summary", name])?.as_str()?;
            (!self.allow(model)).then(|| (path, model.to_owned()))
        })
    }

    /// The attempts at a summary, where a policy or a call names models of its own. A fallback that only
    /// a policy names is another model of the main one's provider. A model that may not be chosen any more
    /// is as if it were not named.
    pub fn attempts(&self, model: Option<&str>, fallback_model: Option<&str>) -> Vec<Attempt> {
        let model = model.filter(|model| self.allow(model));
        let fallback_model = fallback_model.filter(|model| self.allow(model));
        let attempt = |one: &One, model: Option<&str>| Attempt {
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

fn one(
    (endpoint_name, metrics): (&'static str, &Metrics),
    model: &ModelConfig,
    config: &SummarizerConfig,
) -> Result<One, Error> {
    let name = model.model.as_ref().map_or("", |name| name.as_str());
    let own_place = match model.provider {
        ModelProvider::OpenAi => OpenAi::BASE_URL,
        ModelProvider::Anthropic | ModelProvider::None => Anthropic::BASE_URL,
    };
    let auth = match (model.key_variable(), &model.api_key_file) {
        (Some(variable), _) => Auth::Key(SecretSource::Env(variable.to_owned())),
        (None, Some(path)) => Auth::Key(SecretSource::File(path.clone())),
        (None, None) => Auth::None,
    };
    let base_url = model
        .base_url
        .as_ref()
        .map_or(own_place, |url| url.as_str());
    let mut endpoint = Endpoint::new(base_url, auth, name)?;
    endpoint.trace = outgoing;
    endpoint.http.call_timeout = Duration::from_millis(config.timeout_ms);
    let asks: Arc<dyn Summarizer> = match model.provider {
        ModelProvider::OpenAi => Arc::new(OpenAi::new(endpoint, OutputCap::default())?),
        ModelProvider::Anthropic | ModelProvider::None => Arc::new(Anthropic::new(endpoint)?),
    };
    // A chain of one: it bounds the requests and lets an endpoint rest that is down. Which model is
    // asked after which is decided for a summary as a whole, rejected answers included.
    let link = Link {
        name: name.to_owned(),
        summarizer: asks,
        breaker: BreakerSettings::default(),
    };
    let chain = Arc::new(Chain::new(vec![link], config.concurrency));
    let measured = Measured {
        endpoint: endpoint_name,
        chain: Arc::clone(&chain),
        metrics: metrics.clone(),
    };
    Ok(One {
        name: name.into(),
        chain,
        summarizer: Arc::new(measured),
    })
}

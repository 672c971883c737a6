//! Builds the clients of the configured summary models, with tracing and metrics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_edge::metrics::Metrics;
use palimpsest_engine::models::{Model, ModelLimits, Models};
use palimpsest_settings::{ModelConfig, ModelProvider, SummarizerConfig};
use palimpsest_summarize::{
    Anthropic, Auth, CircuitBreakerSettings, Error, FallbackChain, ModelEndpoint, ModelLink,
    OpenAi, OutputLimitField, SecretSource, StopReason, Summarizer, SummaryReply, SummaryRequest,
};
use tokio::time::Instant;

use crate::telemetry::injected_headers;

/// A summarizer that records the outcome and the duration of each request.
struct MeteredSummarizer {
    endpoint: &'static str,
    chain: Arc<FallbackChain>,
    metrics: Metrics,
}

#[async_trait]
impl Summarizer for MeteredSummarizer {
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        let began = Instant::now();
        let result = self.chain.summarize(request).await;
        let outcome = match &result {
            Ok(reply) if reply.stop == StopReason::Refusal => ("refused", Some(reply.usage)),
            Ok(reply) => ("ok", Some(reply.usage)),
            Err(error) => (error.name(), None),
        };
        let purpose = request.purpose.name();
        self.metrics
            .model_request(self.endpoint, purpose, outcome, began.elapsed());
        result
    }
}

/// Builds the configured models. Returns `None` if no provider is set. No connection is made yet.
pub fn from_config(config: &SummarizerConfig, metrics: &Metrics) -> Result<Option<Models>, Error> {
    if config.main.provider == ModelProvider::None {
        return Ok(None);
    }
    let fallback = &config.fallback;
    let fallback = if fallback.provider == ModelProvider::None {
        // A fallback without its own provider uses the endpoint of the main model.
        ModelConfig {
            model: fallback.model.clone(),
            ..config.main.clone()
        }
    } else {
        fallback.clone()
    };
    let has_fallback = fallback.model.is_some();
    let main = model(("main", metrics), &config.main, config)?;
    let fallback = has_fallback
        .then(|| model(("fallback", metrics), &fallback, config))
        .transpose()?;
    let limits = ModelLimits {
        window_tokens: config.window_tokens,
        max_output_tokens: config.max_output_tokens,
        timeout: Duration::from_millis(config.timeout_ms),
    };
    let allowed = config.allowed_models.clone();
    Ok(Some(Models::new(main, fallback, allowed, limits)))
}

fn model(
    (endpoint_name, metrics): (&'static str, &Metrics),
    settings: &ModelConfig,
    config: &SummarizerConfig,
) -> Result<Model, Error> {
    let name = settings.model.as_ref().map_or("", |name| name.as_str());
    let own_place = match settings.provider {
        ModelProvider::OpenAi => OpenAi::BASE_URL,
        ModelProvider::Anthropic | ModelProvider::None => Anthropic::BASE_URL,
    };
    let auth = match (settings.key_variable(), &settings.api_key_file) {
        (Some(variable), _) => Auth::Key(SecretSource::Env(variable.to_owned())),
        (None, Some(path)) => Auth::Key(SecretSource::File(path.clone())),
        (None, None) => Auth::None,
    };
    let base_url = settings
        .base_url
        .as_ref()
        .map_or(own_place, |url| url.as_str());
    let mut endpoint = ModelEndpoint::new(base_url, auth, name)?;
    endpoint.trace = injected_headers;
    endpoint.http.call_timeout = Duration::from_millis(config.timeout_ms);
    let asks: Arc<dyn Summarizer> = match settings.provider {
        ModelProvider::OpenAi => Arc::new(OpenAi::new(endpoint, OutputLimitField::default())?),
        ModelProvider::Anthropic | ModelProvider::None => Arc::new(Anthropic::new(endpoint)?),
    };
    // A chain of one adds the concurrency limit and the circuit breaker. The choice of the next model is made per
    // summary elsewhere, because rejected answers count as well.
    let link = ModelLink {
        name: name.to_owned(),
        summarizer: asks,
        breaker: CircuitBreakerSettings::default(),
    };
    let chain = Arc::new(FallbackChain::new(vec![link], config.concurrency));
    let measured = MeteredSummarizer {
        endpoint: endpoint_name,
        chain: Arc::clone(&chain),
        metrics: metrics.clone(),
    };
    Ok(Model {
        name: name.into(),
        chain,
        summarizer: Arc::new(measured),
    })
}

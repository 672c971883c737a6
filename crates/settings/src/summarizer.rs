//! The model that writes summaries: where it is, how to show who asks, and what it may be asked.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use palimpsest_engine::models::ModelNames;

use crate::value::{Raw, Value, quoted};

pub use crate::value::ModelProvider;

/// The model that writes summaries. Without a provider there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarizerConfig {
    /// The main model.
    pub main: ModelConfig,
    /// The model that is asked when the main one gives no summary.
    pub fallback: ModelConfig,
    /// The models that sessions and calls may choose beside these two.
    pub allowed_models: ModelNames,
    /// Tokens that fit into one request and its answer, for both.
    pub window_tokens: u64,
    /// Tokens that it can write at most: providers refuse a request for more.
    pub max_output_tokens: u32,
    /// How long one request may take.
    pub timeout_ms: u64,
    /// Requests to one model at one time.
    pub concurrency: usize,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelConfig {
    /// Whose API is spoken.
    pub provider: ModelProvider,
    /// Where; without it, the provider's own place.
    pub base_url: Option<BaseUrl>,
    /// The model's name.
    pub model: Option<ModelName>,
    /// The variable that holds the key.
    pub api_key_env: Option<VariableName>,
    /// The file that holds the key.
    pub api_key_file: Option<PathBuf>,
}

impl ModelConfig {
    /// The environment variable that holds the key, if one does. The key of a provider's own place goes nowhere
    /// else unless the configuration says so.
    pub fn key_variable(&self) -> Option<&str> {
        if let Some(variable) = &self.api_key_env {
            return Some(variable.as_str());
        }
        let own = self.api_key_file.is_none() && self.base_url.is_none();
        own.then_some(match self.provider {
            ModelProvider::OpenAi => "OPENAI_API_KEY",
            ModelProvider::Anthropic | ModelProvider::None => "ANTHROPIC_API_KEY",
        })
    }
}

impl SummarizerConfig {
    /// The settings of keys whose variable is not set, with the variable.
    pub fn missing_keys(&self, is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, &str)> {
        let models = [
            ("summarizer.api_key_env", &self.main),
            ("summarizer.fallback.api_key_env", &self.fallback),
        ];
        let models = models.into_iter();
        let asked = models.filter(|(_, model)| model.provider != ModelProvider::None);
        let variables = asked.filter_map(|(key, model)| Some((key, model.key_variable()?)));
        variables
            .filter(|(_, variable)| !is_set(variable))
            .collect()
    }
}

impl Default for SummarizerConfig {
    fn default() -> Self {
        Self {
            main: ModelConfig::default(),
            fallback: ModelConfig::default(),
            allowed_models: ModelNames::default(),
            window_tokens: 200_000,
            max_output_tokens: 20_000,
            timeout_ms: 120_000,
            concurrency: 8,
        }
    }
}

/// What of one model is set, and what it says when something is missing or too much.
pub(crate) fn check(
    config: &SummarizerConfig,
    check: &mut impl FnMut(bool, &'static [&'static str], &str),
) {
    let (main, fallback) = (&config.main, &config.fallback);
    let has_main = main.provider != ModelProvider::None;
    check(
        !has_main || main.model.is_some(),
        &["summarizer.model", "summarizer.provider"],
        "must be set: the name of the model that writes summaries",
    );
    let lonely =
        "has no effect without summarizer.provider: set that to \"anthropic\" or \"openai\"";
    let needs_main: [(bool, &'static [&'static str]); 7] = [
        (
            !config.allowed_models.are_all(),
            &["summarizer.allowed_models", "summarizer.provider"],
        ),
        (
            main.base_url.is_some(),
            &["summarizer.base_url", "summarizer.provider"],
        ),
        (
            main.model.is_some(),
            &["summarizer.model", "summarizer.provider"],
        ),
        (
            main.api_key_env.is_some(),
            &["summarizer.api_key_env", "summarizer.provider"],
        ),
        (
            main.api_key_file.is_some(),
            &["summarizer.api_key_file", "summarizer.provider"],
        ),
        (
            fallback.model.is_some(),
            &["summarizer.fallback.model", "summarizer.provider"],
        ),
        (
            fallback.provider != ModelProvider::None,
            &["summarizer.fallback.provider", "summarizer.provider"],
        ),
    ];
    for (is_set, keys) in needs_main {
        check(has_main || !is_set, keys, lonely);
    }
    let elsewhere = fallback.provider != ModelProvider::None;
    check(
        !elsewhere || fallback.model.is_some(),
        &["summarizer.fallback.model", "summarizer.fallback.provider"],
        "must be set: the name of the model that is asked when the main one gives no summary",
    );
    let at_main = "has no effect without summarizer.fallback.provider: without it the fallback is \
                   another model at the main one's place";
    let needs_provider: [(bool, &'static [&'static str]); 3] = [
        (
            fallback.base_url.is_some(),
            &[
                "summarizer.fallback.base_url",
                "summarizer.fallback.provider",
            ],
        ),
        (
            fallback.api_key_env.is_some(),
            &[
                "summarizer.fallback.api_key_env",
                "summarizer.fallback.provider",
            ],
        ),
        (
            fallback.api_key_file.is_some(),
            &[
                "summarizer.fallback.api_key_file",
                "summarizer.fallback.provider",
            ],
        ),
    ];
    for (is_set, keys) in needs_provider {
        check(elsewhere || !is_set, keys, at_main);
    }
    check(
        main.api_key_env.is_none() || main.api_key_file.is_none(),
        &["summarizer.api_key_env", "summarizer.api_key_file"],
        "is given beside summarizer.api_key_file: keep one of them",
    );
    check(
        fallback.api_key_env.is_none() || fallback.api_key_file.is_none(),
        &[
            "summarizer.fallback.api_key_env",
            "summarizer.fallback.api_key_file",
        ],
        "is given beside summarizer.fallback.api_key_file: keep one of them",
    );
}

impl Value for ModelNames {
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let text = raw.text().map(str::trim);
        let is_name = |name: &str| is_model_name(name.trim());
        let text = text.filter(|text| text.is_empty() || text.split(',').all(is_name));
        text.map(Self::new).ok_or_else(|| {
            raw.refused(
                "names of models with commas between them, such as \"claude-haiku-*,gpt-5-mini\"",
            )
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(self.as_str()))
    }
}

fn is_model_name(text: &str) -> bool {
    (1..=256).contains(&text.len()) && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $valid:expr, $expected:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Value for Option<$name> {
            fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
                let valid: fn(&str) -> bool = $valid;
                // What was given is not shown: people put keys where they do not belong.
                raw.text()
                    .map(str::trim)
                    .filter(|text| valid(text))
                    .map(|text| Some($name(text.to_owned())))
                    .ok_or_else(|| concat!("must be ", $expected).to_owned())
            }

            fn toml(&self) -> Option<String> {
                self.as_ref().map(|text| quoted(&text.0))
            }
        }
    )*};
}

pub(crate) use texts;

texts! {
    /// Where a provider answers.
    BaseUrl: |text| url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    }), "an http or https URL without a name and a password in it, such as \"https://api.anthropic.com\"";
    /// The name of a model.
    ModelName: is_model_name, "the name of a model, of at most 256 bytes and without blanks";
    /// The name of an environment variable.
    VariableName: |text| {
        !text.is_empty()
            && text.len() <= 128
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    }, "the name of the environment variable that holds the key, such as \"ANTHROPIC_API_KEY\", and not the key itself";
}

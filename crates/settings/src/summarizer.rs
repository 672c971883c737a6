//! Settings of the models that write summaries: endpoints, credentials and limits.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use palimpsest_engine::models::ModelNames;

use crate::value::{RawValue, SettingValue, quoted, with_defaults};

pub use crate::value::ModelProvider;

with_defaults! {
    /// The models that write summaries. Without a provider no model is used.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SummarizerConfig {
        /// The main model.
        pub main: ModelConfig,
        /// The model that is called if the main model fails.
        pub fallback: ModelConfig,
        /// Further models that sessions and calls may choose. Default: every model.
        pub allowed_models: ModelNames,
        /// Tokens of the context window of both models. Default: 200,000.
        pub window_tokens: u64 = 200_000,
        /// Maximum output tokens of a request. Providers reject a larger request. Default: 20,000.
        pub max_output_tokens: u32 = 20_000,
        /// Timeout of a request in milliseconds. Default: 120,000.
        pub timeout_ms: u64 = 120_000,
        /// Maximum concurrent requests for each model. Default: 8.
        pub concurrency: usize = 8,
    }
}

/// The settings of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelConfig {
    /// The API of the model.
    pub provider: ModelProvider,
    /// URL of the endpoint. Default: the provider's public endpoint.
    pub base_url: Option<BaseUrl>,
    /// Name of the model.
    pub model: Option<ModelName>,
    /// Environment variable with the API key.
    pub api_key_env: Option<VariableName>,
    /// File with the API key.
    pub api_key_file: Option<PathBuf>,
}

impl ModelConfig {
    /// Returns the environment variable with the API key, if one is used. The provider's default variable is used for
    /// its public endpoint only. Otherwise the key could be sent to a different host.
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
    /// Returns the settings of API keys whose environment variable is not set, with the variable.
    pub fn missing_keys(&self, is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, &str)> {
        let models = [
            ("summarizer.api_key_env", &self.main),
            ("summarizer.fallback.api_key_env", &self.fallback),
        ];
        let models = models.into_iter();
        // A model without a provider is never called and needs no key.
        let asked = models.filter(|(_, model)| model.provider != ModelProvider::None);
        let variables = asked.filter_map(|(key, model)| Some((key, model.key_variable()?)));
        variables
            .filter(|(_, variable)| !is_set(variable))
            .collect()
    }
}

/// Reports missing settings and settings without an effect.
pub(crate) fn check(
    config: &SummarizerConfig,
    check: &mut impl FnMut(bool, &[&'static str], &str),
) {
    let (main, fallback) = (&config.main, &config.fallback);
    let has_main = main.provider != ModelProvider::None;
    check(
        !has_main || main.model.is_some(),
        &["summarizer.model", "summarizer.provider"],
        "must be set to the name of the model that writes summaries",
    );
    let lonely = "has no effect without summarizer.provider: set it to \"anthropic\" or \"openai\"";
    let needs_main: [(bool, &'static str); 7] = [
        (
            !config.allowed_models.are_all(),
            "summarizer.allowed_models",
        ),
        (main.base_url.is_some(), "summarizer.base_url"),
        (main.model.is_some(), "summarizer.model"),
        (main.api_key_env.is_some(), "summarizer.api_key_env"),
        (main.api_key_file.is_some(), "summarizer.api_key_file"),
        // A fallback without a provider is another model of the main endpoint, so both need the main provider.
        (fallback.model.is_some(), "summarizer.fallback.model"),
        (
            fallback.provider != ModelProvider::None,
            "summarizer.fallback.provider",
        ),
    ];
    for (is_set, key) in needs_main {
        check(has_main || !is_set, &[key, "summarizer.provider"], lonely);
    }
    let elsewhere = fallback.provider != ModelProvider::None;
    check(
        !elsewhere || fallback.model.is_some(),
        &["summarizer.fallback.model", "summarizer.fallback.provider"],
        "must be set to the name of the model that is called if the main model returns no summary",
    );
    let at_main = "has no effect without summarizer.fallback.provider: without it, the fallback is \
                   another model of the main API";
    let needs_provider: [(bool, &'static str); 3] = [
        (fallback.base_url.is_some(), "summarizer.fallback.base_url"),
        (
            fallback.api_key_env.is_some(),
            "summarizer.fallback.api_key_env",
        ),
        (
            fallback.api_key_file.is_some(),
            "summarizer.fallback.api_key_file",
        ),
    ];
    for (is_set, key) in needs_provider {
        let keys = &[key, "summarizer.fallback.provider"];
        check(elsewhere || !is_set, keys, at_main);
    }
    check(
        main.api_key_env.is_none() || main.api_key_file.is_none(),
        &["summarizer.api_key_env", "summarizer.api_key_file"],
        "is set together with summarizer.api_key_file: remove one of them",
    );
    check(
        fallback.api_key_env.is_none() || fallback.api_key_file.is_none(),
        &[
            "summarizer.fallback.api_key_env",
            "summarizer.fallback.api_key_file",
        ],
        "is set together with summarizer.fallback.api_key_file: remove one of them",
    );
}

impl SettingValue for ModelNames {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let text = raw.text().map(str::trim);
        let is_name = |name: &str| is_model_name(name.trim());
        let text = text.filter(|text| text.is_empty() || text.split(',').all(is_name));
        text.map(Self::new).ok_or_else(|| {
            raw.type_error(
                "names of models separated by commas, such as \"claude-haiku-*,gpt-5-mini\"",
            )
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(self.as_str()))
    }
}

pub(crate) fn is_base_url(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    })
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
            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl SettingValue for Option<$name> {
            fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
                let valid: fn(&str) -> bool = $valid;
                // The error does not show the value, because it may be an API key in the wrong place.
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
    /// URL of a provider's endpoint.
    BaseUrl: is_base_url, "an http or https URL without a user name and password, such as \"https://api.anthropic.com\"";
    /// Name of a model.
    ModelName: is_model_name, "the name of a model, at most 256 bytes without blanks";
    /// Name of an environment variable.
    VariableName: |text| {
        !text.is_empty()
            && text.len() <= 128
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    }, "the name of the environment variable with the key, such as \"ANTHROPIC_API_KEY\", not the key itself";
}

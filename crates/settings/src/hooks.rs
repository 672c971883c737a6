//! Settings of the users' hook services: endpoints and credentials. Policies refer to an endpoint by its name.
//! Addresses are never accepted from callers.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::source::VARIABLE_PREFIX;
use crate::suggest::did_you_mean;
use crate::summarizer::VariableName;
use crate::value::{RawValue, SettingValue, quoted, schema_of, with_defaults};

/// Prefix of the keys of endpoints.
pub(crate) const PREFIX: &str = "hooks.endpoints.";

/// The hook services of users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HooksConfig {
    /// Endpoint for policies that name none.
    pub default_endpoint: Option<EndpointName>,
    /// All endpoints by name.
    pub endpoints: BTreeMap<EndpointName, EndpointConfig>,
}

with_defaults! {
    /// The endpoint of a hook service.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EndpointConfig {
        /// URL of the service. Always set in a checked configuration.
        pub url: Option<EndpointUrl>,
        /// Environment variable with the token.
        pub token_env: Option<VariableName>,
        /// File with the token.
        pub token_file: Option<PathBuf>,
        /// Maximum concurrent calls. Default: 16.
        pub max_concurrent: usize = 16,
    }
}

/// Name of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointName(String);

impl EndpointName {
    /// Creates a name of lowercase letters, digits, `-` and `_`. The set is restricted so that an environment
    /// variable can contain the name.
    fn new(text: &str) -> Option<Self> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
        let valid = (1..=64).contains(&text.len()) && text.bytes().all(fits);
        valid.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const NAME: &str = "a name of at most 64 lowercase letters, digits, - and _";

impl SettingValue for Option<EndpointName> {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let name = raw.text().map(str::trim).and_then(EndpointName::new);
        name.map(Some).ok_or_else(|| raw.type_error(NAME))
    }

    fn toml(&self) -> Option<String> {
        self.as_ref().map(|name| quoted(&name.0))
    }
}

/// URL of a hook service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointUrl(String);

impl EndpointUrl {
    /// The URL as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SettingValue for Option<EndpointUrl> {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let fits = |text: &&str| {
            url::Url::parse(text).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https")
                    && url.has_host()
                    && url.username().is_empty()
                    && url.password().is_none()
                    && matches!(url.path(), "" | "/")
                    && url.query().is_none()
            })
        };
        // The error does not show the value, because it may be a token in the wrong place.
        let given = raw.text().map(str::trim).filter(fits);
        given
            .map(|text| Some(EndpointUrl(text.to_owned())))
            .ok_or_else(|| {
                "must be an http or https URL of a host and a port alone, such as \
             \"http://127.0.0.1:50061\""
                    .to_owned()
            })
    }

    fn toml(&self) -> Option<String> {
        self.as_ref().map(|url| quoted(&url.0))
    }
}

/// One setting of an endpoint.
pub(crate) struct EndpointField {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    set: fn(&mut EndpointConfig, &RawValue) -> Result<(), String>,
    pub(crate) toml: fn(&EndpointConfig) -> Option<String>,
    /// Returns the JSON schema of the value in a file.
    pub(crate) schema: fn() -> Json,
}

macro_rules! fields {
    ($($name:ident $(in $range:expr)?, $doc:literal;)*) => {
        pub(crate) const FIELDS: &[EndpointField] = &[$(EndpointField {
            name: stringify!($name),
            doc: $doc,
            set: |config, raw| {
                let range = None$(.or(Some($range)))?;
                config.$name = SettingValue::read(raw, range)?;
                Ok(())
            },
            toml: |config| config.$name.toml(),
            schema: || schema_of(|config: &EndpointConfig| &config.$name, None$(.or(Some($range)))?),
        }),*];
    };
}

fields! {
    url, "The gRPC address of the service: http for plaintext, https for TLS.";
    token_env, "The variable with the token for the service.";
    token_file, "The file with the token. It is read for every call.";
    max_concurrent in 1..=10_000, "The maximum concurrent calls. Further calls wait until their deadlines.";
}

/// Returns the key of the endpoint setting that an environment variable sets, if it sets one.
pub(crate) fn key_of_variable(variable: &str) -> Option<String> {
    let rest = variable
        .strip_prefix(VARIABLE_PREFIX)?
        .strip_prefix("HOOKS_ENDPOINTS_")?;
    FIELDS.iter().find_map(|field| {
        // The name may contain underscores, so the field is matched from the end.
        let name = rest.strip_suffix(&format!("_{}", field.name.to_uppercase()))?;
        Some(format!("{PREFIX}{}.{}", name.to_lowercase(), field.name))
    })
}

impl HooksConfig {
    /// Sets a value by its key without the prefix, such as `NAME.url`. Returns the text of the error.
    pub(crate) fn set(&mut self, rest: &str, raw: &RawValue) -> Result<(), String> {
        let (name, field) = rest.rsplit_once('.').unwrap_or((rest, ""));
        let name = EndpointName::new(name)
            .ok_or_else(|| format!("is not a valid endpoint: use {NAME}"))?;
        let Some(field) = FIELDS.iter().find(|known| known.name == field) else {
            let known = FIELDS.iter().map(|known| known.name.to_owned());
            let hint = did_you_mean(field, known);
            return Err(format!("is not a setting of an endpoint{hint}"));
        };
        let set = (field.set)(self.endpoints.entry(name).or_default(), raw);
        // The common error of variable names mentions an API key, which is wrong for a hook token.
        set.map_err(|what| match field.name {
            "token_env" => {
                "must be the name of the environment variable that holds the token, such \
                            as \"HOOK_TOKEN\", and not the token itself"
                    .to_owned()
            }
            _ => what,
        })
    }
}

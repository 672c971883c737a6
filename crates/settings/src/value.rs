//! The types of settings: parsing from TOML and text, and formatting as TOML.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use palimpsest_core::policy::Price;
use palimpsest_store::blobs::{BlobError, local_folder};
use serde_json::Value as Json;
use tracing_subscriber::EnvFilter;

use crate::json_schema;

/// The integers of a setting without a range. The largest one is that of TOML.
const ALL_INTEGERS: RangeInclusive<u64> = 0..=i64::MAX as u64;
/// The largest price.
const MAX_PRICE: f64 = 1_000_000.0;

/// A value as it was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawValue {
    /// Text from a variable or a flag, for a setting of any type.
    Text(String),
    /// A string from a file.
    String(String),
    /// An integer from a file.
    Integer(i128),
    /// A float from a file.
    Float(f64),
    /// A boolean from a file.
    Bool(bool),
    /// An array from a file.
    List(Vec<Self>),
    /// Any other value from a file, with the name of its TOML type.
    Other(&'static str),
}

impl RawValue {
    /// Formats the value for an error. Values of secret settings must not be passed to this function.
    fn display(&self) -> String {
        match self {
            Self::Text(text) | Self::String(text) => format!("{text:?}"),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::List(_) => "a TOML array".to_owned(),
            Self::Bool(truth) => truth.to_string(),
            Self::Other(kind) => format!("a TOML {kind}"),
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn type_error(&self, expected: &str) -> String {
        format!("must be {expected}, is {}", self.display())
    }
}

/// A type of setting.
pub(crate) trait SettingValue: Sized {
    /// Parses a value. `range` applies to numbers.
    fn read(raw: &RawValue, range: Option<RangeInclusive<u64>>) -> Result<Self, String>;

    /// Formats a value as TOML. Returns `None` if the setting has no value.
    fn toml(&self) -> Option<String>;

    /// Returns the JSON schema of a value in a file. `range` applies to numbers.
    fn schema(_range: Option<RangeInclusive<u64>>) -> Json {
        json_schema::text()
    }
}

/// Returns the schema of a setting that a getter reads.
pub(crate) fn schema_of<C, T: SettingValue>(
    _: fn(&C) -> &T,
    range: Option<RangeInclusive<u64>>,
) -> Json {
    T::schema(range)
}

pub(crate) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

pub(crate) fn whole_number(
    raw: &RawValue,
    range: Option<RangeInclusive<u64>>,
) -> Result<u64, String> {
    let range = range.unwrap_or(ALL_INTEGERS);
    let number = match raw {
        // Variables and flags accept underscores between digits, as TOML does.
        RawValue::Text(text) => text.trim().replace('_', "").parse().ok(),
        RawValue::Integer(number) => Some(*number),
        _ => None,
    };
    number
        .and_then(|number: i128| u64::try_from(number).ok())
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let (low, high) = range.into_inner();
            raw.type_error(&format!("a whole number from {low} to {high}"))
        })
}

/// Parses any finite number.
pub(crate) fn number(raw: &RawValue) -> Result<f64, String> {
    let number = match raw {
        RawValue::Text(text) => text.trim().parse().ok(),
        RawValue::Integer(number) => number.to_string().parse().ok(),
        RawValue::Float(number) => Some(*number),
        _ => None,
    };
    number
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| raw.type_error("a number"))
}

impl SettingValue for Price {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let price = number(raw).ok().and_then(Self::new);
        price.ok_or_else(|| raw.type_error("a number from 0 to 1000000"))
    }

    fn toml(&self) -> Option<String> {
        Some(toml::Value::from(self.get()).to_string())
    }

    fn schema(_: Option<RangeInclusive<u64>>) -> Json {
        json_schema::number(Some(0.0..=MAX_PRICE))
    }
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl SettingValue for $kind {
            fn read(raw: &RawValue, range: Option<RangeInclusive<u64>>) -> Result<Self, String> {
                let number = whole_number(raw, range)?;
                // Every range of a setting lies within its integer type.
                Self::try_from(number).map_err(|_| raw.type_error("a smaller number"))
            }

            fn toml(&self) -> Option<String> {
                Some(self.to_string())
            }

            fn schema(range: Option<RangeInclusive<u64>>) -> Json {
                json_schema::integer(range.unwrap_or(ALL_INTEGERS))
            }
        }
    )*};
}

numbers!(u32, u64, usize);

impl SettingValue for bool {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        match raw {
            RawValue::Bool(truth) => Some(*truth),
            RawValue::Text(text) => match text.trim() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        }
        .ok_or_else(|| raw.type_error("true or false"))
    }

    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn schema(_: Option<RangeInclusive<u64>>) -> Json {
        json_schema::boolean()
    }
}

impl SettingValue for SocketAddr {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        raw.text()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| raw.type_error("an address with a port, such as \"127.0.0.1:50051\""))
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl SettingValue for PathBuf {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        raw.text()
            .filter(|text| !text.is_empty())
            .map(Self::from)
            .ok_or_else(|| raw.type_error("the path of a directory"))
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

/// The URL of a folder or bucket.
impl SettingValue for Option<String> {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let expected = || raw.type_error("a URL, such as \"s3://bucket/prefix\"");
        let url = raw
            .text()
            .filter(|text| text.split_once("://").is_some_and(|(s, _)| !s.is_empty()))
            .ok_or_else(expected)?;
        // The store parses the URL again when it opens the location. Here, `config --check` rejects the same URLs as
        // the start of the server.
        match local_folder(url) {
            Ok(_) => Ok(Some(url.to_owned())),
            Err(BlobError::Location { reason, .. }) => Err(format!("{}: {reason}", expected())),
            Err(error) => Err(format!("{}: {error}", expected())),
        }
    }

    fn toml(&self) -> Option<String> {
        self.as_deref().map(quoted)
    }
}

impl SettingValue for Option<PathBuf> {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        raw.text()
            .filter(|text| !text.is_empty())
            .map(|text| Some(text.into()))
            .ok_or_else(|| raw.type_error("the path of a file"))
    }

    fn toml(&self) -> Option<String> {
        self.as_ref().map(|path| quoted(&path.to_string_lossy()))
    }
}

/// Defines a setting with named values.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $first_doc:literal $first:ident = $first_text:literal
        $(, $each_doc:literal $each:ident = $text:literal)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name {
            #[doc = $first_doc]
            #[default]
            $first,
            $(#[doc = $each_doc] $each,)*
        }

        impl $name {
            const NAMES: &[(&str, Self)] = &[
                ($first_text, Self::$first), $(($text, Self::$each)),*
            ];

            /// The name in the configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$each => $text,)*
                }
            }
        }

        impl SettingValue for $name {
            fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
                let named = |text: &str| Self::NAMES.iter().find(|(name, _)| *name == text);
                raw.text().and_then(named).map(|(_, value)| *value).ok_or_else(|| {
                    let names: Vec<_> =
                        Self::NAMES.iter().map(|(name, _)| format!("{name:?}")).collect();
                    raw.type_error(&names.join(" or "))
                })
            }

            fn toml(&self) -> Option<String> {
                Some(quoted(self.name()))
            }

            fn schema(_: Option<RangeInclusive<u64>>) -> serde_json::Value {
                $crate::json_schema::choice(Self::NAMES.iter().map(|(name, _)| *name))
            }
        }
    };
}

pub(crate) use choices;

/// Defines structs of settings. A field without a default has the default of its type.
macro_rules! with_defaults {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(= $default:expr)?,)*
    })*) => {$(
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: with_defaults!(default $($default)?),)* }
            }
        }
    )*};
    (default) => { Default::default() };
    (default $value:expr) => { $value };
}

pub(crate) use with_defaults;

choices! {
    /// Format of log lines.
    LogFormat {
        "Pretty on a terminal, JSON otherwise." Auto = "auto",
        "Readable text." Pretty = "pretty",
        "One JSON object per line." Json = "json"
    }
}

choices! {
    /// The part of the work that a process does.
    Role {
        "Answers calls, updates session memory and runs maintenance." All = "all",
        "Answers calls. Other processes on the same store update session memory and run maintenance." Server = "server",
        "Updates session memory and runs maintenance. Answers no calls." Worker = "worker"
    }
}

impl Role {
    /// Returns true if the process answers calls.
    pub fn serves(self) -> bool {
        self != Self::Worker
    }

    /// Returns true if the process runs background tasks.
    pub fn works(self) -> bool {
        self != Self::Server
    }
}

choices! {
    /// The API of a model.
    ModelProvider {
        "No model." None = "none",
        "Anthropic's Messages API." Anthropic = "anthropic",
        "OpenAI's Chat Completions, or a compatible API." OpenAi = "openai"
    }
}

/// A log filter: a level, or levels by module in the syntax of `tracing_subscriber::EnvFilter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The text of the filter.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        // `EnvFilter` accepts any word as a module name, so a misspelled level such as `inof` would disable all
        // logging.
        let is_level = |part: &str| {
            part.parse::<tracing_subscriber::filter::LevelFilter>()
                .is_ok()
        };
        let plausible = text
            .split(',')
            .all(|part| part.contains(['=', '[']) || is_level(part.trim()));
        let valid = !text.trim().is_empty() && plausible && EnvFilter::try_new(text).is_ok();
        valid.then(|| Self(text.to_owned()))
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl SettingValue for LogFilter {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        raw.text().and_then(Self::parse).ok_or_else(|| {
            raw.type_error(
                "a level (error, warn, info, debug, trace) or a filter such as \"info,h2=debug\"",
            )
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

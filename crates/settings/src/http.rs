//! Settings of the HTTP API.

use std::ops::RangeInclusive;

use url::{Origin, Url};

use crate::value::{RawValue, SettingValue, quoted, with_defaults};

with_defaults! {
    /// The HTTP API, which serves the services of the contract as JSON on the port of gRPC.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HttpConfig {
        /// True if the API is on. Default: true.
        pub enabled: bool = true,
        /// True if the pages of the inspector are served beside the API. Default: true.
        pub inspector: bool = true,
        /// The origins of the web pages that may use the API. Default: none.
        pub allowed_origins: WebOrigins,
    }
}

/// A list of origins, separated by commas. `*` is every origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebOrigins(Vec<String>);

impl WebOrigins {
    /// Parses a list.
    pub fn parse(text: &str) -> Option<Self> {
        let origins = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let origins = origins.map(|one| is_origin(one).then(|| one.to_owned()));
        origins.collect::<Option<_>>().map(Self)
    }

    /// Returns the origins.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// Returns true for a text that a browser can send as an origin.
fn is_origin(text: &str) -> bool {
    let url = || Url::parse(text).ok();
    let origin = |url: Url| match url.origin() {
        Origin::Tuple(..) if matches!(url.scheme(), "http" | "https") => {
            Some(url.origin().ascii_serialization())
        }
        _ => None,
    };
    // Browsers send the serialized form. Another spelling, such as one with a slash at the end, would never match.
    text == "*" || url().and_then(origin).is_some_and(|origin| origin == text)
}

impl SettingValue for WebOrigins {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        raw.text().and_then(Self::parse).ok_or_else(|| {
            "must be origins without a path, separated by commas, such as \"https://app.example.com\", or \"*\"".to_owned()
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_origins_are_accepted() {
        for text in [
            "a.example",
            "https://a.example/",
            "https://a.example/b",
            "ftp://a.example",
            "https://A.example",
        ] {
            assert!(WebOrigins::parse(text).is_none(), "{text}");
        }
        let origins = WebOrigins::parse("http://localhost:5173, https://a.example").unwrap();
        assert_eq!(
            origins.as_slice(),
            ["http://localhost:5173", "https://a.example"]
        );
        assert!(WebOrigins::parse("").unwrap().as_slice().is_empty());
        assert!(WebOrigins::parse("*").is_some());
    }
}

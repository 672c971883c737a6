//! The web pages that may use the API.

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST,
    ORIGIN, VARY,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

/// A header that browsers add to every request.
const FETCH_SITE: &str = "sec-fetch-site";

/// The origins of the web pages that may use the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    origins: Vec<String>,
    allows_all: bool,
}

impl AllowedOrigins {
    /// Creates a list. `*` allows all pages.
    pub fn new(origins: &[String]) -> Self {
        Self {
            allows_all: origins.iter().any(|origin| origin == "*"),
            origins: origins.to_vec(),
        }
    }

    fn contains(&self, origin: &HeaderValue) -> bool {
        self.allows_all
            || self
                .origins
                .iter()
                .any(|one| one.as_bytes() == origin.as_bytes())
    }

    /// Returns false for a request of a web page that may not use the API.
    ///
    /// `is_open` is true if calls need no credential. A page could then give its own host name the address of this
    /// machine, and be of the same origin. So the host must be a name of this machine.
    pub(crate) fn permits(&self, headers: &HeaderMap, target: &Uri, is_open: bool) -> bool {
        let origin = headers.get(ORIGIN);
        if origin.is_none() && !headers.contains_key(FETCH_SITE) {
            return true;
        }
        if origin.is_some_and(|origin| self.contains(origin)) {
            return true;
        }
        let Some(host) = host(headers, target) else {
            return false;
        };
        let is_same = origin.is_none_or(|origin| is_origin_of(origin, &host));
        is_same && (!is_open || is_local(&host))
    }

    /// Adds the headers that permit a page to read the response.
    pub(crate) fn describe(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        let Some(origin) = origin.filter(|origin| self.contains(origin)) else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }

    /// Adds the headers of the answer to a preflight request.
    pub(crate) fn describe_preflight(&self, request: &HeaderMap, headers: &mut HeaderMap) {
        self.describe(request.get(ORIGIN), headers);
        if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PATCH, DELETE"),
        );
        if let Some(requested) = request.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            // A permitted page may send any header.
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    }
}

fn host(headers: &HeaderMap, target: &Uri) -> Option<Authority> {
    if let Some(authority) = target.authority() {
        return Some(authority.clone());
    }
    headers.get(HOST)?.to_str().ok()?.parse().ok()
}

fn is_origin_of(origin: &HeaderValue, host: &Authority) -> bool {
    let origin = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.parse::<Uri>().ok());
    origin.is_some_and(|origin| origin.authority() == Some(host))
}

fn is_local(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(origins: &[&str], headers: &[(&'static str, &str)], is_open: bool) -> bool {
        let origins: Vec<_> = origins.iter().map(ToString::to_string).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        AllowedOrigins::new(&origins).permits(&map, &Uri::from_static("/v1"), is_open)
    }

    #[test]
    fn programs_are_permitted_and_foreign_pages_are_not() {
        assert!(permits(&[], &[("host", "palimpsest.svc:1")], true));
        let page = [("host", "127.0.0.1:1"), ("origin", "https://a.example")];
        assert!(!permits(&[], &page, false));
        assert!(permits(&["https://a.example"], &page, false));
        assert!(permits(&["*"], &page, true));
        assert!(!permits(&["https://b.example"], &page, true));
    }

    #[test]
    fn a_rebound_host_name_is_not_permitted_without_credentials() {
        let page = [
            ("host", "rebound.example:1"),
            ("origin", "http://rebound.example:1"),
        ];
        assert!(!permits(&[], &page, true));
        assert!(permits(&[], &page, false));
        let read = [
            ("host", "rebound.example:1"),
            ("sec-fetch-site", "same-origin"),
        ];
        assert!(!permits(&[], &read, true));
        let local = [("host", "localhost:1"), ("origin", "http://localhost:1")];
        assert!(permits(&[], &local, true));
    }
}

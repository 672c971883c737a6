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

/// The callers that reach the API without a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenTo {
    /// None: each call needs a credential.
    Nobody,
    /// Programs and pages of this machine.
    ThisMachine,
    /// Programs of other machines too.
    Anyone,
}

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

    /// Returns true if a page of a host may use the API.
    fn contains_host(&self, host: &Authority) -> bool {
        self.allows_all || self.origins.iter().any(|origin| is_origin_of(origin, host))
    }

    /// Returns false for a request of a web page that may not use the API.
    ///
    /// Without credentials, a page could give its own host name the address of this machine, and be of the same origin.
    /// So the host must be a name of this machine.
    pub(crate) fn permits(&self, headers: &HeaderMap, target: &Uri, open: OpenTo) -> bool {
        let origin = headers.get(ORIGIN);
        if origin.is_some_and(|origin| self.contains(origin)) {
            return true;
        }
        let is_of_page = origin.is_some() || headers.contains_key(FETCH_SITE);
        let Some(host) = host(headers, target) else {
            // Browsers always send a host that can be read.
            return !is_of_page && !headers.contains_key(HOST);
        };
        if !is_of_page {
            // Browsers send neither header for the reads that a page without TLS makes from its own origin. Such a read
            // looks like that of a program.
            return open != OpenTo::ThisMachine || is_local(&host) || self.contains_host(&host);
        }
        let is_of_host = |origin: &HeaderValue| {
            origin
                .to_str()
                .is_ok_and(|origin| is_origin_of(origin, &host))
        };
        let is_same = origin.is_none_or(is_of_host);
        is_same && (open == OpenTo::Nobody || is_local(&host))
    }

    /// Adds the headers that permit a page to read the response.
    pub(crate) fn describe(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        let Some(origin) = origin.filter(|origin| self.contains(origin)) else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        // A cache must not serve this response to a page of another origin.
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
        // Chromium keeps the answer to a preflight request for at most two hours.
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    }
}

fn host(headers: &HeaderMap, target: &Uri) -> Option<Authority> {
    if let Some(authority) = target.authority() {
        return Some(authority.clone());
    }
    headers.get(HOST)?.to_str().ok()?.parse().ok()
}

fn is_origin_of(origin: &str, host: &Authority) -> bool {
    let origin = origin.parse::<Uri>();
    origin.is_ok_and(|origin| origin.authority() == Some(host))
}

/// Returns true if the host of a request is `localhost` or an address. Any other name could be that of a foreign page, which
/// has given its name the address of this machine.
pub fn names_this_machine(headers: &HeaderMap, target: &Uri) -> bool {
    host(headers, target).is_some_and(|host| is_local(&host))
}

fn is_local(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(origins: &[&str], headers: &[(&'static str, &str)], open: OpenTo) -> bool {
        let origins: Vec<_> = origins.iter().map(ToString::to_string).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        AllowedOrigins::new(&origins).permits(&map, &Uri::from_static("/v1"), open)
    }

    #[test]
    fn programs_are_permitted_and_foreign_pages_are_not() {
        let program = [("host", "palimpsest.svc:1")];
        assert!(permits(&[], &program, OpenTo::Nobody));
        assert!(permits(&[], &program, OpenTo::Anyone));
        assert!(permits(&[], &[], OpenTo::ThisMachine));
        let page = [("host", "127.0.0.1:1"), ("origin", "https://a.example")];
        assert!(!permits(&[], &page, OpenTo::Nobody));
        assert!(permits(&["https://a.example"], &page, OpenTo::Nobody));
        assert!(permits(&["*"], &page, OpenTo::Anyone));
        assert!(!permits(&["https://b.example"], &page, OpenTo::Anyone));
    }

    #[test]
    fn a_rebound_host_name_is_not_permitted_without_credentials() {
        let page = [
            ("host", "rebound.example:1"),
            ("origin", "http://rebound.example:1"),
        ];
        for open in [OpenTo::Anyone, OpenTo::ThisMachine] {
            assert!(!permits(&[], &page, open));
            let read = [
                ("host", "rebound.example:1"),
                ("sec-fetch-site", "same-origin"),
            ];
            assert!(!permits(&[], &read, open));
            let local = [("host", "localhost:1"), ("origin", "http://localhost:1")];
            assert!(permits(&[], &local, open));
        }
        // Every call needs a credential here, which a rebound page does not have.
        assert!(permits(&[], &page, OpenTo::Nobody));
    }

    #[test]
    fn a_read_without_the_headers_of_browsers_must_name_this_machine() {
        let rebound = [("host", "rebound.example:1")];
        assert!(!permits(&[], &rebound, OpenTo::ThisMachine));
        assert!(!permits(&[], &[("host", "a b")], OpenTo::ThisMachine));
        for host in ["localhost:1", "127.0.0.1:1", "[::1]:1"] {
            assert!(
                permits(&[], &[("host", host)], OpenTo::ThisMachine),
                "{host}"
            );
        }
        // A proxy on this machine keeps the name that its callers use.
        let proxied = ["http://rebound.example:1"];
        assert!(permits(&proxied, &rebound, OpenTo::ThisMachine));
    }
}

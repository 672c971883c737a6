//! Selects the headers that are forwarded.
//!
//! Headers are copied into a new map and never removed from one: `HeaderMap::remove` moves the last header to the place
//! of the removed one, and the order of headers must stay.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::caller::PROVIDER_KEY_HEADERS;
use super::held_key::KeyHeader;

/// The header with the features of Anthropic's API that a request uses.
const BETA_HEADER: &str = "anthropic-beta";
/// The prefix of headers between the agent and the gateway.
const OWN_PREFIX: &str = "x-palimpsest-";

/// Returns the headers of a request for the upstream with the given `host`, which takes the place of the agent's.
pub(crate) fn of_request(headers: &HeaderMap, version: Version, host: &HeaderValue) -> HeaderMap {
    let mut forwarded = HeaderMap::with_capacity(headers.len() + 1);
    // HTTP/2 has no such header, and an HTTP/1.1 client sends it first.
    if !headers.contains_key(HOST) {
        forwarded.insert(HOST, host.clone());
    }
    for (name, value) in end_to_end(headers, version) {
        if name == HOST {
            forwarded.insert(HOST, host.clone());
        } else if !name.as_str().starts_with(OWN_PREFIX) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    forwarded
}

/// Returns the headers of a request with the key of the gateway in place of all credentials of the caller.
pub(crate) fn of_held_key(headers: &HeaderMap, version: Version, key: &KeyHeader) -> HeaderMap {
    let mut changed = HeaderMap::with_capacity(headers.len() + 1);
    // Headers of one connection are dropped first, because `connection` could name the header of the key.
    for (name, value) in end_to_end(headers, version) {
        if PROVIDER_KEY_HEADERS.contains(&name.as_str()) {
            // `insert` replaces, so that several credentials become one header at the place of the first.
            changed.insert(key.name.clone(), key.value.clone());
        } else {
            changed.append(name.clone(), value.clone());
        }
    }
    changed
        .entry(key.name.clone())
        .or_insert_with(|| key.value.clone());
    changed
}

/// Returns the headers of a request whose body was replaced by one of this length, without a content coding. The
/// response can have a content coding only if `permits_coding` is true.
pub(crate) fn of_changed_request(
    headers: &HeaderMap,
    length: usize,
    permits_coding: bool,
) -> HeaderMap {
    let mut changed = HeaderMap::with_capacity(headers.len() + 1);
    for (name, value) in headers {
        if *name == CONTENT_LENGTH {
            changed.insert(CONTENT_LENGTH, length.into());
        } else if *name == ACCEPT_ENCODING && !permits_coding {
            changed.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // The new body has a length and no coding. A `transfer-encoding` beside a length is ambiguous (RFC 9112).
        } else if *name != CONTENT_ENCODING && *name != TRANSFER_ENCODING {
            changed.append(name.clone(), value.clone());
        }
    }
    // A body in chunks had no length that could be replaced.
    changed
        .entry(CONTENT_LENGTH)
        .or_insert_with(|| length.into());
    changed
}

/// Returns the headers of a response whose body was replaced by one of this length.
pub(crate) fn of_changed_response(headers: &HeaderMap, length: usize) -> HeaderMap {
    of_changed_request(headers, length, true)
}

/// Returns the headers of a response whose body gets another length, which is not known yet.
pub(crate) fn without_length(headers: &HeaderMap) -> HeaderMap {
    let mut changed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if *name != CONTENT_LENGTH {
            changed.append(name.clone(), value.clone());
        }
    }
    changed
}

/// Returns the headers of a request without these values of the header `anthropic-beta`.
pub(crate) fn without_betas(headers: &HeaderMap, unused: &[&str]) -> HeaderMap {
    let mut changed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let Some(betas) = value.to_str().ok().filter(|_| *name == BETA_HEADER) else {
            changed.append(name.clone(), value.clone());
            continue;
        };
        let all = || betas.split(',').map(str::trim);
        // Such a value keeps its spelling, for example spaces around its commas.
        if !all().any(|beta| unused.contains(&beta)) {
            changed.append(name.clone(), value.clone());
            continue;
        }
        let kept: Vec<&str> = all().filter(|beta| !unused.contains(beta)).collect();
        if let Ok(kept) = HeaderValue::from_str(&kept.join(","))
            && !kept.is_empty()
        {
            changed.append(name.clone(), kept);
        }
    }
    changed
}

/// Returns the headers of a response for an agent that uses the HTTP version.
pub(crate) fn of_response(headers: &HeaderMap, version: Version) -> HeaderMap {
    let mut forwarded = HeaderMap::with_capacity(headers.len());
    for (name, value) in end_to_end(headers, version) {
        forwarded.append(name.clone(), value.clone());
    }
    forwarded
}

/// Returns the headers without those that concern a single connection.
fn end_to_end(
    headers: &HeaderMap,
    version: Version,
) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let is_http1 = version < Version::HTTP_2;
    let options = connection_options(headers);
    headers.iter().filter(move |(name, _)| {
        if *name == CONNECTION {
            // Both sides reuse connections in the same way, so the wish of one side is also true for the other.
            return is_http1 && options.iter().all(|option| is_reuse(option));
        }
        // HTTP/2 has a framing of its own, and forbids this header (RFC 9113).
        if *name == TRANSFER_ENCODING {
            return is_http1;
        }
        !is_hop_by_hop(name)
            && !options
                .iter()
                .any(|option| option.eq_ignore_ascii_case(name.as_str().as_bytes()))
    })
}

/// Returns the values of `connection`: names of headers, `keep-alive` and `close`.
fn connection_options(headers: &HeaderMap) -> Vec<&[u8]> {
    let values = headers.get_all(CONNECTION).iter();
    let options = values.flat_map(|value| value.as_bytes().split(|b| *b == b','));
    options
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
        .collect()
}

fn is_reuse(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close")
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    [TE, TRAILER, UPGRADE].contains(name)
        || name == "keep-alive"
        || name.as_str().starts_with("proxy-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns names and values as lines.
    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        headers.iter().map(line).collect()
    }

    fn map(lines: &[&str]) -> HeaderMap {
        let pair = |line: &&str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.parse().unwrap(), value.parse().unwrap())
        };
        // `collect` would replace values of repeated names.
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(pair) {
            let name: HeaderName = name;
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn the_order_stays_and_host_keeps_its_place() {
        let headers = map(&[
            "accept: */*",
            "x-palimpsest-session: s",
            "host: here",
            "te: trailers",
            "b: 1",
            "keep-alive: timeout=5",
            "a: 2",
            "proxy-authorization: x",
            "connection: keep-alive",
        ]);
        let host = HeaderValue::from_static("there");
        assert_eq!(
            lines(&of_request(&headers, Version::HTTP_11, &host)),
            [
                "accept: */*",
                "host: there",
                "b: 1",
                "a: 2",
                "connection: keep-alive"
            ]
        );
        let none = map(&["b: 1"]);
        assert_eq!(
            lines(&of_request(&none, Version::HTTP_2, &host)),
            ["host: there", "b: 1"]
        );
    }

    #[test]
    fn a_changed_body_has_its_length_at_the_old_place() {
        let headers = map(&[
            "a: 1",
            "content-length: 5",
            "content-encoding: zstd",
            "b: 2",
        ]);
        let changed = of_changed_request(&headers, 7, true);
        assert_eq!(lines(&changed), ["a: 1", "content-length: 7", "b: 2"]);
        let chunked = map(&["transfer-encoding: chunked", "a: 1"]);
        let changed = of_changed_request(&chunked, 7, true);
        assert_eq!(lines(&changed), ["a: 1", "content-length: 7"]);
    }

    #[test]
    fn only_unused_betas_are_removed() {
        let check = |given: &[&str], expected: &[&str]| {
            let changed = without_betas(&map(given), &["x-1", "y-2"]);
            assert_eq!(lines(&changed), expected);
        };
        check(
            &["a: 1", "anthropic-beta: z-1, x-1,w-1", "b: x-1"],
            &["a: 1", "anthropic-beta: z-1,w-1", "b: x-1"],
        );
        check(
            &[
                "anthropic-beta: x-1,y-2",
                "anthropic-beta: z-1 , z-2",
                "a: 1",
            ],
            &["anthropic-beta: z-1 , z-2", "a: 1"],
        );
        check(&["anthropic-beta: x-1", "a: 1"], &["a: 1"]);
    }

    #[test]
    fn a_held_key_replaces_every_credential_at_the_place_of_the_first() {
        let key = KeyHeader {
            name: HeaderName::from_static("x-api-key"),
            value: HeaderValue::from_static("held"),
        };
        let check = |given: &[&str], expected: &[&str]| {
            let changed = of_held_key(&map(given), Version::HTTP_11, &key);
            assert_eq!(lines(&changed), expected);
        };
        let several = [
            "a: 1",
            "authorization: Bearer plk_1",
            "b: 2",
            "x-api-key: plk_1",
            "x-api-key: plk_2",
            "api-key: plk_1",
        ];
        check(&several, &["a: 1", "x-api-key: held", "b: 2"]);
        check(&["a: 1"], &["a: 1", "x-api-key: held"]);
        // A caller cannot have the key dropped again.
        check(
            &["connection: x-api-key, a", "a: 1", "x-api-key: plk_1"],
            &["x-api-key: held"],
        );
    }

    #[test]
    fn headers_that_connection_names_are_dropped() {
        let headers = map(&[
            "x-a: 1",
            "x-b: 2",
            "connection: close, X-A",
            "x-palimpsest-c: 3",
        ]);
        assert_eq!(
            lines(&of_response(&headers, Version::HTTP_11)),
            ["x-b: 2", "x-palimpsest-c: 3"]
        );
    }

    #[test]
    fn http2_gets_no_header_of_a_connection() {
        let headers = map(&["connection: close", "transfer-encoding: chunked", "a: 1"]);
        assert_eq!(lines(&of_response(&headers, Version::HTTP_2)), ["a: 1"]);
        assert_eq!(
            lines(&of_response(&headers, Version::HTTP_11)),
            ["connection: close", "transfer-encoding: chunked", "a: 1"]
        );
    }
}

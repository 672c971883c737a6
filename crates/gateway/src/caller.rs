//! Admits the caller of a request: its credential, its project, its right and the quotas of the project.
//!
//! The credential of Palimpsest has a header of its own, because the usual headers contain the key of the provider. If
//! the gateway holds this key, the usual headers can contain the credential too, because clients insist on a key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST, ORIGIN};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use palimpsest_core::ids::ProjectId;
use palimpsest_edge::access::{AuthError, Authenticator, ProjectSet, Right, key};
use palimpsest_engine::quotas::{QuotaDemand, QuotaExceeded, QuotaPermit, QuotaTracker};

use super::call::GatewayCall;
use super::held_key;
use super::request_body::AgentBody;

/// The header of the credential of Palimpsest. No header with its prefix is forwarded.
pub(crate) const KEY_HEADER: &str = "x-palimpsest-key";
/// The headers of the provider's key.
pub(crate) const PROVIDER_KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "api-key"];
/// The beginning of a path that names a project.
const PROJECT_PREFIX: &str = "/p/";
/// The project of a request that names none while authentication is off.
const DEFAULT_PROJECT: &str = "default";

/// The reason for rejecting the caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The credential is missing or invalid.
    Credential(AuthError),
    /// A header of the provider contains a key of Palimpsest, which must not leave.
    MisplacedKey,
    /// The path names no valid project.
    ProjectName,
    /// The credential grants several projects, and the path names none.
    NoProject,
    /// The project does not exist for the credential.
    ProjectNotFound(ProjectId),
    /// The credential lacks the right in the project.
    Forbidden(Right, ProjectId),
    /// The request concerns the account of the provider, and the credential lacks the right in all projects.
    Account(Right),
    /// A web page could have sent the request, and no credential proves otherwise.
    WebPage,
    /// A quota is exceeded.
    Quota(QuotaExceeded),
}

impl Rejection {
    /// Returns the time after which the request can succeed.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Quota(exceeded) => exceeded.retry_after,
            _ => None,
        }
    }
}

/// Admits callers.
#[derive(Debug)]
pub(crate) struct Callers {
    /// `None` if authentication is off.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    /// `None` if nothing is limited.
    pub(crate) quotas: Option<Arc<QuotaTracker>>,
}

/// A caller that may send its request.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) project: ProjectId,
}

impl Callers {
    /// Authenticates and authorizes a request. `project` is the project in its path. `holds_key` is true if the gateway
    /// holds the key of the request's upstream, and `is_own` if the gateway answers the request itself.
    pub(crate) fn authorize(
        &self,
        request: &Request<AgentBody>,
        project: Option<ProjectId>,
        (holds_key, is_own): (bool, bool),
        call: &GatewayCall,
    ) -> Result<Caller, Rejection> {
        let (method, path) = (request.method(), request.uri().path());
        let headers = request.headers();
        // Without a key of the provider, its headers can contain the credential.
        let has_usual_headers = holds_key || is_own;
        // Checked even without authentication, because the header would be forwarded to the provider.
        if !has_usual_headers && has_misplaced_key(headers) {
            return Err(Rejection::MisplacedKey);
        }
        let Some(authenticator) = &self.authenticator else {
            // The port is on a loopback address, which web pages in a browser of this machine can reach too.
            if holds_key && is_of_web_page(headers, request.uri()) {
                return Err(Rejection::WebPage);
            }
            let default = || ProjectId::new(DEFAULT_PROJECT).map_err(|_| Rejection::ProjectName);
            let project = project.map_or_else(default, Ok)?;
            call.of_project(&project);
            return Ok(Caller { project });
        };
        let credential = credential(headers, has_usual_headers);
        let principal = authenticator.principal(credential).map_err(|error| {
            tracing::debug!(%error, "rejected a credential");
            Rejection::Credential(error)
        })?;
        call.by(&principal);
        let granted = &principal.grant.projects;
        let project = match (project, granted) {
            (Some(project), _) => project,
            (None, ProjectSet::Of(projects)) if projects.len() == 1 => {
                projects.first().cloned().ok_or(Rejection::NoProject)?
            }
            (None, _) => return Err(Rejection::NoProject),
        };
        // Checked before the right: an error about the right would confirm that the project exists.
        if !granted.contains(&project) {
            return Err(Rejection::ProjectNotFound(project));
        }
        call.of_project(&project);
        let right = call.right();
        if !principal.grant.rights.contains(&right) {
            return Err(Rejection::Forbidden(right, project));
        }
        // All projects share the account of the key, so this access concerns all of them.
        let is_operator = granted.is_all() && principal.grant.rights.contains(&Right::Admin);
        if holds_key && !is_operator && !held_key::is_model_request(method, path) {
            return Err(Rejection::Account(Right::Admin));
        }
        Ok(Caller { project })
    }

    /// Takes the quotas of a request. The permit is kept until the end of the response.
    pub(crate) fn take_quota(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<Option<QuotaPermit>, Rejection> {
        let Some(quotas) = &self.quotas else {
            return Ok(None);
        };
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        let demand = QuotaDemand {
            watch: false,
            // A body in chunks has no length in advance, and is not stored.
            bytes: length.and_then(|length| length.parse().ok()).unwrap_or(0),
        };
        quotas
            .admit(&caller.project, demand)
            .map_err(Rejection::Quota)
    }
}

/// Removes the project from a target such as `/p/team/v1/messages`. Returns it.
pub(crate) fn take_project(target: &mut Uri) -> Result<Option<ProjectId>, Rejection> {
    let Some(path) = target.path_and_query().map(PathAndQuery::as_str) else {
        return Ok(None);
    };
    let Some(rest) = path.strip_prefix(PROJECT_PREFIX) else {
        return Ok(None);
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let project = ProjectId::new(name).map_err(|_| Rejection::ProjectName)?;
    // `/p/team` and `/p/team?x=1` have no path behind the project, and a target without a path is invalid.
    let rest = if rest.starts_with('/') {
        PathAndQuery::try_from(rest)
    } else {
        PathAndQuery::try_from(format!("/{rest}"))
    };
    let mut parts = std::mem::take(target).into_parts();
    parts.path_and_query = Some(rest.map_err(|_| Rejection::ProjectName)?);
    *target = Uri::from_parts(parts).map_err(|_| Rejection::ProjectName)?;
    Ok(Some(project))
}

/// Returns the right that a request needs. A count of tokens and the read of an original change nothing.
pub(crate) fn required_right(method: &Method, path: &str) -> Right {
    let counts = *method == Method::POST && path.ends_with("/messages/count_tokens");
    let reads = *method == Method::GET && path.starts_with("/v1/retrieve/");
    if counts || reads {
        Right::Read
    } else {
        Right::Write
    }
}

/// Returns the credential of Palimpsest. Without a header of its own, it is in a header of the provider's key if the
/// provider's key is not the caller's.
fn credential(headers: &HeaderMap, has_usual_headers: bool) -> Result<&str, AuthError> {
    if !has_usual_headers || headers.contains_key(KEY_HEADER) {
        let mut values = headers.get_all(KEY_HEADER).iter();
        let value = values.next().ok_or(AuthError::Missing)?;
        if values.next().is_some() {
            return Err(AuthError::Several);
        }
        return value.to_str().map_err(|_| AuthError::Scheme);
    }
    let values = PROVIDER_KEY_HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name));
    // Clients of Anthropic send `x-api-key: KEY`, and those of OpenAI `authorization: Bearer KEY`. The name of a scheme
    // ignores case (RFC 9110).
    let mut words = values.map(|value| {
        let text = value.to_str().map_err(|_| AuthError::Scheme)?.trim();
        Ok(match text.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
            _ => text,
        })
    });
    let first = words.next().ok_or(AuthError::Missing)??;
    // Some clients send one key in two headers. Different keys are ambiguous.
    for word in words {
        if word? != first {
            return Err(AuthError::Several);
        }
    }
    Ok(first)
}

/// Returns true if a web page could have sent a request: browsers add `origin`, and a name that a page has bound to this
/// machine differs from the names of loopback addresses.
fn is_of_web_page(headers: &HeaderMap, target: &Uri) -> bool {
    if headers.contains_key(ORIGIN) {
        return true;
    }
    let of_header = headers.get(HOST).and_then(|host| host.to_str().ok());
    let of_header = of_header.and_then(|host| host.parse::<Authority>().ok());
    let authority = target.authority().or(of_header.as_ref());
    let Some(host) = authority.map(Authority::host) else {
        // Browsers always send a host that can be read.
        return headers.contains_key(HOST);
    };
    // `host` keeps the brackets of an IPv6 address, and `IpAddr` accepts none.
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok();
    !is_local
}

/// Returns true if a header of the provider's key contains a key of Palimpsest, with or without a scheme before it.
fn has_misplaced_key(headers: &HeaderMap) -> bool {
    let values = PROVIDER_KEY_HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name));
    // Bytes are searched, because a value need not be text. A key beside an invalid character would otherwise leave.
    let mut words =
        values.flat_map(|value: &HeaderValue| value.as_bytes().split(u8::is_ascii_whitespace));
    words.any(|word| word.starts_with(key::PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_in_the_path_is_not_forwarded() {
        let check = |path: &str, project: Option<&str>, forwarded: &str| {
            let mut target: Uri = path.parse().unwrap();
            let taken = take_project(&mut target).unwrap();
            assert_eq!(taken.as_ref().map(ProjectId::as_str), project, "{path}");
            assert_eq!(target, forwarded, "{path}");
        };
        check(
            "/p/team-a/v1/messages?beta=%2f",
            Some("team-a"),
            "/v1/messages?beta=%2f",
        );
        check("/p/team-a", Some("team-a"), "/");
        check("/p/team-a?x=1", Some("team-a"), "/?x=1");
        check("http://host/p/a/v1", Some("a"), "http://host/v1");
        check("/v1/p/team-a", None, "/v1/p/team-a");
        for path in ["/p/", "/p//v1", "/p/a%20b/v1"] {
            let mut target: Uri = path.parse().unwrap();
            assert_eq!(
                take_project(&mut target),
                Err(Rejection::ProjectName),
                "{path}"
            );
        }
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_usual_headers_contain_the_credential_only_with_a_held_key() {
        let check = |all: &[_], holds_key, expected: Result<&str, AuthError>| {
            assert_eq!(credential(&headers(all), holds_key), expected, "{all:?}");
        };
        let plain = [("x-api-key", "plk_1")];
        check(&plain, true, Ok("plk_1"));
        check(&plain, false, Err(AuthError::Missing));
        check(&[("api-key", "plk_1")], true, Ok("plk_1"));
        check(&[("authorization", "bearer  plk_1 ")], true, Ok("plk_1"));
        let own = [("x-palimpsest-key", "plk_1"), ("x-api-key", "unused")];
        check(&own, true, Ok("plk_1"));
        let same = [("x-api-key", "plk_1"), ("authorization", "Bearer plk_1")];
        check(&same, true, Ok("plk_1"));
        let other = [("x-api-key", "plk_1"), ("authorization", "Bearer plk_2")];
        check(&other, true, Err(AuthError::Several));
        check(&[], true, Err(AuthError::Missing));
    }

    #[test]
    fn requests_that_a_web_page_could_send_are_recognized() {
        let check = |all: &[_], target: &str, expected| {
            let found = is_of_web_page(&headers(all), &target.parse().unwrap());
            assert_eq!(found, expected, "{all:?} {target}");
        };
        for host in ["127.0.0.1:1", "[::1]:1", "localhost:1", "LOCALHOST"] {
            check(&[("host", host)], "/", false);
        }
        check(&[], "/", false);
        check(&[], "http://127.0.0.1:1/", false);
        // A page can bind its own name to 127.0.0.1 (DNS rebinding). The name in the request reveals it.
        check(&[], "http://rebound.example/", true);
        check(&[("host", "rebound.example:1")], "/", true);
        check(&[("host", "a b")], "/", true);
        let page = [("host", "127.0.0.1:1"), ("origin", "https://a.example")];
        check(&page, "/", true);
    }

    #[test]
    fn only_reads_need_no_right_to_write() {
        let right = |method, path| required_right(&method, path);
        assert_eq!(right(Method::GET, "/v1/retrieve/0a"), Right::Read);
        assert_eq!(right(Method::POST, "/v1/compress"), Right::Write);
        assert_eq!(
            right(Method::POST, "/v1/messages/count_tokens"),
            Right::Read
        );
        assert_eq!(right(Method::POST, "/v1/messages"), Right::Write);
        assert_eq!(right(Method::GET, "/v1/models"), Right::Write);
    }
}

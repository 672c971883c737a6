//! Admits the caller of a request: its credential, its project, its right and the quotas of the project.
//!
//! The credential of Palimpsest has a header of its own, because the usual headers contain the key of the provider.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri};
use palimpsest_core::ids::ProjectId;
use palimpsest_edge::access::{AuthError, Authenticator, ProjectSet, Right, key};
use palimpsest_engine::quotas::{QuotaDemand, QuotaExceeded, QuotaPermit, QuotaTracker};

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
    /// Authenticates and authorizes a request. `project` is the project in its path. `is_own` is true if the gateway
    /// answers the request itself.
    pub(crate) fn authorize(
        &self,
        method: &Method,
        path: &str,
        project: Option<ProjectId>,
        (headers, is_own): (&HeaderMap, bool),
    ) -> Result<Caller, Rejection> {
        if !is_own && has_misplaced_key(headers) {
            return Err(Rejection::MisplacedKey);
        }
        let Some(authenticator) = &self.authenticator else {
            let default = || ProjectId::new(DEFAULT_PROJECT).map_err(|_| Rejection::ProjectName);
            return Ok(Caller {
                project: project.map_or_else(default, Ok)?,
            });
        };
        let credential = credential(headers, is_own);
        let principal = authenticator.principal(credential).map_err(|error| {
            tracing::debug!(%error, "rejected a credential");
            Rejection::Credential(error)
        })?;
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
        let right = required_right(method, path);
        if !principal.grant.rights.contains(&right) {
            return Err(Rejection::Forbidden(right, project));
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
fn required_right(method: &Method, path: &str) -> Right {
    let counts = *method == Method::POST && path.ends_with("/messages/count_tokens");
    let reads = *method == Method::GET && path.starts_with("/v1/retrieve/");
    if counts || reads {
        Right::Read
    } else {
        Right::Write
    }
}

/// Returns the credential of Palimpsest.
///
/// A request that the gateway answers itself has no key of a provider, so `authorization` can contain the credential.
/// Guardrails can send no other header.
fn credential(headers: &HeaderMap, is_own: bool) -> Result<&str, AuthError> {
    let is_bearer = is_own && !headers.contains_key(KEY_HEADER);
    let mut values = if is_bearer {
        headers.get_all(AUTHORIZATION).iter()
    } else {
        headers.get_all(KEY_HEADER).iter()
    };
    let value = values.next().ok_or(AuthError::Missing)?;
    if values.next().is_some() {
        return Err(AuthError::Several);
    }
    let text = value.to_str().map_err(|_| AuthError::Scheme)?;
    if !is_bearer {
        return Ok(text);
    }
    let (scheme, credential) = text.trim().split_once(' ').ok_or(AuthError::Scheme)?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then_some(credential).ok_or(AuthError::Scheme)
}

/// Returns true if a header of the provider's key contains a key of Palimpsest, with or without a scheme before it.
fn has_misplaced_key(headers: &HeaderMap) -> bool {
    let values = PROVIDER_KEY_HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name));
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

    #[test]
    fn the_gateway_s_own_routes_accept_a_bearer_token() {
        let of = |headers: &[(&'static str, &'static str)], is_own| {
            let headers = headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let headers: HeaderMap = headers.collect();
            credential(&headers, is_own).map(str::to_owned)
        };
        let bearer = ("authorization", "Bearer plk_a");
        let own = ("x-palimpsest-key", "plk_b");
        assert_eq!(of(&[bearer], true).as_deref(), Ok("plk_a"));
        assert_eq!(of(&[bearer, own], true).as_deref(), Ok("plk_b"));
        assert_eq!(of(&[bearer], false), Err(AuthError::Missing));
        assert_eq!(of(&[bearer, bearer], true), Err(AuthError::Several));
        assert_eq!(
            of(&[("authorization", "Basic YQ==")], true),
            Err(AuthError::Scheme)
        );
        assert_eq!(of(&[], true), Err(AuthError::Missing));
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

//! The routes of the REST API. Each rpc of the services for agents has one.

use http::Method;
use percent_encoding::percent_decode_str;

const CONTEXT: &str = "palimpsest.context.v1.ContextService";
const SESSIONS: &str = "palimpsest.context.v1.SessionService";

/// The resource that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `/v1/projects/{project}`.
    Project,
    /// `/v1/projects/{project}/sessions/{session}`.
    Session,
}

/// The place of a request's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameters {
    Query,
    Body,
    /// The body of a model request, with parameters in its field `palimpsest`.
    ModelRequest,
}

/// A route to an rpc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) method: RouteMethod,
    pub(crate) resource: Resource,
    /// The part of the path after the resource, such as `/messages` or `:sync`.
    pub(crate) rest: &'static str,
    pub(crate) service: &'static str,
    pub(crate) rpc: &'static str,
    /// The field of the request with the name of the resource.
    pub(crate) name_field: &'static str,
    pub(crate) parameters: Parameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteMethod {
    Get,
    Post,
    Patch,
    Delete,
}

impl RouteMethod {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl Route {
    /// Returns the path of the rpc.
    pub(crate) fn path(&self) -> String {
        format!("/{}/{}", self.service, self.rpc)
    }

    /// Returns the path of the route, with parameters in braces.
    pub(crate) fn template(&self) -> String {
        let resource = match self.resource {
            Resource::Project => "/v1/projects/{project}",
            Resource::Session => "/v1/projects/{project}/sessions/{session}",
        };
        format!("{resource}{}", self.rest)
    }
}

const fn read(rest: &'static str, service: &'static str, rpc: &'static str) -> Route {
    Route {
        method: RouteMethod::Get,
        resource: Resource::Session,
        rest,
        service,
        rpc,
        name_field: "session",
        parameters: Parameters::Query,
    }
}

const fn act(rest: &'static str, service: &'static str, rpc: &'static str) -> Route {
    Route {
        method: RouteMethod::Post,
        parameters: Parameters::Body,
        ..read(rest, service, rpc)
    }
}

/// All routes.
pub(crate) const ROUTES: [Route; 28] = [
    Route {
        parameters: Parameters::ModelRequest,
        ..act(":sync", CONTEXT, "SyncContext")
    },
    act(":prepare", CONTEXT, "PrepareContext"),
    act(":append", CONTEXT, "AppendMessages"),
    act(":stream", CONTEXT, "StreamContext"),
    act(":compact", CONTEXT, "Compact"),
    act(":commitSummary", CONTEXT, "CommitSummary"),
    act(":snip", CONTEXT, "Snip"),
    act(":persistToolResult", CONTEXT, "PersistToolResult"),
    act(":readToolResult", CONTEXT, "ReadToolResult"),
    act(":restore", CONTEXT, "RestoreContext"),
    act(":rewind", CONTEXT, "RewindSession"),
    act(":updateSessionMemory", CONTEXT, "UpdateSessionMemory"),
    act(":updateWorkingState", CONTEXT, "UpdateWorkingState"),
    act(":callTool", CONTEXT, "CallTool"),
    read("/tools", CONTEXT, "ListTools"),
    read("/memory", CONTEXT, "GetSessionMemory"),
    Route {
        resource: Resource::Project,
        name_field: "parent",
        ..read("/sessions", SESSIONS, "ListSessions")
    },
    Route {
        resource: Resource::Project,
        name_field: "parent",
        ..act("/sessions", SESSIONS, "CreateSession")
    },
    read("", SESSIONS, "GetSession"),
    Route {
        method: RouteMethod::Patch,
        name_field: "session.name",
        ..act("", SESSIONS, "UpdateSession")
    },
    // The body of a `DELETE` has no defined meaning in HTTP, so the parameters are in the query.
    Route {
        method: RouteMethod::Delete,
        ..read("", SESSIONS, "DeleteSession")
    },
    act(":fork", SESSIONS, "ForkSession"),
    read("/view", SESSIONS, "GetView"),
    read("/messages", SESSIONS, "ListMessages"),
    act("/messages:search", SESSIONS, "SearchMessages"),
    read("/events", SESSIONS, "ListEvents"),
    read("/events:watch", SESSIONS, "WatchSession"),
    read(":export", SESSIONS, "ExportTranscript"),
];

/// The route of a request, with the name of its resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    pub(crate) route: &'static Route,
    pub(crate) name: String,
}

/// The reason for a request without a route.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// No route has the path.
    Path,
    /// Routes with the path have these methods.
    Method(Vec<&'static str>),
}

/// Finds the route of a request.
pub(crate) fn find(method: &Method, path: &str) -> Result<Matched, NoRoute> {
    let (resource, name, rest) = resource_of(path).ok_or(NoRoute::Path)?;
    let of_path = ROUTES
        .iter()
        .filter(|route| route.resource == resource && route.rest == rest);
    let mut methods = Vec::new();
    for route in of_path {
        if route.method.name() == method.as_str() {
            return Ok(Matched { route, name });
        }
        methods.push(route.method.name());
    }
    Err(if methods.is_empty() {
        NoRoute::Path
    } else {
        NoRoute::Method(methods)
    })
}

/// Splits a path into its resource, the name of the resource and the rest.
fn resource_of(path: &str) -> Option<(Resource, String, &str)> {
    let path = path.strip_prefix("/v1/projects/")?;
    let (project, rest) = split(path)?;
    let Some(session) = rest.strip_prefix("/sessions/") else {
        return Some((Resource::Project, format!("projects/{project}"), rest));
    };
    let (session, rest) = split(session)?;
    Some((
        Resource::Session,
        format!("projects/{project}/sessions/{session}"),
        rest,
    ))
}

/// Splits a path after its first id.
fn split(path: &str) -> Option<(String, &str)> {
    // `/` begins a part of the resource and `:` an action: `a/messages`, `a:sync`.
    let end = path.find(['/', ':']).unwrap_or(path.len());
    let (id, rest) = path.split_at(end);
    let id = percent_decode_str(id).decode_utf8().ok()?;
    // A slash inside of an id would name another resource.
    (!id.is_empty() && !id.contains('/')).then(|| (id.into_owned(), rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use palimpsest_proto::FILE_DESCRIPTOR_SET;
    use prost_reflect::DescriptorPool;

    use super::*;

    fn rpc(method: &Method, path: &str) -> Result<(&'static str, String), NoRoute> {
        find(method, path).map(|found| (found.route.rpc, found.name))
    }

    #[test]
    fn each_rpc_for_agents_has_one_route() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = pool
            .services()
            .filter(|one| [CONTEXT, SESSIONS].contains(&one.full_name()));
        let methods = services.flat_map(|one| one.methods().collect::<Vec<_>>());
        let expected: BTreeSet<_> = methods
            .map(|one| format!("/{}/{}", one.parent_service().full_name(), one.name()))
            .collect();
        let routed: BTreeSet<_> = ROUTES.iter().map(Route::path).collect();
        assert_eq!(routed, expected);
        let places: BTreeSet<_> = ROUTES
            .iter()
            .map(|one| (one.method.name(), one.template()))
            .collect();
        assert_eq!(places.len(), ROUTES.len());
    }

    #[test]
    fn paths_name_resources() {
        let session = "projects/demo/sessions/a".to_owned();
        assert_eq!(
            rpc(&Method::POST, "/v1/projects/demo/sessions/a:sync"),
            Ok(("SyncContext", session.clone()))
        );
        assert_eq!(
            rpc(&Method::GET, "/v1/projects/demo/sessions/a"),
            Ok(("GetSession", session.clone()))
        );
        assert_eq!(
            rpc(&Method::GET, "/v1/projects/demo/sessions/a/events:watch"),
            Ok(("WatchSession", session))
        );
        assert_eq!(
            rpc(&Method::GET, "/v1/projects/demo/sessions"),
            Ok(("ListSessions", "projects/demo".to_owned()))
        );
        let decoded = "projects/demo/sessions/a b".to_owned();
        assert_eq!(
            rpc(&Method::GET, "/v1/projects/demo/sessions/a%20b"),
            Ok(("GetSession", decoded))
        );
    }

    #[test]
    fn other_paths_and_methods_have_no_route() {
        for path in [
            "/",
            "/v1",
            "/v1/projects/",
            "/v1/projects/demo",
            "/v1/projects/demo/sessions/a:unknown",
            "/v1/projects/a%2Fb/sessions",
        ] {
            assert_eq!(rpc(&Method::POST, path), Err(NoRoute::Path), "{path}");
        }
        assert_eq!(
            rpc(&Method::GET, "/v1/projects/demo/sessions/a:sync"),
            Err(NoRoute::Method(vec!["POST"]))
        );
        let methods = vec!["GET", "PATCH", "DELETE"];
        assert_eq!(
            rpc(&Method::PUT, "/v1/projects/demo/sessions/a"),
            Err(NoRoute::Method(methods))
        );
    }
}

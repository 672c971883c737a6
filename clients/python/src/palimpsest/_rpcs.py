"""The rpcs that the package calls, with their paths in the HTTP API."""

from __future__ import annotations

from typing import NamedTuple

_CONTEXT = "palimpsest.context.v1.ContextService"
_SESSION = "palimpsest.context.v1.SessionService"


class Rpc(NamedTuple):
    """An rpc of the contract.

    `path` follows the resource in the URL, and `resource` is the field of the request with the name of the resource.
    """

    service: str
    name: str
    method: str
    path: str
    resource: str = "session"


RPCS = {
    rpc.name: rpc
    for rpc in (
        Rpc(_CONTEXT, "SyncContext", "POST", ":sync"),
        Rpc(_CONTEXT, "StreamContext", "POST", ":stream"),
        Rpc(_CONTEXT, "AppendMessages", "POST", ":append"),
        Rpc(_CONTEXT, "RewindSession", "POST", ":rewind"),
        Rpc(_CONTEXT, "Compact", "POST", ":compact"),
        Rpc(_CONTEXT, "RestoreContext", "POST", ":restore"),
        Rpc(_CONTEXT, "ListTools", "GET", "/tools"),
        Rpc(_CONTEXT, "CallTool", "POST", ":callTool"),
        Rpc(_CONTEXT, "GetSessionMemory", "GET", "/memory"),
        Rpc(_SESSION, "ListSessions", "GET", "", "parent"),
        Rpc(_SESSION, "CreateSession", "POST", "", "parent"),
        Rpc(_SESSION, "GetSession", "GET", ""),
        Rpc(_SESSION, "UpdateSession", "PATCH", "", "session.name"),
        Rpc(_SESSION, "DeleteSession", "DELETE", ""),
        Rpc(_SESSION, "ListMessages", "GET", "/messages"),
        Rpc(_SESSION, "SearchMessages", "POST", "/messages:search"),
        Rpc(_SESSION, "ListEvents", "GET", "/events"),
        Rpc(_SESSION, "WatchSession", "GET", "/events:watch"),
    )
}

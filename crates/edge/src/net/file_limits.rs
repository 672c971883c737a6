//! The limit of file handles and its division among connections.

/// The divisor of the limit for the reserve: file handles for the store, for files and for outgoing connections.
const RESERVED_PART: usize = 4;
const MIN_RESERVE: usize = 32;
const MAX_RESERVE: usize = 1_024;
/// The maximum number of admin connections. Probes and scrapes need only a few.
const MAX_ADMIN: usize = 64;
/// The divisor of all connections for the share of the admin port.
const ADMIN_PART: usize = 16;
/// The file handles of one gateway connection: the agent's socket and the socket to the upstream.
const GATEWAY_HANDLES: usize = 2;

/// Raises the soft limit of file handles to the hard limit. Returns the resulting limit, if the system has one.
///
/// Most systems default to a soft limit of 1,024, for programs that use `select`.
pub fn raise_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        if limit.current == limit.maximum {
            return limit.current;
        }
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            // The server also works with the lower limit, so the start continues.
            Err(error) => {
                tracing::warn!(%error, "failed to raise the limit of file handles");
                limit.current
            }
        }
    }
    #[cfg(not(unix))]
    None
}

/// Returns the current soft limit of file handles.
fn limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).current
    }
    #[cfg(not(unix))]
    None
}

/// The maximum number of connections of each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum of the gRPC port.
    pub grpc: usize,
    /// The maximum of the HTTP gateway. 0 without a gateway.
    pub gateway: usize,
    /// The maximum of the admin port.
    pub admin: usize,
}

impl ConnectionLimits {
    /// Computes the limits of this process from the configured maxima of the gRPC port and of the gateway.
    ///
    /// A lower limit of file handles reduces the numbers, which is logged.
    pub fn of_process(max_connections: usize, max_gateway: usize) -> Self {
        let limit = limit();
        let share = Self::of(limit, max_connections, max_gateway);
        tracing::info!(
            file_handles = limit,
            grpc_connections = share.grpc,
            gateway_connections = share.gateway,
            admin_connections = share.admin,
            "connection limits computed"
        );
        if share.grpc < max_connections {
            tracing::warn!(
                max_connections,
                "the limit of file handles is below grpc.max_connections; raise it (ulimit -n)"
            );
        }
        if share.gateway < max_gateway {
            tracing::warn!(
                max_connections = max_gateway,
                "the limit of file handles is below gateway.max_connections; raise it (ulimit -n)"
            );
        }
        share
    }

    fn of(limit: Option<u64>, max_connections: usize, max_gateway: usize) -> Self {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        // Without a limit of the system, only the configured maxima count.
        let limit = limit.unwrap_or(usize::MAX);
        let reserve = (limit / RESERVED_PART).clamp(MIN_RESERVE, MAX_RESERVE);
        // At least one connection for each port.
        let connections = limit.saturating_sub(reserve).max(2);
        // A separate part: a flood on the gRPC port must not lock out the probes of the admin port.
        let admin = (connections / ADMIN_PART).clamp(1, MAX_ADMIN);
        let ports = connections - admin;
        // The gateway gets at most half of the handles, so that it cannot lock out the gRPC port.
        let gateway = max_gateway.min((ports / 2 / GATEWAY_HANDLES).max(1));
        Self {
            grpc: max_connections.min(ports.saturating_sub(gateway * GATEWAY_HANDLES).max(1)),
            gateway,
            admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limits_reserve_file_handles_for_the_store() {
        let share = |limit| ConnectionLimits::of(limit, 4_096, 0);
        // A quarter of the handles is reserved. The admin port gets a sixteenth of the other 768.
        let ConnectionLimits { grpc, admin, .. } = share(Some(1_024));
        assert_eq!((grpc, admin), (720, 48));
        assert_eq!(grpc + admin, 1_024 - 256);
        assert_eq!(share(Some(1 << 20)).grpc, 4_096);
        assert_eq!(
            share(None),
            ConnectionLimits {
                grpc: 4_096,
                gateway: 0,
                admin: 64
            }
        );
        // 16 handles are fewer than the minimum reserve, so each port keeps only its guaranteed connection.
        let ConnectionLimits { grpc, admin, .. } = share(Some(16));
        assert_eq!((grpc, admin), (1, 1));
    }

    #[test]
    fn a_gateway_leaves_half_of_the_handles_to_the_grpc_port() {
        let share = |limit| ConnectionLimits::of(limit, 4_096, 4_096);
        let ConnectionLimits { grpc, gateway, .. } = share(Some(1_024));
        // Half of the 720 handles is enough for 180 connections with two handles each.
        assert_eq!((grpc, gateway), (360, 180));
        let ConnectionLimits { grpc, gateway, .. } = share(None);
        assert_eq!((grpc, gateway), (4_096, 4_096));
    }
}

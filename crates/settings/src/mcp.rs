//! Settings of the Model Context Protocol (MCP) over HTTP.

use crate::value::with_defaults;

with_defaults! {
    /// The Model Context Protocol, as a part of the HTTP API.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct McpConfig {
        /// True if the protocol is served at `/mcp`. Default: true.
        pub enabled: bool = true,
        /// True if clients may remove user turns from the view of a session. Default: false.
        pub allow_snip: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_only_read_by_default() {
        let default = McpConfig::default();
        assert!(default.enabled && !default.allow_snip);
    }
}

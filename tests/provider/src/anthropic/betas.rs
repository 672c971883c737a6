//! The header `anthropic-beta`, and the fields that need one of its values.

use axum::http::HeaderMap;
use serde_json::Value;

use crate::refusal::Refusal;

/// The known values. The last ones are those of Claude Code that no SDK lists.
const KNOWN: [&str; 65] = [
    "advisor-tool-2026-03-01",
    "agent-memory-2026-07-22",
    "cache-diagnosis-2026-04-07",
    "code-execution-2025-05-22",
    "code-execution-2025-08-25",
    "compact-2026-01-12",
    "compact-2026-09-04",
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "dev-full-thinking-2025-05-14",
    "extended-cache-ttl-2025-04-11",
    "fallback-credit-2026-06-01",
    "fallback-credit-2026-07-01",
    "fast-mode-2026-02-01",
    "files-api-2025-04-14",
    "fine-grained-tool-streaming-2025-05-14",
    "inline-tools-2026-09-15",
    "interleaved-thinking-2025-05-14",
    "max-tokens-3-5-sonnet-2024-07-15",
    "mcp-client-2025-04-04",
    "mcp-client-2025-11-20",
    "mcp-client-2026-09-15",
    "message-batches-2024-09-24",
    "message-threads-2026-08-12",
    "mid-conversation-output-config-2026-07-01",
    "mid-conversation-system-2026-04-07",
    "mid-conversation-system-clear-at-2026-08-21",
    "mid-conversation-tool-changes-2026-07-01",
    "model-context-window-exceeded-2025-08-26",
    "output-128k-2025-02-19",
    "output-300k-2026-03-24",
    "pdfs-2024-09-25",
    "prompt-caching-2024-07-31",
    "server-side-fallback-2026-06-01",
    "server-side-fallback-2026-07-01",
    "skills-2025-10-02",
    "structured-outputs-2025-11-13",
    "structured-outputs-2025-12-15",
    "task-budgets-2026-03-13",
    "thinking-binding-controls-2026-08-01",
    "thinking-display-updates-2026-08-18",
    "thinking-token-count-2026-05-13",
    "token-counting-2024-11-01",
    "token-efficient-tools-2025-02-19",
    "user-profiles-2026-03-24",
    "user-profiles-2026-08-18",
    "user-profiles-2026-09-04",
    "user-profiles-billing-2026-10-01",
    "web-fetch-2025-09-10",
    "web-search-2025-03-05",
    "advanced-tool-use-2025-11-20",
    "ccr-byoc-2025-07-29",
    "claude-code-20250219",
    "context-hint-2026-04-09",
    "effort-2025-11-24",
    "environments-2025-11-01",
    "oauth-2025-04-20",
    "per-turn-control-2026-07-01",
    "prompt-caching-scope-2026-01-05",
    "redact-thinking-2026-02-12",
    "summarize-connector-text-2026-03-13",
    "tool-examples-2025-10-29",
];
/// Fields of a request and the beginning of the value that each needs.
const FIELDS: [(&str, &str); 10] = [
    ("billing_policy", "user-profiles-billing-"),
    ("compaction", "compact-2026-09-04"),
    ("diagnostics", "cache-diagnosis-"),
    ("fallback_credit_token", "fallback-credit-"),
    ("fallbacks", "server-side-fallback-"),
    ("mcp_servers", "mcp-client-"),
    ("output_format", "structured-outputs-"),
    ("speed", "fast-mode-"),
    ("thread", "message-threads-"),
    ("user_profile_id", "user-profiles-"),
];

/// The betas of a request.
pub(super) struct Betas(Vec<String>);

impl Betas {
    /// Returns the values of the header. An unknown one is an error.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        // The header can occur several times, and each value can be a list.
        let values = headers.get_all("anthropic-beta").iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let betas: Vec<String> = values
            .flat_map(|value| value.split(','))
            .map(|beta| beta.trim().to_owned())
            .filter(|beta| !beta.is_empty())
            .collect();
        let unknown = betas.iter().find(|beta| !KNOWN.contains(&beta.as_str()));
        match unknown {
            None => Ok(Self(betas)),
            Some(unknown) => Err(Refusal::invalid(format!(
                "Unexpected value(s) `{unknown}` for the `anthropic-beta` header. Please consult our documentation at docs.anthropic.com or try again without the header."
            ))),
        }
    }

    /// Returns true if a value begins with one of these texts.
    pub(super) fn has(&self, prefixes: &[&str]) -> bool {
        let is_one = |beta: &String| prefixes.iter().any(|prefix| beta.starts_with(prefix));
        self.0.iter().any(is_one)
    }

    /// Rejects the fields that need another beta.
    pub(super) fn check(&self, body: &Value) -> Result<(), Refusal> {
        for (field, beta) in FIELDS {
            if !body[field].is_null() && !self.has(&[beta]) {
                return Err(extra(field));
            }
        }
        if !body["output_config"]["task_budget"].is_null() && !self.has(&["task-budgets-"]) {
            return Err(extra("output_config.task_budget"));
        }
        if !body["thinking"]["block_binding"].is_null() && !self.has(&["thinking-binding-"]) {
            return Err(extra("thinking.block_binding"));
        }
        Ok(())
    }
}

/// Returns the error for a field that does not exist.
pub(super) fn extra(field: &str) -> Refusal {
    Refusal::invalid(format!("{field}: Extra inputs are not permitted"))
}

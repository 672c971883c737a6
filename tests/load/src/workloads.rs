//! The measured calls: each method of the hot path, at typical sizes.

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Appends a round as JSON.
    AppendJson,
    /// Appends a round as typed messages.
    AppendTyped,
    /// Returns a complete view.
    PrepareFull,
    /// Returns a delta.
    PrepareDelta,
    /// Submits a tool result before its message is appended.
    Persist,
    /// Snips a message.
    Snip,
    /// Reads session memory.
    Memory,
    /// Compacts a session from its session memory.
    Compact,
    /// Reads a stored result.
    ReadResult,
    /// Reads a page of the transcript.
    ListMessages,
}

/// A method at a size.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// The name, for `--only` and in files.
    pub name: &'static str,
    /// The method, and the variant of its call.
    pub rpc: &'static str,
    /// The object that the size describes.
    pub of: &'static str,
    /// The size in bytes.
    pub bytes: usize,
    /// The kind of the call.
    pub kind: WorkloadKind,
}

const KB: usize = 1_000;

const fn work(
    name: &'static str,
    rpc: &'static str,
    of: &'static str,
    bytes: usize,
    kind: WorkloadKind,
) -> Workload {
    Workload {
        name,
        rpc,
        of,
        bytes,
        kind,
    }
}

/// All works, in the order of their runs.
#[rustfmt::skip]
pub const WORKS: [Workload; 20] = [
    work("append-json-1k", "AppendMessages, JSON", "result", KB, WorkloadKind::AppendJson),
    work("append-json-20k", "AppendMessages, JSON", "result", 20 * KB, WorkloadKind::AppendJson),
    work("append-json-300k", "AppendMessages, JSON", "result", 300 * KB, WorkloadKind::AppendJson),
    work("append-typed-1k", "AppendMessages, typed", "result", KB, WorkloadKind::AppendTyped),
    work("append-typed-20k", "AppendMessages, typed", "result", 20 * KB, WorkloadKind::AppendTyped),
    work("append-typed-300k", "AppendMessages, typed", "result", 300 * KB, WorkloadKind::AppendTyped),
    work("prepare-full-1k", "PrepareContext, full", "view", KB, WorkloadKind::PrepareFull),
    work("prepare-full-20k", "PrepareContext, full", "view", 20 * KB, WorkloadKind::PrepareFull),
    work("prepare-full-300k", "PrepareContext, full", "view", 300 * KB, WorkloadKind::PrepareFull),
    work("prepare-delta-1k", "PrepareContext, delta", "delta", KB, WorkloadKind::PrepareDelta),
    work("prepare-delta-20k", "PrepareContext, delta", "delta", 20 * KB, WorkloadKind::PrepareDelta),
    work("persist-1k", "PersistToolResult, inline", "result", KB, WorkloadKind::Persist),
    work("persist-20k", "PersistToolResult, inline", "result", 20 * KB, WorkloadKind::Persist),
    work("persist-300k", "PersistToolResult, stored", "result", 300 * KB, WorkloadKind::Persist),
    work("snip", "Snip", "view", 100 * KB, WorkloadKind::Snip),
    work("memory", "GetSessionMemory", "session", 100 * KB, WorkloadKind::Memory),
    work("read-result-20k", "ReadToolResult, a range", "range", 20 * KB, WorkloadKind::ReadResult),
    work("read-result-300k", "ReadToolResult, all", "result", 300 * KB, WorkloadKind::ReadResult),
    work("list-messages-20k", "ListMessages", "page", 20 * KB, WorkloadKind::ListMessages),
    work("compact", "Compact", "session", 300 * KB, WorkloadKind::Compact),
];

impl Workload {
    /// Returns the name of the configuration in `tests/load/ghz`.
    pub fn config(&self) -> &'static str {
        match self.kind {
            WorkloadKind::AppendJson | WorkloadKind::AppendTyped => "append_messages",
            WorkloadKind::PrepareFull | WorkloadKind::PrepareDelta => "prepare_context",
            WorkloadKind::Persist => "persist_tool_result",
            WorkloadKind::Snip => "snip",
            WorkloadKind::Memory => "get_session_memory",
            WorkloadKind::Compact => "compact",
            WorkloadKind::ReadResult => "read_tool_result",
            WorkloadKind::ListMessages => "list_messages",
        }
    }

    /// Returns true if a repeated request does the same work. A repeat of a persist, snip or compaction does less, so
    /// each of those requests is sent once.
    pub fn repeats(&self) -> bool {
        !matches!(
            self.kind,
            WorkloadKind::Persist | WorkloadKind::Snip | WorkloadKind::Compact
        )
    }

    /// Returns the maximum number of calls of a run. Requests that are sent once need prepared sessions or memory for
    /// their bodies.
    pub fn most(&self) -> usize {
        match self.kind {
            _ if self.repeats() => usize::MAX,
            WorkloadKind::Compact => 64,
            WorkloadKind::Snip => 16_384,
            // ghz holds all requests in memory.
            _ => (200_000_000 / self.bytes).min(50_000),
        }
    }

    /// Formats the size for tables.
    pub fn size(&self) -> String {
        format!("{} KB {}", self.bytes / KB, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ghz");

    #[test]
    fn each_workload_has_a_name_and_a_configuration() {
        for work in WORKS {
            let same = WORKS.iter().filter(|other| other.name == work.name);
            assert_eq!(same.count(), 1, "{}", work.name);
            let file = format!("{CONFIGS}/{}.toml", work.config());
            let text = std::fs::read_to_string(&file).unwrap();
            let method = work.rpc.split(',').next().unwrap();
            assert!(
                text.contains(&format!("Service.{method}\"")),
                "{file}: {method}"
            );
        }
    }
}

//! The measured calls: each method of the hot path, at typical sizes.

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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
pub struct Work {
    /// The name, for `--only` and in files.
    pub name: &'static str,
    /// The method, and the variant of its call.
    pub rpc: &'static str,
    /// The object that the size describes.
    pub of: &'static str,
    /// The size in bytes.
    pub bytes: usize,
    /// The kind of the call.
    pub kind: Kind,
}

const KB: usize = 1_000;

const fn work(
    name: &'static str,
    rpc: &'static str,
    of: &'static str,
    bytes: usize,
    kind: Kind,
) -> Work {
    Work {
        name,
        rpc,
        of,
        bytes,
        kind,
    }
}

/// All works, in the order of their runs.
#[rustfmt::skip]
pub const WORKS: [Work; 20] = [
    work("append-json-1k", "AppendMessages, JSON", "result", KB, Kind::AppendJson),
    work("append-json-20k", "AppendMessages, JSON", "result", 20 * KB, Kind::AppendJson),
    work("append-json-300k", "AppendMessages, JSON", "result", 300 * KB, Kind::AppendJson),
    work("append-typed-1k", "AppendMessages, typed", "result", KB, Kind::AppendTyped),
    work("append-typed-20k", "AppendMessages, typed", "result", 20 * KB, Kind::AppendTyped),
    work("append-typed-300k", "AppendMessages, typed", "result", 300 * KB, Kind::AppendTyped),
    work("prepare-full-1k", "PrepareContext, full", "view", KB, Kind::PrepareFull),
    work("prepare-full-20k", "PrepareContext, full", "view", 20 * KB, Kind::PrepareFull),
    work("prepare-full-300k", "PrepareContext, full", "view", 300 * KB, Kind::PrepareFull),
    work("prepare-delta-1k", "PrepareContext, delta", "delta", KB, Kind::PrepareDelta),
    work("prepare-delta-20k", "PrepareContext, delta", "delta", 20 * KB, Kind::PrepareDelta),
    work("persist-1k", "PersistToolResult, inline", "result", KB, Kind::Persist),
    work("persist-20k", "PersistToolResult, inline", "result", 20 * KB, Kind::Persist),
    work("persist-300k", "PersistToolResult, stored", "result", 300 * KB, Kind::Persist),
    work("snip", "Snip", "view", 100 * KB, Kind::Snip),
    work("memory", "GetSessionMemory", "session", 100 * KB, Kind::Memory),
    work("read-result-20k", "ReadToolResult, a range", "range", 20 * KB, Kind::ReadResult),
    work("read-result-300k", "ReadToolResult, all", "result", 300 * KB, Kind::ReadResult),
    work("list-messages-20k", "ListMessages", "page", 20 * KB, Kind::ListMessages),
    work("compact", "Compact", "session", 300 * KB, Kind::Compact),
];

impl Work {
    /// Returns the name of the configuration in `tests/load/ghz`.
    pub fn config(&self) -> &'static str {
        match self.kind {
            Kind::AppendJson | Kind::AppendTyped => "append_messages",
            Kind::PrepareFull | Kind::PrepareDelta => "prepare_context",
            Kind::Persist => "persist_tool_result",
            Kind::Snip => "snip",
            Kind::Memory => "get_session_memory",
            Kind::Compact => "compact",
            Kind::ReadResult => "read_tool_result",
            Kind::ListMessages => "list_messages",
        }
    }

    /// Returns true if a repeated request does the same work. A repeat of a persist, snip or compaction does less, so
    /// each of those requests is sent once.
    pub fn repeats(&self) -> bool {
        !matches!(self.kind, Kind::Persist | Kind::Snip | Kind::Compact)
    }

    /// Returns the maximum number of calls of a run. Requests that are sent once need prepared sessions or memory for
    /// their bodies.
    pub fn most(&self) -> usize {
        match self.kind {
            _ if self.repeats() => usize::MAX,
            Kind::Compact => 64,
            Kind::Snip => 16_384,
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
    fn each_has_a_name_and_a_configuration_of_its_method() {
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

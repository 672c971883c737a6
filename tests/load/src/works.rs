//! What is called: each method of the hot path, at the sizes that agents have.

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A round of messages comes, as JSON.
    AppendJson,
    /// The same, typed.
    AppendTyped,
    /// All of a view goes.
    PrepareFull,
    /// What is new of a view goes.
    PrepareDelta,
    /// The result of a tool is handed in before its message.
    Persist,
    /// A message leaves a view.
    Snip,
    /// The summary of a session is read.
    Memory,
    /// A session is compacted from its summary.
    Compact,
    /// A stored result is read.
    ReadResult,
    /// A page of the transcript is read.
    ListMessages,
}

/// A method at a size.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Its name, for `--only` and in files.
    pub name: &'static str,
    /// Its method, and how that is called.
    pub rpc: &'static str,
    /// What the size is the size of.
    pub of: &'static str,
    /// Its size.
    pub bytes: usize,
    /// What it does.
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

/// All of them, in the order in which they are run.
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
    /// Its configuration in `tests/load/ghz`.
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

    /// Whether a request means the same when it comes again. What was stored, snipped or compacted already is
    /// less work, so that each of those requests is sent once.
    pub fn repeats(&self) -> bool {
        !matches!(self.kind, Kind::Persist | Kind::Snip | Kind::Compact)
    }

    /// The most calls of a run. Where each request is sent once, their sessions have to be made, or their bodies
    /// held in memory.
    pub fn most(&self) -> usize {
        match self.kind {
            _ if self.repeats() => usize::MAX,
            Kind::Compact => 64,
            Kind::Snip => 16_384,
            // ghz holds all of them.
            _ => (200_000_000 / self.bytes).min(50_000),
        }
    }

    /// Sizes as tables have them.
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

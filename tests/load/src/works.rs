//! What is called: each method of the hot path, at the sizes that agents have.

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AppendJson,
    AppendTyped,
    PrepareFull,
    PrepareDelta,
    Persist,
    Snip,
    Memory,
    Compact,
    ReadResult,
    ListMessages,
}

/// A method at a size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Its name, for `--only` and in files.
    pub(crate) name: &'static str,
    pub(crate) rpc: &'static str,
    /// What the size is the size of.
    pub(crate) of: &'static str,
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
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
pub(crate) const WORKS: [Work; 20] = [
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
    pub(crate) fn config(&self) -> &'static str {
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
    pub(crate) fn repeats(&self) -> bool {
        !matches!(self.kind, Kind::Persist | Kind::Snip | Kind::Compact)
    }

    /// The most calls of a run. Where each request is sent once, their sessions have to be made, or their bodies
    /// held in memory.
    pub(crate) fn most(&self) -> usize {
        match self.kind {
            _ if self.repeats() => usize::MAX,
            Kind::Compact => 64,
            Kind::Snip => 16_384,
            // ghz holds all of them.
            _ => (200_000_000 / self.bytes).min(50_000),
        }
    }

    /// Sizes as tables have them.
    pub(crate) fn size(&self) -> String {
        format!("{} KB {}", self.bytes / KB, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ghz::ROOT;

    #[test]
    fn each_has_a_name_and_a_configuration_of_its_method() {
        for work in WORKS {
            let same = WORKS.iter().filter(|other| other.name == work.name);
            assert_eq!(same.count(), 1, "{}", work.name);
            let file = format!("{ROOT}/tests/load/ghz/{}.toml", work.config());
            let text = std::fs::read_to_string(&file).unwrap();
            let method = work.rpc.split(',').next().unwrap();
            assert!(
                text.contains(&format!("Service.{method}\"")),
                "{file}: {method}"
            );
        }
    }
}

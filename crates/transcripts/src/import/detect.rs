//! Format detection: rejects a file of another format with a description of its actual content.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::imported::{ImportFormat, ImportStep, Imported, lines};

/// The maximum ratio of unreadable lines to understood ones. Beyond it the file has another format.
const LINES_PER_KNOWN_LINE: usize = 20;
/// The number of bytes that are inspected to detect a binary file.
const SNIFF_BYTES: usize = 8 * 1024;
/// The number of lines that are inspected to detect the format. The first ones may be damaged.
const MAX_DETECTION_LINES: usize = 50;
/// The maximum number of names in an error message.
const MAX_NAMES: usize = 6;
/// The maximum length of a name in an error message, in characters.
const MAX_NAME: usize = 32;

/// The types of lines that Claude Code writes in addition to messages.
const CLAUDE_KINDS: [&str; 16] = [
    "summary",
    "system",
    "progress",
    "attachment",
    "file-history-snapshot",
    "queue-operation",
    "custom-title",
    "ai-title",
    "last-prompt",
    "agent-name",
    "tag",
    "pr-link",
    "mode",
    "content-replacement",
    "permission-mode",
    "speculation-accept",
];

/// The first bytes of common binary formats.
const MAGIC: [(&[u8], &str); 12] = [
    (b"\x7fELF", "an ELF program"),
    (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\x1f\x8b", "gzip: unpack it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd: unpack it first"),
    (b"BZh", "bzip2: unpack it first"),
    (b"\xfd7zXZ", "xz: unpack it first"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text: convert it to UTF-8"),
];

/// Returns the reason why a file is binary. Returns `None` if the file may be text.
pub fn detect_binary(bytes: &[u8]) -> Option<String> {
    let head = &bytes[..bytes.len().min(SNIFF_BYTES)];
    let is_text = !head.contains(&0)
        && std::str::from_utf8(head).map_or_else(
            // The inspected part may end inside a character.
            // A first invalid byte near the end is damage of a text.
            |error| error.error_len().is_none() || error.valid_up_to() * 10 > head.len() * 9,
            |_| true,
        );
    if is_text {
        return None;
    }
    let known = MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
    let what = known.map_or_else(
        || {
            let first = head.iter().take(4).map(|byte| format!("{byte:02x}"));
            format!(
                "it begins with the bytes {}",
                first.collect::<Vec<_>>().join(" ")
            )
        },
        |(_, what)| (*what).to_owned(),
    );
    Some(format!("is binary ({what}); transcripts are JSON text"))
}

/// Returns the reason why a file does not have the expected format, with its content and a
/// suggestion. Returns `None` if the format matches.
pub(super) fn format_mismatch(
    format: ImportFormat,
    bytes: &[u8],
    imported: &Imported<'_>,
) -> Option<String> {
    // The header line identifies an export. Its defect is then reported, and no other format is
    // suggested.
    if format == ImportFormat::Palimpsest && detect_format(bytes) == Some(format) {
        let defect = imported.defects.first();
        return defect.map(|defect| format!("is an export that cannot be read: {defect}"));
    }
    let all = lines(bytes).count();
    let messages: usize = imported.sessions.iter().map(|it| messages(&it.steps)).sum();
    let is_known = |kind: &&(String, usize)| known_kinds(format).contains(&kind.0.as_str());
    let known = imported.skipped.iter().filter(is_known);
    let known: usize = known.map(|(_, count)| count).sum();
    // An array that extends over several lines counts as one understood item.
    let unreadable = imported.defects.len();
    let next_to_nothing = unreadable > (messages + known) * LINES_PER_KNOWN_LINE;
    if messages + known > 0 && !next_to_nothing {
        return None;
    }
    if all == 0 {
        return Some("is empty".to_owned());
    }
    let mut what = if messages + known == 0 {
        format!("contains no message of the format {}", format.name())
    } else {
        format!(
            "contains almost nothing of the format {}: {} of {all} lines were understood",
            format.name(),
            messages + known
        )
    };
    if let (ImportFormat::Palimpsest, Some(defect)) = (format, imported.defects.first()) {
        // Writing to a string cannot fail.
        let _ = write!(what, ": {defect}");
    }
    let _ = write!(what, ". Seen: {}", describe_lines(bytes, imported, all));
    match detect_format(bytes) {
        Some(other) if other != format => {
            let _ = write!(what, ". It looks like {0}: try --format {0}", other.name());
        }
        _ => {
            let _ = write!(what, ". Formats: {}", format_names());
        }
    }
    Some(what)
}

/// Describes a file whose format is not known.
pub(super) fn describe_unknown(bytes: &[u8]) -> String {
    let all = lines(bytes).count();
    if all == 0 {
        return "is empty".to_owned();
    }
    let seen = describe_lines(bytes, &Imported::default(), all);
    format!(
        "has no known format. Seen: {seen}. Formats: {}",
        format_names()
    )
}

fn format_names() -> String {
    ImportFormat::ALL.map(ImportFormat::name).join(", ")
}

/// Returns the types of lines without a message that identify a format.
fn known_kinds(format: ImportFormat) -> &'static [&'static str] {
    match format {
        ImportFormat::ClaudeCode => &CLAUDE_KINDS,
        ImportFormat::Codex => &["session_meta", "turn_context", "event_msg"],
        ImportFormat::CopilotCli => &["session.start"],
        ImportFormat::Pi | ImportFormat::GeminiCli => &["session"],
        ImportFormat::Palimpsest
        | ImportFormat::OpenCode
        | ImportFormat::OpenAi
        | ImportFormat::OpenAiResponses
        | ImportFormat::Anthropic => &[],
    }
}

fn messages(steps: &[ImportStep<'_>]) -> usize {
    let is_message =
        |step: &&ImportStep<'_>| matches!(step, ImportStep::Message(_) | ImportStep::Compacted(_));
    steps.iter().filter(is_message).count()
}

/// Describes the lines of a file: their types, the defects, and the fields of the first line.
fn describe_lines(bytes: &[u8], imported: &Imported<'_>, all: usize) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, count) in &imported.skipped {
        *kinds.entry(format!("`{}`", shown(kind))).or_default() += count;
    }
    for defect in &imported.defects {
        // The column differs per line and would prevent grouping.
        let what = defect.problem.split(" (column").next().unwrap_or_default();
        *kinds.entry(shown(what)).or_default() += 1;
    }
    let mut kinds: Vec<(String, usize)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = kinds.len().saturating_sub(MAX_NAMES);
    let listed = kinds.iter().take(MAX_NAMES);
    let listed: Vec<String> = listed
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let mut out = format!("{all} lines");
    if !listed.is_empty() {
        let _ = write!(out, " ({}", listed.join(", "));
        out.push_str(if more > 0 { ", …)" } else { ")" });
    }
    if let Some(Value::Object(fields)) = first(bytes) {
        let names: Vec<String> = fields
            .keys()
            .take(MAX_NAMES)
            .map(|name| shown(name))
            .collect();
        let _ = write!(out, "; the first is an object with {}", names.join(", "));
    }
    out
}

fn shown(name: &str) -> String {
    name.chars()
        .take(MAX_NAME)
        .flat_map(char::escape_debug)
        .collect()
}

/// Returns the first line as JSON, or the whole file if it is a single document.
fn first(bytes: &[u8]) -> Option<Value> {
    let (_, line) = lines(bytes).next()?;
    let parsed = serde_json::from_slice(line);
    parsed.or_else(|_| serde_json::from_slice(bytes)).ok()
}

/// Detects the format by the first lines, or by the whole file if it is a single document.
pub(super) fn detect_format(bytes: &[u8]) -> Option<ImportFormat> {
    let parsed = lines(bytes).map(|(_, line)| serde_json::from_slice(line).ok());
    let mut parsed = parsed.take(MAX_DETECTION_LINES).flatten();
    parsed
        .find_map(|value| format_of(&value))
        .or_else(|| format_of(&serde_json::from_slice(bytes).ok()?))
}

fn format_of(value: &Value) -> Option<ImportFormat> {
    if value.get("palimpsest").is_some() {
        return Some(ImportFormat::Palimpsest);
    }
    let kind = value.get("type").and_then(Value::as_str);
    let has = |names: &[&str]| names.iter().any(|name| value.get(name).is_some());
    match kind {
        Some("session_meta" | "response_item" | "event_msg" | "turn_context" | "compacted")
            if has(&["payload"]) =>
        {
            return Some(ImportFormat::Codex);
        }
        Some("session.start") if has(&["data"]) => return Some(ImportFormat::CopilotCli),
        Some("session") if has(&["cwd"]) => return Some(ImportFormat::Pi),
        None if has(&["sessionId"]) && has(&["projectHash"]) => {
            return Some(ImportFormat::GeminiCli);
        }
        Some(_) if has(&["uuid", "parentUuid", "sessionId", "leafUuid", "messageId"]) => {
            return Some(ImportFormat::ClaudeCode);
        }
        _ => {}
    }
    // These are the fields in which `conversations` finds the array.
    let wrapped = ["messages", "traj", "conversation", "history"];
    let array = wrapped.iter().find_map(|name| value.get(name)?.as_array());
    let messages = array.or_else(|| value.as_array())?;
    let has_parts =
        |message: &Value| message.get("info").is_some() && message.get("parts").is_some();
    if has(&["info"]) && !messages.is_empty() && messages.iter().all(has_parts) {
        return Some(ImportFormat::OpenCode);
    }
    let role = |message: &Value| message.get("role").is_some_and(Value::is_string);
    let kind = |item: &Value| item.get("type").and_then(Value::as_str).map(str::to_owned);
    if messages.is_empty()
        || !messages
            .iter()
            .all(|item| role(item) || kind(item).is_some())
    {
        return None;
    }
    // An item of the Responses API has a type, which may be missing only if the item is a message.
    if messages
        .iter()
        .any(|item| !role(item) || kind(item).as_deref() == Some("message"))
    {
        return Some(ImportFormat::OpenAiResponses);
    }
    // Plain texts are valid in both formats. Only these block types identify Anthropic's.
    let is_block = |block: &Value| {
        let kind = kind(block);
        matches!(
            kind.as_deref(),
            Some("tool_use" | "tool_result" | "thinking")
        )
    };
    let has_blocks = |message: &Value| {
        let content = message.get("content").and_then(Value::as_array);
        content.is_some_and(|blocks| blocks.iter().any(is_block))
    };
    Some(if messages.iter().any(has_blocks) {
        ImportFormat::Anthropic
    } else {
        ImportFormat::OpenAi
    })
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    const CLAUDE: &str = r#"{"type":"user","uuid":"00000000-0000-4000-8000-000000000001","message":{"role":"user","content":"hi"}}"#;
    const OPENAI: &str =
        r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]}"#;
    const ANTHROPIC: &str =
        r#"[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}]"#;

    fn refusal(format: ImportFormat, text: &str) -> Option<String> {
        read(Some(format), text.as_bytes()).unrecognized
    }

    #[test]
    fn a_file_of_another_format_is_rejected_with_the_detected_format() {
        let head = r#"{"palimpsest":"transcript","version":1}"#;
        let codex = r#"{"timestamp":"t","type":"session_meta","payload":{}}"#;
        for format in ImportFormat::ALL {
            for (text, name) in [
                (CLAUDE, "--format claude-code"),
                (head, "--format palimpsest"),
                (codex, "--format codex"),
            ] {
                let own = name.ends_with(format.name());
                let told = refusal(format, text);
                assert!(
                    own || told.as_ref().unwrap().contains(name),
                    "{format:?}: {told:?}"
                );
            }
        }
        for (text, name) in [
            (OPENAI, "--format openai"),
            (ANTHROPIC, "--format anthropic"),
        ] {
            for format in [ImportFormat::ClaudeCode, ImportFormat::Palimpsest] {
                let told = refusal(format, text).unwrap();
                assert!(told.contains(name), "{told}");
            }
        }
    }

    #[test]
    fn a_file_without_a_given_format_is_detected() {
        for (text, format) in [
            (CLAUDE, ImportFormat::ClaudeCode),
            (OPENAI, ImportFormat::OpenAi),
            (ANTHROPIC, ImportFormat::Anthropic),
            (
                r#"[{"type":"message","role":"user","content":"hi"},{"type":"reasoning","summary":[]}]"#,
                ImportFormat::OpenAiResponses,
            ),
        ] {
            // A damaged first line must not prevent the detection.
            let damaged = format!("not json\n{text}");
            for text in [text, &damaged] {
                let imported = read(None, text.as_bytes());
                assert_eq!(imported.format, Some(format), "{text}");
                assert_eq!(imported.unrecognized, None);
                assert_eq!(imported.sessions.len(), 1);
            }
        }
        for (text, told) in [
            ("", "is empty"),
            (
                "{\"name\":\"x\"}",
                "has no known format. Seen: 1 lines; the first is an object with name.",
            ),
            (
                "a,b\n1,2\n",
                "has no known format. Seen: 2 lines. Formats: claude-code, codex,",
            ),
        ] {
            let imported = read(None, text.as_bytes());
            let reason = imported.unrecognized.unwrap();
            assert!(reason.starts_with(told), "{reason}");
            assert!(imported.sessions.is_empty() && imported.format.is_none());
        }
    }

    #[test]
    fn empty_and_tiny_files_are_rejected_with_their_content() {
        for format in ImportFormat::ALL {
            assert_eq!(refusal(format, "\n \n").as_deref(), Some("is empty"));
            let told = refusal(format, "name,age\nann,7\nbob,8\n").unwrap();
            assert!(told.contains("Seen: 3 lines"), "{told}");
            let told = refusal(format, r#"{"foo":1,"b\u001bar":2}"#).unwrap();
            assert!(told.contains("b\\u{1b}ar, foo"), "{told}");
        }
        let mut text = format!("{CLAUDE}\n");
        text.push_str(&"not json\n".repeat(LINES_PER_KNOWN_LINE));
        // One message allows 20 unreadable lines, and no further one.
        assert_eq!(refusal(ImportFormat::ClaudeCode, &text), None);
        text.push_str("not json\n");
        let told = refusal(ImportFormat::ClaudeCode, &text).unwrap();
        assert!(
            told.contains("1 of 22 lines") && told.contains("21 is not JSON"),
            "{told}"
        );
    }

    #[test]
    fn a_damaged_export_is_rejected_with_the_damage() {
        let text = "{\"palimpsest\":\"transcript\",\"version\":1}\n{}\n";
        let told = refusal(ImportFormat::Palimpsest, text).unwrap();
        assert!(
            told.starts_with("is an export that cannot be read: line 2: "),
            "{told}"
        );
    }

    #[test]
    fn lines_without_messages_are_recognized() {
        let text = "{\"type\":\"summary\",\"summary\":\"x\",\"leafUuid\":\"y\"}\n";
        assert_eq!(refusal(ImportFormat::ClaudeCode, text), None);
        assert_eq!(refusal(ImportFormat::ClaudeCode, CLAUDE), None);
        assert_eq!(refusal(ImportFormat::OpenAi, OPENAI), None);
        assert_eq!(refusal(ImportFormat::Anthropic, ANTHROPIC), None);
    }

    #[test]
    fn binary_files_are_rejected_before_parsing() {
        let mut program = b"\x7fELF\x02\x01\x01\0".to_vec();
        program.extend(std::iter::repeat_n(b'\n', 100_000));
        for format in ImportFormat::ALL {
            let imported = read(Some(format), &program);
            let told = imported.unrecognized.unwrap();
            assert!(told.contains("an ELF program"), "{told}");
            assert!(imported.defects.is_empty() && imported.sessions.is_empty());
        }
        assert!(
            detect_binary(&[0x80, 0x81, 0xfe, 0xff])
                .unwrap()
                .contains("80 81 fe ff")
        );
        // The sniffed bytes may end within a character.
        let text = format!("a{}", "é".repeat(SNIFF_BYTES));
        assert_eq!(detect_binary(text.as_bytes()), None);
    }
}

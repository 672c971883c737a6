//! Level 1: large results are stored, and a preview with a reference replaces them.

use std::borrow::Cow;
use std::fmt::Display;

use sha2::{Digest as _, Sha256};

use crate::codec;
pub use crate::event::{StoredResult, UnboundResult, Verdict, only_text};
use crate::ids::{CallKey, SessionKey};
use crate::json;
use crate::message::{Block, ResultContent, ToolResult};
use crate::policy::{Policy, PreviewMode, ToolResultPolicy, ToolResultRule};
use crate::view::{Provider, WireBlock};

/// The tag at the beginning of every replacement.
const TAG: &str = "<persisted-output>";
const END: &str = "</persisted-output>";
/// Maximum characters of a replacement. A longer result that begins with the tag merely quotes it.
const MAX_REPLACEMENT_CHARS: usize = 4 * 1024;

/// Returns the size of a result in characters. For a list of blocks, the characters of its JSON count.
pub fn result_chars(result: &ToolResult) -> u64 {
    let chars = match (plain_text(result), &result.content) {
        (Some(text), _) => text.chars().count(),
        (None, ResultContent::Blocks(blocks)) => blocks_to_json(blocks).chars().count(),
        (None, _) => 0,
    };
    chars as u64
}

/// Returns the content of the file for a result: its text, or its blocks as indented JSON.
pub fn file_content(result: &ToolResult) -> Cow<'_, str> {
    match (plain_text(result), &result.content) {
        (Some(text), _) => text.into(),
        (None, ResultContent::Blocks(blocks)) => json::pretty_print(&blocks_to_json(blocks)).into(),
        (None, _) => "".into(),
    }
}

/// Returns the text of a result that is one text, as a string or as a list with one block. Fields of the block would be
/// lost with its form, so a block with further fields is not plain.
fn plain_text(result: &ToolResult) -> Option<&str> {
    match &result.content {
        ResultContent::Blocks(blocks) => match blocks.as_slice() {
            [Block::Text { text, extra }] if extra.is_empty() => Some(text),
            _ => None,
        },
        content => only_text(content),
    }
}

/// Returns the content of a result from its file, in the form of the replacement that was appended for it. JSON that is
/// not valid becomes text.
pub fn content_of_file(text: String, is_json: bool, replacement: &ResultContent) -> ResultContent {
    if is_json && let Ok(content) = codec::read_result_content(text.as_bytes()) {
        return content;
    }
    match replacement {
        ResultContent::Blocks(_) => ResultContent::Blocks([Block::text(text)].into()),
        ResultContent::Text(_) | ResultContent::None => ResultContent::Text(text.into()),
    }
}

/// Returns true if a result is stored as JSON.
pub fn is_json(result: &ToolResult) -> bool {
    matches!(result.content, ResultContent::Blocks(_)) && plain_text(result).is_none()
}

/// Returns true if a file contains JSON, judged by its extension.
pub fn is_json_file(file: &str) -> bool {
    file.rsplit_once('.')
        .is_some_and(|(_, ending)| ending == "json")
}

/// The reason for which a result is never stored, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExemptReason {
    /// The result has no content.
    Empty,
    /// The result contains media.
    Image,
    /// The result is a replacement itself.
    Replacement,
}

/// Returns the reason for which a result is never stored. `is_known` returns true for replacements of the session.
pub fn exemption(result: &ToolResult, is_known: impl Fn(&str) -> bool) -> Option<ExemptReason> {
    match &result.content {
        ResultContent::None => Some(ExemptReason::Empty),
        ResultContent::Text(text) if text.trim().is_empty() => Some(ExemptReason::Empty),
        ResultContent::Text(text) => {
            is_replacement(text, is_known).then_some(ExemptReason::Replacement)
        }
        ResultContent::Blocks(blocks) => {
            let is_media = |block: &Block| matches!(block, Block::Media(_));
            if blocks.iter().any(is_media) {
                return Some(ExemptReason::Image);
            }
            let is_blank = blocks.iter().all(Block::is_blank);
            match only_text(&result.content) {
                _ if is_blank => Some(ExemptReason::Empty),
                Some(text) => is_replacement(text, is_known).then_some(ExemptReason::Replacement),
                None => None,
            }
        }
    }
}

fn is_replacement(text: &str, is_known: impl Fn(&str) -> bool) -> bool {
    // `nth` stops at the limit, so a large text is not scanned completely.
    let is_short = |text: &str| text.chars().nth(MAX_REPLACEMENT_CHARS).is_none();
    let is_tagged = text.starts_with(TAG) && is_short(text);
    is_tagged || is_known(text)
}

/// Decides about one result. Characters are counted only if the decision depends on them.
pub fn verdict(
    policy: &ToolResultPolicy,
    tool: &str,
    own: Option<ToolResultRule>,
    result: &ToolResult,
    is_known: impl Fn(&str) -> bool,
) -> Verdict {
    match exemption(result, is_known) {
        Some(ExemptReason::Replacement) => return Verdict::Replacement,
        // Providers need text in place of an empty result, whether the level is enabled or not.
        Some(ExemptReason::Empty) => return Verdict::Empty,
        _ if !policy.enabled => return Verdict::Disabled,
        Some(ExemptReason::Image) => return Verdict::Image,
        None => {}
    }
    match inline_limit(policy, tool, own) {
        None => Verdict::Never,
        // A text has at most as many characters as bytes. The byte length avoids a scan of the whole text.
        Some(most) if text_bytes(result).is_some_and(|bytes| bytes <= most) => Verdict::UnderLimit,
        Some(most) if result_chars(result) <= most => Verdict::UnderLimit,
        Some(_) => Verdict::Persist,
    }
}

fn text_bytes(result: &ToolResult) -> Option<u64> {
    plain_text(result).map(|text| text.len() as u64)
}

/// Returns the maximum characters of an inline result of a tool. `None` if the result always stays inline.
pub fn inline_limit(
    policy: &ToolResultPolicy,
    tool: &str,
    own: Option<ToolResultRule>,
) -> Option<u64> {
    match own.or_else(|| policy.rules.get(tool).copied()) {
        None => Some(policy.max_result_chars),
        Some(ToolResultRule::NeverPersist(_)) => None,
        Some(ToolResultRule::DeclaredChars(chars)) if policy.clamp_declared => {
            Some(chars.min(policy.max_result_chars))
        }
        Some(ToolResultRule::FixedChars(chars) | ToolResultRule::DeclaredChars(chars)) => {
            Some(chars)
        }
    }
}

/// The inputs for names of files: the session and the salt of the command.
#[derive(Debug, Clone, Copy)]
pub struct FileNamer<'a> {
    /// The session that owns the files.
    pub session: &'a SessionKey,
    /// The random salt of the command, see [`crate::command::DecisionContext::file_salt`].
    pub salt: u64,
}

impl FileNamer<'_> {
    /// Returns a tag for a file name. The digest distinguishes the files of a command, and the salt distinguishes
    /// commands, so a name is never used twice.
    fn tag(&self, sha256: &[u8; 32]) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|at| sha256[at])) ^ self.salt
    }
}

/// Returns the stored result of a call, with a preview as its replacement. Nothing is written here.
pub fn stored_with_preview(
    names: FileNamer<'_>,
    policy: &Policy,
    call: CallKey,
    result: &ToolResult,
) -> StoredResult {
    unbound_with_preview(names, policy, call, result).bind(call, false)
}

/// Like `stored_with_preview`, for a file that is named after any `owner`: a call or a persist decision.
pub fn unbound_with_preview(
    names: FileNamer<'_>,
    policy: &Policy,
    owner: impl Display,
    result: &ToolResult,
) -> UnboundResult {
    stored_with_replacement(names, policy, owner, result, |reference, content| {
        let policy = &policy.tool_results;
        let preview = preview(content, policy.preview_chars as usize, policy.preview_mode);
        // The limits count characters, so the size does too. It is shown in units that people use for sizes.
        let size = format_bytes(content.chars().count());
        let shown = format_preview_length(policy.preview_chars);
        format!(
            "{TAG}\nOutput too large ({size}). Full output saved to: {reference}\n\n\
             Preview ({} {shown}):\n{preview}\n{END}",
            match policy.preview_mode {
                PreviewMode::Head => "first",
                PreviewMode::HeadAndTail => "first and last, together",
            },
        )
    })
}

/// Returns the stored result of a call whose result will be cleared. Its text names the file and the reading tool.
pub fn stored_for_clearing(
    names: FileNamer<'_>,
    policy: &Policy,
    call: CallKey,
    result: &ToolResult,
    read_tool: &str,
) -> StoredResult {
    let kept = stored_with_replacement(names, policy, call, result, |reference, _| {
        format!("{TAG}Tool result saved to: {reference}\n\nUse {read_tool} to view{END}")
    });
    kept.bind(call, false)
}

fn stored_with_replacement(
    names: FileNamer<'_>,
    policy: &Policy,
    owner: impl Display,
    result: &ToolResult,
    text: impl FnOnce(&str, &str) -> String,
) -> UnboundResult {
    // The salt makes the name unique, so a late removal never deletes a file of another command.
    let content = file_content(result);
    let sha256: [u8; 32] = Sha256::digest(content.as_bytes()).into();
    let ending = if is_json(result) { "json" } else { "txt" };
    let file = format!("{owner}-{:016x}.{ending}", names.tag(&sha256));
    let template = &policy.tool_results.reference_template;
    let reference = reference(template, names.session, &file);
    let text = text(&reference, &content);
    let counter = policy.counter();
    UnboundResult {
        file: file.into(),
        sha256,
        bytes: content.len() as u64,
        tokens: counter.result(result),
        replacement_tokens: counter.text(&text),
        replacement: text.into(),
    }
}

/// Returns the reference to a file as the model sees it, from the policy's template.
pub fn reference(template: &str, key: &SessionKey, file: &str) -> String {
    template
        .replace("{project}", key.project.as_str())
        .replace("{session}", key.session.as_str())
        .replace("{file}", file)
}

/// Returns the file that a reference names. `None` if the reference is not one of this session.
pub fn file_from_reference<'r>(
    template: &str,
    key: &SessionKey,
    reference: &'r str,
) -> Option<&'r str> {
    // NUL marks the position of the file name in the reference.
    let marked = self::reference(template, key, "\0");
    let (before, after) = marked.split_once('\0')?;
    let file = reference.trim().strip_prefix(before)?.strip_suffix(after)?;
    // A slash would allow a path outside the session's folder.
    (!file.is_empty() && !file.contains('/')).then_some(file)
}

/// Returns the first `chars` characters of a text. The cut moves to a line end if more than half of them remain.
fn head(text: &str, chars: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(chars) else {
        return text;
    };
    let cut = &text[..end];
    match cut.rfind('\n') {
        Some(line) if cut[..line].chars().count() > chars / 2 => &cut[..line],
        _ => cut,
    }
}

/// Returns the last `chars` characters of a text. The cut moves to a line start if at least half of them remain.
fn tail(text: &str, chars: usize) -> &str {
    let Some(last) = chars.checked_sub(1) else {
        return "";
    };
    let from = text.char_indices().rev().nth(last).map_or(0, |(at, _)| at);
    let cut = &text[from..];
    match cut.find('\n') {
        // A tail that already begins at a line start is not shortened.
        Some(line)
            if from > 0
                && !text[..from].ends_with('\n')
                && cut[..line].chars().count() < chars / 2 =>
        {
            &cut[line + 1..]
        }
        _ => cut,
    }
}

fn preview(text: &str, chars: usize, mode: PreviewMode) -> String {
    if text.char_indices().nth(chars).is_none() {
        return text.to_owned();
    }
    match mode {
        PreviewMode::Head => format!("{}\n...", head(text, chars)),
        PreviewMode::HeadAndTail => {
            format!("{}\n...\n{}", head(text, chars / 2), tail(text, chars / 2))
        }
    }
}

/// Formats a size for people, with units of 1,024.
pub fn format_bytes(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
    let mut number = bytes as f64;
    for unit in ["", "KB", "MB", "GB"] {
        // From this number on, one decimal would show 1024.
        if number < 1_023.95 || unit == "GB" {
            return match unit {
                "" => format!("{bytes} bytes"),
                _ => format!("{}{unit}", format!("{number:.1}").trim_end_matches(".0")),
            };
        }
        number /= 1_024.0;
    }
    String::new()
}

/// Formats the length of a preview. Multiples of 1,000 use a unit of 1,000, like the settings.
fn format_preview_length(chars: u32) -> String {
    if chars.is_multiple_of(1_000) {
        format!("{}KB", chars / 1_000)
    } else {
        format_bytes(chars as usize)
    }
}

fn blocks_to_json(blocks: &[Block]) -> String {
    let mut out = Vec::from(*b"[");
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        codec::write_block(Provider::Anthropic, &WireBlock::from_block(block), &mut out);
    }
    out.push(b']');
    // Every codec writes valid UTF-8, so the default is never used.
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::UnknownFields;
    use crate::policy::Policy;

    fn result(text: &str) -> ToolResult {
        ToolResult {
            tool_use_id: "x".into(),
            content: ResultContent::Text(text.into()),
            is_error: None,
            extra: UnknownFields::default(),
        }
    }

    fn key() -> SessionKey {
        SessionKey::parse("projects/p/sessions/s").unwrap()
    }

    #[test]
    fn sizes_are_formatted_with_binary_units() {
        let sizes = [0, 1_023, 1_024, 93_184, 137_933, 5 * 1_024 * 1_024];
        let written = sizes.map(format_bytes);
        let expected = ["0 bytes", "1023 bytes", "1KB", "91KB", "134.7KB", "5MB"];
        assert_eq!(written, expected);
    }

    #[test]
    fn a_size_just_below_a_unit_is_formatted_with_the_next_unit() {
        // 1,048,525 bytes are 1,023.95 KB, which one decimal would show as 1024.
        for (bytes, expected) in [
            (1_048_523, "1023.9KB"),
            (1_048_525, "1MB"),
            (1_048_575, "1MB"),
            (1_073_741_823, "1GB"),
        ] {
            assert_eq!(format_bytes(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn p11_a_preview_ends_at_a_character_and_line_boundary() {
        let lines = "0123456789\n".repeat(40);
        assert!(preview(&lines, 100, PreviewMode::Head).ends_with("789\n..."));
        assert_eq!(preview("short", 100, PreviewMode::Head), "short");
        let wide = "字".repeat(100);
        assert_eq!(head(&wide, 40), "字".repeat(40));
        assert_eq!(tail(&wide, 40), "字".repeat(40));
        assert_eq!(preview(&wide, 100, PreviewMode::Head), wide);
        // A newline in the first half does not shorten the preview.
        let late = format!("a\n{}", "b".repeat(200));
        assert_eq!(head(&late, 100).len(), 100);
        // Each half has 22 characters: exactly two lines of 11 with their line ends.
        let both = preview(&lines, 44, PreviewMode::HeadAndTail);
        assert_eq!(
            both,
            "0123456789\n0123456789\n...\n0123456789\n0123456789\n"
        );
    }

    #[test]
    fn a_replacement_contains_size_reference_and_preview() {
        let all = Policy::default();
        let policy = &all.tool_results;
        let text = "x".repeat(60_000);
        let stored = stored_with_preview(
            FileNamer {
                session: &key(),
                salt: 0,
            },
            &all,
            CallKey::new(3),
            &result(&text),
        );
        assert!(stored.file.starts_with("c3-") && stored.file.ends_with(".txt"));
        let expected = format!(
            "<persisted-output>\nOutput too large (58.6KB). Full output saved to: \
             palimpsest://p/s/tool-results/{}\n\nPreview (first 2KB):\n{}\n...\n</persisted-output>",
            stored.file,
            "x".repeat(2_000),
        );
        assert_eq!(&*stored.replacement, expected);
        assert_eq!(
            exemption(&result(&stored.replacement), |_| false),
            Some(ExemptReason::Replacement)
        );
        let reference = reference(&policy.reference_template, &key(), &stored.file);
        let template = &policy.reference_template;
        assert_eq!(
            file_from_reference(template, &key(), &reference),
            Some(&*stored.file)
        );
        let other = SessionKey::parse("projects/p/sessions/t").unwrap();
        assert_eq!(file_from_reference(template, &other, &reference), None);
        // A slash in the name could lead out of the folder of the session.
        let escape = "palimpsest://p/s/tool-results/../x";
        assert_eq!(file_from_reference(template, &key(), escape), None);
    }

    #[test]
    fn a_list_of_one_text_is_stored_like_the_text() {
        let text = "one line\n".repeat(10_000);
        let mut list = result("");
        list.content = ResultContent::Blocks([Block::text(text.clone())].into());
        assert_eq!(file_content(&list), text);
        assert_eq!(result_chars(&list), result_chars(&result(&text)));
        assert!(!is_json(&list));
        let policy = Policy::default();
        let session = key();
        let names = FileNamer {
            session: &session,
            salt: 0,
        };
        let of_list = stored_with_preview(names, &policy, CallKey::new(3), &list);
        let of_text = stored_with_preview(names, &policy, CallKey::new(3), &result(&text));
        assert_eq!(of_list.replacement, of_text.replacement);
        // The content of the file has the form of the replacement that the caller appended.
        let restored = content_of_file(text.clone(), false, &list.content);
        assert_eq!(restored, list.content);
        let restored = content_of_file(text.clone(), false, &result("").content);
        assert_eq!(restored, result(&text).content);
    }

    #[test]
    fn several_blocks_and_blocks_with_further_fields_are_stored_as_json() {
        for blocks in [
            r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#,
            r#"[{"type":"text","text":"a","citations":[]}]"#,
        ] {
            let mut list = result("");
            list.content = codec::read_result_content(blocks.as_bytes()).unwrap();
            assert!(is_json(&list));
            assert_eq!(result_chars(&list), blocks.len() as u64);
            let file = file_content(&list).into_owned();
            assert_eq!(
                content_of_file(file, true, &ResultContent::None),
                list.content
            );
        }
    }

    #[test]
    fn a_replacement_counts_characters_and_not_bytes() {
        let stored = stored_with_preview(
            FileNamer {
                session: &key(),
                salt: 0,
            },
            &Policy::default(),
            CallKey::new(3),
            &result(&"字".repeat(60_000)),
        );
        assert!(stored.replacement.contains("Output too large (58.6KB)"));
        assert_eq!(stored.replacement.matches('字').count(), 2_000);
        assert_eq!(stored.bytes, 180_000);
    }

    #[test]
    fn empty_results_and_replacements_are_exempt() {
        assert_eq!(
            exemption(&result(" \n"), |_| false),
            Some(ExemptReason::Empty)
        );
        assert_eq!(
            exemption(&result("known"), |t| t == "known"),
            Some(ExemptReason::Replacement)
        );
        let talks = format!("{TAG}{}", "x".repeat(5_000));
        assert_eq!(exemption(&result(&talks), |_| false), None);
    }

    #[test]
    fn the_persist_limit_follows_the_rules_of_tool_and_call() {
        let mut policy = Policy::default().tool_results;
        let mut rule = |rule| {
            policy.rules.insert("Read".into(), rule);
            inline_limit(&policy, "Read", None)
        };
        // The default limit of 50,000 characters caps a declared limit, and not a fixed one.
        assert_eq!(rule(ToolResultRule::DeclaredChars(90_000)), Some(50_000));
        assert_eq!(rule(ToolResultRule::DeclaredChars(9_000)), Some(9_000));
        assert_eq!(rule(ToolResultRule::FixedChars(90_000)), Some(90_000));
        assert_eq!(rule(ToolResultRule::NeverPersist(true)), None);
        // A rule of the call overrides the rule of the tool.
        let own = Some(ToolResultRule::FixedChars(5));
        assert_eq!(inline_limit(&policy, "Read", own), Some(5));
    }
}

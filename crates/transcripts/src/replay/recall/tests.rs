//! Tests of the measurement on a synthetic session with known needs.

use std::sync::Arc;

use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::view::Provider;

use super::{
    MeasuredCompaction, Mention, MentionPlace, NeedKind, RecallOptions, RecallSums, TextSource,
    recall,
};
use crate::replay::recorded_session::{RecordedCompaction, RecordedSession, RecordedStep};

struct Writer {
    tape: RecordedSession,
    calls: usize,
}

impl Writer {
    fn new() -> Self {
        Self {
            tape: RecordedSession {
                steps: Vec::new(),
                model: "m".into(),
                subagent: false,
                defects: Vec::new(),
            },
            calls: 0,
        }
    }

    fn message(&self, role: Role, block: Block) -> Message {
        let number = self.tape.steps.len() + 1;
        let id = MessageId::new(uuid::Uuid::from_u128(number as u128));
        let mut message = Message::new(id, role, vec![block]);
        let second = i64::try_from(number).unwrap() * 1_000;
        message.at = Some(Timestamp::from_millis(second));
        message
    }

    fn push(&mut self, role: Role, block: Block) {
        let line = self.tape.steps.len() + 1;
        let message = Arc::new(self.message(role, block));
        self.tape
            .steps
            .push(RecordedStep::Message { line, message });
    }

    fn run(&mut self, tool: &str, input: &str, output: &str) {
        self.calls += 1;
        let id: Box<str> = format!("toolu_{}", self.calls).into();
        let call = Block::ToolUse(ToolUse {
            id: id.clone(),
            name: tool.into(),
            input: ToolInput::parse(input),
            extra: UnknownFields::default(),
        });
        self.push(Role::Assistant, call);
        let result = Block::ToolResult(ToolResult {
            tool_use_id: id,
            content: ResultContent::Text(output.into()),
            is_error: None,
            extra: UnknownFields::default(),
        });
        self.push(Role::User, result);
    }

    fn compact(&mut self, summary: &str) {
        let mut message = self.message(Role::User, Block::text(summary));
        message.machine_generated = true;
        let compacted = RecordedCompaction {
            line: self.tape.steps.len() + 1,
            summary: Arc::new(message),
            first: None,
            last: None,
            kept: Vec::new(),
            manual: Trigger::Auto,
            before_tokens: None,
        };
        let step = RecordedStep::Compacted(Box::new(compacted));
        self.tape.steps.push(step);
    }

    fn measure(&self, texts: &[String]) -> Vec<MeasuredCompaction> {
        let options = RecallOptions {
            provider: Provider::default(),
            policy: &Policy::default(),
            window: WindowHint::default(),
            texts,
        };
        recall(&self.tape, options).compactions
    }
}

/// A conversation that names three files and an identifier, and one in a long output long before its end.
fn before(writer: &mut Writer) {
    writer.push(Role::User, Block::text("Fix src/first.rs."));
    let listing = format!("src/listed.rs\n{}", "unrelated output\n".repeat(2_000));
    writer.run("Bash", r#"{"command":"ls -R"}"#, &listing);
    for n in 0..40 {
        let edit = format!(r#"{{"file_path":"src/edited.rs","old_string":"{n}"}}"#);
        writer.run("Edit", &edit, &"changed parse_header\n".repeat(200));
    }
}

fn shown(one: &MeasuredCompaction, source: TextSource) -> &[bool] {
    let text = one.texts.iter().find(|text| text.source == source);
    &text.unwrap().shows
}

#[test]
fn needs_are_names_of_the_conversation_that_later_calls_use() {
    let mut writer = Writer::new();
    before(&mut writer);
    writer.compact("Fix src/first.rs, see src/listed.rs.");
    writer.run(
        "Read",
        r#"{"file_path":"src/listed.rs"}"#,
        "fn parse_header() {}",
    );
    writer.run(
        "Grep",
        r#"{"pattern":"parse_header|never_named"}"#,
        "src/first.rs:1",
    );
    writer.run(
        "Bash",
        r#"{"command":"cargo test && cat src/first.rs"}"#,
        "ok",
    );
    writer.run("Read", r#"{"file_path":"src/listed.rs"}"#, "again");
    let given = vec!["parse_header".to_owned()];
    let found = writer.measure(&given);
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    let needs: Vec<_> = one
        .needs
        .iter()
        .map(|need| (need.kind, &*need.text, need.call, need.is_from_memory))
        .collect();
    assert_eq!(
        needs,
        [
            (NeedKind::Path, "src/listed.rs", 1, true),
            (NeedKind::Identifier, "parse_header", 2, false),
            (NeedKind::CommandFile, "src/first.rs", 3, false),
        ]
    );
    // The listing is message 3, and 40 edits with their results follow.
    let listed = Mention {
        line: 3,
        place: MentionPlace::Result,
        messages_before: 80,
    };
    assert_eq!(one.needs[0].last_mention, listed);
    assert_eq!(one.needs[2].last_mention.place, MentionPlace::User);
    assert!(one.is_recorded && one.calls == 4);
    assert_eq!(shown(one, TextSource::Recorded), [true, false, true]);
    // The conversation ends with the output of an edit, which contains `parse_header` alone.
    assert_eq!(shown(one, TextSource::TailOfRecorded), [false, true, false]);
    assert_eq!(shown(one, TextSource::Given(0)), [false, true, false]);
    assert!(shown(one, TextSource::Summary)[2]);
    let sums = RecallSums::of(&found);
    let recorded = &sums[&TextSource::Recorded];
    assert_eq!((recorded.all.shown, recorded.all.needs), (2, 3));
    assert_eq!(recorded.from_memory.needs, 1);
    assert_eq!(recorded.by_horizon.map(|counts| counts.needs), [3, 3, 3]);
    for one in [
        TextSource::Summary,
        TextSource::View,
        TextSource::TailOfView,
    ] {
        assert!(sums[&one].chars > 0, "{one:?}");
    }
    assert_eq!(
        sums[&TextSource::TailOfView].chars,
        sums[&TextSource::View].chars
    );
}

#[test]
fn braces_name_the_paths_of_a_folder() {
    let mut writer = Writer::new();
    before(&mut writer);
    writer.compact("Fix src/{first.rs,listed.rs}.");
    writer.run("Read", r#"{"file_path":"src/listed.rs"}"#, "x");
    writer.run("Read", r#"{"file_path":"src/edited.rs"}"#, "x");
    let found = writer.measure(&[]);
    assert_eq!(shown(&found[0], TextSource::Recorded), [true, false]);
}

#[test]
fn needs_end_with_the_next_compaction_and_after_60_calls() {
    let mut writer = Writer::new();
    before(&mut writer);
    writer.compact("First.");
    writer.run("Read", r#"{"file_path":"src/edited.rs"}"#, "x");
    writer.compact("Second.");
    for n in 0..60 {
        writer.run("Bash", &format!(r#"{{"command":"make step-{n}"}}"#), "x");
    }
    writer.run("Read", r#"{"file_path":"src/edited.rs"}"#, "x");
    let found = writer.measure(&[]);
    let counts: Vec<_> = found
        .iter()
        .map(|one| (one.calls, one.needs.len()))
        .collect();
    // The second compaction has no needs within its 60 calls.
    assert_eq!(counts, [(1, 1)]);
}

#[test]
fn a_compaction_without_needs_is_counted() {
    let mut writer = Writer::new();
    before(&mut writer);
    writer.compact("Fix src/first.rs.");
    writer.run("Read", r#"{"file_path":"src/never_named.rs"}"#, "");
    let policy = Policy::default();
    let options = RecallOptions {
        provider: Provider::default(),
        policy: &policy,
        window: WindowHint::default(),
        texts: &[],
    };
    let found = recall(&writer.tape, options);
    assert_eq!((found.compactions.len(), found.without_needs), (0, 1));
}

#[test]
fn without_recorded_compactions_the_policy_compacts() {
    let mut writer = Writer::new();
    before(&mut writer);
    assert_eq!(writer.measure(&[]), []);
    let mut policy = Policy::default();
    policy.tokens.default_window_tokens = Some(32_000);
    policy.autocompact.output_reserve_tokens = 4_000;
    let options = RecallOptions {
        provider: Provider::default(),
        policy: &policy,
        window: WindowHint::default(),
        texts: &[],
    };
    let found = recall(&writer.tape, options).compactions;
    let one = found.first().unwrap();
    assert!(!one.is_recorded);
    assert_eq!(&*one.needs[0].text, "src/edited.rs");
    assert!(
        one.texts
            .iter()
            .all(|text| text.source != TextSource::Recorded)
    );
}

//! The scenes of the session.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::files::{PLACES, SourceFile};
use super::{ScriptedCall, ServiceToolCall, StoryStep, code, outputs};

/// The subject of a scene.
#[derive(Debug, Clone, Copy)]
enum Scene {
    /// The model answers a question and reads several files at once.
    Explore,
    /// The model fixes a failing test.
    Fix,
    /// The model writes a new module.
    Feature,
    /// The model reviews the changes.
    Review,
    /// The model reads a large log.
    Logs,
    /// The user gives an instruction.
    Rule,
    /// The model abandons an attempt and snips its turn.
    Detour,
    /// The model reads removed results back.
    Recall,
    /// The user pauses for an hour and a half.
    Lunch,
}

use Scene::{Detour, Explore, Feature, Fix, Logs, Lunch, Recall, Review, Rule};

const SCENES: [Scene; 38] = [
    Explore, Fix, Rule, Logs, Feature, Review, Detour, Fix, Explore, Feature, Lunch, Recall, Fix,
    Explore, Logs, Detour, Feature, Rule, Fix, Review, Explore, Feature, Fix, Explore, Fix, Logs,
    Rule, Feature, Review, Explore, Fix, Recall, Feature, Explore, Fix, Review, Feature, Fix,
];

const RULES: [(&str, &str); 3] = [
    (
        "No, not like that. Amounts stay i64 in minor units, everywhere. Never convert to f64, not even for display.",
        "Understood: amounts stay i64 in minor units, and displaying them divides integers. I will keep to that.",
    ),
    (
        "One more thing: retries must never book twice. Every handler that writes takes an idempotency key, no exceptions.",
        "Agreed. Every handler that writes takes an idempotency key; I will check the existing ones as I come by.",
    ),
    (
        "Please do not touch the migrations that are already deployed. Add a new one instead.",
        "I will only add migrations and leave the deployed ones alone.",
    ),
];

/// Generates all steps.
pub(super) fn play(rng: Rng) -> Vec<StoryStep> {
    let mut writer = SceneWriter {
        rng,
        steps: Vec::new(),
        calls: 0,
        asks: 0,
        rules: 0,
        last_read: None,
        last_log: None,
        at: 0,
    };
    writer.at = writer.rng.usize(..PLACES.len());
    for scene in SCENES {
        writer.scene(scene);
    }
    writer.steps
}

struct SceneWriter {
    rng: Rng,
    steps: Vec<StoryStep>,
    calls: usize,
    asks: usize,
    rules: usize,
    /// The call that first read a file since the last recall.
    last_read: Option<String>,
    last_log: Option<String>,
    at: usize,
}

impl SceneWriter {
    fn scene(&mut self, scene: Scene) {
        // Consecutive scenes work on neighbouring files, as in real sessions.
        self.at = (self.at + self.rng.usize(1..4)) % PLACES.len();
        let place = PLACES[self.at];
        match scene {
            Explore => self.explore(&place),
            Fix => self.fix(&place),
            Feature => self.feature(&place),
            Review => self.review(),
            Logs => self.logs(&place),
            Rule => self.rule(),
            Detour => self.detour(&place),
            Recall => self.recall(),
            // Longer than 60 minutes, after which level 3 clears old results because the prompt cache is cold.
            Lunch => self.steps.push(StoryStep::Pause(Duration::from_mins(93))),
        }
    }

    fn ask(&mut self, text: String) {
        self.asks += 1;
        self.steps.push(StoryStep::Ask(text));
    }

    fn say(&mut self, text: impl Into<String>, calls: Vec<ScriptedCall>) {
        self.steps.push(StoryStep::Say {
            text: text.into(),
            calls,
        });
    }

    fn call(&mut self, tool: &'static str, input: Value, result: String) -> ScriptedCall {
        self.calls += 1;
        ScriptedCall {
            id: format!("toolu_{:04}", self.calls),
            tool,
            input,
            result,
            failed: false,
        }
    }

    fn read(&mut self, place: &SourceFile) -> ScriptedCall {
        let lines = self.rng.usize(150..330);
        let text = code::numbered(&code::file(&mut self.rng, place, lines));
        let call = self.call("Read", json!({"file_path": place.path}), text);
        self.last_read.get_or_insert_with(|| call.id.clone());
        call
    }

    fn grep(&mut self, word: &str) -> ScriptedCall {
        let count = self.rng.usize(25..70);
        let found = outputs::matches(&mut self.rng, word, count);
        self.call("Grep", json!({"pattern": word, "path": "crates"}), found)
    }

    fn edit(&mut self, place: &SourceFile) -> ScriptedCall {
        let field = place.fields[self.rng.usize(..4)];
        let verb = place.verbs[self.rng.usize(..4)];
        let old = format!("    row.{field} = {verb}(&row).unwrap_or_default();");
        let new = format!(
            "    // The remainder is carried, so that the parts add up.\n    let ({field}, rest) = {verb}_exact(&row)?;\n    row.{field} = {field};\n    row.carry(rest)?;"
        );
        let input = json!({"file_path": place.path, "old_string": old, "new_string": new});
        let said = format!("The file {} has been updated.", place.path);
        self.call("Edit", input, said)
    }

    fn test(&mut self, place: &SourceFile, failing: Option<&str>) -> ScriptedCall {
        let count = self.rng.usize(60..150);
        let printed = outputs::tests(&mut self.rng, place, count, failing);
        let command = format!("cargo test -p {} --lib", place.krate());
        let input = json!({"command": command, "description": "Run the tests of the crate"});
        let mut call = self.call("Bash", input, printed);
        call.failed = failing.is_some();
        call
    }

    fn other(&mut self) -> SourceFile {
        PLACES[self.rng.usize(..PLACES.len())]
    }

    fn explore(&mut self, place: &SourceFile) {
        let SourceFile {
            noun, path, verbs, ..
        } = place;
        let (verb, other) = (verbs[self.rng.usize(..4)], self.other());
        let ask = match self.rng.u8(0..3) {
            0 => format!(
                "How does {noun} {verb} today, and who else depends on it? I want to understand it before we change {path}."
            ),
            1 => format!(
                "A customer says that {verb} takes seconds. Find out what {noun} does there and what it waits for."
            ),
            _ => format!(
                "Where do we {verb} a {noun}, and is it the same in {}?",
                other.path
            ),
        };
        self.ask(ask);
        let grep = self.grep(verb);
        self.say(
            format!("I will look for every place that calls `{verb}` first."),
            vec![grep],
        );
        let reads = vec![self.read(place), self.read(&other)];
        self.say("Two files carry this. I read both.", reads);
        let third = self.other();
        let read = self.read(&third);
        self.say(
            format!("`{}` calls it too, so I check that one.", third.module()),
            vec![read],
        );
        self.say(
            format!(
                "`{noun}` does this in {path}: `can_{verb}` checks the limit, then the row is loaded, changed and saved under its revision. {} depends on it through `{}`. The slow part is the second load: the row is read once to check and once to change. Both could use the same one.",
                other.path, third.module()
            ),
            Vec::new(),
        );
    }

    fn fix(&mut self, place: &SourceFile) {
        let SourceFile {
            noun,
            path,
            verbs,
            fields,
            ..
        } = place;
        let (verb, field) = (verbs[self.rng.usize(..4)], fields[self.rng.usize(..4)]);
        let ask = match self.rng.u8(0..3) {
            0 => format!(
                "The sums are off by a cent when we {verb} a {noun} into three parts. Please fix it in {path}, with a test."
            ),
            1 => format!(
                "CI is red: a test of {} fails since this morning. Find out why and fix the cause, not the test.",
                place.module()
            ),
            _ => format!("{noun}: `{field}` is lost when {verb} is retried. Fix that."),
        };
        self.ask(ask);
        let read = self.read(place);
        self.say(format!("I read {path} first."), vec![read]);
        let name = format!("{}::tests::{verb}_keeps_{field}", place.module());
        let failing = self.test(place, Some(&name));
        self.say("Let me see it fail.", vec![failing]);
        let edit = self.edit(place);
        self.say(
            format!("The remainder is dropped where `{field}` is set: `unwrap_or_default` hides it. I carry it instead."),
            vec![edit],
        );
        let failing = self.test(place, Some(&format!("{name}_twice")));
        self.say("Now the tests again.", vec![failing]);
        let other = self.other();
        let (grep, read) = (self.grep(field), self.read(&other));
        self.say(
            "One more caller relied on the old behaviour. Which one?",
            vec![grep, read],
        );
        let edit = self.edit(&other);
        self.say(
            format!("It is {}: it rounded a second time.", other.path),
            vec![edit],
        );
        let passing = self.test(place, None);
        self.say("And once more.", vec![passing]);
        self.say(
            format!("Fixed. {path} dropped the remainder when it could not {verb} evenly, and {} rounded a second time. Both now carry it; the new test `{verb}_keeps_{field}` fails without the change.", other.path),
            Vec::new(),
        );
    }

    fn feature(&mut self, place: &SourceFile) {
        let SourceFile {
            noun, path, verbs, ..
        } = place;
        let verb = verbs[self.rng.usize(..4)];
        let user = self.other();
        let ask = match self.rng.u8(0..2) {
            0 => format!(
                "Add a way to {verb} many {noun}s in one call, at most 500, all or nothing. Use it in {}.",
                user.path
            ),
            _ => format!(
                "We need metrics for {noun}: how often we {verb}, how long it takes, and how often it is refused."
            ),
        };
        self.ask(ask);
        let reads = vec![self.read(place), self.read(&user)];
        self.say("I read both sides first.", reads);
        let text = code::file(&mut self.rng, place, 110);
        let written = path.replace(".rs", "_many.rs");
        let said = format!("The file {written} has been written.");
        let write = self.call(
            "Write",
            json!({"file_path": written, "content": text}),
            said,
        );
        self.say(
            format!("A module of its own keeps {path} as it is."),
            vec![write],
        );
        let edits = vec![self.edit(place), self.edit(&user)];
        self.say("Now the two places that use it.", edits);
        let failing = self.test(
            place,
            Some(&format!("{}::tests::{verb}_many_is_atomic", place.module())),
        );
        self.say("The tests of the crate.", vec![failing]);
        let edit = self.edit(place);
        self.say(
            "The second half was saved before the first was checked. I check all of them first.",
            vec![edit],
        );
        let passing = self.test(place, None);
        self.say("Again.", vec![passing]);
        self.say(
            format!("Done: `{verb}_many` in {written}, used by {}. At most 500 at a time, and nothing is saved unless all may be. The metrics are counted in the same place.", user.path),
            Vec::new(),
        );
    }

    fn review(&mut self) {
        self.ask("Show me what changed since the last commit, and say what you would still improve before we commit.".into());
        let places: Vec<SourceFile> = (0..5).map(|_| self.other()).collect();
        let diff = outputs::diff(&mut self.rng, &places, 8);
        let input = json!({"command": "git diff", "description": "Show what changed"});
        let diff = self.call("Bash", input, diff);
        self.say("The whole diff.", vec![diff]);
        let clippy = self.grep("clippy");
        let test = self.test(&places[0], None);
        self.say("And lints and tests.", vec![clippy, test]);
        self.say(
            format!("Five files changed. I would still rename `rest` in {} to `remainder`, and add a test for an empty list. Nothing else stands in the way of a commit.", places[1].path),
            Vec::new(),
        );
    }

    fn logs(&mut self, place: &SourceFile) {
        let verb = place.verbs[self.rng.usize(..4)];
        self.ask(format!(
            "Last night {} stopped to {verb} for ten minutes. Here is the host: look into its log.",
            place.krate()
        ));
        let lines = self.rng.usize(700..1_100);
        let log = outputs::log(&mut self.rng, place, lines);
        let command = format!(
            "journalctl -u {} --since yesterday -o short-iso",
            place.krate()
        );
        let log = self.call(
            "Bash",
            json!({"command": command, "description": "Read the log"}),
            log,
        );
        let id = log.id.clone();
        self.say("I read the log of the night.", vec![log]);
        self.steps.push(StoryStep::ServiceTool {
            text: "The log was stored, so I search it instead of reading all of it.".into(),
            tool: ServiceToolCall::Grep {
                call: id.clone(),
                pattern: " ERROR ".into(),
            },
        });
        // A log of 700 lines exceeds the limit of level 1, so the model reads it back by its id.
        self.last_log = Some(id);
        let read = self.read(place);
        self.say(
            format!("The errors come from `{}`.", place.module()),
            vec![read],
        );
        self.say(
            format!("The pool was empty: `{verb}` held a connection while it waited for the provider. Each error follows a warning about a slow one. I would release the connection before the call and take it again afterwards."),
            Vec::new(),
        );
    }

    fn rule(&mut self) {
        let (ask, answer) = RULES[self.rules % RULES.len()];
        self.rules += 1;
        self.ask(ask.to_owned());
        self.say(answer, Vec::new());
    }

    fn detour(&mut self, place: &SourceFile) {
        // The index of the turn that begins below. The snip at the end removes it.
        let ask = self.asks;
        self.ask(format!(
            "Would it be worth it to replace {} by a table of our own macros? Try it quickly.",
            place.module()
        ));
        let reads = vec![self.read(place)];
        self.say("I look at what would be replaced.", reads);
        let text = code::file(&mut self.rng, place, 160);
        let path = "crates/macros/src/table.rs";
        let write = self.call(
            "Write",
            json!({"file_path": path, "content": text}),
            format!("The file {path} has been written."),
        );
        self.say("A first draft.", vec![write]);
        let failing = self.test(place, Some("table::tests::expands"));
        self.say("Does it hold?", vec![failing]);
        self.say("It is not worth it: twice the code for one file less, and errors point into the macro. I removed the draft.", Vec::new());
        self.ask(
            // The current turn cannot be snipped, so another one begins first.
            "Agreed, forget that idea. Back to the ledger: is everything green without it?".into(),
        );
        self.steps.push(StoryStep::ServiceTool {
            text: "That attempt is of no use any more; I take it out of my context.".into(),
            tool: ServiceToolCall::Snip {
                ask,
                reason: "an attempt that was dropped".into(),
            },
        });
        let passing = self.test(place, None);
        self.say("Now the tests.", vec![passing]);
        self.say("All green without it.", Vec::new());
    }

    fn recall(&mut self) {
        // The oldest read is the most likely one to have left the view.
        let Some(call) = self.last_read.take() else {
            return;
        };
        self.ask("Back again. You read a file at the very beginning: does it still say what you think it says?".into());
        self.steps.push(StoryStep::ServiceTool {
            text: "I no longer see that file, so I read the result again.".into(),
            tool: ServiceToolCall::Read { call },
        });
        if let Some(call) = self.last_log.take() {
            self.steps.push(StoryStep::ServiceTool {
                text: "And the warnings that came before the errors in the log.".into(),
                tool: ServiceToolCall::Grep {
                    call,
                    pattern: " WARN .*connection".into(),
                },
            });
        }
        self.say("It does: the limit is checked before the row is loaded, as I said. And the warnings in the log come right before the errors, so the cause stands.", Vec::new());
    }
}

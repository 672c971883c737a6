//! Tests of clients in four languages, built as users build them. Each client makes the same calls to a real server,
//! and all outputs must be equal byte for byte. `README.md` describes the rules.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod compare;
mod description;
mod guide;
mod hook;
mod language;
mod packages;
mod streams;
mod template;
mod world;

use std::path::{Path, PathBuf};

use palimpsest_proto::context::v1::ErrorReason;

use crate::compare::{Wanted, outcomes};
use crate::language::{ALL, Language};
use crate::world::World;

/// Returns the path of a file in this folder.
fn beside(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/clients")).join(name)
}

/// Returns the path of an installed tool.
#[track_caller]
fn tool(path: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools");
    let tool = tools.join(path);
    assert!(
        tool.is_file(),
        "{path} is missing: run scripts/install-tools"
    );
    tool
}

/// Runs the scenario in one language with new servers. Returns the client's output.
async fn play(language: Language) -> String {
    let built = language.build().await;
    let world = World::start().await;
    let output = built.join("output.jsonl");
    let args = [beside("scenario.json"), world.file.clone(), output.clone()];
    language.call("run", &built, &args, &[]).await;
    std::fs::read_to_string(output).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_in_all_languages_receive_the_same_replies() {
    // Builds the binary first, because a build would block this runtime's threads during the test.
    palimpsest_tests::binary();
    let played = ALL.map(|language| tokio::spawn(play(language)));
    // Waits for all languages before the first failure, so that every build completes and serves the other tests.
    let played = futures::future::join_all(played).await;
    let outputs = ALL.into_iter().zip(played);
    let outputs: Vec<_> = outputs
        .map(|(language, output)| (language.name(), output.unwrap()))
        .collect();
    let wanted = Wanted::of(&std::fs::read_to_string(beside("scenario.json")).unwrap());
    for (language, output) in &outputs {
        wanted.check(language, output);
    }
    let (first, one) = &outputs[0];
    for (other, its) in &outputs {
        compare::same((first, one), (other, its));
    }
    let expected = beside("expected.jsonl");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&expected, one).unwrap();
    }
    let expected = std::fs::read_to_string(expected).unwrap();
    compare::same(("expected.jsonl", &expected), (first, one));
}

/// Asserts that the scenario produces every error reason, or that the README explains why it cannot.
#[test]
fn every_error_reason_is_tested_or_exempted() {
    let expected = std::fs::read_to_string(beside("expected.jsonl")).unwrap();
    let readme = std::fs::read_to_string(beside("README.md")).unwrap();
    let met = outcomes(&expected);
    // The numbers of the enum have no gaps.
    let all = (1..).map_while(|number| ErrorReason::try_from(number).ok());
    let mut count = 0;
    for reason in all {
        let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
        let is_met = met
            .iter()
            .any(|outcome| outcome.ends_with(&format!(" {name}")));
        let is_explained = readme.contains(&format!("\n| `{name}` | "));
        assert_ne!(
            is_met, is_explained,
            "{name}: met {is_met}, explained {is_explained}"
        );
        count += 1;
    }
    assert!(count > 50, "{count}");
}

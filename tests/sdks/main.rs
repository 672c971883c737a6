//! The official SDKs of Anthropic and OpenAI: each case runs directly and through the gateway, with the same results.
//!
//! The lists of cases are in `python` and `typescript/src`. `SDK_CASES=errors,retries` selects cases by name.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod compare;
mod docs;
mod language;
mod served_edits;
mod world;

use crate::compare::{Line, check, normal_text};
use crate::language::Language;
use crate::world::World;

/// Runs all cases of a language and checks their results, and the requests that the providers got.
async fn cases_have_the_same_results(language: Language, least: usize) {
    // Builds the binary first, because a build would block this runtime's threads during the test.
    palimpsest_tests::binary();
    let program = language.program().await;
    let world = World::start().await;
    let selected = std::env::var("SDK_CASES").ok();
    let names = selected.iter().flat_map(|names| names.split(','));
    let names: Vec<&str> = names.collect();
    let printed = program.run(&names, &world.variables()).await;
    let lines: Vec<Line> = printed.lines().map(Line::parse).collect();
    let pairs: Vec<(&Line, &Line)> = lines.chunks(2).map(|pair| (&pair[0], &pair[1])).collect();
    let is_whole = selected.is_some() || pairs.len() >= least;
    assert!(is_whole, "{language:?}: {} cases", pairs.len());
    let addresses = world.addresses();
    let mut differences = Vec::new();
    let recorded = [&world.direct, &world.upstream]
        .map(|provider| [provider.requests(), provider.resource_requests()].concat());
    for (direct, through) in &pairs {
        let header = direct.header();
        let requests = recorded.each_ref().map(|all| {
            let of_case = all.iter().filter(|it| it.headers.contains(&header));
            of_case.collect::<Vec<_>>()
        });
        let text = |text: &str| normal_text(text, &addresses);
        if let Err(difference) = check(direct, through, &requests, &text) {
            differences.push(format!("{}: {difference}", direct.case));
        }
    }
    assert!(
        differences.is_empty(),
        "{language:?}: {} of {} cases:\n{}",
        differences.len(),
        pairs.len(),
        differences.join("\n")
    );
    let aborts = pairs.iter().map(|(direct, _)| direct.aborts).sum();
    assert!(aborts > 0 || selected.is_some());
    world.wait_for_aborts(aborts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_gets_the_same_objects_through_the_gateway() {
    cases_have_the_same_results(Language::Python, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_gets_the_same_objects_through_the_gateway() {
    cases_have_the_same_results(Language::TypeScript, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deno_gets_the_same_objects_through_the_gateway() {
    cases_have_the_same_results(Language::Deno, 50).await;
}

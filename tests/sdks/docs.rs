//! The programs and the versions in `docs/sdks.md`.

use std::path::Path;

use palimpsest_fake_provider::{Behaviour, Plan};
use palimpsest_tests::markdown::blocks_of;

use crate::language::{Language, Program};
use crate::world::World;

/// The address of the gateway in the page.
const ADDRESS: &str = "127.0.0.1:50053";
/// The models of the programs.
const MODELS: [&str; 2] = ["claude-opus-4-8", "gpt-5.1"];

fn page() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sdks.md"))
}

/// Runs the programs of a language. The output names a session of its own in each.
async fn run(language: Language, name: &'static str, extension: &str) {
    palimpsest_tests::binary();
    let world = World::start().await;
    for model in MODELS {
        let answer = Plan {
            behaviour: Behaviour::Say("Paris.".to_owned()),
            ..Plan::default()
        };
        world.upstream.script(model, [answer.clone(), answer]);
    }
    let blocks = blocks_of(page());
    let of = |wanted: &'static str| blocks.iter().filter(move |block| block.language == wanted);
    let output = of("text").next().unwrap();
    let keys = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"].map(|key| (key, "key".to_owned()));
    // Node finds the packages in the folders above a program.
    let folder = tempfile::tempdir_in(language.packages()).unwrap();
    let mut count = 0;
    for block in of(name) {
        count += 1;
        let program = block.text.replace(ADDRESS, &world.gateway_host());
        assert!(program != block.text, "{}", block.place);
        let file = folder.path().join(format!("program-{count}.{extension}"));
        std::fs::write(&file, program).unwrap();
        let printed = Program::of(language, &file).run(&[], &keys).await;
        let expected = output.text.replace("python-1", &format!("{name}-{count}"));
        assert_eq!(printed, expected, "{}", block.place);
    }
    assert_eq!(count, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_in_python_run_as_printed() {
    run(Language::Python, "python", "py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_in_typescript_run_as_printed() {
    run(Language::TypeScript, "typescript", "ts").await;
}

#[test]
fn the_versions_are_those_of_the_tests() {
    let read = |name: &str| {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/sdks"));
        std::fs::read_to_string(folder.join(name)).unwrap()
    };
    let page = std::fs::read_to_string(page()).unwrap();
    let requirements = read("python/requirements.in");
    let python = requirements
        .lines()
        .filter_map(|line| line.split_once("=="));
    let package: serde_json::Value =
        serde_json::from_str(&read("typescript/package.json")).unwrap();
    let packages = package["dependencies"].as_object().unwrap();
    let typescript = packages.iter().filter(|(name, _)| *name != "zod");
    let typescript = typescript.map(|(name, version)| (name.as_str(), version.as_str().unwrap()));
    let mut count = 0;
    for (name, version) in python.chain(typescript) {
        count += 1;
        let mut rows = page
            .lines()
            .filter(|line| line.starts_with(&format!("| `{name}`")));
        assert!(
            rows.any(|row| row.ends_with(&format!(" {version} |"))),
            "docs/sdks.md does not name version {version} of {name}"
        );
    }
    assert_eq!(count, 4);
}

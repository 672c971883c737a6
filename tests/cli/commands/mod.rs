//! Runs the shell blocks of the README and the pages in `docs` with the real binary, in the order of the page.
//!
//! Each page has a world: a home folder, a working folder and its own servers. The blocks share the variables that they
//! export, as in one terminal. [`tables::NOT_RUN`] lists the blocks that this test cannot run, with the reasons. Every
//! other block must run. `blocks.rs` checks the syntax of all blocks.

mod tables;
mod world;

use palimpsest_tests::markdown::{Block, blocks_of, pages, repository};

use self::tables::{BEFORE, EQUAL_OUTPUT, NOT_RUN};
use self::world::World;

fn is_for(page: &str, block: &Block, entry_page: &str, words: &str) -> bool {
    (entry_page.is_empty() || entry_page == page) && block.text.starts_with(words)
}

/// Returns true if the block contains commands. A block without a language does, since pages mark output as `text`.
fn is_shell(block: &Block) -> bool {
    let mut programs = ["palimpsest ", "cargo ", "curl "].iter();
    let is_command = programs.any(|program| block.text.starts_with(program));
    assert!(
        block.language != "text" || !is_command,
        "{}: nothing runs this command: mark it as sh",
        block.place
    );
    matches!(block.language.as_str(), "" | "sh" | "bash" | "shell")
}

fn not_run(page: &str, block: &Block) -> bool {
    let mut entries = NOT_RUN.iter().flat_map(|(_, entries)| *entries);
    entries.any(|(entry, words)| is_for(page, block, entry, words))
}

/// Runs the blocks of a page in order.
#[track_caller]
fn run_page(page: &str) {
    let blocks = blocks_of(&repository().join(page));
    if !blocks.iter().any(|it| is_shell(it) && !not_run(page, it)) {
        return;
    }
    let mut world = World::new(page);
    let mut before = BEFORE.to_vec();
    let mut stdout = String::new();
    for block in &blocks {
        if !is_shell(block) {
            let mut entries = EQUAL_OUTPUT.iter();
            if entries.any(|(entry, words)| is_for(page, block, entry, words)) {
                assert_eq!(stdout, block.text, "{}: the output differs", block.place);
            }
        } else if !not_run(page, block) {
            // An entry applies to the first block that it matches.
            for (_, _, commands) in before.extract_if(.., |it| is_for(page, block, it.0, it.1)) {
                world.run(&block.place, commands);
            }
            stdout = world.run(&block.place, &block.text);
        }
    }
    world.stop();
}

#[test]
fn the_commands_of_the_readme_run() {
    run_page("README.md");
}

#[test]
fn the_commands_of_the_guides_run() {
    for page in pages("docs") {
        run_page(&page);
    }
}

#[test]
fn the_commands_of_the_api_and_framework_pages_run() {
    for folder in ["docs/api", "docs/frameworks", "docs/decisions"] {
        for page in pages(folder) {
            run_page(&page);
        }
    }
}

#[test]
fn every_entry_of_the_tables_matches_a_block() {
    let folders = ["docs", "docs/api", "docs/frameworks", "docs/decisions"];
    let mut all = vec!["README.md".to_owned()];
    all.extend(folders.into_iter().flat_map(pages));
    let blocks = all
        .iter()
        .map(|page| (page, blocks_of(&repository().join(page))));
    let blocks: Vec<_> = blocks.collect();
    let matches = |entry: &str, words: &str| {
        blocks.iter().any(|(page, blocks)| {
            let mut blocks = blocks.iter();
            blocks.any(|block| is_for(page, block, entry, words))
        })
    };
    let not_run = NOT_RUN
        .iter()
        .flat_map(|(_, entries)| entries.iter().copied());
    let before = BEFORE.iter().map(|it| (it.0, it.1));
    for (page, words) in not_run.chain(before).chain(EQUAL_OUTPUT.iter().copied()) {
        assert!(
            matches(page, words),
            "no block of {page:?} begins with {words:?}"
        );
    }
}

//! Pages of Markdown and their code blocks.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block.
pub struct Block {
    /// The page and the line of the opening fence.
    pub place: String,
    /// The language after the opening fence. Empty if none is named.
    pub language: String,
    /// The lines between the fences, without the indentation of the opening fence.
    pub text: String,
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap()
}

/// Returns the pages of a folder in order, relative to the repository.
pub fn pages(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
    pages.retain(|page| Path::new(page).extension().is_some_and(|it| it == "md"));
    pages.sort();
    pages
}

/// Returns all blocks of a page in order.
#[track_caller]
pub fn blocks_of(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (Some((_, _)), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), None) => {
                // A blank line can be shorter than the indentation of its block.
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, Some(language)) => {
                let block = Block {
                    place: format!("{}:{}", page.display(), number + 1),
                    language: language.trim().to_owned(),
                    text: String::new(),
                };
                open = Some((line.len() - line.trim_start().len(), block));
            }
            (None, None) => {}
        }
    }
    assert!(
        open.is_none(),
        "{}: a code block is not closed",
        page.display()
    );
    blocks
}

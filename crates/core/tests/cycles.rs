//! Checks that no more than three source files of a crate depend on each other in a cycle.
//!
//! A few files that depend on each other are one unit. A larger cycle means that a module defines items which its own
//! parts import. Such items belong in a file of their own. Unit tests and glob imports are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CRATES: &str = "core facts store summarize transcripts types";
const MAX_CYCLE: usize = 3;

/// The segments of a module path or of a path in the code.
type Names = Vec<String>;

#[derive(Default)]
struct Source {
    imports: BTreeMap<String, Names>,
    /// The paths in the code, including those of imports.
    paths: BTreeSet<Names>,
}

type Sources = BTreeMap<Names, Source>;
type Edges = BTreeMap<Names, BTreeSet<Names>>;

fn names(path: &str) -> Names {
    let names = path.split("::").map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

fn child(of: &[String], name: &str) -> Names {
    [of, &[name.to_owned()]].concat()
}

/// Adds the imports of a `use` tree below a prefix.
fn read_use(prefix: &[String], tree: &str, source: &mut Source) {
    if let Some((head, group)) = tree.split_once('{') {
        let prefix = [prefix, &names(head)].concat();
        let mut depth = 0;
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let parts = group.split(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == ',' && depth == 0
        });
        for part in parts.filter(|part| !part.trim().is_empty()) {
            read_use(&prefix, part, source);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path = [prefix, &names(path)].concat();
    // `use a::{self}` imports `a` itself.
    path.pop_if(|last| last == "self");
    let name = names(alias).pop().or_else(|| path.last().cloned());
    source.imports.insert(name.unwrap_or_default(), path);
}

fn read_file(text: &str) -> Source {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let lines = text.lines().filter_map(|line| line.split("//").next());
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut source = Source::default();
    for statement in code.split(';') {
        let (before, tree) = statement.rsplit_once("use ").unwrap_or((statement, ""));
        let visibility = before.rsplit('\n').next().unwrap_or("").trim();
        if ["", "pub", "pub(crate)", "pub(super)"].contains(&visibility) {
            read_use(&[], &tree.replace('\n', " "), &mut source);
        }
    }
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.map(names).filter(|path| path.len() > 1);
    source.paths = paths.chain(source.imports.values().cloned()).collect();
    source
}

/// Reads all Rust files of a folder and its subfolders.
fn read_folder(folder: &Path, module: &[String], sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("the folder is read") {
        let path = entry.expect("the folder is read").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            read_folder(&path, &child(module, &name), sources);
        } else if path.extension().is_some_and(|it| it == "rs") && !name.ends_with("tests") {
            let module = match &*name {
                "lib" | "mod" => module.to_vec(),
                name => child(module, name),
            };
            let text = fs::read_to_string(&path).expect("the file is read");
            // A module inside a file belongs to that file. No other file imports the file for the items of that module.
            let inner = text.lines().filter_map(|line| line.strip_prefix("mod "));
            for name in inner.filter_map(|line| line.strip_suffix(" {")) {
                sources.insert(child(&module, name), Source::default());
            }
            sources.insert(module, read_file(&text));
        }
    }
}

/// Returns the module that defines the item of a path. A path of another crate or of a module has none.
fn home(sources: &Sources, from: &Names, path: &[String], reexports: usize) -> Option<Names> {
    let mut at = from.clone();
    for (index, name) in path.iter().enumerate() {
        let Source { imports, .. } = sources.get(&at)?;
        match (name.as_str(), imports.get(name)) {
            ("crate", _) => at.clear(),
            ("self", _) => {}
            ("super", _) => drop(at.pop()?),
            _ if sources.contains_key(&child(&at, name)) => at.push(name.clone()),
            (_, Some(import)) if reexports > 0 && *import != path => {
                let rest = [import, &path[index + 1..]].concat();
                return home(sources, &at, &rest, reexports - 1);
            }
            // The first name of a path into another crate is not an item of this module.
            _ => return Some(at).filter(|_| index > 0),
        }
    }
    None
}

fn reach<'a>(edges: &'a Edges, from: &'a Names) -> BTreeSet<&'a Names> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(edges[next].iter().filter(|to| found.insert(*to)));
    }
    found
}

#[test]
fn import_cycles_between_files_are_bounded() {
    for name in CRATES.split_whitespace() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let mut sources = Sources::new();
        read_folder(&folder.join("src"), &[], &mut sources);
        let mut edges = Edges::new();
        for (from, source) in &sources {
            let paths = source.paths.iter();
            // At most 8 re-exports are followed, so that a cycle of re-exports ends.
            let homes = paths.filter_map(|path| home(&sources, from, path, 8));
            edges.insert(from.clone(), homes.filter(|home| home != from).collect());
        }
        for from in edges.keys() {
            let mut cycle = reach(&edges, from);
            cycle.retain(|to| reach(&edges, to).contains(from));
            let files: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
            assert!(
                files.len() <= MAX_CYCLE,
                "files of {name} that import each other: {files:#?}"
            );
        }
    }
}

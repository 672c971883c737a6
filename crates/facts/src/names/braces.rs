//! Lists of paths in brace notation: `src/{a.rs,b.rs}` stands for `src/a.rs` and `src/b.rs`.
//!
//! Paths of one folder take less space in this notation, which agents know from their shells. [`expand`] restores the
//! paths.

/// The minimum number of characters that a path saves in a group of its folder. Below it, single paths are easier to read.
const MIN_SAVED: usize = 8;
/// The minimum number of characters that a path saves if the group has to move to a folder above, which makes it harder
/// to read. Paths in another checkout of the repository save as much.
const MIN_SAVED_ABOVE: usize = 40;
/// The signs around a name in a list: two backticks, a comma and a space.
pub(crate) const SEPARATOR_CHARS: usize = 4;
/// The limits of a folder and of all expanded paths in bytes. A text is untrusted input, and each name of a group repeats
/// the folder.
const MAX_FOLDER: usize = 160;
const MAX_EXPANDED: usize = 256 * 1024;

/// Names in order, with the paths of common folders in groups.
#[derive(Debug, Default)]
pub(crate) struct NameGroups<'a> {
    groups: Vec<NameGroup<'a>>,
}

#[derive(Debug)]
struct NameGroup<'a> {
    /// The names. All begin with the folder.
    names: Vec<&'a str>,
    /// The length of the common folder in bytes, including the slash.
    folder: usize,
}

/// The place of a new name, and the characters that it needs there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupPlace {
    /// The number of characters.
    pub(crate) chars: usize,
    /// The group and its new folder. `None` for a new group.
    group: Option<(usize, usize)>,
}

impl<'a> NameGroups<'a> {
    /// Returns the shortest place for a name.
    pub(crate) fn place(&self, name: &str) -> GroupPlace {
        let alone = name.chars().count() + SEPARATOR_CHARS;
        let mut best = GroupPlace {
            chars: alone,
            group: None,
        };
        if !can_group(name) {
            return best;
        }
        for (at, group) in self.groups.iter().enumerate() {
            let folder = common_folder(group.names[0], group.folder, name);
            if folder == 0 {
                continue;
            }
            let members = group.names.len();
            // A single name gets its braces, and the other members repeat the folders between the old and the new one.
            let longer = if members == 1 {
                2
            } else {
                (members - 1) * (group.folder - folder)
            };
            // A grouped name is ASCII, so its bytes are its characters. It adds its rest and a comma.
            let chars = longer + name.len() - folder + 1;
            let is_direct = folder == group.folder && !name[folder..].contains('/');
            let min_saved = if is_direct {
                MIN_SAVED
            } else {
                MIN_SAVED_ABOVE
            };
            if chars + min_saved <= alone && chars < best.chars {
                best = GroupPlace {
                    chars,
                    group: Some((at, folder)),
                };
            }
        }
        best
    }

    /// Adds a name at a place that [`Self::place`] returned for it.
    pub(crate) fn push(&mut self, name: &'a str, place: GroupPlace) {
        match place.group {
            Some((at, folder)) => {
                let group = &mut self.groups[at];
                group.folder = folder;
                group.names.push(name);
            }
            None => self.groups.push(NameGroup {
                names: vec![name],
                folder: if can_group(name) {
                    name.rfind('/').map_or(0, |slash| slash + 1)
                } else {
                    0
                },
            }),
        }
    }

    /// Renders the groups in backticks, separated by commas.
    pub(crate) fn render(&self) -> String {
        let groups = self.groups.iter().map(|group| match &group.names[..] {
            [name] => format!("`{name}`"),
            names => {
                let (folder, _) = names[0].split_at(group.folder);
                let rest: Vec<&str> = names.iter().map(|name| &name[group.folder..]).collect();
                format!("`{folder}{{{}}}`", rest.join(","))
            }
        });
        groups.collect::<Vec<_>>().join(", ")
    }
}

/// Renders names in backticks with the paths of common folders in groups.
pub(crate) fn in_groups<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups = NameGroups::default();
    for name in names {
        let place = groups.place(name);
        groups.push(name, place);
    }
    groups.render()
}

/// Returns true if a name can be a part of the notation.
fn can_group(name: &str) -> bool {
    name.bytes().all(is_path_byte)
}

/// True for the bytes of paths in the notation. A table, because every update checks the names of all lists.
const PATH_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        bytes[byte as usize] = !matches!(
            byte,
            b'{' | b'}'
                | b','
                | b'`'
                | b'"'
                | b'\''
                | b'('
                | b')'
                | b'['
                | b']'
                | b'<'
                | b'>'
                | b'|'
                | b';'
                | b'$'
                | b'*'
                | b'\\'
        );
        byte += 1;
    }
    bytes
};

fn is_path_byte(byte: u8) -> bool {
    PATH_BYTES[usize::from(byte)]
}

/// Returns the length of the folder that two paths share, including its slash. `limit` is the length of the folder of the
/// first one.
fn common_folder(first: &str, limit: usize, second: &str) -> usize {
    let pairs = first.as_bytes()[..limit].iter().zip(second.as_bytes());
    let equal = pairs.take_while(|(a, b)| a == b).count();
    // The root folder is no group.
    let slash = first[..equal].rfind('/').filter(|slash| *slash > 0);
    let folder = slash.map_or(0, |slash| slash + 1);
    // The second path must not be the folder itself.
    if folder < second.len() { folder } else { 0 }
}

/// Returns the text with the paths of brace notations after it, one a line. Returns `None` if it contains none.
pub fn expand(text: &str) -> Option<String> {
    let mut paths: Vec<String> = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    // The folder of a group ends with a slash, so a brace after anything else begins no group.
    while let Some(open) = text[from..].find("/{").map(|at| from + at + 1) {
        from = open + 1;
        let folder_at = text[..open]
            .bytes()
            .rposition(|byte| !is_path_byte(byte))
            .map_or(0, |at| at + 1);
        let Some(length) = text[from..]
            .bytes()
            .position(|byte| !is_path_byte(byte) && byte != b',')
        else {
            // All remaining bytes belong to the notation, so no brace closes it.
            break;
        };
        let close = from + length;
        // `position` found a byte at `close`, so the index is in range.
        if text.as_bytes()[close] != b'}' || !text[from..close].contains(',') {
            continue;
        }
        let folder = &text[folder_at..open];
        if folder.len() <= MAX_FOLDER {
            for name in text[from..close].split(',') {
                bytes += folder.len() + name.len();
                if bytes > MAX_EXPANDED {
                    break;
                }
                paths.push(format!("{folder}{name}"));
            }
        }
        from = close;
    }
    (!paths.is_empty()).then(|| format!("{text}\n{}\n", paths.join("\n")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_of_a_folder_are_grouped() {
        let names = [
            "packages/core/src/evaluation/types.ts",
            "someName",
            "packages/core/src/evaluation/evaluate.ts",
            "README.md",
            "packages/core/src/paths.ts",
            "a/a.rs",
            "a/b.rs",
        ];
        assert_eq!(
            in_groups(names),
            "`packages/core/src/evaluation/{types.ts,evaluate.ts}`, `someName`, `README.md`, \
             `packages/core/src/paths.ts`, `a/a.rs`, `a/b.rs`"
        );
        let other = "/home/someone/projects/app__worktrees/fix-the-parser";
        let names = ["src/a.rs", "src/b.rs", "docs/guide.md"].map(|name| format!("{other}/{name}"));
        assert_eq!(
            in_groups(names.iter().map(|name| &**name)),
            format!("`{other}/{{src/a.rs,src/b.rs,docs/guide.md}}`")
        );
    }

    #[test]
    fn the_expanded_paths_are_limited() {
        let group = |folder: usize, names: usize| {
            format!("{}/{{{}b}}", "x".repeat(folder), "a,".repeat(names))
        };
        // The folder is above its limit. Repeated for each name, it would need 400 MB.
        assert_eq!(expand(&group(100_000, 4_000)), None);
        // The names need 1.5 MB with their folder, so the limit of all paths applies.
        let text = group(150, 10_000);
        let expanded = expand(&text).unwrap().len() - text.len();
        assert!((200_000..300_000).contains(&expanded), "{expanded}");
        assert!(expand(&group(159, 1)).is_some());
        assert_eq!(expand(&group(160, 1)), None);
    }

    #[test]
    fn other_braces_are_no_lists_of_paths() {
        for text in [
            "", "a/{b}", "{a,b}", "a/{b,c", "a/{b c,d}", "x/{", "é/{é,a}",
        ] {
            assert_eq!(expand(text), None, "{text}");
        }
        assert_eq!(
            expand("`a/{b,c/d}`.").as_deref(),
            Some("`a/{b,c/d}`.\na/b\na/c/d\n")
        );
    }

    proptest! {
        #[test]
        fn expansion_restores_the_names(
            names in prop::collection::vec("[a-c]{1,3}(/[a-c]{1,12}){0,4}(\\.rs)?", 0..30),
        ) {
            let mut groups = NameGroups::default();
            let mut chars = 0;
            for name in &names {
                let place = groups.place(name);
                chars += place.chars;
                groups.push(name, place);
            }
            let list = groups.render();
            // Every place counts a separator, and the list has none after its last name.
            prop_assert!(list.len() <= chars && chars <= list.len() + SEPARATOR_CHARS, "{list} {chars}");
            let text = expand(&list).unwrap_or(list);
            for name in &names {
                let is_listed = |line: &str| line == name || line.contains(&format!("`{name}`"));
                prop_assert!(text.lines().any(is_listed), "{name} in {text}");
            }
        }
    }
}

//! Files in folders.

use std::path::{Path, PathBuf};

/// Returns the files in a folder and its subfolders. A folder that does not exist has none.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

//! Shorter forms of paths.

/// Returns the file of a path and its directory.
pub(crate) fn brief_path(path: &str) -> &str {
    let end = path.trim_end_matches('/').len();
    let slash = path[..end].rmatch_indices('/').nth(1);
    slash.map_or(path, |(at, _)| &path[at + 1..])
}

/// Returns the path relative to the working directory.
pub(crate) fn relative_path<'a>(path: &'a str, root: Option<&str>) -> &'a str {
    let inside = root.and_then(|root| path.strip_prefix(root));
    // A directory whose name only begins like the root is outside of it.
    let inside = inside.and_then(|rest| rest.strip_prefix('/'));
    inside.filter(|rest| !rest.is_empty()).unwrap_or(path)
}

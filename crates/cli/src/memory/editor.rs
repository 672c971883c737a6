//! The editor of the person, on a temporary file.

use std::env;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, bail};
use tempfile::NamedTempFile;

/// A file that the editor has changed. It is removed when the value is dropped.
pub(super) struct EditedFile(NamedTempFile);

impl EditedFile {
    /// Opens a text in the editor and waits for its end.
    pub(super) fn open(text: &str) -> anyhow::Result<Self> {
        let variables = ["VISUAL", "EDITOR"].into_iter();
        let mut editors = variables.filter_map(|name| env::var(name).ok());
        let Some(editor) = editors.find(|editor| !editor.trim().is_empty()) else {
            bail!("no editor is set: set VISUAL or EDITOR, or pass the text with --file");
        };
        // The name ends in `.md`, so that editors highlight Markdown. Only this user can read the file.
        let mut file = tempfile::Builder::new()
            .prefix("summary-")
            .suffix(".md")
            .tempfile()
            .context("cannot create a temporary file")?;
        file.write_all(text.as_bytes())?;
        file.flush()?;
        // The variable can contain arguments, so a shell splits it. The path is an argument of its own.
        let status = Command::new("sh")
            // The last `sh` is the `$0` of the script, and the path is its `$1`.
            .args(["-c", &format!("{editor} \"$1\""), "sh"])
            .arg(file.path())
            .status()
            .context("cannot run the editor with `sh`")?;
        if !status.success() {
            bail!("the editor `{editor}` ended with {status}: nothing was changed");
        }
        Ok(Self(file))
    }

    /// Reads the text. The editor can have replaced the file, so it is read by its path.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let path = self.0.path();
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Keeps the file, and returns a text that names it.
    pub(super) fn keep(self) -> anyhow::Result<String> {
        let (_, path) = self.0.keep().context("cannot keep the edited text")?;
        Ok(format!(
            "nothing was changed, and your text is in {}",
            path.display()
        ))
    }
}

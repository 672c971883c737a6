//! The sources of a configuration: environment variables and files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

pub(crate) const VARIABLE_PREFIX: &str = "PALIMPSEST_";

/// Access to environment variables and files.
pub trait Source {
    /// Returns the environment variables. Invalid Unicode is replaced.
    fn vars(&self) -> BTreeMap<String, String>;

    /// Returns the content of a text file.
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The environment of this process and the file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessSource;

impl Source for ProcessSource {
    fn vars(&self) -> BTreeMap<String, String> {
        // `env::vars` panics on invalid Unicode, even in variables of other programs.
        let text = |part: std::ffi::OsString| part.to_string_lossy().into_owned();
        env::vars_os()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }
}

/// Fixed variables and files, for tests.
#[derive(Debug, Clone, Default)]
pub struct FixedSource {
    vars: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, String>,
}

impl FixedSource {
    /// Adds a variable.
    #[must_use]
    pub fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }
}

impl Source for FixedSource {
    fn vars(&self) -> BTreeMap<String, String> {
        self.vars.clone()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        self.files
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

//! Origins of values, and errors of a configuration.

use std::fmt;
use std::path::PathBuf;

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingOrigin {
    /// The built-in default.
    Default,
    /// A line of the file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The line number, starting at 1.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// The name of the variable.
        name: String,
    },
    /// A flag of the command line.
    Flag {
        /// The flag with its dashes.
        name: String,
    },
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } | Self::Flag { name } => f.write_str(name),
        }
    }
}

/// One error in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The origin of the value.
    pub origin: SettingOrigin,
    /// The setting, if the error concerns an existing one.
    pub key: Option<String>,
    /// The text of the error. If `key` is set, the text continues a sentence that begins with the key.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if let Some(key) = &self.key {
            write!(f, "{key} ")?;
        }
        f.write_str(&self.message)
    }
}

/// All errors of a configuration. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has an error:")?,
            count => write!(f, "the configuration has {count} errors:")?,
        }
        for problem in &self.0 {
            write!(f, "\n  {problem}")?;
        }
        f.write_str(
            "\n`palimpsest config` prints every setting, its value and the origin of the value",
        )
    }
}

impl std::error::Error for ConfigErrors {}

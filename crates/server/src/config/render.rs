//! Writes the effective configuration as a file that could be loaded again.

use std::fmt::Write as _;

use super::Loaded;
use super::settings::{SETTINGS, Setting};

impl Loaded {
    /// The configuration as TOML: above each setting its meaning, behind it where it came from.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        for setting in SETTINGS {
            let (of, name) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
            if of != section {
                section = of;
                let _ = write!(out, "\n[{section}]\n");
            }
            self.line(&mut out, setting, name);
        }
        out
    }

    fn line(&self, out: &mut String, setting: &Setting, name: &str) {
        let origin = self.origin(setting.key);
        let written = match (setting.toml)(&self.config) {
            Some(value) => format!("{name} = {value}"),
            None => format!("# {name} is not set"),
        };
        let _ = write!(out, "# {}\n{written} # {origin}\n", setting.doc);
    }
}

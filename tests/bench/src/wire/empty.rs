//! The process of the empty service.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A running empty service. It is killed on drop.
pub(crate) struct Empty {
    child: Child,
    address: String,
}

impl Empty {
    /// Starts a service that answers one method with a fixed reply.
    pub(crate) fn start(folder: &Path, method: &str, reply: &[u8]) -> Result<Self> {
        let file = folder.join(format!("{method}.reply"));
        std::fs::write(&file, reply).context("a reply could not be written down")?;
        // Cargo builds the program into the same folder.
        let program = std::env::current_exe()?.with_file_name("palimpsest-empty");
        let child = Command::new(&program)
            .arg(method)
            .arg(&file)
            .env_clear()
            // The service ends when its standard input closes, also if this process is killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        let mut empty = Self {
            child,
            address: String::new(),
        };
        let said = empty.child.stdout.take().context("it has no output")?;
        BufReader::new(said).read_line(&mut empty.address)?;
        empty.address.truncate(empty.address.trim_end().len());
        ensure!(!empty.address.is_empty(), "the empty service did not start");
        Ok(empty)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the listen address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        // The process has already ended if it failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

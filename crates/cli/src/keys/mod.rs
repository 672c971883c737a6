//! `palimpsest keys`: makes API keys, and says what becomes of them.

mod file;

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use palimpsest_engine::clock::{Clock as _, SystemClock};
use palimpsest_server::access::key::{KeyId, NewKey};
use palimpsest_server::access::keyfile::{KeyEntry, KeyFile, is_label};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::output::{note, print, print_json, print_line, table};

/// Make, list, rotate and revoke API keys, in the file that auth.keys_file names
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "shown by --help as it is")]
#[command(after_help = "Examples:
  palimpsest keys create --keys-file keys.toml --label support --project support --right read,write,compact
  palimpsest keys list --keys-file keys.toml
  palimpsest keys rotate 1f0c6a2be9d34a57 --overlap 24h --keys-file keys.toml
  palimpsest keys revoke 1f0c6a2be9d34a57 --keys-file keys.toml

A key is printed once, on standard output; the file holds its hash. A running server takes changes up by
itself.")]
pub(super) struct KeysCommand {
    /// The file of keys
    #[arg(
        long = "keys-file",
        value_name = "FILE",
        env = "PALIMPSEST_AUTH_KEYS_FILE",
        global = true
    )]
    #[arg(default_value = "keys.toml")]
    file: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Create(CreateKey),
    /// List the keys: their ids, and what they open
    List,
    Rotate(RotateKey),
    /// Let a key be refused from now on; its entry stays
    Revoke {
        /// The key's id
        id: String,
    },
    /// Revoke a key and take its entry out of the file
    Remove {
        /// The key's id
        id: String,
    },
}

/// Make a key and print it
#[derive(Debug, Args)]
struct CreateKey {
    /// Whose it is, for people
    #[arg(long, default_value = "")]
    label: String,
    /// A project that it opens, or * for every one; may be repeated, or a list with commas
    #[arg(
        long = "project",
        value_name = "PROJECT",
        value_delimiter = ',',
        required = true
    )]
    projects: Vec<String>,
    /// What may be done there: read, write, compact, admin; may be repeated, or a list with commas
    #[arg(
        long = "right",
        value_name = "RIGHT",
        value_delimiter = ',',
        required = true
    )]
    rights: Vec<String>,
    /// When it ends, from now on, such as 90d or 12h
    #[arg(long, value_name = "TIME", conflicts_with = "expires_at", value_parser = duration)]
    expires_in: Option<SignedDuration>,
    /// When it ends, such as 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,
}

/// Make a key with the projects and rights of another, which ends after a time
#[derive(Debug, Args)]
struct RotateKey {
    /// The id of the key to replace
    id: String,
    /// How long both are taken
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    overlap: SignedDuration,
    /// When the new key ends, from now on, such as 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires_in: Option<SignedDuration>,
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let span: Span = text
        .parse()
        .map_err(|_| "must be a time such as 90d, 12h or 30m")?;
    let days = SpanRelativeTo::days_are_24_hours();
    let length = span
        .to_duration(days)
        .map_err(|_| "must be given in weeks, days, hours or less")?;
    if length.is_negative() {
        return Err("must not be in the past".to_owned());
    }
    Ok(length)
}

impl KeysCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let now = Timestamp::from_millisecond(SystemClock::new().now().as_millis())?;
        let path = &self.file;
        match self.action {
            Action::List => list(&file::read(path)?, now, self.json),
            Action::Create(create) => {
                let (key, entry) = file::change(path, |file| create.make(file, now))?;
                print_key(&key, &entry, self.json)
            }
            Action::Rotate(rotate) => {
                let (key, entry) = file::change(path, |file| rotate.make(file, now))?;
                print_key(&key, &entry, self.json)
            }
            Action::Revoke { id } => {
                file::change(path, |file| {
                    find(file, &id)?.disabled = true;
                    Ok(())
                })?;
                print_done("revoked", &id, self.json)
            }
            Action::Remove { id } => {
                file::change(path, |file| {
                    let id = find(file, &id)?.id.clone();
                    file.keys.retain(|key| key.id != id);
                    Ok(())
                })?;
                print_done("removed", &id, self.json)
            }
        }
    }
}

impl CreateKey {
    fn make(self, file: &mut KeyFile, now: Timestamp) -> anyhow::Result<(NewKey, KeyEntry)> {
        if !is_label(&self.label) {
            bail!("--label must have at most 200 characters, none of them a control character");
        }
        let expires = match (self.expires_in, self.expires_at) {
            (Some(length), _) => Some(now.checked_add(length)?),
            (None, at) => at,
        };
        if expires.is_some_and(|expires| expires <= now) {
            bail!("--expires-at is in the past: such a key would open nothing");
        }
        add(file, self.label, self.projects, self.rights, now, expires)
    }
}

impl RotateKey {
    fn make(self, file: &mut KeyFile, now: Timestamp) -> anyhow::Result<(NewKey, KeyEntry)> {
        let old = find(file, &self.id)?;
        if old.disabled {
            bail!(
                "key {} was revoked: make a new one with `palimpsest keys create`",
                old.id
            );
        }
        let end = now.checked_add(self.overlap)?;
        // A key that ends earlier by itself is not made to last longer.
        let earlier = old.expires.as_deref().and_then(|text| text.parse().ok());
        let end = earlier.map_or(end, |earlier: Timestamp| earlier.min(end));
        old.expires = Some(end.to_string());
        let old = old.clone();
        let expires = self
            .expires_in
            .map(|length| now.checked_add(length))
            .transpose()?;
        add(file, old.label, old.projects, old.rights, now, expires)
    }
}

fn add(
    file: &mut KeyFile,
    label: String,
    projects: Vec<String>,
    rights: Vec<String>,
    now: Timestamp,
    expires: Option<Timestamp>,
) -> anyhow::Result<(NewKey, KeyEntry)> {
    let key = NewKey::random().context("the system gives no random numbers")?;
    let entry = KeyEntry {
        id: key.id.to_string(),
        label,
        hash: key.hash().text(),
        projects,
        rights,
        created: now.to_string(),
        expires: expires.map(|at| at.to_string()),
        disabled: false,
    };
    file.keys.push(entry.clone());
    // The whole is checked as a server would: what it refuses is not written.
    file.checked()
        .map_err(|what| anyhow!("{}", what.split_once(": ").map_or(&*what, |(_, what)| what)))?;
    Ok((key, entry))
}

fn find<'a>(file: &'a mut KeyFile, id: &str) -> anyhow::Result<&'a mut KeyEntry> {
    // What is no id is not repeated: it may be a key.
    if KeyId::parse(id).is_none() {
        bail!("that is no key's id, which is the 16 digits after plk_: see `palimpsest keys list`");
    }
    let found = file.keys.iter_mut().find(|key| key.id == id);
    found.ok_or_else(|| anyhow!("there is no key {id}: see `palimpsest keys list`"))
}

fn print_key(key: &NewKey, entry: &KeyEntry, json: bool) -> anyhow::Result<()> {
    let text = key.text.expose_secret();
    if json {
        let mut object = key_json(entry);
        object["key"] = text.into();
        return print_json(&object.to_string());
    }
    note(&format!(
        "key {} opens {} for {}; it is shown only now:",
        entry.id,
        entry.projects.join(", "),
        entry.rights.join(", ")
    ));
    print_line(text)
}

fn print_done(what: &str, id: &str, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&json!({"id": id, what: true}).to_string());
    }
    note(&format!("key {id} is {what}"));
    Ok(())
}

/// All that is known of a key, none of it secret; its hash helps nobody who reads a list.
fn key_json(entry: &KeyEntry) -> Value {
    json!({
        "id": entry.id,
        "label": entry.label,
        "projects": entry.projects,
        "rights": entry.rights,
        "created": entry.created,
        "expires": entry.expires,
        "disabled": entry.disabled,
    })
}

fn list(file: &KeyFile, now: Timestamp, json: bool) -> anyhow::Result<()> {
    if json {
        let keys: Vec<_> = file.keys.iter().map(key_json).collect();
        return print_json(&json!({ "keys": keys }).to_string());
    }
    let mut table = table(&[
        "id", "label", "projects", "rights", "created", "expires", "state",
    ]);
    for key in &file.keys {
        let end: Option<Timestamp> = key.expires.as_deref().and_then(|text| text.parse().ok());
        let state = match end {
            _ if key.disabled => "revoked",
            Some(end) if end <= now => "expired",
            _ => "good",
        };
        table.add_row([
            key.id.as_str(),
            key.label.as_str(),
            key.projects.join(", ").as_str(),
            key.rights.join(", ").as_str(),
            key.created.as_str(),
            key.expires.as_deref().unwrap_or("never"),
            state,
        ]);
    }
    print(&format!("{table}\n"))
}

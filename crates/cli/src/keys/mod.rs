//! `palimpsest keys`: creates, lists, rotates, revokes and removes API keys.

mod file;

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use palimpsest_edge::access::key::{KeyId, NewKey};
use palimpsest_edge::access::keyfile::{KeyEntry, KeyFile, is_label};
use palimpsest_engine::clock::{Clock as _, SystemClock};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::output::{note, print, print_json, print_line, table};

/// Create, list, rotate and revoke API keys in the key file (auth.keys_file)
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "shown by --help as it is")]
#[command(
    after_help = "A key is printed once, on standard output. The file contains only its hash. A running server reloads the \
file when it changes.

Examples:
  palimpsest keys create --keys-file keys.toml --project support --right read,write,compact
  palimpsest keys list --keys-file keys.toml
  palimpsest keys rotate 1f0c6a2be9d34a57 --overlap 24h --keys-file keys.toml
  palimpsest keys revoke 1f0c6a2be9d34a57 --keys-file keys.toml"
)]
pub(super) struct KeysCommand {
    /// Key file
    #[arg(
        long = "keys-file",
        value_name = "FILE",
        env = "PALIMPSEST_AUTH_KEYS_FILE",
        hide_env_values = true,
        global = true
    )]
    #[arg(default_value = "keys.toml")]
    file: PathBuf,
    /// Print the result as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Create(CreateKey),
    /// List the keys with their projects, rights and states
    #[command(after_help = "Examples:
  palimpsest keys list --keys-file keys.toml
  palimpsest keys list --keys-file keys.toml --json | jq -r '.keys[].id'")]
    List,
    Rotate(RotateKey),
    /// Reject a key from now on; its entry stays in the file
    #[command(after_help = "Examples:
  palimpsest keys revoke 1f0c6a2be9d34a57 --keys-file keys.toml")]
    Revoke {
        /// Id of the key
        id: String,
    },
    /// Revoke a key and remove its entry from the file
    #[command(after_help = "Examples:
  palimpsest keys remove 1f0c6a2be9d34a57 --keys-file keys.toml")]
    Remove {
        /// Id of the key
        id: String,
    },
}

/// Create a key and print it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest keys create --label support --project support --right read,write,compact
  palimpsest keys create --project '*' --right admin --expires-in 90d --json | jq -r .key")]
struct CreateKey {
    /// Description of the key, such as its owner
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
    /// Projects of the key, or * for all; repeatable, or separated by commas
    #[arg(
        long = "project",
        value_name = "PROJECT",
        value_delimiter = ',',
        required = true
    )]
    projects: Vec<String>,
    /// Rights in these projects: read, write, compact, admin; repeatable, or separated by commas
    #[arg(
        long = "right",
        value_name = "RIGHT",
        value_delimiter = ',',
        required = true
    )]
    rights: Vec<String>,
    /// Time until the key expires, such as 90d or 12h [default: never]
    #[arg(long, value_name = "TIME", conflicts_with = "expires_at", value_parser = duration)]
    expires_in: Option<SignedDuration>,
    /// Time at which the key expires, such as 2027-01-31T00:00:00Z [default: never]
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,
}

/// Replace a key by a new one with the same projects and rights; the old key expires later
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest keys rotate 1f0c6a2be9d34a57 --overlap 24h --keys-file keys.toml")]
struct RotateKey {
    /// Id of the key to replace
    id: String,
    /// Time for which both keys are accepted
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    overlap: SignedDuration,
    /// Time until the new key expires, such as 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires_in: Option<SignedDuration>,
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let span: Span = text
        .parse()
        .map_err(|_| "is not a time: write a time such as 90d, 12h or 30m")?;
    // A duration has no date and no time zone, so a day has 24 hours. Months have no fixed length.
    let days = SpanRelativeTo::days_are_24_hours();
    let length = span
        .to_duration(days)
        .map_err(|_| "has months or years: write weeks, days, hours or minutes")?;
    if length.is_negative() {
        return Err("is negative: write a time such as 90d, 12h or 30m".to_owned());
    }
    Ok(length)
}

impl KeysCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let now = Timestamp::from_millisecond(SystemClock::new().now().as_millis())?;
        let path = &self.file;
        match self.action {
            Action::List => {
                // The other commands accept a missing file, because `keys create` creates it.
                if !path.exists() {
                    bail!("{} does not exist: check --keys-file", path.display());
                }
                list(&file::read(path)?, now, self.json)
            }
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
            bail!("--label is not valid: write at most 200 characters without control characters");
        }
        let expires = match (self.expires_in, self.expires_at) {
            (Some(length), _) => Some(now.checked_add(length)?),
            (None, at) => at,
        };
        // A mistyped year would otherwise create a key that no server accepts.
        if expires.is_some_and(|expires| expires <= now) {
            bail!("the key would already be expired: pass a later --expires-at or --expires-in");
        }
        add(file, self.label, self.projects, self.rights, now, expires)
    }
}

impl RotateKey {
    fn make(self, file: &mut KeyFile, now: Timestamp) -> anyhow::Result<(NewKey, KeyEntry)> {
        let old = find(file, &self.id)?;
        if old.disabled {
            bail!(
                "key {} is revoked: create a new key with `palimpsest keys create`",
                old.id
            );
        }
        let end = now.checked_add(self.overlap)?;
        // The overlap does not extend a key that expires earlier.
        // The file was checked when it was read, so a time that is set can be parsed.
        let own_end = old.expires.as_deref().and_then(|text| text.parse().ok());
        let end = own_end.map_or(end, |own_end: Timestamp| own_end.min(end));
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
    let key = NewKey::random().context("failed to read random numbers from the system")?;
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
    // The file is checked with the rules of the server, so that a server accepts every written file.
    file.checked()
        // The error begins with the position of the entry, such as `key 3: `, which the caller did not choose.
        .map_err(|what| anyhow!("{}", what.split_once(": ").map_or(&*what, |(_, what)| what)))?;
    Ok((key, entry))
}

fn find<'a>(file: &'a mut KeyFile, id: &str) -> anyhow::Result<&'a mut KeyEntry> {
    // The error does not repeat an invalid id, because the text can be a whole key.
    if KeyId::parse(id).is_none() {
        bail!(
            "the id of the key is not valid: write the 16 digits after plk_ (`palimpsest keys list` prints the ids)"
        );
    }
    let found = file.keys.iter_mut().find(|key| key.id == id);
    found.ok_or_else(|| anyhow!("no key has the id {id}: `palimpsest keys list` prints the ids"))
}

fn print_key(key: &NewKey, entry: &KeyEntry, json: bool) -> anyhow::Result<()> {
    let text = key.text.expose_secret();
    if json {
        let mut object = key_json(entry);
        object["key"] = text.into();
        return print_json(&object.to_string());
    }
    // Only the key is on standard output, so `keys create > file` stores it alone.
    note(&format!(
        "key {} has the rights {} in {}. The key is printed only once:",
        entry.id,
        entry.rights.join(", "),
        entry.projects.join(", ")
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

/// Returns the fields of a key as JSON, without its hash.
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
        // The file was checked when it was read, so only an absent time becomes `None`.
        let end: Option<Timestamp> = key.expires.as_deref().and_then(|text| text.parse().ok());
        let state = match end {
            _ if key.disabled => "revoked",
            Some(end) if end <= now => "expired",
            _ => "active",
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

//! The server under siege: its configuration, the keys of its tenants, and the sessions that attacks need.

use std::path::Path;
use std::sync::Arc;

use palimpsest_proto::context::v1::MessageInput;
use palimpsest_tests::Server;
use palimpsest_tests::say::{append, assistant_call, result, user};
use palimpsest_tests::tenant::{keys, with};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::attack::{Scale, Seed};

/// The example configuration for operators. The siege uses its quotas and limits.
const PRODUCTION: &str = include_str!("../../deploy/examples/production.toml");
/// The sections of the example that apply here.
const SECTIONS: [&str; 2] = ["[grpc]", "[quotas]"];
/// The quotas that attacks exhaust.
const NARROW: &str =
    "[projects.race.quotas]\nsessions = 10\n[projects.full.quotas]\nstored_bytes = 65536\n";
/// The number of sessions that `[projects.race.quotas]` allows.
pub(crate) const RACE_SESSIONS: usize = 10;

/// Number of attackers' projects with a key to read and write. Each project has its own quotas.
pub(crate) const ATTACKERS: usize = 8;
/// Number of large sessions of all attackers together, and the bytes of each.
pub(crate) const HEAVY: usize = 1_200;
const HEAVY_BYTES: usize = 1_400_000;
/// Number of small sessions of the first attacker.
const CROWD: usize = 4_000;
/// Bytes of the stored result of each attacker.
const LARGE_BYTES: usize = 15_000_000;
/// Bytes of the text for pattern searches.
const TEXT_BYTES: usize = 1_000_000;
/// Number of concurrent appends while the sessions are created.
const AT_ONCE: usize = 16;

/// The addresses and keys that attacks use.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) admin: String,
    /// Keys of the attackers' projects.
    pub(crate) keys: Vec<String>,
    /// A key with the right `read` only.
    pub(crate) reader: String,
    /// The keys of the projects `race` and `full`.
    pub(crate) race: String,
    pub(crate) full: String,
    /// Number of large sessions of each attacker.
    pub(crate) heavy: usize,
}

impl Target {
    /// Returns the key of an attacker and a session of its project.
    pub(crate) fn attacker(&self, number: usize, session: &str) -> (&str, String) {
        let which = number % ATTACKERS;
        (&self.keys[which], session_of(which, session))
    }

    /// Returns the key of an attacker and one of its large sessions.
    pub(crate) fn heavy(&self, number: usize) -> (&str, String) {
        // Consecutive numbers select all attackers, then the next session of each.
        let session = format!("heavy-{}", number / ATTACKERS % self.heavy);
        self.attacker(number, &session)
    }
}

fn session_of(attacker: usize, session: &str) -> String {
    format!("projects/attacker-{attacker}/sessions/{session}")
}

/// The folder of a server, with its configuration and its keys.
pub(crate) struct TenantSetup {
    folder: TempDir,
    keys: Vec<String>,
    reader: String,
    pub(crate) race: String,
    full: String,
    pub(crate) honest: String,
    scale: Scale,
}

impl TenantSetup {
    /// Creates the folder, the keys and the sessions.
    pub(crate) async fn new(scale: Scale, seeds: &[Seed]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("quotas.toml"), quotas()).unwrap();
        let file = folder.path().join("keys.toml");
        let key = |project: &str, right: &str| {
            keys(&file, &["create", "--project", project, "--right", right])
        };
        let attackers = (0..ATTACKERS).map(|n| key(&format!("attacker-{n}"), "read,write"));
        let setup = Self {
            keys: attackers.collect(),
            reader: key("reader", "read"),
            race: key("race", "read,write"),
            full: key("full", "read,write"),
            honest: key("honest", "read,write,compact"),
            folder,
            scale,
        };
        setup.make_sessions(seeds).await;
        setup
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the server with limits of its process and with additional settings.
    pub(crate) fn serve(&self, limits: &str, settings: &[String]) -> Server {
        let config = self.path().join("quotas.toml");
        let mut arguments = vec!["--config", config.to_str().unwrap()];
        arguments.extend(settings.iter().flat_map(|one| ["--set", one.as_str()]));
        let keys = self.keys_setting();
        arguments.extend(["--set", &keys]);
        Server::start_limited(&self.path().join("data"), &arguments, limits)
    }

    /// Returns the addresses, keys and sessions for attacks on a server.
    pub(crate) fn target(&self, server: &Server) -> Arc<Target> {
        Arc::new(Target {
            address: server.address().to_owned(),
            admin: server.admin().to_owned(),
            keys: self.keys.clone(),
            reader: self.reader.clone(),
            race: self.race.clone(),
            full: self.full.clone(),
            heavy: self.scale.of(HEAVY / ATTACKERS),
        })
    }

    fn keys_setting(&self) -> String {
        format!("auth.keys_file={}", self.path().join("keys.toml").display())
    }

    /// Creates the sessions on a server without quotas and without a worker, because only their existence matters.
    async fn make_sessions(&self, seeds: &[Seed]) {
        let settings = [
            self.keys_setting(),
            "worker.enabled=false".to_owned(),
            // The server under siege must not start to write their session memory either.
            "policy.session_memory.start_tokens=100000000".to_owned(),
        ];
        let arguments: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
        let server = Server::start(&self.path().join("data"), &arguments);
        let mut wanted: Vec<Wanted> = Vec::new();
        for seed in seeds {
            wanted.extend(self.sessions_of(*seed));
        }
        let lane = wanted.len().div_ceil(AT_ONCE);
        let mut lanes = JoinSet::new();
        while !wanted.is_empty() {
            // The lanes run in parallel, each with a connection of its own and about the same number of sessions.
            let part = wanted.split_off(wanted.len().saturating_sub(lane));
            let mut client = server.context().await;
            let keys = self.keys.clone();
            lanes.spawn(async move {
                for (attacker, session, messages) in part {
                    let request = append(&session_of(attacker, &session), messages);
                    let sent = client.append_messages(with(&keys[attacker], request));
                    sent.await.unwrap();
                }
            });
        }
        lanes.join_all().await;
        server.stop();
    }

    fn sessions_of(&self, seed: Seed) -> Vec<Wanted> {
        let of_each = |session: &str, messages: Vec<MessageInput>| -> Vec<Wanted> {
            let one = |attacker| (attacker, session.to_owned(), messages.clone());
            (0..ATTACKERS).map(one).collect()
        };
        // The repeated text has 11 bytes.
        let text = |bytes| "some words ".repeat(self.scale.of(bytes / 11));
        match seed {
            Seed::Small => of_each("small", vec![user("a short one")]),
            Seed::Text => of_each("text", vec![user(&text(TEXT_BYTES))]),
            Seed::Large => {
                let said = vec![assistant_call("large"), result("large", &text(LARGE_BYTES))];
                of_each("large", said)
            }
            Seed::Heavy => {
                let heavy = vec![user(&text(HEAVY_BYTES))];
                let numbers = 0..self.scale.of(HEAVY / ATTACKERS);
                numbers
                    .flat_map(|number| of_each(&format!("heavy-{number}"), heavy.clone()))
                    .collect()
            }
            Seed::Crowd => (0..self.scale.of(CROWD))
                .map(|number| (0, format!("crowd-{number}"), vec![user("a short one")]))
                .collect(),
        }
    }
}

/// An attacker's number, the id of its session, and the messages in it.
type Wanted = (usize, String, Vec<MessageInput>);

/// Returns the sections of the example that apply, and the quotas that attacks exhaust.
fn quotas() -> String {
    let mut taken = String::new();
    let mut is_taken = false;
    for line in PRODUCTION.lines() {
        if line.starts_with('[') {
            is_taken = SECTIONS.contains(&line);
        }
        if is_taken {
            taken.push_str(line);
            taken.push('\n');
        }
    }
    assert!(taken.contains("sessions = "), "the example has no quotas");
    taken + NARROW
}

//! Runs schedules one after another on the same folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palimpsest_fake_provider::{FakeProvider, Plan};
use palimpsest_tests::Server;
use palimpsest_tests::chance::{next, seed};
use palimpsest_tests::say::{append, user};
use palimpsest_tests::tenant::{keys, with};
use tokio::task::JoinSet;

use crate::agent::Agent;
use crate::faults::{Fault, Faults};
use crate::intruder::Intrusions;

/// Default number of schedules per run. `CHAOS_SCHEDULES` overrides the value.
const SCHEDULES: u64 = 12;
/// Schedules per folder: enough for a long history, and few enough for quick starts.
const PER_FOLDER: u64 = 12;
/// Number of folders in parallel, because most of a schedule is waiting.
const LANES: usize = 3;
/// Number of concurrent pairs of agents. The agents of a pair belong to different tenants.
const PAIRS: usize = 3;
/// The tenants. Both have all rights in their own project.
const TENANTS: [&str; 2] = ["aaa", "bbb"];
/// Number of attempts, and the pause between them, to detect that a server has recovered.
const RECOVERY_LOOKS: usize = 200;
const RECOVERY_PAUSE: Duration = Duration::from_millis(50);
/// The model of the provider that hangs.
const MODEL: &str = "summarizer";

/// Settings with short intervals, compactions of small sessions, and stored results.
const SETTINGS: &[&str] = &[
    "worker.edit_debounce_ms=50",
    "worker.poll_ms=50",
    "worker.lease_ms=600",
    "worker.max_backoff_ms=500",
    "store.canary_every_ms=100",
    "summarizer.provider=anthropic",
    "summarizer.model=summarizer",
    "summarizer.timeout_ms=1000",
    "policy.session_memory.start_tokens=2000",
    "policy.session_memory.update_tokens=1000",
    "policy.autocompact.min_input_tokens=100",
    "policy.tool_results.max_result_chars=4000",
];

fn schedules() -> u64 {
    let said = std::env::var("CHAOS_SCHEDULES").ok();
    said.and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES)
}

/// Totals of all schedules.
#[derive(Debug, Default)]
struct Counts {
    schedules: u64,
    faults: BTreeMap<String, u64>,
    injected: i64,
    acknowledged: u64,
    failed: u64,
    read_back: u64,
    /// Calls for other tenants' data. Any successful one fails the run.
    intrusions: Intrusions,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.injected += other.injected;
        self.acknowledged += other.acknowledged;
        self.failed += other.failed;
        self.read_back += other.read_back;
        self.intrusions += other.intrusions;
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_and_kills_lose_no_acknowledged_write() {
    let seed = seed();
    eprintln!("seed {seed}");
    let mut random = seed | 1;
    let mut counts = Counts::default();
    let mut lanes = JoinSet::new();
    let mut left = schedules();
    while left > 0 || !lanes.is_empty() {
        while left > 0 && lanes.len() < LANES {
            let some = left.min(PER_FOLDER);
            left -= some;
            lanes.spawn(one_folder(next(&mut random), some));
        }
        let ended = lanes.join_next().await;
        counts.add(
            ended
                .unwrap()
                .unwrap_or_else(|error| panic!("seed {seed}: {error}")),
        );
        eprintln!("{} schedules", counts.schedules);
    }
    eprintln!("{counts:#?}");
    assert!(
        counts.acknowledged > counts.schedules * 5,
        "too few acknowledged calls"
    );
    assert!(counts.injected > 0, "no fault affected a call");
    let Intrusions {
        calls, as_missing, ..
    } = counts.intrusions;
    assert!(as_missing * 4 > calls, "too few intrusions were answered");
}

/// Runs schedules on a new folder.
async fn one_folder(seed: u64, schedules: u64) -> Counts {
    let mut random = seed | 1;
    let mut counts = Counts::default();
    let folder = tempfile::tempdir().unwrap();
    let provider = FakeProvider::start().await.unwrap();
    let file = folder.path().join("keys.toml");
    let rights = "read,write,compact,admin";
    let key = |project| keys(&file, &["create", "--project", project, "--right", rights]);
    let tenants = TENANTS.map(|project| (project, key(project)));
    let mut agents: Vec<Agent> = (0..PAIRS)
        .flat_map(|number| Agent::pair(number, &tenants, next(&mut random)))
        .collect();
    for _ in 0..schedules {
        let fault = Fault::ALL[usize::try_from(next(&mut random)).unwrap_or(0) % Fault::ALL.len()];
        let faults = Faults::new(folder.path());
        let server = start(folder.path(), &faults, &provider);
        for agent in &mut agents {
            agent.check(&server).await;
        }
        let pauses = [
            next(&mut random) % 200,
            next(&mut random) % 300,
            next(&mut random) % 200,
        ];
        let around = (&faults, &provider, &tenants[0]);
        agents = live(agents, Arc::new(server), around, fault, pauses).await;
        counts.schedules += 1;
        *counts.faults.entry(format!("{fault:?}")).or_default() += 1;
        counts.injected += faults.injected();
    }
    let server = start(folder.path(), &Faults::new(folder.path()), &provider);
    for agent in &mut agents {
        agent.check(&server).await;
        counts.acknowledged += agent.acknowledged;
        counts.failed += agent.failed;
        counts.read_back += agent.read_back;
        counts.intrusions += agent.intruder.done;
    }
    server.kill();
    counts
}

fn start(folder: &Path, faults: &Faults, provider: &FakeProvider) -> Server {
    let url = format!("summarizer.base_url={}", provider.url());
    let keys = format!("auth.keys_file={}", folder.join("keys.toml").display());
    let settings = SETTINGS.iter().copied();
    let settings = settings.chain([url.as_str(), keys.as_str()]);
    let arguments: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
    Server::start_with(&folder.join("data"), &arguments, &faults.vars())
}

/// Runs one server: work, a fault, the end of the fault, work again, and SIGKILL.
async fn live(
    agents: Vec<Agent>,
    server: Arc<Server>,
    (faults, provider, tenant): (&Faults, &FakeProvider, &(&str, String)),
    fault: Fault,
    [before, during, after]: [u64; 3],
) -> Vec<Agent> {
    let pause = |ms| tokio::time::sleep(Duration::from_millis(20 + ms));
    let working = Working::start(agents, &server).await;
    pause(before).await;
    faults.set(fault);
    if fault == Fault::ProviderHangs {
        let hangs = Plan {
            delay: Duration::from_hours(1),
            ..Plan::default()
        };
        provider.script(MODEL, vec![hangs; 8]);
    }
    pause(during).await;
    faults.set(Fault::None);
    // After a failed write or sync, the store stays closed until the process restarts.
    if !fault.passes() {
        server.signal("KILL");
        return working.stop().await;
    }
    let mut agents = working.stop().await;
    // The server must recover without a restart.
    recovered(&server, tenant).await;
    for agent in &mut agents {
        agent.check(&server).await;
    }
    let working = Working::start(agents, &server).await;
    pause(after).await;
    server.signal("KILL");
    let agents = working.stop().await;
    let log = server.log().join("\n");
    assert!(!log.contains("panicked"), "{fault:?}: {log}");
    agents
}

/// Waits until the server accepts writes again.
async fn recovered(server: &Server, (project, key): &(&str, String)) {
    let mut client = server.context().await;
    let session = format!("projects/{project}/sessions/chaos-probe");
    let mut last = None;
    for _ in 0..RECOVERY_LOOKS {
        match client
            .append_messages(with(key, append(&session, vec![user("still there?")])))
            .await
        {
            Ok(_) => return,
            Err(status) => last = Some(status),
        }
        tokio::time::sleep(RECOVERY_PAUSE).await;
    }
    panic!(
        "the server does not recover by itself: {last:?}\n{}",
        server.log().join("\n")
    );
}

/// Running agents.
struct Working {
    agents: JoinSet<Agent>,
    stop: Arc<AtomicBool>,
}

impl Working {
    async fn start(agents: Vec<Agent>, server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for mut agent in agents {
            let mut client = server.context().await;
            let channel = server.channel().await;
            let stop = Arc::clone(&stop);
            running.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let failed = agent.failed;
                    agent.act(&mut client, &channel).await;
                    if agent.failed > failed {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                agent
            });
        }
        Self {
            agents: running,
            stop,
        }
    }

    /// Stops each agent after its current turn.
    async fn stop(self) -> Vec<Agent> {
        self.stop.store(true, Ordering::Relaxed);
        let mut agents = self.agents.join_all().await;
        // The agents end in any order. A fixed order keeps a run repeatable by its seed.
        agents.sort_by(|a, b| a.name().cmp(b.name()));
        agents
    }
}

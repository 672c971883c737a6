//! The phases of a siege: before, during and after the attacks, and the check of all acknowledged data.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_tests::Server;
use palimpsest_tests::turns::Turns;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::SOFT_HANDLES;
use crate::attack::{Attack, Running, Scale, Seed, Tally};
use crate::attackers::{Attackers, check_handles};
use crate::attacks::{ATTACKS, sessions_that_exist};
use crate::honest_tenant::{HonestTenant, newcomers};
use crate::latency::Latencies;
use crate::sample::{Most, watch};
use crate::target::TenantSetup;

/// The memory limit of the chart.
const MEMORY: u64 = 2 << 30;
/// Time after which an attack without calls counts as broken, and the interval of this check.
const TIMEOUT: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(50);

/// The size and the phases of a siege.
pub(crate) struct Plan {
    pub(crate) scale: Scale,
    /// The names of the attacks to run, separated by commas. Default: all.
    pub(crate) only: Option<String>,
    pub(crate) limits: &'static str,
    pub(crate) before: Duration,
    pub(crate) during: Duration,
    /// Time without attacks after which all figures must be normal again.
    pub(crate) calm: Duration,
    pub(crate) after: Duration,
}

/// The results of a siege.
pub(crate) struct PhaseOutcome {
    setup: TenantSetup,
    server: Arc<Server>,
    promised: Vec<Turns>,
    pub(crate) attacks: Vec<(&'static str, Arc<Tally>)>,
    pub(crate) latencies: Arc<Latencies>,
    pub(crate) before: Range<Instant>,
    pub(crate) during: Range<Instant>,
    pub(crate) after: Range<Instant>,
    /// Rejected attempts of the honest tenant during and after the attacks, by outcome.
    pub(crate) refusals: BTreeMap<String, u64>,
    pub(crate) most: Most,
    /// Number of sessions in the project of the quota race. `None` if the server did not answer.
    pub(crate) race: Option<usize>,
    pub(crate) panics: usize,
}

/// The honest tenant, and the server that it uses.
struct Scene {
    setup: TenantSetup,
    server: Arc<Server>,
    latencies: Arc<Latencies>,
    honest: HonestTenant,
    newcomers: JoinSet<()>,
    samples: JoinSet<Most>,
    stop_samples: CancellationToken,
    ended: CancellationToken,
    began: Instant,
}

impl Scene {
    async fn open(scale: Scale, limits: &str, attacks: &[&Attack]) -> Self {
        let mut seeds: Vec<Seed> = Vec::new();
        for attack in attacks {
            let new = attack.needs.iter().filter(|seed| !seeds.contains(seed));
            seeds.extend(new.copied().collect::<Vec<_>>());
        }
        let setup = TenantSetup::new(scale, &seeds).await;
        let server = Arc::new(setup.serve(limits, &[]));
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let endpoint = endpoint
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(5));
        let latencies = Arc::<Latencies>::default();
        let honest = HonestTenant::start(&endpoint, &setup.honest, &latencies);
        let mut visitors = JoinSet::new();
        let admin = server.admin().to_owned();
        let key = setup.honest.clone();
        visitors.spawn(newcomers(endpoint, admin, key, Arc::clone(&latencies)));
        let (stop_samples, ended) = (CancellationToken::new(), CancellationToken::new());
        let mut samples = JoinSet::new();
        let looked_at = (Arc::clone(&server), stop_samples.clone(), ended.clone());
        samples.spawn(watch(looked_at.0, MEMORY, looked_at.1, looked_at.2));
        Self {
            setup,
            server,
            latencies,
            honest,
            newcomers: visitors,
            samples,
            stop_samples,
            ended,
            began: Instant::now(),
        }
    }

    /// Waits, or returns earlier if the server ends.
    async fn pass(&self, time: Duration) {
        self.ended.run_until_cancelled(sleep(time)).await;
    }

    async fn close(
        mut self,
        attacks: Vec<(&'static str, Arc<Tally>)>,
        [before, during, after]: [Range<Instant>; 3],
    ) -> PhaseOutcome {
        let refusals = self.latencies.take_refusals();
        self.newcomers.shutdown().await;
        let promised = self.honest.stop().await;
        self.stop_samples.cancel();
        let most = self.samples.join_next().await.unwrap().unwrap();
        let race = if most.ended.is_none() {
            sessions_that_exist(&self.server, &self.setup.race).await
        } else {
            None
        };
        let log = self.server.log();
        let panics = log.iter().filter(|line| line.contains("panicked")).count();
        PhaseOutcome {
            setup: self.setup,
            server: self.server,
            promised,
            attacks,
            latencies: self.latencies,
            before,
            during,
            after,
            refusals,
            most,
            race,
            panics,
        }
    }
}

/// Runs all attacks at once, or only the selected ones.
pub(crate) async fn siege(plan: &Plan) -> PhaseOutcome {
    check_handles();
    let meant: Vec<&Attack> = ATTACKS
        .iter()
        .filter(|attack| {
            plan.only
                .as_deref()
                .is_none_or(|only| only.split(',').any(|name| name == attack.name))
        })
        .collect();
    assert!(!meant.is_empty(), "unknown attack {:?}", plan.only);
    let scene = Scene::open(plan.scale, plan.limits, &meant).await;
    scene.pass(plan.before).await;
    let attackers = Attackers::start();
    let target = scene.setup.target(&scene.server);
    // Rejections before the attacks do not belong in the report.
    scene.latencies.take_refusals();
    let before = scene.began..Instant::now();
    let stop = CancellationToken::new();
    let running: Vec<Running> = meant
        .into_iter()
        .map(|attack| Running::start(attack, &target, plan.scale, &stop, &attackers.handle()))
        .collect();
    scene.pass(plan.during).await;
    stop.cancel();
    let mut attacks = Vec::new();
    for one in running {
        attacks.push(one.ended().await);
    }
    let during = before.end..Instant::now();
    scene.pass(plan.calm).await;
    let calm = Instant::now();
    scene.pass(plan.after).await;
    let after = calm..Instant::now();
    scene.close(attacks, [before, during, after]).await
}

/// Runs the attacks one after another on the same server. Each attack runs until it has reached the server, and at
/// least for `each`.
pub(crate) async fn one_by_one(scale: Scale, each: Duration) -> PhaseOutcome {
    let scene = Scene::open(scale, SOFT_HANDLES, &ATTACKS.iter().collect::<Vec<_>>()).await;
    scene.pass(each).await;
    let attackers = Attackers::start();
    let target = scene.setup.target(&scene.server);
    let before = scene.began..Instant::now();
    let mut attacks = Vec::new();
    for attack in ATTACKS {
        let stop = CancellationToken::new();
        let one = Running::start(attack, &target, scale, &stop, &attackers.handle());
        scene.pass(each).await;
        let reached = timeout(TIMEOUT, async {
            while one.tally.calls() == 0 {
                sleep(LOOK).await;
            }
        });
        assert!(reached.await.is_ok(), "{} did nothing", attack.name);
        stop.cancel();
        attacks.push(one.ended().await);
    }
    let during = before.end..Instant::now();
    scene.pass(each).await;
    let after = during.end..Instant::now();
    scene.close(attacks, [before, during, after]).await
}

/// Asserts that all acknowledged data exists: on the running server if it still serves, and after a kill and a restart.
pub(crate) async fn verify(outcome: PhaseOutcome) {
    let PhaseOutcome {
        setup,
        server,
        mut promised,
        most,
        latencies,
        after,
        ..
    } = outcome;
    let served = latencies.by_kind(&after);
    let appended = served
        .get("append")
        .is_some_and(|it| it.calls > it.given_up);
    // A server that was killed or serves nothing is checked only after its restart.
    if most.ended.is_none() && appended {
        check(&server, &setup.honest, &mut promised).await;
    }
    // A kill leaves no time to flush, so only data that was durable at its acknowledgment remains.
    server.signal("KILL");
    drop(server);
    let again = setup.serve(SOFT_HANDLES, &[]);
    check(&again, &setup.honest, &mut promised).await;
    let acknowledged: usize = promised.iter().map(|turns| turns.there().len()).sum();
    eprintln!("{acknowledged} acknowledged turns are there, also after a restart");
    assert!(acknowledged > 0, "nothing was acknowledged");
}

async fn check(server: &Server, key: &str, promised: &mut [Turns]) {
    let mut client = server.sessions().await;
    for turns in promised {
        turns.check(&mut client, Some(key)).await;
    }
}

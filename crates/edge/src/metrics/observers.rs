//! Metrics of values that other components count. They are read at collection time, so nothing is counted twice and
//! calls have no overhead.
//!
//! To add a component, write a function here that takes its counters, and add a line per metric to `names`. Call the
//! function once at the start of the process.

use std::sync::Arc;

use opentelemetry::KeyValue;
use palimpsest_engine::maintenance::{LeaderTask, MaintenanceStats};
use palimpsest_engine::models::Models;
use palimpsest_engine::sessions::Sessions;
use palimpsest_store::postgres::{PoolStatus, PostgresLog};
use palimpsest_store::sled::SledLog;

use super::instruments::{number, observable_gauge, observable_value, size};
use super::sampler::Samples;
use super::{Metrics, names};
use crate::access::Authenticator;
use crate::net;
use crate::telemetry::ExportStats;
use crate::tls::ServerTls;

impl Metrics {
    /// Registers the connections of the gRPC port.
    pub fn observe_connections(&self, connections: &net::Connections) {
        let meter = self.meter();
        let one = |metric, read: fn(&net::Connections) -> f64| {
            let of = connections.clone();
            observable_value(meter, metric, move || read(&of));
        };
        one(&names::CONNECTIONS, |now| size(now.count()));
        one(&names::CONNECTIONS_CLOSED, |now| {
            number(now.evicted_and_rejected().0)
        });
        one(&names::CONNECTIONS_REJECTED, |now| {
            number(now.evicted_and_rejected().1)
        });
    }

    /// Registers rejected credentials and stale credential files.
    pub fn observe_auth(&self, access: Option<&Arc<Authenticator>>, tls: Option<&ServerTls>) {
        let meter = self.meter();
        let of = access.cloned();
        // Without authentication, no credential is ever rejected.
        observable_value(meter, &names::AUTH_FAILURES, move || {
            number(of.as_ref().map_or(0, |access| access.rejected_count()))
        });
        let (access, tls) = (access.cloned(), tls.cloned());
        observable_value(meter, &names::FILES_STALE, move || {
            let of_access = access.as_ref().map_or(0, |access| access.stale());
            size(of_access + usize::from(tls.as_ref().is_some_and(ServerTls::is_stale)))
        });
    }

    /// Registers the maintenance tasks.
    pub fn observe_maintenance(&self, stats: &MaintenanceStats) {
        let meter = self.meter();
        let one = |metric, read: fn(&MaintenanceStats) -> u64| {
            let of = stats.clone();
            observable_value(meter, metric, move || number(read(&of)));
        };
        // Metrics with labels need one callback for all label values. The others share the helper above.
        one(&names::RETENTION_SKIPPED, MaintenanceStats::spared);
        one(&names::RETENTION_PAUSED, |stats| stats.is_paused().into());
        one(&names::RETENTION_BLOCKED, MaintenanceStats::incomplete);
        one(
            &names::RETENTION_WOULD_DELETE,
            MaintenanceStats::would_have_deleted,
        );
        one(&names::SWEPT_FILES, MaintenanceStats::swept_files);
        one(&names::SWEPT_BYTES, MaintenanceStats::swept_bytes);
        let of = stats.clone();
        observable_gauge(meter, &names::MAINTENANCE_PASSES, move || {
            LeaderTask::ALL
                .map(|task| {
                    (
                        number(of.passes(task)),
                        vec![KeyValue::new("task", task.name())],
                    )
                })
                .into()
        });
        one(&names::MAINTENANCE_FAILURES, MaintenanceStats::failures);
        one(&names::SESSIONS_DELETING, MaintenanceStats::removing);
        let label = |key: &'static str, value: &'static str| vec![KeyValue::new(key, value)];
        let of = stats.clone();
        observable_gauge(meter, &names::RETENTION_DELETED, move || {
            vec![
                (number(of.aged_out()), label("reason", "age")),
                (number(of.over_quota()), label("reason", "quota")),
            ]
        });
        let of = stats.clone();
        observable_gauge(meter, &names::RETENTION_EXPORTS, move || {
            vec![
                (number(of.exported()), label("outcome", "done")),
                (number(of.export_failures()), label("outcome", "failed")),
                (
                    number(of.incomplete_exports()),
                    label("outcome", "incomplete"),
                ),
            ]
        });
    }

    /// Registers the connection pool of the PostgreSQL log.
    pub fn observe_postgres(&self, log: &Arc<PostgresLog>) {
        let meter = self.meter();
        let one = |metric, read: fn(&PoolStatus) -> usize| {
            let of = Arc::downgrade(log);
            observable_gauge(meter, metric, move || {
                let log = of.upgrade();
                log.map(|log| (size(read(&log.pool_status())), Vec::new()))
                    .into_iter()
                    .collect()
            });
        };
        one(&names::STORE_CONNECTIONS, |now| now.open);
        one(&names::STORE_CONNECTIONS_IDLE, |now| now.idle);
        one(&names::STORE_CONNECTIONS_MAX, |now| now.max_connections);
        one(&names::STORE_CONNECTIONS_WAITING, |now| now.waiting);
    }

    /// Registers the commits of the embedded log.
    pub fn observe_sled(&self, log: &Arc<SledLog>) {
        let meter = self.meter();
        let count = |metric, read: fn(&palimpsest_store::sled::EngineStats) -> u64| {
            let of = Arc::downgrade(log);
            observable_gauge(meter, metric, move || {
                // A weak reference, so that metrics do not keep a closed store open.
                let log = of.upgrade();
                log.map(|log| (number(read(&log.stats())), Vec::new()))
                    .into_iter()
                    .collect()
            });
        };
        count(&names::STORE_QUEUE, |stats| stats.queue_depth);
        count(&names::STORE_COMMITS, |stats| stats.commits);
        count(&names::STORE_WRITTEN, |stats| stats.bytes);
    }

    /// Registers the session cache.
    pub fn observe_sessions(&self, sessions: &Arc<Sessions>) {
        let meter = self.meter();
        let of = Arc::downgrade(sessions);
        // A weak reference, so that metrics do not keep sessions and their log open.
        let look = move || of.upgrade().map(|sessions| sessions.cache_stats());
        let one = |metric, read: fn(&palimpsest_engine::sessions::CacheStats) -> f64| {
            let look = look.clone();
            let seen = move || look().map(|now| (read(&now), Vec::new()));
            observable_gauge(meter, metric, move || seen().into_iter().collect());
        };
        let rows = Arc::downgrade(sessions);
        observable_gauge(meter, &names::SESSIONS_UNREADABLE, move || {
            let sessions = rows.upgrade();
            let count = sessions.map(|sessions| size(sessions.unreadable_rows()));
            count.map(|count| (count, Vec::new())).into_iter().collect()
        });
        one(&names::SESSIONS_LOADED, |now| size(now.sessions));
        one(&names::CACHE_BYTES, |now| size(now.bytes));
        one(&names::CACHE_MAX_BYTES, |now| size(now.max_bytes));
        one(&names::CACHE_EVICTIONS, |now| number(now.evictions));
        observable_gauge(meter, &names::CACHE_LOOKUPS, move || {
            let outcome = |name: &'static str| vec![KeyValue::new("outcome", name)];
            let both = |now: palimpsest_engine::sessions::CacheStats| {
                [
                    (number(now.hits), outcome("hit")),
                    (number(now.misses), outcome("miss")),
                ]
            };
            look().map(both).into_iter().flatten().collect()
        });
    }

    /// Registers the circuit breakers of the models.
    pub fn observe_models(&self, models: &Arc<Models>) {
        let of = Arc::clone(models);
        observable_gauge(self.meter(), &names::BREAKER_OPEN, move || {
            let state = |(endpoint, rests): (&'static str, bool)| {
                (
                    f64::from(u8::from(rests)),
                    vec![KeyValue::new("endpoint", endpoint)],
                )
            };
            of.breakers().into_iter().map(state).collect()
        });
    }

    /// Registers the values of the sampler.
    pub(super) fn observe_samples(&self, samples: &Arc<Samples>) {
        let one = |metric, read: fn(&Samples) -> Option<u64>| {
            let of = Arc::clone(samples);
            observable_gauge(self.meter(), metric, move || {
                read(&of)
                    .map(|value| (number(value), Vec::new()))
                    .into_iter()
                    .collect()
            });
        };
        one(&names::STORE_SIZE, Samples::store_bytes);
        one(&names::DISK_FREE, Samples::disk_free_bytes);
        one(&names::DISK_SIZE, Samples::disk_bytes);
        let of = Arc::clone(samples);
        observable_gauge(self.meter(), &names::MEMORY_LAG, move || {
            let lag = of.summary_lag_ms();
            lag.map(|ms| (number(ms) / 1_000.0, Vec::new()))
                .into_iter()
                .collect()
        });
    }

    /// Registers the exports of spans and metrics.
    pub(crate) fn observe_exports(&self, exported: &Arc<ExportStats>) {
        let meter = self.meter();
        let of = Arc::clone(exported);
        observable_value(meter, &names::SPANS, move || number(of.spans_ended()));
        let of = Arc::clone(exported);
        observable_value(meter, &names::SPANS_EXPORTED, move || {
            number(of.spans_exported())
        });
        let of = Arc::clone(exported);
        observable_gauge(meter, &names::SPANS_DROPPED, move || {
            let labels = |(reason, count): (&'static str, u64)| {
                (number(count), vec![KeyValue::new("reason", reason)])
            };
            of.spans_dropped().into_iter().map(labels).collect()
        });
        let of = Arc::clone(exported);
        observable_gauge(meter, &names::EXPORTS, move || {
            let labels = |(signal, outcome, count): (&'static str, &'static str, u64)| {
                let labels = vec![
                    KeyValue::new("signal", signal),
                    KeyValue::new("outcome", outcome),
                ];
                (number(count), labels)
            };
            of.outcomes().into_iter().map(labels).collect()
        });
    }
}

//! Metrics of values that other components count. They are read at collection time, so nothing is counted twice and
//! calls have no overhead.
//!
//! To add a component, write a function here that takes its counters, and add a line per metric to `names`. Call the
//! function once at the start of the process.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use palimpsest_engine::maintenance::{LeaderTask, MaintenanceStats};
use palimpsest_engine::models::Models;
use palimpsest_engine::sessions::Sessions;
use palimpsest_store::postgres::PostgresLog;
use palimpsest_store::sled::SledLog;

use super::instruments::{number, observable_gauge, observable_option, observable_value, size};
use super::names::Metric;
use super::sampler::Samples;
use super::{Metrics, names};
use crate::access::Authenticator;
use crate::net;
use crate::telemetry::ExportStats;
use crate::tls::ServerTls;

impl Metrics {
    /// Registers the connections of the gRPC port.
    pub fn observe_connections(&self, connections: &net::Connections) {
        let of = connections.clone();
        let one = values_of(self.meter(), move || Some(of.clone()));
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
        // Weak references here and below, so that metrics do not keep a closed store open.
        let log = Arc::downgrade(log);
        let one = values_of(self.meter(), move || Some(log.upgrade()?.pool_status()));
        one(&names::STORE_CONNECTIONS, |now| size(now.open));
        one(&names::STORE_CONNECTIONS_IDLE, |now| size(now.idle));
        one(&names::STORE_CONNECTIONS_MAX, |now| {
            size(now.max_connections)
        });
        one(&names::STORE_CONNECTIONS_WAITING, |now| size(now.waiting));
    }

    /// Registers the commits of the embedded log.
    pub fn observe_sled(&self, log: &Arc<SledLog>) {
        let log = Arc::downgrade(log);
        let one = values_of(self.meter(), move || Some(log.upgrade()?.stats()));
        one(&names::STORE_QUEUE, |now| number(now.queue_depth));
        one(&names::STORE_COMMITS, |now| number(now.commits));
        one(&names::STORE_WRITTEN, |now| number(now.bytes));
    }

    /// Registers the session cache.
    pub fn observe_sessions(&self, sessions: &Arc<Sessions>) {
        let meter = self.meter();
        let of = Arc::downgrade(sessions);
        let rows = values_of(meter, {
            let of = of.clone();
            move || of.upgrade()
        });
        rows(&names::SESSIONS_UNREADABLE, |sessions| {
            size(sessions.unreadable_rows())
        });
        let look = move || Some(of.upgrade()?.cache_stats());
        let one = values_of(meter, look.clone());
        one(&names::SESSIONS_LOADED, |now| size(now.sessions));
        one(&names::CACHE_BYTES, |now| size(now.bytes));
        one(&names::CACHE_MAX_BYTES, |now| size(now.max_bytes));
        one(&names::CACHE_EVICTIONS, |now| number(now.evictions));
        observable_gauge(meter, &names::CACHE_LOOKUPS, move || {
            let outcome = |name: &'static str| vec![KeyValue::new("outcome", name)];
            // After the sessions are dropped the metric is absent. A value of 0 would look like a reset counter.
            look().map_or_else(Vec::new, |now| {
                vec![
                    (number(now.hits), outcome("hit")),
                    (number(now.misses), outcome("miss")),
                ]
            })
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
            observable_option(self.meter(), metric, move || read(&of).map(number));
        };
        one(&names::STORE_SIZE, Samples::store_bytes);
        one(&names::DISK_FREE, Samples::disk_free_bytes);
        one(&names::DISK_SIZE, Samples::disk_bytes);
        let of = Arc::clone(samples);
        observable_option(self.meter(), &names::MEMORY_LAG, move || {
            of.summary_lag_ms().map(|ms| number(ms) / 1_000.0)
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

/// Returns a function that registers one value of a component. `look` returns the component, or `None` after the
/// component was dropped.
fn values_of<T: 'static>(
    meter: &Meter,
    look: impl Fn() -> Option<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&Metric, fn(&T) -> f64) {
    move |metric, read| {
        let look = look.clone();
        observable_option(meter, metric, move || look().as_ref().map(read));
    }
}

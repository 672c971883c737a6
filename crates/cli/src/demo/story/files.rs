//! The files of the generated repository, with the words for each file.

/// A source file and the words that generated texts use for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceFile {
    pub(super) path: &'static str,
    /// The type that the file defines.
    pub(super) noun: &'static str,
    /// The methods of the type.
    pub(super) verbs: [&'static str; 4],
    /// The fields of the type.
    pub(super) fields: [&'static str; 4],
}

impl SourceFile {
    /// Returns the name of the crate.
    pub(super) fn krate(&self) -> &'static str {
        self.path.split('/').nth(1).unwrap_or("ledger")
    }

    pub(super) fn module(&self) -> &'static str {
        let file = self.path.rsplit('/').next().unwrap_or(self.path);
        file.trim_end_matches(".rs")
    }
}

macro_rules! places {
    ($($path:literal $noun:literal [$($verb:literal)*] [$($field:literal)*];)*) => {
        pub(super) const PLACES: &[SourceFile] = &[$(SourceFile {
            path: $path,
            noun: $noun,
            verbs: [$($verb),*],
            fields: [$($field),*],
        }),*];
    };
}

places! {
    "crates/ledger/src/posting.rs" "Posting" ["post" "reverse" "balance" "split"] ["debit" "credit" "journal" "amount_minor"];
    "crates/ledger/src/rounding.rs" "Rounding" ["round" "allocate" "carry" "distribute"] ["scale" "remainder" "mode" "parts"];
    "crates/ledger/src/currency.rs" "Currency" ["convert" "parse" "format" "compare"] ["code" "exponent" "symbol" "rate_micros"];
    "crates/ledger/src/account.rs" "Account" ["open" "freeze" "close" "rename"] ["owner" "currency" "state" "opened_at"];
    "crates/ledger/src/journal.rs" "Journal" ["append" "seal" "replay" "verify"] ["sequence" "entries" "digest" "sealed_until"];
    "crates/ledger/src/interest.rs" "Interest" ["accrue" "capitalise" "quote" "waive"] ["basis_points" "day_count" "principal" "accrued_minor"];
    "crates/ledger/src/fees.rs" "FeePlan" ["charge" "refund" "tier" "cap"] ["flat_minor" "percent_micros" "minimum" "maximum"];
    "crates/ledger/src/limits.rs" "Limit" ["check" "reserve" "release" "raise"] ["daily" "monthly" "reserved" "used"];
    "crates/ledger/src/snapshot.rs" "Snapshot" ["take" "load" "prune" "diff"] ["revision" "balances" "taken_at" "checksum"];
    "crates/ledger/src/statement.rs" "Statement" ["render" "page" "total" "export"] ["period" "lines" "opening" "closing"];
    "crates/api/src/transfers.rs" "Transfer" ["submit" "confirm" "cancel" "retry"] ["source" "target" "amount_minor" "state"];
    "crates/api/src/idempotency.rs" "IdempotencyKey" ["claim" "resolve" "expire" "replay"] ["key" "fingerprint" "response" "expires_at"];
    "crates/api/src/pagination.rs" "Cursor" ["encode" "decode" "advance" "rewind"] ["token" "page_size" "after" "digest"];
    "crates/api/src/webhooks.rs" "Webhook" ["deliver" "sign" "retry" "disable"] ["endpoint" "secret" "attempts" "next_attempt_at"];
    "crates/api/src/errors.rs" "ApiError" ["map" "describe" "log" "classify"] ["code" "reason" "status" "retry_after"];
    "crates/api/src/auth.rs" "Principal" ["verify" "refresh" "revoke" "scope"] ["subject" "scopes" "issued_at" "expires_at"];
    "crates/api/src/routes.rs" "Router" ["mount" "guard" "trace" "limit"] ["prefix" "handlers" "layers" "fallback"];
    "crates/settle/src/batch.rs" "Batch" ["collect" "close" "submit" "settle"] ["id" "items" "cutoff" "total_minor"];
    "crates/settle/src/reconcile.rs" "Reconciliation" ["match_lines" "explain" "adjust" "report"] ["ours" "theirs" "tolerance" "unmatched"];
    "crates/settle/src/camt.rs" "CamtReport" ["parse" "validate" "map_entry" "archive"] ["message_id" "entries" "balance" "created_at"];
    "crates/settle/src/schedule.rs" "Schedule" ["next" "skip_holidays" "shift" "pause"] ["calendar" "cutoff" "zone" "overrides"];
    "crates/store/src/pool.rs" "Pool" ["acquire" "release" "recycle" "drain"] ["size" "idle" "waiters" "timeout_ms"];
    "crates/store/src/migrate.rs" "Migration" ["apply" "revert" "plan" "lock"] ["version" "statements" "checksum" "applied_at"];
    "crates/store/src/outbox.rs" "Outbox" ["enqueue" "claim" "acknowledge" "requeue"] ["sequence" "payload" "lease" "attempts"];
}

//! Errors of the database, divided by the reaction that a caller needs.

use std::error::Error as _;

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::StoreError;

/// The reason why a statement failed.
#[derive(Debug)]
pub(super) enum PgError {
    /// The connection broke or timed out, or the server accepts no writes any more. The outcome of the
    /// statement is unknown. It may be retried over another connection.
    Lost(String),
    /// The database is overloaded, or another transaction conflicted. The statement may be retried.
    Busy(String),
    /// All connections of the pool are in use. The value is their maximum number.
    Full(usize),
    /// The role lacks a right, or the target does not exist.
    Denied(String),
    /// A retry cannot succeed.
    Final(StoreError),
}

impl PgError {
    /// Returns the error for a timeout.
    pub(super) fn timeout() -> Self {
        Self::Lost("it does not answer".into())
    }

    /// Returns true if a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        // `Full` is not retried, because the call has already waited for a free connection.
        matches!(self, Self::Lost(_) | Self::Busy(_))
    }
}

impl From<StoreError> for PgError {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

impl From<PgError> for StoreError {
    fn from(trouble: PgError) -> Self {
        match trouble {
            PgError::Lost(reason) | PgError::Busy(reason) | PgError::Denied(reason) => {
                Self::Unreachable(reason)
            }
            PgError::Full(most) => Self::Unreachable(format!("all {most} connections are in use")),
            PgError::Final(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> Self {
        let reason = error_chain(&error);
        let Some(code) = error.code() else {
            // The error does not come from the database: the connection broke, or a message was incomplete.
            return if error.is_closed() || is_io(&error) {
                Self::Lost(reason)
            } else {
                Self::Final(StoreError::Unreachable(reason))
            };
        };
        match *code {
            SqlState::DISK_FULL => Self::Final(StoreError::OutOfSpace("the database's disk is full")),
            SqlState::INSUFFICIENT_PRIVILEGE
            | SqlState::INVALID_PASSWORD
            | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            | SqlState::INVALID_CATALOG_NAME
            | SqlState::INVALID_SCHEMA_NAME
            | SqlState::UNDEFINED_TABLE
            | SqlState::UNDEFINED_COLUMN => Self::Denied(reason),
            // The server became read-only: another one is the primary.
            SqlState::READ_ONLY_SQL_TRANSACTION
            // The prepared statement belongs to an earlier table definition or to another connection.
            | SqlState::FEATURE_NOT_SUPPORTED
            | SqlState::INVALID_SQL_STATEMENT_NAME => Self::Lost(reason),
            // An administrator or a restart ended the connection. With a lower severity, the connection to another node
            // of a distributed database ended, and this one continues.
            SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::CANNOT_CONNECT_NOW
                if ends_connection(&error) =>
            {
                Self::Lost(reason)
            }
            // Class 08: connection exceptions, of this connection or of one to another node.
            _ if code.code().starts_with("08") && ends_connection(&error) => Self::Lost(reason),
            // Classes 08, 40, 53, 55 and 57: connection exception, transaction rollback, insufficient resources, object
            // in use, operator intervention.
            _ if ["08", "40", "53", "55", "57"].contains(&&code.code()[..2]) => Self::Busy(reason),
            _ => Self::Final(StoreError::Read(reason)),
        }
    }
}

/// Returns true if the database ended the connection with this error. An error that ends a statement alone has a lower
/// severity.
fn ends_connection(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    severity.is_none_or(|severity| matches!(severity, Severity::Fatal | Severity::Panic))
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.is::<std::io::Error>() {
            return true;
        }
        source = inner.source();
    }
    false
}

/// Returns an error's text with its causes. Database messages name tables and columns. The detail may
/// contain a session key, so it is left out.
pub(super) fn error_chain(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    crate::error_chain(error)
}

/// Converts a number to the signed integer of the database.
pub(super) fn number(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Read(format!("{number} is too large to be kept")))
}

//! What the database says when something does not work, as far as a caller acts differently on it.

use std::error::Error as _;

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// Why a statement did not do what it should.
#[derive(Debug)]
pub(super) enum PgError {
    /// The connection broke, or leads to a machine that takes no writes any more, or nothing comes back over it.
    /// Whether the statement happened is not known; it may be sent again, over another connection.
    Lost(String),
    /// The database is too busy, or somebody else was in the way. It may be sent again.
    Busy(String),
    /// All connections, of which there may be so many, are in use.
    Full(usize),
    /// The role may not do it, or what it is to be done to is not there.
    Denied(String),
    /// Sending it again would change nothing.
    Final(StoreError),
}

impl PgError {
    /// Nothing came back.
    pub(super) fn silence() -> Self {
        Self::Lost("it does not answer".into())
    }

    /// Whether it may be otherwise in a moment.
    pub(super) fn passes(&self) -> bool {
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
            // Not the database's own answer: the connection broke, or what came over it was cut short.
            return if error.is_closed() || is_io(&error) {
                Self::Lost(reason)
            } else {
                Self::Final(StoreError::Unreachable(reason))
            };
        };
        match *code {
            SqlState::DISK_FULL => Self::Final(StoreError::Full("the database's disk is full")),
            SqlState::INSUFFICIENT_PRIVILEGE
            | SqlState::INVALID_PASSWORD
            | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            | SqlState::INVALID_CATALOG_NAME
            | SqlState::INVALID_SCHEMA_NAME
            | SqlState::UNDEFINED_TABLE
            | SqlState::UNDEFINED_COLUMN => Self::Denied(reason),
            // The machine takes no writes any more: another one is the primary.
            SqlState::READ_ONLY_SQL_TRANSACTION
            // Somebody ended the connection, as for a restart.
            | SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            // A statement was prepared for tables as they were before, or on another connection.
            | SqlState::FEATURE_NOT_SUPPORTED
            | SqlState::INVALID_SQL_STATEMENT_NAME => Self::Lost(reason),
            // Connections.
            _ if code.code().starts_with("08") => Self::Lost(reason),
            // Conflicts of transactions, too little of something, an object in use, somebody intervened.
            _ if ["40", "53", "55", "57"].contains(&&code.code()[..2]) => Self::Busy(reason),
            _ => Self::Final(StoreError::Read(reason)),
        }
    }
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

/// An error with what is behind it. The database's own words name tables and columns, and quote no row of ours
/// except its key, which is in the detail, and that is left out.
pub(super) fn error_chain(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    crate::error_chain(error)
}

/// A number as the database keeps it.
pub(super) fn number(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Read(format!("{number} is too large to be kept")))
}

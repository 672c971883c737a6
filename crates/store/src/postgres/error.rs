//! What the database says when something does not work, as far as a caller acts differently on it.

use std::error::Error as _;

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// Why a statement did not do what it should.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The database cannot be reached, restarts, has handed over to another machine, or is too busy. Whether the
    /// statement happened is not known; it may be sent again.
    Passing(String),
    /// Sending it again would change nothing.
    Final(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let told = told(&error);
        let Some(code) = error.code() else {
            // Not the database's own answer: the connection broke, or what came over it was cut short.
            return if error.is_closed() || is_io(&error) {
                Self::Passing(told)
            } else {
                Self::Final(StoreError::Unreachable(told))
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
            | SqlState::UNDEFINED_COLUMN => Self::Final(StoreError::Unreachable(told)),
            _ if passes(code) => Self::Passing(told),
            _ => Self::Final(StoreError::Read(told)),
        }
    }
}

/// Whether it may be otherwise in a moment, perhaps at another machine.
fn passes(code: &SqlState) -> bool {
    // 08 connections, 40 conflicts of transactions, 53 too little of something, 55 an object in use, 57 somebody
    // intervened (a restart, a timeout).
    let of_class = ["08", "40", "53", "55", "57"].contains(&&code.code()[..2]);
    of_class
        // The machine takes no writes any more: another one is the primary.
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
        // A statement was prepared for tables as they were before, or on another connection.
        || *code == SqlState::FEATURE_NOT_SUPPORTED
        || *code == SqlState::INVALID_SQL_STATEMENT_NAME
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
pub(super) fn told(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    crate::told(error)
}

/// A number as the database keeps it.
pub(super) fn number(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Read(format!("{number} is too large to be kept")))
}

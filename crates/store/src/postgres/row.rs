//! Columns of rows.

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::StoreError;

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|error| StoreError::Read(error.to_string()))
}

/// Returns a column that is never negative.
pub(super) fn unsigned(row: &Row, column: &str) -> Result<u64, StoreError> {
    let number: i64 = get(row, column)?;
    u64::try_from(number).map_err(|_| StoreError::Read(format!("{column} is below zero")))
}

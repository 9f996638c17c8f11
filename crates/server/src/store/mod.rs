//! Where the control plane's facts are kept: SQLite in a file by default, PostgreSQL by
//! configuration.
//!
//! Both implement `lifecycle::store::Store` and decide nothing. Migrations only go forward; a
//! store written by a newer server is refused, not guessed at.

mod postgres;
mod sql;
mod sqlite;

pub use postgres::Postgres;
pub use sqlite::Sqlite;

#[cfg(test)]
mod tests;

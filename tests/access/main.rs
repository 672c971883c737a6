//! Tests of authentication and authorization with the real binary over real connections: keys, tokens, tenants, rights
//! and TLS.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(clippy::large_futures, reason = "a test runs once")]

mod command_line;
mod cost;
mod foreign_tokens;
mod gateway;
mod keys;
mod tenants;
mod tls;
mod tokens;
mod who;
mod world;

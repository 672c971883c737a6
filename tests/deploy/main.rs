//! Tests of the deployment: the chart with its examples, checked like a cluster checks them, and the runbooks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod capacity;
mod chart;
mod components;
mod dist;
mod gateway;
mod helm;
mod kubernetes;
mod production;
mod promises;
mod routes;
mod runbooks;
mod schema;
mod tasks;
mod values;

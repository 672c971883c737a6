//! The inspector: pages that show sessions, the requests of their models, and the reasons for every change of a view.
//!
//! [`Inspector`] is a part of the HTTP API, which checks the origin of each request. It answers requests below
//! `/inspector`. Each page is made from replies of gRPC calls (`api`), with the credential of the person who
//! looks. Rights, limits and errors are therefore those of gRPC.
//!
//! `routes` reads paths, `pages` has one file for each page, `chart` draws requests, `payback` says
//! what changes cost, and `text` shows content of
//! conversations so that it cannot change the page.

mod access;
mod api;
mod assets;
mod changes;
mod chart;
mod error;
mod event_text;
mod format;
mod layout;
mod pages;
mod payback;
mod response;
mod routes;
mod service;
mod text;

pub use routes::session_path;
pub use service::Inspector;

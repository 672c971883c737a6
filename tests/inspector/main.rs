//! Tests of the inspector in a real browser: every page, its forms, hostile contents, access and keyboard use.
//!
//! `scripts/install-tools` installs Chromium. The tests fail without it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod access;
mod api;
mod browser;
mod flows;
mod hostile;
mod large;
mod pictures;
mod structure;
mod tour;

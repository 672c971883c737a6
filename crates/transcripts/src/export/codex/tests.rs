//! Tests of rollout files.

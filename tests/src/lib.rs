//! End-to-end tests: every file beside this one drives the real binary over real gRPC.

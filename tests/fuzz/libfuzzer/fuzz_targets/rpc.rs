//! The target `rpc` of `palimpsest_fuzz::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| palimpsest_fuzz::run("rpc", data));

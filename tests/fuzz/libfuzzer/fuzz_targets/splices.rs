//! The target `splices` of `palimpsest_fuzz::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| palimpsest_fuzz::run("splices", data));

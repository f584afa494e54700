//! See `wireup_bootstrap::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| wireup_bootstrap::fuzzing::ranks_datagrams(input));

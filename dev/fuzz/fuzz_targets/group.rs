//! See `wireup_group::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| wireup_group::fuzzing::group(input));

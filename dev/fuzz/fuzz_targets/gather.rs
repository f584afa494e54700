//! See `wireup_stage::gather::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| wireup_stage::gather::fuzzing::gather(input));

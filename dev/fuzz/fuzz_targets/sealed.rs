//! See `wireup_node::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| wireup_node::fuzzing::sealed(input));

//! See `wireup_pmix::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| wireup_pmix::fuzzing::pmix_infos(input));

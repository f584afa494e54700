//! See `decoders::stream`.
#![no_main]

#[path = "../../../crates/stage/tests/decoders/mod.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|input: &[u8]| decoders::stream(input));

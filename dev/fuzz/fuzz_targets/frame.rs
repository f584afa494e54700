//! See `decoders::frame`.
#![no_main]

#[allow(dead_code)] // The other targets' bodies.
#[path = "../../../crates/wire/tests/decoders/mod.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|input: &[u8]| decoders::frame(input));

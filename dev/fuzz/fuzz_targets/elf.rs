//! See `fuzzing::elf`, of a crate that is no library.
#![no_main]
#![allow(dead_code, unused_imports)] // What the program uses of these files beside.

#[path = "../../../crates/cli/src/program/elf.rs"]
mod elf;
#[path = "../../../crates/cli/src/program/fuzzing.rs"]
mod fuzzing;
#[path = "../../../crates/cli/src/program/ld_cache.rs"]
mod ld_cache;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::elf(input));

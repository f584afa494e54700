//! See `hosts::fuzzing`, of a crate that is no library.
#![no_main]
#![allow(dead_code, unused_imports)] // What the program uses of these files beside.

#[path = "../../../crates/cli/src/hosts/mod.rs"]
mod hosts;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hosts::fuzzing::hosts(input));

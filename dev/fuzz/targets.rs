//! All fuzz targets: each program of this crate is this file and checks what its name in `Cargo.toml` says.
#![no_main]
#![allow(dead_code, unused_imports)] // A program checks one of these; parts of the files below are for other callers.

#[path = "../../crates/wire/tests/decoders/mod.rs"]
mod decoders;
// Of `wireup`, a crate that is no library.
#[path = "../../crates/cli/src/bounded_file.rs"]
mod bounded_file;
#[path = "../../crates/cli/src/program/elf.rs"]
mod elf;
#[path = "../../crates/cli/src/program/fuzzing.rs"]
mod fuzzing;
#[path = "../../crates/cli/src/hosts/mod.rs"]
mod hosts;
#[path = "../../crates/cli/src/program/ld_cache.rs"]
mod ld_cache;
#[path = "../../crates/stage/tests/decoders/mod.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|input: &[u8]| match env!("CARGO_BIN_NAME") {
    "blocks" => decoders::blocks(input),
    "bootstrap" => decoders::bootstrap(input),
    "control" => decoders::control(input),
    "elf" => fuzzing::elf(input),
    "frame" => decoders::frame(input),
    "secondary_client" => decoders::secondary_client(input),
    "gather" => wireup_stage::gather::fuzzing::gather(input),
    "group" => wireup_group::fuzzing::group(input),
    "handshake" => wireup_node::fuzzing::handshake(input),
    "hosts" => hosts::fuzzing::hosts(input),
    "pairs" => decoders::pairs(input),
    "pmi_reply" => decoders::pmi_reply(input),
    "pmi_request" => decoders::pmi_request(input),
    "pmix" => decoders::pmix(input),
    "pmix_infos" => wireup_pmix::fuzzing::pmix_infos(input),
    "rank_address" => decoders::rank_address(input),
    "ranks_fabric" => wireup_bootstrap::fuzzing::ranks_fabric(input),
    "ranks_link" => wireup_bootstrap::fuzzing::ranks_link(input),
    "recording" => wireup_node::fuzzing::recording(input),
    "rows" => decoders::rows(input),
    "sealed" => wireup_node::fuzzing::sealed(input),
    "segment" => decoders::segment(input),
    "stage" => stream::stream(input),
    "step_lines" => wireup_node::fuzzing::step_lines(input),
    "store" => wireup_proto::fuzzing::store(input),
    "torch_store" => decoders::torch_store(input),
    "ucx_opening" => wireup_node::fuzzing::ucx_opening(input),
    other => panic!("{other} is not a target"),
});

//! The echo floor: a bare epoll server that answers every PMI-1 request at once with a canned reply.
//!
//! It starts the same clients on the same socket pairs and moves as many bytes through as many system
//! calls; it stores nothing, looks nothing up, and its barrier is a counter. Clients must not check values.
use std::ffi::OsString;

use crate::programs::{Program, Scratch};

pub fn argv(scratch: &Scratch, job_size: u32, program: Vec<OsString>) -> Vec<OsString> {
    let mut argv = vec![scratch.program(Program::PmiEcho).into_os_string(), job_size.to_string().into()];
    argv.extend(program);
    argv
}

//! The echo baseline: a bare epoll server that answers every PMI-1 request at once with a fixed reply.
//!
//! It starts the same clients on the same socket pairs and moves as many bytes through as many system calls; across
//! hosts there is a server on each. It stores nothing and looks nothing up, and its barrier is a counter. So clients
//! must not check values.
use std::ffi::OsString;

use crate::cases::Place;
use crate::hosts::Remote;
use crate::launcher::shells;
use crate::programs::{Program, Scratch};

pub fn argv(scratch: &Scratch, job_size: u32, program: Vec<OsString>) -> Vec<OsString> {
    let mut argv = vec![scratch.program(Program::PmiEcho).into_os_string(), job_size.to_string().into()];
    argv.extend(program);
    argv
}

/// A server on every host, each started by a remote shell, which also carries the barrier.
pub fn argv_on_hosts(scratch: &Scratch, remote: &Remote, place: Place, program: Vec<OsString>) -> Vec<OsString> {
    let share = format!("{}:{{node}}:{}", place.ppn, place.job_size());
    let mut server = vec![scratch.program(Program::PmiEcho).into_os_string(), share.into()];
    server.extend(program);
    shells(scratch, remote, &["--gate"], server)
}

//! The spawn baseline: a program that starts processes by vfork and waits for them, nothing else.
//!
//! It has no options worth mentioning, binds nothing, forwards no output: the time that a launcher takes beyond this is
//! due to the launcher. One spawner is the reference; two show whether spawning in parallel helps. Given an MPI program
//! it starts that many singletons at once.
use std::ffi::OsString;

use crate::programs::{Program, Scratch};

pub fn argv(scratch: &Scratch, spawners: u32, job_size: u32, program: Vec<OsString>) -> Vec<OsString> {
    let mut argv = vec![
        scratch.program(Program::SpawnBaseline).into_os_string(),
        job_size.to_string().into(),
        spawners.to_string().into(),
    ];
    argv.extend(program);
    argv
}

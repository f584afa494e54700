//! `libpmi.so.0`: PMI-1 as C programs call it.
//!
//! One file for each part of `pmi.h` (`job` `barrier` `kvs` `clique` `names` `spawn` `options`); each function checks its pointers,
//! makes slices and calls safe code. `state` is the process's place in its job.
//!
//! Round trips: `PMI_Init` two, a put, a get, a barrier one each; what a job never asks (application number, name of the
//! kvs) is asked for on first use.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod barrier;
mod clique;
mod codes;
mod job;
mod kvs;
mod names;
mod options;
mod spawn;
mod state;

//! `libpmi.so.0`: PMI-1 for C programs.
//!
//! One file for each part of `pmi.h` (`job` `barrier` `kvs` `names` `spawn` `options`); each function checks
//! its pointers, makes slices and calls safe code. `state` is the process's place in its job.
//!
//! Round trips: two for `PMI_Init`; one each for a put, a get and a barrier. What many jobs never use (application
//! number, name of the kvs) is fetched on first use.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod barrier;
mod codes;
mod job;
mod kvs;
mod names;
mod options;
mod spawn;
mod state;

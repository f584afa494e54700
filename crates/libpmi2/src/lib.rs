//! `libpmi2.so.0`: PMI-2 for C programs, and the startup extensions.
//!
//! One file for each part of `pmi2.h` (`job` `kvs` `info` `names` `spawn`) and of `pmix_ext.h` (`extensions`,
//! `mvapich`); each function checks its pointers, makes slices and calls safe code. `state` is the process's place in
//! its job, which `wireup_capi::job` drives; `handles` are what C programs hold of its collectives.
//!
//! Round trips: two for `PMI2_Init`, one for a fence, one each for a put and a get. With our own server puts and gets
//! need none, except for one at the first get after a fence.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod cray;
mod extensions;
mod handles;
mod info;
mod job;
mod kvs;
mod mvapich;
mod names;
mod spawn;
mod state;
#[cfg(test)]
mod tests;

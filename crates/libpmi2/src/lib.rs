//! `libpmi2.so.0`: PMI-2 as C programs call it, and the startup extensions.
//!
//! One file for each part of `pmi2.h` (`job` `kvs` `info` `names` `spawn`) and of `pmix_ext.h` (`extensions`, `mvapich`);
//! each function checks its pointers, makes slices and calls safe code. `state` is the process's place in its job; `exchange` drives
//! the engine's collectives; `handles` are what C programs hold of them.
//!
//! Round trips: `PMI2_Init` two, a fence one; a put and a get one each, with our own server none but one for the first get
//! after a fence.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod exchange;
mod extensions;
mod handles;
mod info;
mod job;
mod kvs;
mod mvapich;
mod names;
mod ring;
mod spawn;
mod state;
#[cfg(test)]
mod tests;

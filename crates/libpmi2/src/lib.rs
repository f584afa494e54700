//! `libpmi2.so.0`: PMI-2 as C programs call it, and the startup extensions.
//!
//! One file for each part of `pmi2.h` (`job` `kvs` `info` `names` `spawn`) and of `pmix_ext.h` (`extensions`, `mvapich`);
//! each function checks its pointers, makes slices and calls safe code. `state` is the process's place in its job,
//! `requests` what is outstanding, `exchange` starts and finishes it: as `numbered` requests with our own server, `emulated`
//! with others. `segments` is the kvs that our own server shares.
//!
//! Round trips: `PMI2_Init` two, a fence one; a put and a get one each, with our own server none but one for the first get
//! after a fence.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod arena;
mod emulated;
mod exchange;
mod extensions;
mod info;
mod job;
mod kvs;
mod mvapich;
mod names;
mod numbered;
mod requests;
mod ring;
mod segments;
mod spawn;
mod state;
#[cfg(test)]
mod tests;

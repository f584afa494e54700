//! `libpmi2.so.0`: PMI-2 as C programs call it, and the startup extensions.
//!
//! One file for each part of `pmi2.h` (`job` `kvs` `info` `names` `spawn`) and of `pmix_ext.h` (`extensions`, `mvapich`);
//! each function checks its pointers, makes slices and calls safe code. `state` is the process's place in its job,
//! `requests` what is outstanding, `exchange` how a collective is made of what the server has.
//!
//! Round trips: `PMI2_Init` two, a put, a get, a fence one each.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod exchange;
mod extensions;
mod info;
mod job;
mod kvs;
mod mvapich;
mod names;
mod requests;
mod ring;
mod spawn;
mod state;

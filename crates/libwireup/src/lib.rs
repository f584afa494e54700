//! `libwireup.so.0`: the bootstrap library for C programs.
//!
//! A crate of its own, because it is linked as a C library: its symbols, its own allocator and panic handler, and all
//! the pointers that C passes. What they do is in `wireup-bootstrap`, which programs in Rust can use as well.
//!
//! One file for each part of `wireup.h` (`open` `groups` `collectives` `messages` `requests` `pairs` `names` `counts`):
//! each function checks its pointers, makes slices and calls `wireup-bootstrap`. `handles` are what C programs hold,
//! `helper` is the thread that they may ask for.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod addresses;
mod collectives;
mod counts;
mod groups;
mod handles;
mod helper;
mod messages;
mod names;
mod open;
mod pairs;
mod requests;
mod rows;
mod status;

//! `libwireup.so.0`: the bootstrap library for C programs.
//!
//! A crate of its own, because it is linked as a C library: it has the C symbols, its own allocator and panic handler,
//! and handles all pointers that C passes. The functionality is in `wireup-bootstrap`, which Rust programs can use as
//! well.
//!
//! One file for each part of `wireup.h` (`open` `groups` `collectives` `messages` `requests` `pairs` `addresses`): each
//! function checks its pointers, makes slices and calls `wireup-bootstrap`. `handles` defines the objects that C
//! programs hold, `helper` the thread that they may request.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

mod addresses;
mod collectives;
mod groups;
mod handles;
mod helper;
mod messages;
mod open;
mod pairs;
mod requests;
mod status;

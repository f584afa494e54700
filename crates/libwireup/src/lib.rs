//! `libwireup.so.0`: the bootstrap library for C programs.
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

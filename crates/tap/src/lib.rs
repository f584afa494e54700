//! Runs between any launcher and one of its ranks, and measures the rank's startup.
//!
//! ```text
//!   launcher ── fork, exec ──► tap ── fork, exec ──► the rank's program
//!   PMI server ◄── bytes ── relay ◄── bytes ──────── PMI_FD, PMI_PORT      observer: reads along, changes nothing
//!                            page ◄── counts ─────── preload: a shim around the PMIx library
//!                             └─ tally, effort ──► record ── gather: a folder ──► the tap of rank 0
//! ```
//!
//! `place` reads what the launcher tells by the environment, `process` what the kernel tells. `shim/` is the preloaded
//! library, a separately compiled program that shares `page` with this crate.

mod align;
mod gather;
mod links;
mod observer;
pub mod page;
mod place;
mod port;
mod preload;
mod process;
pub mod record;
mod relay;
mod watch;

pub use align::{Clocks, align};
pub use gather::Gathered;
pub use place::{Offers, Place};
pub use record::{End, Record, Requests, Spoke, Tally};
pub use watch::{Ended, Tap, TapError, place, run};

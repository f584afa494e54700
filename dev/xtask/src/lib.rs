//! Set-up of a development machine, shared by the `xtask` program and the end-to-end tests.
//!
//! The tests use [`peers`] and [`programs`] to find what the set-up has installed and built; nothing here is part of
//! the product.

pub mod build;
pub mod check;
pub mod debian;
pub mod demo;
pub mod flavour;
pub mod fresh;
pub mod layout;
pub mod libraries;
pub mod night;
pub mod peers;
pub mod programs;
pub mod quick;
pub mod release;
pub mod step;
pub mod structure;
pub mod suites;

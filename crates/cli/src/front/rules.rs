//! What options do that are not simply flags of `wireup run`.

pub mod environment;
pub mod mca;
pub mod output;
pub mod placement;
pub mod programs;
pub mod shell;

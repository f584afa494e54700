//! Standing sessions: what a user does with them, one subject a file.

mod basics;
mod detached;
mod ends;
mod hosts;
mod isolation;
mod quiet;
mod refusals;

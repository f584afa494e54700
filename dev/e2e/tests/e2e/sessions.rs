//! Standing sessions as users use them, one subject per file.

mod basics;
mod detached;
mod ends;
mod gone;
mod hosts;
mod idle;
mod instant_on;
mod isolation;
mod kernel_sessions;
mod node_choice;
mod refusals;

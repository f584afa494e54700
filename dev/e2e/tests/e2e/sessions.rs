//! Standing sessions as users use them, one subject per file.

mod basics;
mod detached;
mod ends;
mod gone;
mod hosts;
mod instant_on;
mod isolation;
mod node_choice;
mod refusals;

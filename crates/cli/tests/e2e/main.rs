//! End to end: the product's binary, real processes, real MPI libraries; one subject a file.

mod bad_input;
mod bounds;
mod ends;
mod env;
mod harness;
mod kill;
mod libpmi;
mod mpi;
mod placement;
mod pmi;
mod record;
mod signals;
mod stdio;
mod terminal;

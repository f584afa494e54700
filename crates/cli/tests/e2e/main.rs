//! End to end: the product's binary, real processes, real MPI libraries; one subject a file.

mod bad_input;
mod bounds;
mod direct;
mod doctor;
mod ends;
mod env;
mod extensions;
mod faults;
mod harness;
mod hosts;
mod kill;
mod libpmi;
mod links;
mod mpi;
mod placement;
mod pmi;
mod profile;
mod record;
mod sent;
mod signals;
mod slurm;
mod ssh;
mod startup_bench;
mod stdio;
mod terminal;
mod travels;

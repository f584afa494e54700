//! Worlds that the simulator runs: a file for each subject, all in one program, so that the simulator is linked once.

mod collectives;
mod digests;
mod direct;
mod exchanges;
mod modex;
mod random_worlds;
mod remote;
mod replay;
mod scenarios;
mod seeds;
mod sessions;
mod staging;
mod thousand_nodes;

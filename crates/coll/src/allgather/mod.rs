//! All peers' blobs to all peers; one algorithm per file.

pub mod tree;

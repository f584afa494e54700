//! All code that depends on Linux: a small safe interface to system calls, without policy.
//!
//! | subject | modules |
//! | --- | --- |
//! | waiting and time | [`reactor`] (epoll), [`clock`] |
//! | processes | [`spawn`], [`process`], [`inherit`], [`pty`], [`bind`] (cpus of ranks) |
//! | sockets | [`socket`], [`local`] (Unix sockets with names), [`tcp_peer`] (which user has the other end) |
//! | networks | [`interfaces`] |
//! | files | [`files`], [`output_file`], [`own_directory`] |
//! | memory | [`shm`] (sealed memory and rings that processes share), [`secret_page`], [`random`] |
//! | programs | [`build_id`], [`c_library`] |
//!
//! `unsafe` is in [`spawn`] (a child that shares memory with its parent until it calls `exec`), in
//! [`process`] (fork, signal masks, the arguments), in [`files`], in one call of [`bind`], in two calls of [`socket`],
//! in [`interfaces`] (a list that libc allocates), in one call of [`local`], in [`build_id`] (the program's own
//! headers), in one call of [`c_library`], in [`shm`] and [`secret_page`] (mapped memory) and in [`inherit`] (a
//! descriptor known by its number); everything else goes through `rustix`. Units are part of the names (`_ns`,
//! `_bytes`); nothing here reads the environment or decides how resources are shared.

pub mod bind;
pub mod build_id;
pub mod c_library;
pub mod clock;
pub mod files;
pub mod inherit;
pub mod interfaces;
pub mod local;
pub mod output_file;
pub mod own_directory;
pub mod process;
pub mod pty;
pub mod random;
pub mod reactor;
pub mod secret_page;
pub mod shm;
pub mod socket;
pub mod spawn;
pub mod tcp_peer;

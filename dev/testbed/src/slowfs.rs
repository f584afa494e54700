//! A slow shared file system: a read-only view of a folder that is served like the exports of one busy file server.
//!
//! The server handles operations one at a time. Each operation takes a fixed time; a read also takes the time of its
//! bytes at the given bandwidth. As with NFS, the kernel keeps attributes and results of look-ups, also of failed ones,
//! for a time-out, and the contents of files until they change. Every operation that reaches the server is one line in
//! a log: `OPERATION PID PATH`.
//!
//! ```no_run
//! # use wireup_testbed::slowfs::{SlowFs, Spec};
//! let spec = Spec::new("target/debug/wireup-testbed", "/opt/app", "/mnt/app");
//! let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
//! std::fs::read("/mnt/app/input").unwrap();
//! assert!(slow.log().iter().any(|line| line.operation == "open"));
//! ```
//!
//! The kernel decides which operations it sends. It checks permissions by itself, from attributes, so there is no
//! `access`. Extended attributes are not supported, which the kernel learns when it first asks for one. Neither this
//! request nor `forget` counts as an operation.
//!
//! The file system ends with its server. If the server is killed, a mount remains of which every use fails ("transport
//! endpoint is not connected"); the next start at the same place removes that mount, and so does dropping the
//! [`SlowFs`] of a killed server. The server needs root and `/dev/fuse`.
mod handle;
mod meter;
mod nodes;
mod server;
mod serving;
mod source;
mod spec;

pub use handle::SlowFs;
pub use meter::Line;
pub use serving::{Serving, serve};
pub use spec::Spec;

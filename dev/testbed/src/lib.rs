//! Several hosts on one machine, for tests and benchmarks: network name spaces with a remote shell in each.
//!
//! A *hub* with a bridge, where the launcher under test runs, and nodes `n0`, `n1`, ... with their own interfaces, host
//! names, process numbers, `/tmp`, `/run`, `/dev/shm` and home directories. Hub and nodes reach each other by name; on
//! request the nodes' monotonic clocks differ. Every node runs an sshd, and on the `PATH` is an `ssh` that is
//! configured for the nodes. With [`Spec::slurm`] the nodes run a Slurm. A node can be cut off silently or lose power.
//!
//! ```no_run
//! # use std::process::Command;
//! # use wireup_testbed::{Spec, Testbed};
//! let Some(testbed) = Testbed::start_or_skip(&Spec::new("target/debug/wireup-testbed", 4)) else { return };
//! let mut command = Command::new("ssh");
//! testbed.enter(command.args(["n3", "hostname"]));
//! assert_eq!(command.output().unwrap().stdout, b"n3\n");
//! testbed.cut(3).unwrap();
//! ```
//!
//! The whole testbed belongs to one child process and ends with it: normally when the [`Testbed`] is dropped, and also
//! when the test or the child itself is killed. Nothing outside of its name spaces is changed, except for an empty
//! folder, `/run/wireup-testbed`. It needs root, OpenSSH, iproute2, munge and Slurm for Slurm, and no other programs.
//!
//! Apart from hosts there is [`slowfs`], a slow shared file system.
mod daemon;
pub mod failing_calls;
mod hub;
mod mounts;
mod network;
mod node;
mod processes;
mod served;
pub mod slowfs;
mod slurm;
mod spec;
mod ssh;
mod sys;
mod testbed;

pub mod command_line;

pub use processes::Process;
pub use spec::{NODES_MAX, Spec, addresses, name};
pub use sys::{heed_interrupts, refuse_calls_from};
pub use testbed::{StartError, Testbed};

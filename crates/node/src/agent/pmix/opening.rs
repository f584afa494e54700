//! Describes how a PMIx server process is started, whichever job it serves: a job can use a server that was started for
//! another one if both descriptions are equal.

use crate::agent::directory::Directory;
use crate::keeper::{Batch, OutKind, Process, Program, StdinKind};
use std::os::unix::ffi::OsStringExt;
use wireup_proto::io::PmixPlan;
use wireup_wire::job::{Limit, Resource};
use wireup_wire::pmix::Open;

/// File mode mask of the server: other users must not read its files.
const UMASK: u32 = 0o077;

#[derive(Clone, PartialEq, Eq)]
pub struct Opening {
    env: Vec<Vec<u8>>,
    library: Option<String>,
    /// Name of this node.
    host: String,
    /// Whether other nodes share this machine.
    shared: bool,
}

impl Opening {
    pub fn new(plan: &PmixPlan) -> Opening {
        let host = plan.begin.nodes.get(plan.begin.node.index()).cloned().unwrap_or_default();
        Opening { env: plan.env.clone(), library: plan.begin.library.clone(), host, shared: plan.begin.shared }
    }

    /// The message that makes a server process open libpmix before its job is known.
    pub fn message(&self, directory: &Directory) -> Open {
        Open { dir: directory.name(), library: self.library.clone(), host: self.host.clone() }
    }

    /// The batch with which a keeper starts the server process in this slot.
    pub fn batch(&self, slot: u32) -> Batch {
        let program = wireup_os::files::path_of_own_program();
        let open_files = wireup_os::process::raise_open_files().map_or(1024, |limits| limits.soft_now);
        Batch {
            programs: vec![Program {
                argv: vec![program.into_os_string().into_vec(), b"pmix-server".to_vec()],
                cwd: b"/".to_vec(),
                env: self.env.clone(),
            }],
            processes: vec![Process {
                stdin: StdinKind::Socket,
                stdout: OutKind::Null,
                shares_session: !self.shared,
                ..Process::new(slot)
            }],
            umask: UMASK,
            limits: vec![Limit { resource: Resource::Nofile, soft: open_files }],
            staged: None,
            preload: None,
        }
    }
}

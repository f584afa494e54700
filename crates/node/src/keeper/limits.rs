//! Soft resource limits of a job's ranks.
//!
//! The keeper takes them on itself before it forks, so that no rank needs a system call for them. Open files are the
//! exception: the keeper needs many, so each rank sets its own.

use rustix::process::Resource as Kernels;
use wireup_os::process::set_soft_limit;
use wireup_wire::job::{Limit, Resource};

/// Takes the limits on; returns that of open files. What the kernel refuses stays as it is on this node.
pub fn apply(limits: &[Limit]) -> Option<u64> {
    let mut open_files = None;
    for limit in limits {
        match kernels(limit.resource) {
            Some(resource) => drop(set_soft_limit(resource, limit.soft)),
            None => {
                let hard = rustix::process::getrlimit(Kernels::Nofile).maximum.unwrap_or(u64::MAX);
                open_files = Some(limit.soft.min(hard));
            }
        }
    }
    open_files
}

/// `None`: open files.
fn kernels(resource: Resource) -> Option<Kernels> {
    Some(match resource {
        Resource::Nofile => return None,
        Resource::Core => Kernels::Core,
        Resource::Stack => Kernels::Stack,
        Resource::Memlock => Kernels::Memlock,
        Resource::Data => Kernels::Data,
        Resource::As => Kernels::As,
        Resource::Fsize => Kernels::Fsize,
        Resource::Cpu => Kernels::Cpu,
    })
}

//! Translates the soft resource limits of a job's ranks into those of the kernel.

use rustix::process::Resource as Kernels;
use wireup_os::spawn::Limits;
use wireup_wire::job::{Limit, Resource};

/// Limits for the processes of a batch. The keeper's own limits do not change, because it also starts processes of
/// other jobs, and server processes.
pub fn of_children(limits: &[Limit]) -> Limits {
    Limits::new(limits.iter().map(|limit| (kernels(limit.resource), limit.soft)))
}

fn kernels(resource: Resource) -> Kernels {
    match resource {
        Resource::Nofile => Kernels::Nofile,
        Resource::Core => Kernels::Core,
        Resource::Stack => Kernels::Stack,
        Resource::Memlock => Kernels::Memlock,
        Resource::Data => Kernels::Data,
        Resource::As => Kernels::As,
        Resource::Fsize => Kernels::Fsize,
        Resource::Cpu => Kernels::Cpu,
    }
}

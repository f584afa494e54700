//! Sets how much CPU time the processes of a session get compared with those of other sessions, where Linux schedules
//! sessions as groups (autogroups).

use rustix::process::{Pid, getsid};
use std::fs;
use std::io;

/// Sets the weight of the session led by `leader`, as a nice value; 0 is the default. Without autogroups, or in a
/// control group with its own CPU limits, this has no effect.
///
/// # Errors
/// `WouldBlock`: without `CAP_SYS_ADMIN` only one change per 0.1 s is permitted, for all users together. `NotFound`:
/// there is no such process, it leads no session (yet), or the kernel has no autogroups. Others: the process belongs to
/// another user; descriptors have run out.
pub fn set_group_nice(leader: u32, nice: i32) -> io::Result<()> {
    let pid = Pid::from_raw(leader as i32).ok_or(io::ErrorKind::NotFound)?;
    if getsid(Some(pid)) != Ok(pid) {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::write(format!("/proc/{leader}/autogroup"), nice.to_string())
}

//! Sets how much CPU time the processes of a session get compared with those of other sessions, where Linux schedules
//! sessions as groups (autogroups).

use rustix::process::{Pid, getsid};
use std::fs;
use std::io;

/// Gives all processes in the session that `leader` leads the weight of this niceness; 0 is the usual one. Without
/// autogroups, or in a control group with limits of its own, it has no effect.
///
/// # Errors
/// `WouldBlock`: without `CAP_SYS_ADMIN` one change in a tenth of a second is permitted, for all users together.
/// `NotFound`: there is no such process, it leads no session (yet), or the kernel has no autogroups. Others: it belongs
/// to another user; descriptors have run out.
pub fn set_group_nice(leader: u32, nice: i32) -> io::Result<()> {
    let pid = Pid::from_raw(leader as i32).ok_or(io::ErrorKind::NotFound)?;
    if getsid(Some(pid)) != Ok(pid) {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::write(format!("/proc/{leader}/autogroup"), nice.to_string())
}

//! The weight of a session's processes against those of other sessions, where Linux schedules sessions as groups (autogroups).

use std::fs;
use std::io;

/// Gives all processes in the session of `pid` the weight of this niceness; 0 is the usual one. Without autogroups, or in a control group
/// with limits of its own, it has no effect.
///
/// # Errors
/// `WouldBlock`: a user who may not do everything has changed another session less than a tenth of a second ago. Others: there is no such
/// process, or it belongs to another user, or the kernel has no autogroups.
pub fn set_group_nice(pid: u32, nice: i32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/autogroup"), nice.to_string())
}

//! Adds advice for the user to error messages of agents and launchers.

use std::fmt;
use std::io;
use wireup_os::interfaces;
use wireup_wire::peer::remedy;

/// An error, with advice if a resource has run out.
pub struct Advised<'e>(pub &'e io::Error);

impl fmt::Display for Advised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        match self.0.raw_os_error().and_then(remedy) {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Advice about an agent that cannot connect to its parent. `same_machine`: the parent is on this machine, and is
/// reached through the loopback interface.
pub fn of_dialling(same_machine: bool) -> &'static str {
    let has_loopback =
        || interfaces::addresses().is_ok_and(|all| all.iter().any(|address| address.loopback && address.up));
    match () {
        () if !same_machine => "check for a firewall between it and its parent; --interface chooses another network",
        () if !has_loopback() => "the loopback interface of this machine is down; bring it up: ip link set lo up",
        () => {
            "is its parent stopped or short of open files (raise ulimit -n), or does a firewall forbid connections to \
             127.0.0.1?"
        }
    }
}

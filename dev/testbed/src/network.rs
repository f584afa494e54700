//! Network interfaces by `ip` and `bridge` of iproute2: bridges, pairs of virtual cables (veth), addresses, neighbours.
//!
//! One process carries out all lines of a batch, in the network name space of the caller.
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

const IP: &str = "/sbin/ip";
const BRIDGE: &str = "/sbin/bridge";
/// States of a port of a bridge, with the kernel's numbers.
const DISABLED: u8 = 0;
const FORWARDING: u8 = 3;

/// The first program of iproute2 that is missing on this machine, if any.
pub fn missing() -> Option<String> {
    let missing = [IP, BRIDGE].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("{missing} is not there; Debian has it in iproute2"))
}

/// Carries out `lines`, commands of `ip`, in one process.
pub fn ip(lines: &str) -> io::Result<()> {
    batch(IP, lines)
}

/// Lets a port of the bridge forward frames, or drop all of them. The carrier stays up, so that programs do not notice.
pub fn set_forwarding(port: &str, forwarding: bool) -> io::Result<()> {
    let state = if forwarding { FORWARDING } else { DISABLED };
    batch(BRIDGE, &format!("link set dev {port} state {state}\n"))
}

/// Commands of `ip` that add addresses to an interface; they can be used at once (IPv6 without duplicate address
/// detection).
pub fn addresses(interface: &str, addresses: &[(IpAddr, u8)]) -> String {
    let line = |(address, prefix): &(IpAddr, u8)| {
        let at_once = if address.is_ipv6() { " nodad" } else { "" };
        format!("address add {address}/{prefix} dev {interface}{at_once}\n")
    };
    addresses.iter().map(line).collect()
}

/// A hardware address as text.
pub fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn batch(program: &str, lines: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // Errors are ignored: if the program ends early, its output says why.
        let _ = input.write_all(lines.as_bytes());
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

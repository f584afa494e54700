//! The first process of a node: creates the node's environment, starts its daemons, reaps children.
//!
//! This takes two steps, so that the hub can lay the cable in between: it reports `made` once the name spaces exist,
//! and `ready` with the daemons' pids within the node once they listen. The node ends when this process is killed; the
//! kernel does that at the latest when the testbed's process is gone.
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use rustix::thread::UnshareFlags;

use crate::spec::{Spec, addresses, mac, name};
use crate::{mounts, network, slurm, ssh, sys};

/// Number of nodes above which neighbour (ARP) entries are set explicitly: the kernel's table for learnt entries holds
/// 1024 for all name spaces together, one for each pair that has communicated.
const LEARNING_NODES_MAX: u16 = 24;
/// Kernel settings for interfaces that send nothing by themselves and can be used at once.
const SETTINGS: [(&str, &str); 3] = [("accept_dad", "0"), ("router_solicitations", "0"), ("accept_ra", "0")];

/// Runs node `i` until it is killed; `link` is the socket to the hub.
pub fn main(spec: &Spec, i: u16, link: UnixStream) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    sys::close_all_but(&link);
    let mut answers = BufReader::new(&link);
    let result = make(spec, i).and_then(|()| {
        (&link).write_all(b"made\n")?;
        let mut line = String::new();
        // The end of the input means that the hub has exited, perhaps before the death signal was set.
        if answers.read_line(&mut line)? == 0 {
            sys::leave(1);
        }
        start(spec, i)
    });
    match result {
        Ok(daemons) => {
            let daemons: Vec<String> = daemons.iter().map(u32::to_string).collect();
            let _ = (&link).write_all(format!("ready {}\n", daemons.join(",")).as_bytes());
        }
        Err(error) => {
            let line = format!("{}: {error}", name(i)).replace('\n', "; ");
            let _ = (&link).write_all(format!("{line}\n").as_bytes());
            sys::leave(1);
        }
    }
    sys::reap_forever()
}

fn make(spec: &Spec, i: u16) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    (0..3).try_for_each(|stream| sys::become_stream(&null, stream))?;
    let own = UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    sys::unshare(own)?;
    rustix::system::sethostname(name(i).as_bytes())?;
    let home = root_home(&fs::read_to_string("/etc/passwd")?);
    mounts::enter_node(&home, &spec.shares)?;
    std::env::set_current_dir("/")?;
    quieten()?;
    network::ip("link set lo up\n")
}

/// Makes interfaces that are created later in this network name space send nothing by themselves.
pub fn quieten() -> io::Result<()> {
    let folder = Path::new("/proc/sys/net/ipv6/conf/default");
    if folder.exists() {
        SETTINGS.iter().try_for_each(|(setting, value)| fs::write(folder.join(setting), value))?;
    }
    Ok(())
}

fn start(spec: &Spec, i: u16) -> io::Result<Vec<u32>> {
    let lines = "link set eth0 up\n".to_owned() + &network::addresses("eth0", &addresses(Some(i)));
    network::ip(&(lines + &neighbours(spec, Some(i), "eth0") + trap(spec)))?;
    let options = spec.sshd_options.iter().filter(|(node, _)| node.is_none_or(|node| node == i));
    let mut daemons = vec![ssh::start_daemon(&options.map(|(_, option)| option.clone()).collect::<Vec<_>>())?];
    if spec.slurm {
        daemons.extend(slurm::start_on_node(i)?);
    }
    Ok(daemons)
}

/// Commands of `ip` for an interface `docker0` with the same address on all nodes. It is a cable with an unconnected
/// end, not a bridge like the real one: the kernel needs 20 ms to remove a bridge, and new networks wait for that.
pub fn trap(spec: &Spec) -> &'static str {
    let lines = "link add docker0 address 02:42:ac:11:00:01 type veth peer name trap0 address 02:42:ac:11:00:02\n\
                 link set docker0 up\naddress add 172.17.0.1/16 dev docker0\n";
    if spec.trap_interfaces { lines } else { "" }
}

/// Commands of `ip` that give node `own` (`None`: the hub) neighbour entries for all other nodes, if the table for
/// learnt entries would overflow.
pub fn neighbours(spec: &Spec, own: Option<u16>, interface: &str) -> String {
    if spec.nodes <= LEARNING_NODES_MAX {
        return String::new();
    }
    let others = std::iter::once(None).chain((0..spec.nodes).map(Some)).filter(|other| *other != own);
    let line = |other| {
        let hardware = network::text(mac(other));
        addresses(other)
            .map(|(to, _)| format!("neighbour add {to} lladdr {hardware} nud permanent dev {interface}\n"))
            .concat()
    };
    others.map(line).collect()
}

/// The home directory of the first account with user id 0; everything on the nodes runs under this account.
fn root_home(passwd: &str) -> PathBuf {
    let home = passwd.lines().find_map(|line| match line.split(':').collect::<Vec<_>>()[..] {
        [_, _, "0", _, _, home, _] => Some(home),
        _ => None,
    });
    home.unwrap_or("/root").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_the_first_account_with_number_0() {
        assert_eq!(root_home("a:x:1:0::/a:/bin/a\nr:x:0:0:root:/r:/bin/r\ns:x:0:0::/s:/bin/s\n"), Path::new("/r"));
        assert_eq!(root_home(""), Path::new("/root"));
    }
}

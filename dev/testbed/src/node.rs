//! The first process of a node: creates the node's environment, starts its daemons, reaps children.
//!
//! It takes two steps, so that the hub can lay the cable in between: it reports `made` once the name spaces exist, and
//! `ready` with the daemons' pids within the node once they listen. The node ends when this process is killed; the
//! kernel does that at the latest when the testbed's process is gone.
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;
use rustix::thread::UnshareFlags;

use crate::account::Account;
use crate::netlink::{End, LOOPBACK, Netlink};
use crate::plainsh::{self, daemon::Surroundings};
use crate::spec::{Spec, TRAP_ADDRESS, TRAP_INTERFACE, addresses, mac, name};
use crate::{mounts, slurm, ssh, sys};

pub const CABLE_INDEX: u32 = 100;
const TRAP_INDEX: u32 = 101;
/// With more nodes than this, neighbour entries are set explicitly: the kernel's table for learnt ones holds 1024
/// entries for all name spaces together, one for each pair that has communicated.
const LEARNING_NODES_MAX: u16 = 24;
/// Settings for interfaces that send nothing by themselves and can be used at once.
const SETTINGS: [(&str, &str); 3] = [("accept_dad", "0"), ("router_solicitations", "0"), ("accept_ra", "0")];

/// Runs node `i` until it is killed; `link` is the socket to the hub.
pub fn main(spec: &Spec, i: u16, link: UnixStream) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    sys::close_all_but(&link);
    let mut answers = BufReader::new(&link);
    let result = make(spec, i).and_then(|()| {
        (&link).write_all(b"made\n")?;
        let mut line = String::new();
        // The hub may have exited before the death signal was set.
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
    let account = Account::root();
    mounts::enter_node(Some(&*account.home).filter(|_| spec.private_home), &spec.shares)?;
    std::env::set_current_dir("/")?;
    quieten()?;
    Netlink::open()?.up(LOOPBACK)
}

/// Makes interfaces that are created from here on in this network send nothing by themselves.
pub fn quieten() -> io::Result<()> {
    let folder = Path::new("/proc/sys/net/ipv6/conf/default");
    if folder.exists() {
        SETTINGS.iter().try_for_each(|(setting, value)| fs::write(folder.join(setting), value))?;
    }
    Ok(())
}

fn start(spec: &Spec, i: u16) -> io::Result<Vec<u32>> {
    let netlink = Netlink::open()?;
    netlink.up(CABLE_INDEX)?;
    netlink.add_addresses(CABLE_INDEX, &addresses(Some(i)))?;
    add_neighbours(&netlink, spec, Some(i), CABLE_INDEX)?;
    if spec.trap_interfaces {
        add_trap(&netlink)?;
    }
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, plainsh::PORT))?;
    let mut daemons = vec![start_plainshd(&listener)?];
    if spec.ssh {
        let options = spec.sshd_options.iter().filter(|(node, _)| node.is_none_or(|node| node == i));
        daemons.push(ssh::start_daemon(&options.map(|(_, option)| option.clone()).collect::<Vec<_>>())?);
    }
    if spec.slurm {
        daemons.extend(slurm::start_on_node(i)?);
    }
    Ok(daemons)
}

/// A cable with an unconnected end, not a bridge like the real one: the kernel needs 20 ms to remove a bridge, and new
/// networks wait for that.
pub fn add_trap(netlink: &Netlink) -> io::Result<()> {
    let near = End { index: TRAP_INDEX, name: TRAP_INTERFACE, mac: [0x02, 0x42, 0xac, 0x11, 0, 1] };
    let loose = End { index: TRAP_INDEX + 1, name: "trap0", mac: [0x02, 0x42, 0xac, 0x11, 0, 2] };
    netlink.add_cable(&near, None, &loose, 0)?;
    netlink.add_addresses(TRAP_INDEX, &[(TRAP_ADDRESS, 16)])
}

/// Sets the neighbour entries of node `own` (`None` for the hub) for all others, if the table for learnt entries would
/// overflow.
pub fn add_neighbours(netlink: &Netlink, spec: &Spec, own: Option<u16>, index: u32) -> io::Result<()> {
    if spec.nodes <= LEARNING_NODES_MAX {
        return Ok(());
    }
    let others = std::iter::once(None).chain((0..spec.nodes).map(Some)).filter(|other| *other != own);
    netlink.add_neighbours(index, others.flat_map(|other| addresses(other).map(|(address, _)| (address, mac(other)))))
}

fn start_plainshd(listener: &TcpListener) -> io::Result<u32> {
    if let Some(pid) = sys::fork()? {
        return Ok(pid.as_raw_pid().cast_unsigned());
    }
    let account = Account::root();
    let surroundings = Surroundings { variables: account.variables() };
    let _ = rustix::thread::set_name(c"plainshd");
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir(&account.home);
    let _ = plainsh::daemon::serve(listener, &surroundings);
    sys::leave(1)
}

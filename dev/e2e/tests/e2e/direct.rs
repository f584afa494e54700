//! Direct links between agents: between hosts, encrypted or not, if a link is impossible, and between virtual nodes.

use std::ffi::OsString;
use wireup_e2e::machines::{self, drop_silently, firewall, wall};
use wireup_e2e::{Run, wireup};

/// The command line of a program whose ranks exchange values and check each value.
fn exchange() -> [OsString; 4] {
    [wireup().into(), "pmi".into(), "exchange".into(), "--check".into()]
}

#[test]
fn hosts_exchange_over_direct_links() {
    let Some(machines) = machines::sixteen() else { return };
    for line in [
        "--hosts n[0-7] --fanout 2 --exchange ring",
        "--hosts n[0-7] --fanout 2 --exchange log",
        "--hosts n[0-6] --fanout 1 --exchange log --plain-links",
        "--hosts n[0-6] --fanout 2 --exchange ring --plain-links --interface 10.77.0.0/16",
        "--hosts n[0-6] --fanout 3 --exchange log --interface fd77::/64",
    ] {
        let outcome = machines.job(line).args(exchange()).succeed();
        assert!(outcome.out().contains("fence_ms"), "{line}: {outcome}");
    }
}

#[test]
fn virtual_nodes_exchange_over_direct_links() {
    for scheme in ["ring", "log"] {
        Run::job(&format!("-n 10 --virtual-nodes 5 --fanout 2 --exchange {scheme}")).args(exchange()).succeed();
    }
}

const SEVEN: &str = "--hosts n[0-6] --fanout 2 --interface 10.77.0.0/16 --exchange ring";

/// Agents 1 and 2, 3 and 4, 5 and 6 are siblings in a tree of fan-out 2, and neighbours in the ring.
#[test]
fn without_a_direct_link_the_job_uses_the_tree_and_names_both_ends() {
    let Some(machines) = machines::own(7, |_| ()) else { return };
    let exchanges = |more: &[&str]| machines.job(SEVEN).args(more).args(exchange()).succeed();
    // These packets get lost. The dialling agent would give up after 30 s and warn, but frames do not wait for it, so
    // the job ends before.
    drop_silently(&machines, 5, 6);
    drop_silently(&machines, 6, 5);
    let outcome = exchanges(&[]);
    assert!(!outcome.err().contains("no direct link"), "{outcome}");
    // If an agent cannot dial another one, the other agent dials it instead.
    firewall(&machines, 3, 4);
    firewall(&machines, 2, 1);
    let outcome = exchanges(&[]);
    assert!(!outcome.err().contains("no direct link"), "{outcome}");
    firewall(&machines, 4, 3);
    exchanges(&[]).expect_err_line(&["n3", "n4", "no direct link", "through the tree", "refused"]);
    wall(&machines, 3, 4);
    wall(&machines, 4, 3);
    let outcome = exchanges(&[]);
    outcome.expect_err_line(&["n3", "n4", "no direct link", "through the tree", "10.77.0.", "No route to host"]);
    let outcome = exchanges(&["--agent-transport", "tree"]);
    assert!(!outcome.err().contains("no direct link"), "{outcome}");
}

#[test]
fn exchanges_succeed_with_every_agent_transport() {
    let Some(machines) = machines::sixteen() else { return };
    for transport in ["auto", "tree", "tcp"] {
        for early in ["yes", "no"] {
            let line = format!(
                "--hosts n[0-7] --fanout 2 --exchange log --early-wireup {early} --agent-transport {transport}"
            );
            let outcome = machines.job(&line).args(exchange()).succeed();
            assert!(!outcome.err().contains("no direct link"), "{line}: {outcome}");
        }
    }
}

/// The path of libucp, if it is installed.
fn libucp() -> Option<String> {
    let list = std::process::Command::new("/sbin/ldconfig").arg("-p").output().ok()?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let line = list.lines().find(|line| line.trim_start().starts_with("libucp.so.0 "))?;
    line.split(" => ").nth(1).map(str::to_owned)
}

#[test]
fn all_nodes_use_ucx_or_all_use_tcp() {
    // Links by UCX are encrypted like those by TCP.
    let ucx = ["--agent-transport", "ucx"];
    let line = "-n 5 --virtual-nodes 5 --fanout 2 --exchange log";
    let outcome = Run::job(line).args(ucx).args(exchange()).succeed();
    assert_eq!(outcome.err().contains("cannot use UCX"), libucp().is_none(), "{outcome}");
    let Some(path) = libucp() else { return };
    let Some(machines) = machines::own(5, |_| ()) else { return };
    machines.ask(3, &format!("mount --bind /dev/null $(readlink -f {path})"));
    let line = "--hosts n[0-4] --fanout 2 --exchange log";
    let outcome = machines.job(line).args(ucx).args(exchange()).succeed();
    outcome.expect_err_line(&["n3 cannot use UCX", "all nodes use TCP"]);
    assert_eq!(outcome.err().matches("cannot use UCX").count(), 1, "{outcome}");
}

/// Ranks get the same environment and descriptors, whatever transport their agents use.
#[test]
fn ranks_inherit_nothing_from_their_agents_ucx() {
    let script = "env | grep -c ^UCX_; ls /proc/self/fd | wc -l";
    let of = |transport: &str| {
        let line = format!("-n 3 --virtual-nodes 3 --exchange ring --agent-transport {transport}");
        Run::job(&line).args(["sh", "-c", script]).finish().sorted_lines()
    };
    assert_eq!(of("ucx"), of("tcp"));
}

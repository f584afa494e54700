//! Agents that real ssh starts: trees; hosts that forbid or throttle ssh; unreachable hosts, which are all named in one
//! message.

use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use wireup_e2e::faults::send;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::{Outcome, wireup};
use xtask::layout;

const WHERE: &str = "echo $WIREUP_RANK $(hostname)";
const EACH_ONE: [&str; 4] = ["0 n0", "1 n1", "2 n2", "3 n3"];

#[test]
fn the_launcher_may_run_on_a_host_of_the_job() {
    let Some(machines) = machines::four() else { return };
    // The launcher runs on n2, whose temporary folder is not the one of this test.
    for flags in ["--fanout 2", "--fanout 1 --interface eth0 --verbose", "--pmi pmix", "--pmi auto"] {
        let outcome = machines.job_from(2, &format!("--hosts n[0-3] {flags}")).sh(WHERE).succeed();
        assert_eq!(outcome.sorted_lines(), EACH_ONE, "{flags}: {outcome}");
    }
}

#[test]
fn children_of_a_host_that_cannot_use_ssh_are_started_from_above() {
    // sshd accepts log-ins only from the hub.
    let rule = (None, "AllowUsers=root@10.77.0.254".to_owned());
    let Some(machines) = machines::own(4, |spec| spec.sshd_options = vec![rule]) else { return };
    let outcome = machines.job("--hosts n[0-3] --fanout 1").sh(WHERE).succeed();
    assert_eq!(outcome.sorted_lines(), EACH_ONE, "{outcome}");
    for (agent, parent) in [("n1", "n0"), ("n2", "n1"), ("n3", "n2")] {
        outcome.expect_err_line(&[
            &format!("{agent} was started by "),
            &format!("because {parent} could not start it"),
            "ermission denied",
        ]);
    }
}

#[test]
fn children_of_a_host_without_keys_are_started_by_its_parent() {
    let Some(machines) = machines::own(4, |_| ()) else { return };
    machines.shadow(1, "/run/wireup-testbed/ssh/user", "", 0o600).expect("a key is hidden");
    let outcome = machines.job("--hosts n[0-3] --fanout 1").sh(WHERE).succeed();
    assert_eq!(outcome.sorted_lines(), EACH_ONE, "{outcome}");
    outcome.expect_err_line(&["n2 was started by n0", "because n1 could not start it"]);
    assert_eq!(outcome.err().lines().count(), 1, "{outcome}");
}

/// A folder with a host key that the user does not know; removed on drop.
struct OtherKey(PathBuf);

impl OtherKey {
    fn new() -> OtherKey {
        let folder = layout::target().join(format!("end-to-end-key-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder that hosts see");
        let key = folder.join("key");
        let mut keygen = Command::new("ssh-keygen");
        let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        assert!(made.is_ok_and(|status| status.success()), "ssh-keygen");
        OtherKey(folder)
    }
}

impl Drop for OtherKey {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Hosts with one fault each: n1 refuses connections, n2 is cut off, n3 has an unknown host key, n4 denies log-ins, n5
/// is another kind of machine.
fn broken(key: &OtherKey) -> Option<Machines> {
    let machines = machines::own(7, |spec| {
        spec.sshd_options.push((Some(3), format!("HostKey={}/key", key.0.display())));
        spec.sshd_options.push((Some(4), "AllowUsers=nobody".into()));
    })?;
    send(machines.daemons(1)[0], Signal::KILL);
    machines.cut(2).expect("cut a node off");
    machines.shadow(5, "/usr/bin/uname", "#!/bin/sh\necho s390x\n", 0o755).expect("replace a file");
    let product = wireup().canonicalize().expect("the product");
    machines.shadow(5, &product.display().to_string(), "", 0o644).expect("replace a file");
    Some(machines)
}

fn names_all_faults(outcome: Outcome) {
    let outcome = outcome.expect_code(125);
    let line = outcome.expect_err_line(&["no agent could be started on 6 of 8 nodes"]);
    for words in [
        "n1: ssh: connect to host n1 port 22: Connection refused",
        "n2: ssh: connect to host n2 port 22: No route to host", "n3: ", "Host key verification failed",
        "n4: root@n4: Permission denied", "n5: it is an s390x machine without wireup",
        "nowhere: ssh: Could not resolve hostname nowhere",
    ] {
        assert!(line.contains(words), "{words:?} is not in: {line}");
    }
    for good in ["n0: ", "n6: "] {
        assert!(!line.contains(good), "{good} is there: {line}");
    }
}

/// Some of the unreachable hosts are below others in the tree.
#[test]
fn all_unreachable_hosts_are_named_in_one_message() {
    let key = OtherKey::new();
    let Some(machines) = broken(&key) else { return };
    for flags in ["--start ssh-flat", "--fanout 1", "--fanout 2"] {
        let line = format!("--hosts n[0-2],nowhere,n[3-6] --start-timeout 20 {flags}");
        let run = machines.job(&line).sh("exec sleep 1000");
        names_all_faults(run.finish());
    }
}

/// The missing host is a child of the launcher, or of another host, whose agent then has started long before.
#[test]
fn a_job_with_a_missing_host_runs_no_rank() {
    let Some(machines) = machines::four() else { return };
    for line in ["--hosts n[0-2],nowhere", "--hosts n[0-2],nowhere --fanout 1", "--hosts nowhere,n[0-2] --pmi pmix"] {
        let outcome = machines.job(line).sh(WHERE).finish().expect_code(125);
        assert_eq!(outcome.out(), "", "{line}: {outcome}");
        outcome.expect_err_line(&["nowhere"]);
        let early = machines.job(&format!("{line} --early-start")).sh(WHERE).finish().expect_code(125);
        early.expect_err_line(&["nowhere"]);
    }
}

/// A host accepts the connection and then sends nothing, and so does the host below it in the tree.
#[test]
fn hosts_that_hang_are_given_up_after_the_start_timeout_or_an_interrupt() {
    let Some(machines) = machines::own(4, |_| ()) else { return };
    let hanging = [1, 3].map(|host| machines.daemons(host)[0]);
    hanging.into_iter().for_each(|sshd| send(sshd, Signal::STOP));
    let outcome = machines.job("--hosts n[0-3] --fanout 1 --start-timeout 4").sh("exec sleep 1000").finish();
    let line = outcome.expect_code(125).expect_err_line(&["no agent could be started on ", "did not ", " within 4 s"]);
    // On a busy machine other hosts may also be late and be reported together with these two.
    for host in ['1', '3'] {
        let named = line.split(": ").any(|part| part.rsplit(' ').next().is_some_and(|name| name.contains(host)));
        assert!(named, "n{host}: {line}");
    }
    let mut running = machines.job("--hosts n[0-1] --verbose").sh(WHERE).start();
    running.await_that("an agent is up", |running| running.processes().iter().any(|process| process.name == "ssh"));
    running.signal(Signal::INT);
    let outcome = running.finish().expect_code(130);
    assert_eq!(outcome.out(), "", "{outcome}");
    hanging.into_iter().for_each(|sshd| send(sshd, Signal::CONT));
}

#[test]
fn a_throttled_sshd_is_retried() {
    let rule = (None, "MaxStartups=2:100:2".to_owned());
    let Some(machines) = machines::own(1, |spec| spec.sshd_options = vec![rule]) else { return };
    let names = "n0,root@n0,10.77.0.1,root@10.77.0.1,n0-v6,root@n0-v6,[fd77::1],root@[fd77::1]";
    let outcome = machines.job(&format!("--hosts {names}")).sh("hostname").succeed();
    assert_eq!(outcome.out(), "n0\n".repeat(8), "{outcome}");
    outcome.expect_err_line(&["sshd is busy", "retrying"]);
}

//! Jobs across hosts: which hosts, by which remote shell, and wireup's targets there.
//!
//! Hosts and shell are those of the benchmark's environment; on one machine `wireup-testbed run` provides them. Every
//! host must see the test programs, so that the time for copying them does not count.
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::cases::{Case, NoCase, OpenMpi, Place, Work};
use crate::command::{Failure, Invocation};
use crate::interrupt::Interrupt;
use crate::metric::Metric;
use crate::programs::{Program, Scratch};
use crate::target::{Against, Target, first_get_target};

/// The testbed's remote shell without cryptography, used if it is installed: its own cost is negligible.
const PLAIN_SHELL: &str = "plainsh";
const SSH: &str = "ssh";
/// Used in place of a shell: the hosts are those of the surrounding Slurm allocation, and launchers are not given any.
const SRUN: &str = "srun";
/// Time limit for contacting all hosts at once, before anything is timed (chosen).
const REACH_LIMIT: Duration = Duration::from_secs(60);

/// A case of a default set: its name without the shell, and whether it uses ssh.
pub type Row = (&'static str, bool);

const STARTS: [Row; 7] = [
    ("true-16x16", false),
    ("true-64x16", false),
    ("true-64x1", true),
    ("mpi-init-4x4", false),
    ("mpi-init-4x4@srun", false),
    ("exchange-16x16", false),
    ("exchange-64x4", false),
];
/// The points of the figure.
pub const INITIATION: [Row; 6] = [
    ("initiation-4x1", true),
    ("initiation-8x1", true),
    ("initiation-16x1", true),
    ("initiation-16x2", true),
    ("initiation-16x4", true),
    ("initiation-16x8", true),
];
const WITH_PMIX: [Row; 5] = [
    ("openmpi4-4x4", false),
    ("openmpi5-4x4", false),
    ("pmix-exchange-16x16", false),
    ("pmix-fence-16x16", false),
    ("pmix-direct-16x16", false),
];

/// The default set across hosts.
pub fn table() -> Vec<Row> {
    [&STARTS[..], &INITIATION, &WITH_PMIX].concat()
}

/// The hosts of a job that runs on other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// As many hosts as there are nodes, or fewer if no more were given; then the case cannot be run.
    pub hosts: Vec<String>,
    /// Called as `SHELL HOST COMMAND..` by all launchers.
    pub shell: String,
}

impl Remote {
    /// The first `node_count` hosts.
    pub fn first(&self, node_count: u32) -> Remote {
        let hosts = self.hosts.iter().take(node_count as usize).cloned().collect();
        Remote { hosts, shell: self.shell.clone() }
    }

    pub fn list(&self) -> String {
        self.hosts.join(",")
    }

    /// Whether launchers find the hosts in the environment, as in a Slurm allocation.
    pub fn is_allocation(&self) -> bool {
        self.shell == SRUN
    }

    /// The shell's name as part of the case's name.
    pub fn shell_name(&self) -> &str {
        Path::new(&self.shell).file_name().and_then(|name| name.to_str()).unwrap_or(&self.shell)
    }
}

/// The cases across `hosts`: those in `names`, as `WORK-NODESxPPN[@SHELL]`, or the table.
pub fn cases(names: &[String], table: &[Row], hosts: &[String], shell: Option<&str>) -> Result<Vec<Case>, NoCase> {
    let plain = plain_shell(shell);
    let with = |name: &str, shell: &str| {
        let (name, shell) = name.split_once('@').unwrap_or((name, shell));
        Case::on_hosts(name, hosts, shell)
    };
    if names.is_empty() {
        let shell_of = |about_ssh| if about_ssh { shell.unwrap_or(SSH) } else { plain };
        return table.iter().map(|(name, about_ssh)| with(name, shell_of(*about_ssh))).collect();
    }
    names.iter().map(|name| with(name, plain)).collect()
}

/// The wanted shell, or the one with the lowest cost.
pub fn plain_shell(wanted: Option<&str>) -> &str {
    wanted.unwrap_or(if is_on_path(PLAIN_SHELL) { PLAIN_SHELL } else { SSH })
}

fn is_on_path(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).exists()))
}

pub fn rounds(work: Work, place: Place) -> u32 {
    match (work, place.job_size()) {
        (Work::Initiation, _) => 3,
        (Work::MpiInit | Work::OpenMpi(_), _) => 5,
        (_, 512..) => 5,
        _ => 9,
    }
}

/// Ten times the longest time seen on two cores, with a remote shell to 64 hosts (chosen).
pub fn limit(place: Place) -> Duration {
    Duration::from_secs(u64::from(60 + place.job_size() / 8))
}

/// The base of the ratios in the table.
pub fn reference(work: Work, remote: &Remote) -> Against {
    match work {
        _ if remote.is_allocation() => Against::Srun,
        Work::True | Work::Memory => Against::Bare,
        Work::Jobs => Against::Baseline,
        Work::PmiInit | Work::PmiBare | Work::MpiInit => Against::Hydra5,
        Work::Exchange => Against::Echo,
        Work::Initiation => Against::Serial,
        Work::OpenMpi(version) => Against::OpenMpi(version),
        Work::Polling => Against::OpenMpi(OpenMpi::V4),
        Work::PmixSleep | Work::PmixExchange | Work::PmixFence | Work::PmixDirect => Against::Srun,
    }
}

pub fn targets_of(work: Work, place: Place, remote: &Remote) -> Vec<Target> {
    let ask = |metric, against, factor| Target { metric, against, factor, plus: 0.0 };
    let wall = |against, factor| ask(Metric::Wall, against, factor);
    let net = Target { metric: Metric::NetBytes, against: Against::Bare, factor: 1.0, plus: 250e3 };
    let gets = [ask(Metric::GetAll, Against::Echo, 1.25), ask(Metric::GetAll, Against::Hydra5, 1.0)];
    let fence = |factor| ask(Metric::Fence, Against::Hydra5, factor);
    match (work, place.node_count, place.ppn) {
        (Work::True, 16, 16) => vec![wall(Against::BareAndBaseline, 1.35), wall(Against::Hydra5, 0.75)],
        (Work::True, 64, 16) => vec![wall(Against::BareAndBaseline, 1.35), wall(Against::Hydra5, 0.75), net],
        (Work::True, 64, 1) if remote.shell_name() == SSH => vec![wall(Against::Bare, 1.15)],
        (Work::MpiInit, 4, 4) if remote.is_allocation() => vec![wall(Against::Srun, 1.0)],
        (Work::MpiInit, 4, 4) => vec![wall(Against::Hydra5, 0.8)],
        (Work::Exchange, 16, 16) => [vec![fence(1.0)], gets.to_vec()].concat(),
        (Work::Exchange, 64, 4) => [vec![fence(0.5)], gets.to_vec()].concat(),
        (Work::OpenMpi(version), 4, 4) => {
            vec![ask(Metric::Overhead, Against::OpenMpi(version), 0.5), wall(Against::Srun, 1.0)]
        }
        (Work::PmixExchange, 16, 16) => vec![
            ask(Metric::Fence, Against::OpenMpi(OpenMpi::V5), 1.0 / 3.0),
            ask(Metric::Fence, Against::OpenMpi(OpenMpi::V4), 1.0 / 3.0),
            ask(Metric::Fence, Against::Srun, 1.0 / 3.0),
            ask(Metric::GetAll, Against::Srun, 1.0),
            ask(Metric::NetBytes, Against::Srun, 0.5),
        ],
        (Work::PmixDirect, _, _) => vec![first_get_target()],
        (Work::Initiation, 16, 8) => vec![wall(Against::Serial, 0.2)],
        _ => Vec::new(),
    }
}

/// Checks that every host answers and sees the test programs.
///
/// # Errors
/// The shells' messages about the hosts that do not.
pub fn reach(remote: &Remote, scratch: &Scratch, interrupt: &Interrupt) -> Result<(), Failure> {
    let seen = scratch.program(Program::True);
    let script = format!("test -x {0} || {{ echo {{host}}: {0} is not there >&2; false; }}", seen.display());
    let called: &[&str] = match remote.is_allocation() {
        true => &[SRUN, "--overlap", "-N", "1", "-n", "1", "-w", "{host}", "/bin/sh", "-c"],
        false => &[&remote.shell, "{host}"],
    };
    let mut argv: Vec<OsString> = vec![scratch.program(Program::Shells).into(), remote.list().into()];
    argv.extend(called.iter().map(OsString::from));
    argv.push(script.into());
    let stderr = scratch.file("stderr");
    Invocation { argv, env: Vec::new(), stdout: None, stderr, limit: REACH_LIMIT }.run(interrupt).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("n{i}")).collect()
    }

    #[test]
    fn every_table_case_has_a_shell_and_fitting_targets() {
        let cases = cases(&[], &table(), &hosts(64), Some("/opt/rsh")).unwrap();
        let names: Vec<String> = cases.iter().map(Case::name).collect();
        assert_eq!(names[..3], ["true-16x16@rsh", "true-64x16@rsh", "true-64x1@rsh"]);
        assert_eq!(cases[0].remote.as_ref().unwrap().list(), hosts(16).join(","));
        for case in &cases {
            assert!(case.target.iter().all(|target| case.metrics().contains(&target.metric)), "{}", case.name());
        }
        let judged = |name: &str| cases.iter().any(|case| case.name() == name && !case.target.is_empty());
        assert!(judged("true-64x16@rsh") && judged("exchange-64x4@rsh") && judged("initiation-16x8@rsh"));
        assert!(!judged("true-64x1@rsh"), "a target for ssh is used for another shell");
    }

    #[test]
    fn a_case_may_name_its_remote_shell() {
        let names = ["true-64x1@ssh".to_owned(), "true-2x3".to_owned()];
        let cases = cases(&names, &table(), &hosts(64), Some("rsh")).unwrap();
        assert_eq!(cases.iter().map(Case::name).collect::<Vec<_>>(), ["true-64x1@ssh", "true-2x3@rsh"]);
        assert_eq!(cases[0].target.len(), 1);
    }
}

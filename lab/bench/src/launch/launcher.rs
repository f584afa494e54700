//! The launchers that are timed: the baselines, wireup, its peers; and how each is told to start a job.
use std::ffi::OsString;
use std::path::PathBuf;

use super::case::{Case, Remote, Work};
use super::peers::{PeerKind, major};
use super::prun;
use super::session::session_name;
use crate::programs::{Program, Scratch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program that starts processes by vfork and waits for them, nothing else, in so many processes: the time that a
    /// launcher takes beyond this is its own.
    Baseline {
        spawners: u32,
    },
    /// A bare epoll server that answers every PMI-1 request at once with a fixed reply, on each host. It stores
    /// nothing, and its barrier is a counter; so clients must not check values.
    Echo,
    /// One remote shell per host, all at once.
    Bare,
    Wireup,
    /// Wireup with one remote shell per rank, one after the other.
    Serial,
    /// Wireup in a running session.
    Session,
    /// `prun` on a running PRRTE.
    Prun,
    /// A process like the launcher that does nothing, in place of a job.
    LauncherBaseline,
    Peer(PeerKind),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Launcher {
    /// Unique within a benchmark, such as `hydra-5.0.2`.
    pub name: String,
    pub kind: Kind,
    pub version: String,
    /// The launcher's program; empty for the baselines, which are embedded.
    pub path: PathBuf,
    /// Further arguments before the program.
    pub extra: Vec<String>,
    /// Variables that its programs need to find their files.
    pub env: Vec<(String, String)>,
}

impl Launcher {
    pub fn baseline(spawners: u32) -> Launcher {
        Launcher::embedded(format!("baseline-{spawners}"), Kind::Baseline { spawners })
    }

    pub fn echo() -> Launcher {
        Launcher::embedded("echo".into(), Kind::Echo)
    }

    pub fn bare() -> Launcher {
        Launcher::embedded("bare".into(), Kind::Bare)
    }

    fn embedded(name: String, kind: Kind) -> Launcher {
        Launcher { name, kind, version: String::new(), path: PathBuf::new(), extra: Vec::new(), env: Vec::new() }
    }

    /// Whether it can run this case at all.
    pub fn takes_part(&self, case: &Case) -> bool {
        let work = case.work;
        match self.kind {
            Kind::Session => return case.is_standing,
            Kind::Prun => {
                let is_reached = case.remote.is_some() || case.layout.node_count == 1;
                return case.is_standing && is_reached && matches!(work, Work::True | Work::Jobs);
            }
            Kind::LauncherBaseline => return work == Work::Jobs,
            Kind::Baseline { .. } if case.is_standing && work == Work::True => return true,
            // `launch` times the others.
            Kind::Peer(peer)
                if case.is_standing && !matches!(peer, PeerKind::Hydra | PeerKind::Srun | PeerKind::Flux) =>
            {
                return false;
            }
            _ if work == Work::Jobs => return self.takes_jobs(case),
            _ => {}
        }
        if case.remote.as_ref().is_some_and(Remote::is_allocation) {
            return match self.kind {
                Kind::Wireup => true,
                Kind::Peer(peer) => peer == PeerKind::Srun && self.can(peer, work),
                _ => false,
            };
        }
        if case.remote.is_some() {
            return match self.kind {
                Kind::Baseline { spawners } => work == Work::True && spawners == 1,
                Kind::Bare => work == Work::True,
                Kind::Echo => work == Work::Exchange,
                Kind::Wireup => true,
                Kind::Serial => work == Work::Initiation,
                Kind::Session | Kind::Prun | Kind::LauncherBaseline => false,
                Kind::Peer(peer) => work != Work::Initiation && peer.knows_hosts() && self.can(peer, work),
            };
        }
        let one_node = case.layout.node_count == 1;
        match self.kind {
            // With an MPI program this baseline starts singletons; one spawner is enough.
            Kind::Baseline { spawners } => one_node && (work == Work::True || work == Work::MpiInit && spawners == 1),
            Kind::Echo => one_node && matches!(work, Work::PmiInit | Work::PmiBare | Work::Exchange),
            Kind::Wireup => true,
            Kind::Bare | Kind::Serial | Kind::Session | Kind::Prun | Kind::LauncherBaseline => false,
            Kind::Peer(peer) => one_node && work != Work::Memory && self.can(peer, work),
        }
    }

    /// Whether it is timed with many jobs of one process each.
    fn takes_jobs(&self, case: &Case) -> bool {
        match self.kind {
            Kind::Baseline { spawners } => spawners == 1,
            Kind::Wireup => true,
            Kind::Peer(PeerKind::Srun) => true,
            Kind::Peer(PeerKind::Hydra) => case.remote.is_some() || case.layout.node_count == 1,
            Kind::Peer(PeerKind::Flux) => true,
            _ => false,
        }
    }

    /// Whether it supports the ranks' PMI. An Open MPI starts only programs of its own version; across hosts it is
    /// compared with PMIx.
    fn can(&self, peer: PeerKind, work: Work) -> bool {
        let is_own = match work {
            Work::OpenMpi(version) if peer == PeerKind::OpenMpi => major(&self.version) == Some(version),
            _ => true,
        };
        is_own && peer.speaks(work.pmi())
    }

    /// How many processes a run starts.
    pub fn process_count(&self, case: &Case) -> u32 {
        match self.kind {
            Kind::Bare => case.layout.node_count,
            Kind::LauncherBaseline => 0,
            _ => case.layout.job_size(),
        }
    }

    /// Additional variables of its launcher.
    pub fn env_of_launcher(&self, scratch: &Scratch) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> =
            self.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        if self.kind == Kind::Prun {
            env.extend(prun::client_env(self, scratch));
        }
        env
    }

    /// The command line that runs `program` (with its arguments) on every rank.
    pub fn argv(&self, scratch: &Scratch, case: &Case, program: Vec<OsString>) -> Vec<OsString> {
        let layout = case.layout;
        let job_size = layout.job_size();
        let remote = case.remote.as_ref().map(|remote| remote.first(layout.node_count));
        let embedded = |own: Program, words: Vec<String>| {
            let words = words.into_iter().map(OsString::from);
            [vec![scratch.program(own).into()], words.collect(), program.clone()].concat()
        };
        let mut options = match (self.kind, &remote) {
            (Kind::Baseline { .. }, _) if case.work == Work::Jobs => return program,
            (Kind::Baseline { spawners }, _) => {
                return embedded(Program::SpawnBaseline, vec![job_size.to_string(), spawners.to_string()]);
            }
            (Kind::LauncherBaseline, _) => words(&["--version"]),
            (Kind::Session, _) => self.in_session(case),
            (Kind::Prun, _) => prun::options(self, scratch, layout),
            (Kind::Echo, None) => return embedded(Program::PmiEcho, vec![job_size.to_string()]),
            (Kind::Echo, Some(remote)) => {
                let server = embedded(Program::PmiEcho, vec![format!("{}:{{node}}:{job_size}", layout.ppn)]);
                return shells(scratch, remote, &["--gate"], server);
            }
            (Kind::Bare, None) => return program,
            (Kind::Bare, Some(remote)) => return shells(scratch, remote, &[], program),
            (Kind::Wireup, None) if layout.node_count == 1 => words(&["run", "-n", &job_size.to_string()]),
            (Kind::Wireup | Kind::Serial, None) => {
                words(&["run", "-n", &job_size.to_string(), "--virtual-nodes", &layout.node_count.to_string()])
            }
            (Kind::Wireup | Kind::Serial, Some(remote)) => self.wireup_on_hosts(remote, case),
            (Kind::Peer(peer), None) => peer.options(&self.version, job_size, case.work.pmi()),
            (Kind::Peer(peer), Some(remote)) => peer.options_on_hosts(&self.version, remote, layout, case.work.pmi()),
        };
        if self.kind == Kind::Peer(PeerKind::Srun) && case.work == Work::Jobs {
            // Otherwise a step waits for the cpus of earlier steps.
            options.extend(words(&["--overlap"]));
        }
        let is_ours = matches!(self.kind, Kind::Wireup | Kind::Session);
        let options = if is_ours { with_pmix(options, case.work) } else { options };
        let mut argv = vec![self.path.clone().into_os_string()];
        argv.extend(options.into_iter().chain(self.extra.iter().cloned()).map(OsString::from));
        if self.kind != Kind::LauncherBaseline {
            argv.extend(program);
        }
        argv
    }

    fn in_session(&self, case: &Case) -> Vec<String> {
        let (size, ppn) = (case.layout.job_size().to_string(), case.layout.ppn.to_string());
        let mut options = words(&["run", "--session", &session_name(), "-n", &size]);
        if case.layout.node_count > 1 {
            options.extend(words(&["--ppn", &ppn]));
        }
        options
    }

    fn wireup_on_hosts(&self, remote: &Remote, case: &Case) -> Vec<String> {
        let (size, ppn) = (case.layout.job_size().to_string(), case.layout.ppn.to_string());
        if remote.is_allocation() {
            return words(&["run", "-n", &size, "--ppn", &ppn]);
        }
        let mut options =
            words(&["run", "--hosts", &remote.list(), "-n", &size, "--ppn", &ppn, "--remote-shell", &remote.shell]);
        match (case.work, self.kind) {
            (Work::Initiation, Kind::Serial) => options.extend(words(&["--start", "serial-ssh"])),
            (Work::Initiation, _) => options.extend(words(&["--start", "ssh-tree"])),
            _ => {}
        }
        options
    }
}

/// Adds wireup's flags about PMI, if the program does not make them unnecessary.
fn with_pmix(mut options: Vec<String>, work: Work) -> Vec<String> {
    match work {
        Work::PmixSleep | Work::PmixExchange | Work::PmixFence => options.extend(words(&["--pmi", "pmix"])),
        Work::PmixDirect => options.extend(words(&["--pmi", "pmix", "--modex", "direct"])),
        _ => {}
    }
    options
}

/// Runs `program` once on every host, with all remote shells at once.
pub fn shells(scratch: &Scratch, remote: &Remote, flags: &[&str], program: Vec<OsString>) -> Vec<OsString> {
    let mut argv = vec![scratch.program(Program::Shells).into_os_string(), remote.list().into()];
    argv.extend(flags.iter().chain(&[&*remote.shell, "{host}"]).map(OsString::from));
    argv.extend(program);
    argv
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(kind: Kind, case: &Case) -> String {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let launcher = Launcher { path: "/bin/x".into(), ..Launcher::embedded("x".into(), kind) };
        let argv = launcher.argv(&scratch, case, vec!["a".into(), "b".into()]);
        let words: Vec<_> = argv[1..].iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ").replace(&*scratch.file("").to_string_lossy(), "DIR/")
    }

    fn here(name: &str) -> Case {
        Case::named(name, &[], "rsh").unwrap()
    }

    fn there(name: &str) -> Case {
        Case::named(name, &["p".into(), "q".into(), "r".into()], "rsh").unwrap()
    }

    #[test]
    fn each_launcher_gets_its_own_command_line() {
        assert_eq!(tell(Kind::Baseline { spawners: 2 }, &here("true-1x8")), "8 2 a b");
        assert_eq!(tell(Kind::Echo, &here("exchange-1x8")), "8 a b");
        assert_eq!(tell(Kind::Wireup, &here("true-1x8")), "run -n 8 a b");
        assert_eq!(tell(Kind::Wireup, &here("true-4x8")), "run -n 32 --virtual-nodes 4 a b");
        assert_eq!(tell(Kind::Peer(PeerKind::Hydra), &here("exchange-1x8")), "-n 8 a b");
    }

    #[test]
    fn each_launcher_gets_the_hosts_in_its_own_flags() {
        assert_eq!(tell(Kind::Bare, &there("true-2x4")), "p,q rsh {host} a b");
        assert_eq!(tell(Kind::Echo, &there("exchange-2x4")), "p,q --gate rsh {host} DIR/pmi-echo 4:{node}:8 a b");
        let run = "run --hosts p,q -n 8 --ppn 4 --remote-shell rsh";
        assert_eq!(tell(Kind::Wireup, &there("true-2x4")), format!("{run} a b"));
        assert_eq!(tell(Kind::Wireup, &there("initiation-2x4")), format!("{run} --start ssh-tree a b"));
        assert_eq!(tell(Kind::Serial, &there("initiation-2x4")), format!("{run} --start serial-ssh a b"));
        assert_eq!(
            tell(Kind::Peer(PeerKind::Hydra), &there("true-2x4")),
            "-n 8 -hosts p,q -ppn 4 -launcher ssh -launcher-exec rsh a b"
        );
        assert_eq!(
            tell(Kind::Peer(PeerKind::Srun), &there("exchange-2x4")),
            "-n 8 --overcommit --mpi=pmi2 -N 2 --ntasks-per-node 4 --nodelist p,q a b"
        );
    }

    #[test]
    fn inside_an_allocation_launchers_get_no_host_list() {
        let hosts = ["p".to_owned(), "q".to_owned()];
        let case = Case::named("mpi-init-2x4", &hosts, "srun").unwrap();
        assert_eq!(tell(Kind::Wireup, &case), "run -n 8 --ppn 4 a b");
        let takes_part = |kind| Launcher::embedded("x".into(), kind).takes_part(&case);
        assert!(takes_part(Kind::Wireup) && takes_part(Kind::Peer(PeerKind::Srun)));
        assert!(!takes_part(Kind::Peer(PeerKind::Hydra)) && !takes_part(Kind::Session));
    }

    #[test]
    fn session_launchers_get_the_address_of_their_session() {
        let name = session_name();
        let running_session = |case: Case| Case { is_standing: true, ..case };
        assert_eq!(tell(Kind::Session, &running_session(here("true-1x8"))), format!("run --session {name} -n 8 a b"));
        let run = format!("run --session {name} -n 8 --ppn 4 a b");
        assert_eq!(tell(Kind::Session, &running_session(there("true-2x4"))), run);
        let prun = tell(Kind::Prun, &running_session(there("true-2x4")));
        assert_eq!(
            prun,
            "--allow-run-as-root --dvm-uri file:DIR/dvm-uri -n 8 --map-by :OVERSUBSCRIBE --bind-to none a b"
        );
    }

    #[test]
    fn streamed_jobs_use_one_host_of_several() {
        let hosts = ["p".to_owned(), "q".to_owned()];
        let case = Case::named("jobs-1x1", &hosts, "rsh").unwrap();
        assert_eq!(tell(Kind::Wireup, &case), "run --hosts p -n 1 --ppn 1 --remote-shell rsh a b");
        assert_eq!(tell(Kind::LauncherBaseline, &case), "--version");
        let srun = "-n 1 --overcommit --mpi=none -N 1 --ntasks-per-node 1 --nodelist p --overlap a b";
        assert_eq!(tell(Kind::Peer(PeerKind::Srun), &case), srun);
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        assert_eq!(Launcher::baseline(1).argv(&scratch, &case, vec!["a".into()]), ["a"]);
        assert!(Launcher::baseline(1).takes_part(&case) && !Launcher::baseline(2).takes_part(&case));
    }

    #[test]
    fn launchers_take_part_only_in_cases_they_support() {
        let open_mpi = Launcher::embedded("o".into(), Kind::Peer(PeerKind::OpenMpi));
        assert!(open_mpi.takes_part(&here("true-1x4")) && !open_mpi.takes_part(&here("pmi-init-1x4")));
        assert!(open_mpi.takes_part(&there("pmix-exchange-2x4")) && !open_mpi.takes_part(&here("openmpi4-1x4")));
        assert!(Launcher::baseline(1).takes_part(&here("mpi-init-1x4")));
        assert!(!Launcher::baseline(2).takes_part(&here("mpi-init-1x4")));
        assert!(!Launcher::echo().takes_part(&here("true-1x4")));
        assert!(!Launcher::baseline(1).takes_part(&here("true-2x4")));
        assert!(Launcher::baseline(1).takes_part(&there("true-2x4")));
        assert!(!Launcher::bare().takes_part(&here("true-1x4")));
    }
}

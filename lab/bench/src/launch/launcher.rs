//! The launchers that are timed: the baselines, wireup, and launchers of other projects; and the command line with
//! which each launcher starts a job.
use std::ffi::OsString;
use std::path::PathBuf;

use super::case::{Case, Pmi, Ranks, Remote};
use crate::layout::Layout;
use crate::programs::Scratch;
use crate::shells;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A baseline: this many processes that only start the ranks by vfork and wait for them. Their time is the lower
    /// bound for the time of a launcher.
    Baseline(u32),
    /// A bare epoll server that answers every PMI-1 request at once with a fixed reply, on each host. The server stores
    /// nothing, and its barrier is a counter; so clients must not check values.
    Echo,
    /// A baseline: one remote shell per host, all at the same time.
    Bare,
    Wireup,
    /// Wireup with one remote shell per rank, one after the other.
    Serial,
    /// Wireup in a running session.
    Session,
    /// PRRTE's client `prun`, with a running PRRTE.
    Prun,
    /// A baseline: `wireup --version` instead of a job, a process of the launcher's program that does nothing else.
    LauncherBaseline,
    Peer(PeerKind),
}

/// A kind of launcher of another project, such as Hydra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerKind {
    pub name: &'static str,
    /// Texts that identify this launcher in the output of `--version`; the version number follows directly.
    pub marks: &'static [&'static str],
    pub pmis: &'static [Pmi],
    /// Whether this benchmark knows the launcher's options for hosts and remote shells.
    pub knows_hosts: bool,
    /// Whether the launcher is compared with jobs in a session, because it has permanent daemons or starts none.
    pub is_standing: bool,
    /// An argument with which the launcher succeeds only if it can run jobs (it may be installed but not configured),
    /// and the message to print if it fails.
    pub probe: Option<(&'static str, &'static str)>,
}

const PEER: PeerKind =
    PeerKind { name: "", marks: &[], pmis: &[Pmi::None], knows_hosts: true, is_standing: false, probe: None };

/// Intel's launcher identifies itself as Hydra too, so its entry comes first.
pub const PEERS: [PeerKind; 5] = [
    PeerKind {
        name: "intel",
        marks: &["Intel(R) MPI Library for Linux* OS, Version "],
        pmis: &[Pmi::None, Pmi::Simple],
        ..PEER
    },
    PeerKind {
        name: "hydra",
        marks: &["HYDRA build details:\n    Version:"],
        pmis: &[Pmi::None, Pmi::Simple],
        is_standing: true,
        ..PEER
    },
    // Version 4 of Open MPI, called as `mpiexec`, identifies itself as OpenRTE.
    PeerKind { name: "open-mpi", marks: &["(Open MPI) ", "(OpenRTE) "], pmis: &[Pmi::None, Pmi::Pmix], ..PEER },
    PeerKind { name: "prrte", marks: &["(PRRTE) "], pmis: &[Pmi::None, Pmi::Pmix], knows_hosts: false, ..PEER },
    PeerKind {
        name: "srun",
        marks: &["slurm-wlm ", "slurm "],
        pmis: &[Pmi::None, Pmi::Simple, Pmi::Pmix],
        is_standing: true,
        probe: Some(("--mpi=list", "no Slurm to run jobs")),
        ..PEER
    },
];

#[derive(Clone, Debug, PartialEq)]
pub struct Launcher {
    /// Name that is unique within a benchmark, such as `hydra-5.0.2`.
    pub name: String,
    pub kind: Kind,
    pub version: String,
    /// Path of the launcher's program; empty for the baselines, which are embedded in this program.
    pub path: PathBuf,
    /// Additional arguments of the launcher, before the program to be run.
    pub extra: Vec<String>,
    /// Environment variables that the launcher's programs need to find their files.
    pub env: Vec<(OsString, OsString)>,
}

/// A session name unique to this process, so that benchmarks of the same user do not collide.
pub fn session_name() -> String {
    format!("bench-{}", std::process::id())
}

impl Launcher {
    pub fn new(name: &str, kind: Kind) -> Launcher {
        let (version, path, extra, env) = Default::default();
        Launcher { name: name.to_owned(), kind, version, path, extra, env }
    }

    pub fn is_peer(&self, name: &str) -> bool {
        matches!(self.kind, Kind::Peer(kind) if kind.name == name)
    }

    /// The launcher's major version.
    pub fn major(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }

    /// Whether the launcher can run this case at all.
    pub fn takes_part(&self, case: &Case) -> bool {
        let (work, is_remote) = (case.work, case.remote.is_some());
        let is_allocation = case.remote.as_ref().is_some_and(Remote::is_allocation);
        let (is_jobs, is_one_node) = (work.is("jobs"), case.layout.node_count == 1);
        let is_direct = !is_jobs && !is_allocation;
        match self.kind {
            Kind::Wireup => true,
            Kind::Session => case.is_standing,
            Kind::Prun => case.is_standing && (is_remote || is_one_node) && (work.is("true") || is_jobs),
            Kind::LauncherBaseline => is_jobs,
            Kind::Baseline(spawners) if is_jobs => spawners == 1,
            Kind::Baseline(_) if case.is_standing && work.is("true") => true,
            Kind::Baseline(spawners) if is_remote => is_direct && work.is("true") && spawners == 1,
            // With an MPI program, this baseline starts singletons; their start is measured with only one spawning
            // process.
            Kind::Baseline(spawners) => is_one_node && (work.is("true") || work.is("mpi-init") && spawners == 1),
            Kind::Echo if is_remote => is_direct && work.is("exchange"),
            Kind::Echo => is_one_node && ["pmi-init", "pmi-bare", "exchange"].contains(&work.name),
            Kind::Bare => is_direct && is_remote && work.is("true"),
            Kind::Serial => is_direct && is_remote && work.is("initiation"),
            // Other launchers take part in `launch`, not in the cases with sessions.
            Kind::Peer(peer) if case.is_standing && !peer.is_standing => false,
            Kind::Peer(peer) if is_jobs => peer.is_standing && (is_remote || is_one_node || peer.name != "hydra"),
            Kind::Peer(peer) => {
                let is_own = match work.ranks {
                    Ranks::Calls(own, major) => {
                        peer.name == "srun" || peer.name == own && (major.is_none() || major == self.major())
                    }
                    _ => true,
                };
                let is_reached = match is_remote {
                    true if is_allocation => peer.name == "srun",
                    true => !work.is("initiation") && peer.knows_hosts,
                    false => is_one_node,
                };
                is_reached && is_own && peer.pmis.contains(&work.pmi)
            }
        }
    }

    /// Number of processes that a run of the case starts.
    pub fn process_count(&self, case: &Case) -> u32 {
        match self.kind {
            Kind::Bare => case.layout.node_count,
            Kind::LauncherBaseline => 0,
            _ => case.layout.job_size(),
        }
    }

    /// The command line that runs `program` (with its arguments) on every rank.
    pub fn argv(&self, scratch: &Scratch, case: &Case, program: Vec<OsString>) -> Vec<OsString> {
        let (layout, size) = (case.layout, case.layout.job_size());
        let remote = case.remote.as_ref().map(|remote| remote.first(layout.node_count));
        let by = |own: &str, text: String| [vec![scratch.program(own).into()], words(&text), program.clone()].concat();
        let options = match (self.kind, &remote) {
            (Kind::Baseline(_), _) if case.work.is("jobs") => return program,
            (Kind::Baseline(spawners), _) => return by("spawn_baseline", format!("{size} {spawners}")),
            (Kind::Echo, None) => return by("pmi_echo", size.to_string()),
            (Kind::Echo, Some(remote)) => {
                let server = by("pmi_echo", format!("{}:{{node}}:{size}", layout.ppn));
                return shells(remote, "--gate", server);
            }
            (Kind::Bare, None) => return program,
            (Kind::Bare, Some(remote)) => return shells(remote, "", program),
            (Kind::LauncherBaseline, _) => return vec![self.path.clone().into(), "--version".into()],
            (Kind::Session, _) => {
                let ppn = if layout.node_count > 1 { format!("--ppn {}", layout.ppn) } else { String::new() };
                format!("run --session {} -n {size} {ppn}", session_name())
            }
            (Kind::Wireup | Kind::Serial, None) if layout.node_count == 1 => format!("run -n {size}"),
            (Kind::Wireup | Kind::Serial, None) => format!("run -n {size} --virtual-nodes {}", layout.node_count),
            (Kind::Wireup | Kind::Serial, Some(remote)) if remote.is_allocation() => {
                format!("run -n {size} --ppn {}", layout.ppn)
            }
            (Kind::Wireup | Kind::Serial, Some(remote)) => {
                let start = match (case.work.name, self.kind) {
                    ("initiation", Kind::Serial) => "--start serial-ssh",
                    ("initiation", _) => "--start ssh-tree",
                    _ => "",
                };
                let Remote { shell, .. } = remote;
                format!("run --hosts {} -n {size} --ppn {} --remote-shell {shell} {start}", remote.list(), layout.ppn)
            }
            (Kind::Prun, _) => {
                let [dvm, map, bind] = match self.needs_shim() {
                    true => ["--dvm uri:", "--mapby", "--bindto"],
                    false => ["--dvm-uri ", "--map-by", "--bind-to"],
                };
                let uri = dvm_uri(scratch).display().to_string();
                format!("--allow-run-as-root {dvm}file:{uri} -n {size} {map} :OVERSUBSCRIBE {bind} none")
            }
            (Kind::Peer(peer), remote) => self.options(peer, case, remote.as_ref()),
        };
        let is_ours = matches!(self.kind, Kind::Wireup | Kind::Session);
        let pmix = match case.work.ranks {
            Ranks::Stamped("pmix_exchange", _) | Ranks::Sleep if is_ours => "--pmi pmix",
            _ => "",
        };
        let mut argv = vec![self.path.clone().into_os_string()];
        argv.extend(words(&options).into_iter().chain(words(pmix)).chain(self.extra.iter().map(OsString::from)));
        argv.extend(program);
        argv
    }

    /// The options of a launcher of another project: it must accept any number of cores, provide the PMI that the ranks
    /// need, and start `ppn` ranks on each host, through the remote shell if it uses one.
    fn options(&self, peer: PeerKind, case: &Case, remote: Option<&Remote>) -> String {
        let (size, layout, is_since_5) = (case.layout.job_size(), case.layout, self.major() >= Some(5));
        let here = match (peer.name, case.work.pmi) {
            ("open-mpi", _) if is_since_5 => "--map-by :OVERSUBSCRIBE --bind-to none --allow-run-as-root",
            ("open-mpi", _) => "--oversubscribe --bind-to none --allow-run-as-root",
            ("prrte", _) => "--map-by :OVERSUBSCRIBE --allow-run-as-root",
            ("srun", Pmi::Simple) => "--overcommit --mpi=pmi2",
            ("srun", Pmi::Pmix) => "--overcommit --mpi=pmix",
            ("srun", Pmi::None) => "--overcommit --mpi=none",
            _ => "",
        };
        let there = remote.map(|remote| {
            let (Layout { node_count, ppn }, Remote { shell, .. }) = (layout, remote);
            match peer.name {
                "open-mpi" => {
                    let (flag, rsh) = if is_since_5 { ("--prtemca", "ssh") } else { ("--mca", "rsh") };
                    let slots = remote.slots(ppn);
                    format!("--host {slots} {flag} plm_{rsh}_agent {shell} {flag} plm_{rsh}_no_tree_spawn 1")
                }
                "srun" => format!("-N {node_count} --ntasks-per-node {ppn} --nodelist {}", remote.list()),
                _ => format!("-hosts {} -ppn {ppn} -launcher ssh -launcher-exec {shell}", remote.list()),
            }
        });
        // Without `--overlap`, a step of Slurm waits for the cpus of earlier steps.
        let overlap = if peer.name == "srun" && case.work.is("jobs") { "--overlap" } else { "" };
        format!("-n {size} {here} {} {overlap}", there.unwrap_or_default())
    }

    /// Whether this launcher is `prterun --dvm`, the same code as `prun`, which some packages lack. In PRRTE 3.0
    /// `prterun --dvm` crashes because, unlike `prun`, it does not open the framework that holds the list of forwarded
    /// signals; a preloaded shim (`programs/prun_shim.c`) opens it.
    fn needs_shim(&self) -> bool {
        self.path.file_name().is_some_and(|name| name == super::peers::PRTERUN)
    }

    /// Additional environment variables of the launcher process.
    pub fn env_of_launcher(&self, scratch: &Scratch) -> Vec<(OsString, OsString)> {
        let shim = (self.kind == Kind::Prun && self.needs_shim())
            .then(|| ("LD_PRELOAD".into(), scratch.program("prun_shim").into()));
        self.env.iter().cloned().chain(shim).collect()
    }
}

/// Path of the file in which PRRTE's daemon writes how `prun` can reach it.
pub fn dvm_uri(scratch: &Scratch) -> PathBuf {
    scratch.file("dvm-uri")
}

/// The words of a text, split at blanks.
pub fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

/// The command line that runs `program` once on every host, with all remote shells at the same time.
fn shells(remote: &Remote, flag: &str, program: Vec<OsString>) -> Vec<OsString> {
    let own = std::env::current_exe().unwrap_or_default().into_os_string();
    let text = format!("{} {} {flag} {} {{host}}", shells::WORD, remote.list(), remote.shell);
    [vec![own], words(&text), program].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Kind {
        Kind::Peer(*PEERS.iter().find(|peer| peer.name == name).unwrap())
    }

    fn here(name: &str) -> Case {
        Case::named(name, &[], "rsh").unwrap()
    }

    fn there(name: &str) -> Case {
        Case::named(name, &["p".into(), "q".into(), "r".into()], "rsh").unwrap()
    }

    #[test]
    fn each_launcher_gets_its_own_command_line() {
        let session = session_name();
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let run = "run --hosts p,q -n 8 --ppn 4 --remote-shell rsh";
        let in_allocation = Case::named("mpi-init-2x4", &["p".into(), "q".into()], "srun").unwrap();
        for (kind, case, words) in [
            (Kind::Baseline(2), here("true-1x8"), "8 2 a b".to_owned()),
            (Kind::Baseline(1), there("jobs-1x1"), "b".into()),
            (Kind::LauncherBaseline, there("jobs-1x1"), "--version".into()),
            (Kind::Echo, here("exchange-1x8"), "8 a b".into()),
            (Kind::Echo, there("exchange-2x4"), "shells p,q --gate rsh {host} DIR/pmi_echo 4:{node}:8 a b".into()),
            (Kind::Bare, there("true-2x4"), "shells p,q rsh {host} a b".into()),
            (Kind::Wireup, here("true-1x8"), "run -n 8 a b".into()),
            (Kind::Wireup, here("true-4x8"), "run -n 32 --virtual-nodes 4 a b".into()),
            (Kind::Wireup, here("pmix-fence-1x8"), "run -n 8 --pmi pmix a b".into()),
            (Kind::Wireup, there("true-2x4"), format!("{run} a b")),
            (Kind::Wireup, there("initiation-2x4"), format!("{run} --start ssh-tree a b")),
            (Kind::Serial, there("initiation-2x4"), format!("{run} --start serial-ssh a b")),
            (Kind::Wireup, in_allocation, "run -n 8 --ppn 4 a b".into()),
            (Kind::Wireup, there("jobs-1x1"), "run --hosts p -n 1 --ppn 1 --remote-shell rsh a b".into()),
            (Kind::Session, here("true-1x8"), format!("run --session {session} -n 8 a b")),
            (Kind::Session, there("true-2x4"), format!("run --session {session} -n 8 --ppn 4 a b")),
            (
                Kind::Prun,
                there("true-2x4"),
                "--allow-run-as-root --dvm-uri file:DIR/dvm-uri -n 8 --map-by :OVERSUBSCRIBE --bind-to none a b".into(),
            ),
            (peer("hydra"), here("exchange-1x8"), "-n 8 a b".into()),
            (peer("hydra"), there("true-2x4"), "-n 8 -hosts p,q -ppn 4 -launcher ssh -launcher-exec rsh a b".into()),
            (
                peer("open-mpi"),
                there("true-2x4"),
                "-n 8 --oversubscribe --bind-to none --allow-run-as-root --host p:4,q:4 --mca plm_rsh_agent rsh --mca \
                 plm_rsh_no_tree_spawn 1 a b"
                    .into(),
            ),
            (
                peer("srun"),
                there("exchange-2x4"),
                "-n 8 --overcommit --mpi=pmi2 -N 2 --ntasks-per-node 4 --nodelist p,q a b".into(),
            ),
            (
                peer("srun"),
                there("jobs-1x1"),
                "-n 1 --overcommit --mpi=none -N 1 --ntasks-per-node 1 --nodelist p --overlap a b".into(),
            ),
        ] {
            let launcher = Launcher { path: "/bin/x".into(), ..Launcher::new("x", kind) };
            let argv = launcher.argv(&scratch, &case, vec!["a".into(), "b".into()]);
            let told: Vec<_> = argv[1..].iter().map(|word| word.to_string_lossy()).collect();
            let told = told.join(" ").replace(&*scratch.file("").to_string_lossy(), "DIR/");
            assert_eq!(told, words, "{kind:?} {}", case.name());
        }
    }

    #[test]
    fn launchers_take_part_only_in_cases_they_support() {
        let takes = |kind, case: &Case| Launcher::new("x", kind).takes_part(case);
        assert!(takes(peer("open-mpi"), &here("true-1x4")) && !takes(peer("open-mpi"), &here("pmi-init-1x4")));
        assert!(takes(peer("open-mpi"), &there("pmix-exchange-2x4")));
        let (own, intel) =
            (Launcher { version: "4.1.4".into(), ..Launcher::new("x", peer("open-mpi")) }, peer("intel"));
        assert!(own.takes_part(&here("openmpi4-1x4")) && !own.takes_part(&here("openmpi5-1x4")));
        assert!(takes(intel, &there("intel-2x4")) && !takes(intel, &there("mpich5-2x4")));
        assert!(takes(peer("srun"), &there("mpich5-2x4")) && takes(Kind::Wireup, &here("mpich5-4x4")));
        assert!(takes(Kind::Baseline(1), &here("mpi-init-1x4")) && !takes(Kind::Baseline(2), &here("mpi-init-1x4")));
        assert!(takes(Kind::Baseline(1), &there("true-2x4")) && !takes(Kind::Baseline(1), &here("true-2x4")));
        assert!(takes(Kind::Baseline(1), &here("jobs-1x1")) && !takes(Kind::Baseline(2), &here("jobs-1x1")));
        assert!(!takes(Kind::Echo, &here("true-1x4")) && !takes(Kind::Bare, &here("true-1x4")));
        let in_allocation = Case::named("mpi-init-2x4", &["p".into(), "q".into()], "srun").unwrap();
        assert!(takes(Kind::Wireup, &in_allocation) && takes(peer("srun"), &in_allocation));
        assert!(!takes(peer("hydra"), &in_allocation) && !takes(Kind::Session, &in_allocation));
        let standing = Case { is_standing: true, ..here("true-1x4") };
        assert!(takes(Kind::Session, &standing) && takes(Kind::Prun, &standing) && takes(peer("hydra"), &standing));
        assert!(!takes(peer("open-mpi"), &standing) && takes(peer("srun"), &standing));
    }
}

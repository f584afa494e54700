//! Hosts for the tests across machines: name spaces of this machine, with remote shells.
//!
//! Most tests reserve a testbed of a pool: four hosts, sixteen hosts, or four hosts with Slurm. A pool starts another
//! testbed when all of its testbeds are reserved, up to a few. A test that damages its hosts starts its own testbed.
//! Testbeds end with the test process.

use super::faults::{is_agent, kill};
use super::folders::Folder;
use super::{Run, folders, programs};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wireup_testbed::{Process, Spec, StartError, Testbed};
use xtask::layout;

/// A testbed, reserved for one test while it holds this value.
pub struct Machines {
    testbed: Arc<Testbed>,
    pool: Option<&'static Pool>,
}

/// Testbeds of one kind, which many tests use in turn.
struct Pool {
    state: Mutex<PoolState>,
    returned: Condvar,
    /// Maximum number of testbeds of the pool.
    size_max: usize,
}

struct PoolState {
    free: Vec<Arc<Testbed>>,
    /// Number of testbeds that have been started, whether free or reserved.
    size: usize,
    /// Why this machine cannot run such a testbed; `None`: it can, or nobody has tried.
    unavailable: Option<String>,
}

// Pools of testbeds. Sizes: as many testbeds as tests run at a time, but fewer with Slurm, whose daemons need a second
// of processor time to start on each host.
static FOUR: Pool = Pool::new(4);
static SIXTEEN: Pool = Pool::new(4);
static WITH_SLURM: Pool = Pool::new(2);

/// Longest time until a Slurm job has ended; far longer than it should take.
const SLURM_LIMIT: Duration = Duration::from_secs(20);

/// Reserves a testbed with the hosts `n0` to `n3`.
pub fn four() -> Option<Machines> {
    FOUR.lend(4, |_| ())
}

/// Reserves a testbed with the hosts `n0` to `n15`.
pub fn sixteen() -> Option<Machines> {
    SIXTEEN.lend(16, |_| ())
}

/// Reserves a testbed with the hosts `n0` to `n3`, with Slurm.
pub fn with_slurm() -> Option<Machines> {
    let machines = WITH_SLURM.lend(4, |spec| spec.slurm = true)?;
    // Cancels Slurm jobs that a failed test has left.
    machines.cancel("--user=root");
    Some(machines)
}

/// Starts a testbed with hosts for this test alone. `adjust` changes its specification.
pub fn own(nodes: u16, adjust: impl FnOnce(&mut Spec)) -> Option<Machines> {
    let testbed = match start(nodes, adjust) {
        Ok(testbed) => testbed,
        Err(StartError::Unavailable(why)) => return skip(&why),
        Err(failed) => panic!("{failed}"),
    };
    Some(Machines { testbed, pool: None })
}

impl Pool {
    const fn new(size_max: usize) -> Self {
        let state = PoolState { free: Vec::new(), size: 0, unavailable: None };
        Pool { state: Mutex::new(state), returned: Condvar::new(), size_max }
    }

    fn lend(&'static self, nodes: u16, adjust: impl FnOnce(&mut Spec)) -> Option<Machines> {
        let mut state = self.lock();
        let testbed = loop {
            if let Some(why) = &state.unavailable {
                return skip(why);
            }
            if let Some(testbed) = state.free.pop() {
                break testbed;
            }
            if state.size < self.size_max {
                state.size += 1;
                drop(state);
                match start(nodes, adjust) {
                    Ok(testbed) => break testbed,
                    Err(StartError::Unavailable(why)) => {
                        self.lock().unavailable = Some(why.clone());
                        self.returned.notify_all();
                        return skip(&why);
                    }
                    Err(failed) => {
                        self.lock().size -= 1;
                        self.returned.notify_one();
                        panic!("{failed}");
                    }
                }
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        Some(Machines { testbed, pool: Some(self) })
    }

    /// A poisoned lock does not matter: the processes of the failed test have been ended.
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        if let Some(pool) = self.pool {
            pool.lock().free.push(Arc::clone(&self.testbed));
            pool.returned.notify_one();
        }
    }
}

fn start(nodes: u16, adjust: impl FnOnce(&mut Spec)) -> Result<Arc<Testbed>, StartError> {
    let mut spec = Spec::new(programs::testbed(), nodes);
    spec.shares = shares();
    adjust(&mut spec);
    Testbed::start(&spec).map(Arc::new)
}

/// Folders that all hosts share, even if they lie inside a folder that is private to each host, such as `/tmp`.
fn shares() -> Vec<PathBuf> {
    let product = programs::wireup();
    let folders = [Some(layout::root().as_path()), Some(&layout::target()), product.parent()].map(|folder| {
        let folder = folder.expect("a program lies in a folder");
        folder.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    });
    folders.into()
}

/// Prints that the current test is skipped.
fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // `eprintln` is not used, because the test runner would capture its output.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {test}: no hosts to test with: {why}\n");
    None
}

impl Deref for Machines {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

impl Machines {
    /// The testbed itself, which may be used while this value exists.
    pub fn testbed(&self) -> Arc<Testbed> {
        Arc::clone(&self.testbed)
    }

    /// The command `wireup run FLAGS` on the hub.
    pub fn job(&self, line: &str) -> Run {
        self.on_hub(Run::job(line))
    }

    /// The command `wireup run FLAGS` on the hub, with the copy of the product at `wireup`.
    pub fn job_of(&self, wireup: &Path, line: &str) -> Run {
        self.on_hub(Run::new(Command::new(wireup))).arg("run").args(line.split_whitespace())
    }

    /// The command `wireup run FLAGS` on host `i`.
    pub fn job_from(&self, i: u16, line: &str) -> Run {
        let run = Run::new(self.in_node(i, programs::wireup())).arg("run");
        run.cwd(Path::new("/")).looking_at(&self.testbed).args(line.split_whitespace())
    }

    /// The command `sh -c SCRIPT` on the hub, where `$WIREUP` is the path of the product.
    pub fn shell(&self, script: &str) -> Run {
        self.on_hub(Run::shell(script))
    }

    /// The command `srun FLAGS` on the hub; waits first until Slurm is idle.
    pub fn step(&self, line: &str) -> Run {
        assert!(self.await_slurm(SLURM_LIMIT), "Slurm's nodes are not idle");
        // With another TMPDIR, Slurm's daemons would create the folder if it is missing, and leave it.
        let run = Run::new(Command::new("srun")).env("TMPDIR", "/tmp");
        self.on_hub(run).args(line.split_whitespace())
    }

    /// The command `salloc FLAGS wireup run LINE` on the hub, without PMIx unless `line` requests it; waits first until
    /// Slurm is idle.
    pub fn allocated(&self, flags: &str, line: &str) -> Run {
        let offer: &[&str] = if line.contains("--pmi") { &[] } else { &["--pmi", "simple"] };
        self.salloc(flags).arg(programs::wireup()).arg("run").args(offer).args(line.split_whitespace())
    }

    /// The command `salloc FLAGS` on the hub, to which a command must be added; waits first until Slurm is idle.
    pub fn salloc(&self, flags: &str) -> Run {
        assert!(self.await_slurm(SLURM_LIMIT), "Slurm's nodes are not idle");
        let run = Run::new(Command::new("salloc")).env("TMPDIR", "/tmp").env("WIREUP", programs::wireup());
        self.on_hub(run).arg("--quiet").args(flags.split_whitespace())
    }

    /// Runs SCRIPT as a batch script of Slurm; returns its output, followed by its exit code. `$WIREUP` is the path of
    /// the product.
    pub fn batch(&self, flags: &str, script: &str) -> String {
        assert!(self.await_slurm(SLURM_LIMIT), "Slurm's nodes are not idle");
        let run = Run::new(Command::new("sbatch")).env("TMPDIR", "/tmp").env("WIREUP", programs::wireup());
        let output = "--output=/run/batch.out --wait --quiet";
        let outcome =
            self.on_hub(run).args(output.split_whitespace()).args(flags.split_whitespace()).arg("--wrap").arg(script);
        let code = outcome.finish().code();
        let said = fs::read_to_string(self.path_in_node(0, "/run/batch.out")).expect("the script's output");
        format!("{said}code {code}\n")
    }

    /// Runs `scancel JOBS` on the hub.
    pub fn cancel(&self, jobs: &str) {
        let output = self.enter(Command::new("scancel").arg(jobs)).output().expect("start scancel");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }

    /// Sends a signal to `steps` with `scancel`. It contacts all nodes; a job that ends at the first signal may have
    /// ended before the last node is contacted, which is no error.
    pub fn signal(&self, name: &str, steps: &str) {
        let mut scancel = Command::new("scancel");
        let output = self.enter(scancel.arg(format!("--signal={name}")).arg(steps)).output().expect("start scancel");
        let over = output.stderr.ends_with(b"Invalid job id specified\n");
        assert!(output.status.success() || over, "{steps}: {output:?}");
    }

    /// The process on host `i` whose command line contains `words`.
    pub fn process(&self, i: u16, words: &str) -> Option<Process> {
        self.processes(i).into_iter().find(|process| process.command.contains(words))
    }

    /// Pid, on this machine, of the agent on host `i`.
    pub fn agent(&self, i: u16) -> u32 {
        self.processes(i).iter().find(|process| is_agent(process)).expect("it has an agent").pid
    }

    fn on_hub(&self, run: Run) -> Run {
        run.cwd(Path::new("/")).on(&self.testbed)
    }

    /// Runs `sh -c SCRIPT` on host `i`; returns the output.
    pub fn ask(&self, i: u16, script: &str) -> String {
        let output = self.in_node(i, "/bin/sh").args(["-c", script]).output().expect("the testbed's program runs");
        assert!(output.status.success(), "n{i}: {script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Everything that an ended run has left on the hosts of a testbed. Copies of the program are kept for later runs.
pub fn left(testbed: &Testbed) -> Vec<String> {
    let processes = (0..).zip(testbed.all_processes()).flat_map(|(i, processes)| {
        processes.into_iter().map(move |process| format!("n{i}: {} {}", process.node_pid, process.command))
    });
    let files = (0..testbed.node_count()).flat_map(|i| {
        let entries = fs::read_dir(testbed.path_in_node(i, "/tmp")).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"wireup-programs-"));
        entries.map(move |entry| format!("n{i}: {}", entry.path().display()))
    });
    let shares = shares();
    let is_share = |line: &str| shares.iter().any(|share| line_path(line).is_some_and(|path| share.starts_with(path)));
    processes.chain(files.filter(|line| !is_share(line))).collect()
}

/// The path on the host, from a line `nI: /proc/PID/root/PATH` of [`left`].
fn line_path(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once("/root/")?;
    Some(Path::new("/").join(path))
}

/// Kills all processes and removes all files that a failed run has left on the hosts.
pub fn clear(testbed: &Testbed) {
    for process in testbed.all_processes().into_iter().flatten() {
        // Errors are ignored: the process may have exited in the meantime.
        kill(process.pid, Signal::KILL);
    }
}

/// A copy of the product in a folder that no other host sees.
pub struct HiddenCopy(Folder);

#[expect(clippy::new_without_default, reason = "each is another one")]
impl HiddenCopy {
    pub fn new() -> Self {
        let folder = Folder::below(Path::new("/tmp"), "hidden");
        // Made smaller with `strip`, if it is installed, since the copy is sent many times.
        let stripped = Command::new("strip").arg("-o").arg(folder.at("wireup")).arg(programs::wireup()).status();
        if !stripped.is_ok_and(|status| status.success()) {
            folders::copy_program(&programs::wireup(), &folder.at("wireup"));
        }
        HiddenCopy(folder)
    }

    pub fn program(&self) -> PathBuf {
        self.0.at("wireup")
    }
}

/// The addresses of a host in the testbed's network: IPv4 and IPv6.
fn addresses(machines: &Machines, host: u16) -> [String; 2] {
    ["-4", "-6"].map(|family| {
        let show = format!("ip {family} -o address show dev eth0 scope global | sed 's/.*inet6* //; s,/.*,,'");
        machines.ask(host, &show).trim().to_owned()
    })
}

/// Makes host `to` unreachable from host `from`: connecting fails at once.
pub fn wall(machines: &Machines, from: u16, to: u16) {
    let [ip, ipv6] = addresses(machines, to);
    machines.ask(from, &format!("ip route add unreachable {ip}/32 && ip -6 route add unreachable {ipv6}/128"));
}

/// Makes packets from host `from` to host `to` get lost, so that connecting times out.
pub fn drop_silently(machines: &Machines, from: u16, to: u16) {
    for address in addresses(machines, to) {
        // No interface has the Ethernet address to which the packets are sent.
        machines.ask(from, &format!("ip neighbour replace {address} lladdr 02:00:5e:00:53:99 nud permanent dev eth0"));
    }
}

/// Makes host `at` refuse IPv4 connections that host `from` opens; `at` can still connect to `from`.
pub fn firewall(machines: &Machines, from: u16, at: u16) {
    let [ip, _] = addresses(machines, from);
    let rules = "add table ip firewall; add chain ip firewall in { type filter hook input priority 0; }; \
        add rule ip firewall in ip saddr";
    let begins = "tcp flags & (syn | ack) == syn reject with tcp reset";
    machines.ask(at, &format!("PATH=$PATH:/usr/sbin nft '{rules} {ip} {begins}'"));
}

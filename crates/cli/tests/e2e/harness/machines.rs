//! Hosts for the tests across machines: name spaces of this one, with remote shells.
//!
//! Most tests share three testbeds, one after the other on each: four hosts with sshd, sixteen with the plain remote shell
//! alone, four with Slurm. A test that breaks something makes its own. Testbeds begin when first asked for and end with the test process.

use super::Run;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, fs};
use wireup_testbed::{Spec, StartError, Testbed};
use xtask::layout;

/// A testbed, for one test alone as long as it holds this.
pub struct Machines {
    testbed: Arc<Testbed>,
    /// Flags of every run on it.
    flags: &'static str,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// One testbed for many tests.
struct Shared {
    testbed: OnceLock<Result<Arc<Testbed>, String>>,
    turn: Mutex<()>,
}

static BY_SSH: Shared = Shared::new();
static PLAIN: Shared = Shared::new();
static WITH_SLURM: Shared = Shared::new();

/// Far more than the end of a Slurm job takes.
const SLURM_LIMIT: Duration = Duration::from_secs(20);

const PLAIN_FLAGS: &str = "--remote-shell plainsh";

/// `n0` to `n3`, by ssh.
pub fn by_ssh() -> Option<Machines> {
    BY_SSH.take(4, |spec| spec.ssh = true, "")
}

/// `n0` to `n15`, by the plain remote shell.
pub fn plain() -> Option<Machines> {
    PLAIN.take(16, |_| (), PLAIN_FLAGS)
}

/// `n0` to `n3`, by the plain remote shell and by Slurm.
pub fn with_slurm() -> Option<Machines> {
    let machines = WITH_SLURM.take(4, |spec| spec.slurm = true, PLAIN_FLAGS)?;
    // Of a test that failed.
    machines.cancel("--user=root");
    Some(machines)
}

/// Hosts that nobody else uses; by ssh if `adjust` asks for it.
pub fn own(nodes: u16, adjust: impl FnOnce(&mut Spec)) -> Option<Machines> {
    let mut flags = "";
    let adjust = |spec: &mut Spec| {
        adjust(spec);
        flags = if spec.ssh { "" } else { PLAIN_FLAGS };
    };
    let testbed = start(nodes, adjust).map_or_else(|why| skip(&why), Some)?;
    Some(Machines { testbed, flags, _turn: None })
}

impl Shared {
    const fn new() -> Self {
        Shared { testbed: OnceLock::new(), turn: Mutex::new(()) }
    }

    fn take(&'static self, nodes: u16, adjust: impl FnOnce(&mut Spec), flags: &'static str) -> Option<Machines> {
        // A test that failed has taken its processes along.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.testbed.get_or_init(|| start(nodes, adjust)) {
            Ok(testbed) => Some(Machines { testbed: Arc::clone(testbed), flags, _turn: Some(turn) }),
            Err(why) => skip(why),
        }
    }
}

/// Nothing if this machine cannot have one, with the reason.
fn start(nodes: u16, adjust: impl FnOnce(&mut Spec)) -> Result<Arc<Testbed>, String> {
    let mut spec = Spec::new(program(), nodes);
    spec.shares = shares();
    adjust(&mut spec);
    match Testbed::start(&spec) {
        Ok(testbed) => Ok(Arc::new(testbed)),
        Err(StartError::Unavailable(why)) => Err(why),
        Err(failed) => panic!("{failed}"),
    }
}

/// The testbed's binary, which `cargo test --workspace` has built, or else is built now.
fn program() -> PathBuf {
    Testbed::find_program().unwrap_or_else(|| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo).args(["build", "--quiet", "-p", "wireup-testbed"]).status();
        assert!(status.is_ok_and(|status| status.success()), "cargo build -p wireup-testbed");
        Testbed::find_program().expect("it was just built")
    })
}

/// What hosts must see although it may lie in a folder of which each has its own.
fn shares() -> Vec<PathBuf> {
    let product = super::wireup();
    let folders = [Some(layout::root().as_path()), Some(&layout::target()), product.parent()].map(|folder| {
        let folder = folder.expect("a program lies in a folder");
        folder.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    });
    folders.into()
}

/// Says aloud that the test that runs now cannot.
fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not `eprintln`, which the test runner keeps to itself.
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
    /// The testbed, for somebody who looks at it as long as this lives.
    pub fn testbed(&self) -> Arc<Testbed> {
        Arc::clone(&self.testbed)
    }

    /// How its hosts are reached.
    pub fn flags(&self) -> &'static str {
        self.flags
    }

    /// `wireup run FLAGS`, called on the hub.
    pub fn job(&self, line: &str) -> Run {
        self.on_hub(Run::job(self.flags)).args(line.split_whitespace())
    }

    /// As [`Self::job`], of another copy of the product.
    pub fn job_of(&self, wireup: &Path, line: &str) -> Run {
        self.on_hub(Run::of(Command::new(wireup)))
            .arg("run")
            .args(self.flags.split_whitespace())
            .args(line.split_whitespace())
    }

    /// `wireup run FLAGS`, called on host `i`.
    pub fn job_from(&self, i: u16, line: &str) -> Run {
        let run = Run::of(self.in_node(i, super::wireup())).arg("run").args(self.flags.split_whitespace());
        run.cwd(Path::new("/")).looking_at(&self.testbed).args(line.split_whitespace())
    }

    /// `sh -c SCRIPT` on the hub, where `$WIREUP` is the product.
    pub fn shell(&self, script: &str) -> Run {
        self.on_hub(Run::shell(script))
    }

    /// `srun FLAGS` on the hub, once Slurm has nothing else to do.
    pub fn step(&self, line: &str) -> Run {
        assert!(self.await_slurm(SLURM_LIMIT), "Slurm's nodes are not idle");
        // Its daemons make this folder where it is missing, and leave it.
        let run = Run::of(Command::new("srun")).env("TMPDIR", "/tmp");
        self.on_hub(run).args(line.split_whitespace())
    }

    /// `salloc FLAGS wireup run LINE` on the hub, once Slurm has nothing else to do; without PMIx unless that is asked for.
    pub fn allocated(&self, flags: &str, line: &str) -> Run {
        let offer: &[&str] = if line.contains("--pmi") { &[] } else { &["--pmi", "simple"] };
        self.salloc(flags).arg(super::wireup()).arg("run").args(offer).args(line.split_whitespace())
    }

    /// `salloc FLAGS` on the hub, for a command, once Slurm has nothing else to do.
    pub fn salloc(&self, flags: &str) -> Run {
        assert!(self.await_slurm(SLURM_LIMIT), "Slurm's nodes are not idle");
        let run = Run::of(Command::new("salloc")).env("TMPDIR", "/tmp").env("WIREUP", super::wireup());
        self.on_hub(run).arg("--quiet").args(flags.split_whitespace())
    }

    /// What a batch script of SCRIPT writes, with its exit code behind it, where `$WIREUP` is the product.
    pub fn batch(&self, flags: &str, script: &str) -> String {
        assert!(self.await_slurm(SLURM_LIMIT), "Slurm's nodes are not idle");
        let run = Run::of(Command::new("sbatch")).env("TMPDIR", "/tmp").env("WIREUP", super::wireup());
        let output = "--output=/run/batch.out --wait --quiet";
        let outcome =
            self.on_hub(run).args(output.split_whitespace()).args(flags.split_whitespace()).arg("--wrap").arg(script);
        let code = outcome.finish().code();
        let said = fs::read_to_string(self.path_in_node(0, "/run/batch.out")).expect("the script's output");
        format!("{said}code {code}\n")
    }

    /// `scancel JOBS`.
    pub fn cancel(&self, jobs: &str) {
        let output = self.enter(Command::new("scancel").arg(jobs)).output().expect("start scancel");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }

    /// `scancel --signal` asks all nodes; a job that ends at the first's word may be over by the time that the last hears of it.
    pub fn signal(&self, name: &str, steps: &str) {
        let mut scancel = Command::new("scancel");
        let output = self.enter(scancel.arg(format!("--signal={name}")).arg(steps)).output().expect("start scancel");
        let over = output.stderr.ends_with(b"Invalid job id specified\n");
        assert!(output.status.success() || over, "{steps}: {output:?}");
    }

    fn on_hub(&self, run: Run) -> Run {
        run.cwd(Path::new("/")).on(&self.testbed)
    }

    /// What `sh -c SCRIPT` writes on host `i`.
    pub fn ask(&self, i: u16, script: &str) -> String {
        let output = self.in_node(i, "/bin/sh").args(["-c", script]).output().expect("the testbed's program runs");
        assert!(output.status.success(), "n{i}: {script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// What is left on the hosts of a testbed by a run that has ended.
pub fn left(testbed: &Testbed) -> Vec<String> {
    let processes = (0..).zip(testbed.all_processes()).flat_map(|(i, processes)| {
        processes.into_iter().map(move |process| format!("n{i}: {} {}", process.node_pid, process.command))
    });
    let files = (0..testbed.node_count()).flat_map(|i| {
        let entries = fs::read_dir(testbed.path_in_node(i, "/tmp")).into_iter().flatten().flatten();
        entries.map(move |entry| format!("n{i}: {}", entry.path().display()))
    });
    let shares = shares();
    let is_share = |line: &str| shares.iter().any(|share| line_path(line).is_some_and(|path| share.starts_with(path)));
    processes.chain(files.filter(|line| !is_share(line))).collect()
}

/// The path on the host of `nI: /proc/PID/root/PATH`.
fn line_path(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once("/root/")?;
    Some(Path::new("/").join(path))
}

/// Ends all that a failed run has left on the hosts.
pub fn clear(testbed: &Testbed) {
    for process in testbed.all_processes().into_iter().flatten() {
        if let Some(pid) = rustix::process::Pid::from_raw(process.pid.cast_signed()) {
            // It may have gone meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// A copy of the product where no other host sees it.
pub struct HiddenCopy(PathBuf);

impl HiddenCopy {
    pub fn new(name: &str) -> Self {
        let folder = Path::new("/tmp").join(format!("end-to-end-hidden-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder in /tmp");
        // Smaller where the tool is there: it is sent many times.
        let stripped = Command::new("strip").arg("-o").arg(folder.join("wireup")).arg(super::wireup()).status();
        if !stripped.is_ok_and(|status| status.success()) {
            fs::copy(super::wireup(), folder.join("wireup")).expect("copy the product");
        }
        HiddenCopy(folder)
    }

    pub fn program(&self) -> PathBuf {
        self.0.join("wireup")
    }
}

impl Drop for HiddenCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! One launcher: a job's person at the terminal.
use crate::launcher_io::{LauncherInput, LauncherOutput};
use crate::time::Instant;
use wireup_wire::job::JobSpec;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LauncherConfig {
    pub job: JobSpec,
    /// End the job after this time.
    pub timeout_ns: Option<u64>,
    /// Tell the agents to leave when the job is over (a one-shot run).
    pub one_shot: bool,
    /// The job's standard input goes through this launcher (not inherited).
    pub relay_stdin: bool,
}

pub struct Launcher;

impl Launcher {
    pub fn new(_config: LauncherConfig, _now: Instant) -> Self { todo!() }
    pub fn handle(&mut self, _now: Instant, _input: LauncherInput) { todo!() }
    pub fn poll(&mut self) -> Option<LauncherOutput> { todo!() }
    pub fn deadline(&self) -> Option<Instant> { todo!() }
}

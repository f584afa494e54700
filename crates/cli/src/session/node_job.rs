//! A job of wireup's own in a session: one rank on each of some nodes, whose program is this one.

use super::attach_to;
use crate::words::{Setting, Voice};
use std::os::unix::ffi::OsStrExt;
use wireup_node::launcher::{self, Output, Program, Reach, RunConfig, RunOutcome};
use wireup_node::session::Attached;
use wireup_os::clock::monotonic_ns;
use wireup_proto::Growth;
use wireup_proto::launcher_io::Notice;
use wireup_wire::job::{
    AppSpec, Binding, Block, JobOptions, JobSpec, NodeSpec, PmiFlavour, PmiOptions, ProcessOptions, StdinTarget,
    StdioOptions,
};
use wireup_wire::peer::SessionSpec;

/// Time between SIGTERM and SIGKILL when the ranks are ended (ns): short, since they have nothing to clean up.
const GRACE_NS: u64 = 2_000_000_000;

pub struct NodeJob<'a> {
    pub session: &'a SessionSpec,
    /// The nodes of the job, each of which gets one rank.
    pub nodes: &'a [NodeSpec],
    /// The command of this program that the ranks run, and its arguments.
    pub argv: &'a [&'a [u8]],
    pub stdin: StdinTarget,
    pub timeout_ns: Option<u64>,
}

impl NodeJob<'_> {
    /// Runs the job; `program` reads the ranks' output and writes their input. `words` turns notices into lines for
    /// standard error (empty: nothing to print).
    ///
    /// # Errors
    /// The session cannot be reached, or the job cannot be begun.
    pub fn run(
        &self,
        program: &mut dyn Program,
        words: &mut dyn FnMut(&mut Voice, &Notice) -> String,
    ) -> Result<RunOutcome, String> {
        let attached = attach_to(&self.session.name)?;
        let job = self.job(&attached);
        let mut voice = Voice::new(Setting::of(&job, self.session));
        let now = monotonic_ns();
        let config = RunConfig {
            job,
            reach: Reach::Session(Box::new(attached)),
            places: Vec::new(),
            growth: Growth::Fixed("which is wireup's own"),
            timeout_ns: self.timeout_ns,
            explains_timeout: false,
            output: Output::default(),
            starting: None,
            spool: None,
            process_start_ns: now,
            resolved_ns: now,
        };
        launcher::run_with(config, program, &mut |notice| words(&mut voice, notice)).map_err(|error| error.to_string())
    }

    fn job(&self, attached: &Attached) -> JobSpec {
        let count = self.nodes.len() as u32;
        // The path is resolved by the keeper, a copy of the agent: it is the agent's own program, wherever that lies.
        let argv = [&b"/proc/self/exe"[..]].iter().chain(self.argv).map(|word| word.to_vec()).collect();
        let command = self.argv.first().map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
        JobSpec {
            job: attached.welcome.job,
            nspace: format!("wireup-{command}-{}", attached.welcome.job),
            nodes: self.nodes.to_vec(),
            blocks: vec![Block { first_node: 0, nodes: count, ppn: 1 }],
            apps: vec![AppSpec { ranks: count, argv, cwd: b"/".to_vec(), env: Vec::new() }],
            env: PASSED_ON.iter().filter_map(|name| variable(name)).collect(),
            endpoints: Vec::new(),
            spawned: None,
            options: JobOptions {
                pmi: PmiOptions { flavour: PmiFlavour::None, ..PmiOptions::default() },
                stdio: StdioOptions { stdin: self.stdin, split_output: true, ..StdioOptions::default() },
                process: ProcessOptions { umask: 0o077, ..ProcessOptions::default() },
                binding: Binding::NONE,
                kill_grace_ns: GRACE_NS,
                ..JobOptions::default()
            },
        }
    }
}

/// Variables of this process that the ranks get: none of those that change how programs are loaded.
const PASSED_ON: [&str; 3] = ["PATH", "HOME", "TMPDIR"];

fn variable(name: &str) -> Option<Vec<u8>> {
    let value = std::env::var_os(name)?;
    Some([name.as_bytes(), b"=", value.as_bytes()].concat())
}

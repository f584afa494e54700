//! Starts agents by Slurm: `srun`, its options and variables, and its messages about the tasks of a step.
//!
//! `srun` reads a default for nearly every option from its environment (`SLURM_CPUS_PER_TASK`, `SLURM_EXACT`,
//! `SLURM_LABELIO`, ...), and `sbatch`, `salloc` and an outer step leave their values there. Its tasks inherit its
//! environment, so variables that are valid only on this machine are removed too. Its standard error names the nodes
//! with problems:
//!
//! ```text
//!   srun: error: n[1-2]: tasks 0-1: Exited with exit code 2
//!   srun: error: Task launch for StepId=4.1 failed on node n2: Communication connection failure
//!   srun: error: Node failure on n2
//!   slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10 DUE TO TIME LIMIT ***
//! ```

use super::{BatchSystem, Complaint};
use crate::hosts;
use wireup_proto::NEEDED;
use wireup_wire::peer::{Problem, ProblemKind};

/// The step shares CPUs, memory and devices with every other step, is not bound to any of them, uses no PMI, and
/// survives the death of one of its tasks.
const OPTIONS: [&str; 10] = [
    "--overlap", "--mem=0", "--cpu-bind=none", "--ntasks-per-node=1", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0",
    "--input=all", "--export=ALL", "--job-name=wireup",
];

/// The variable in which Slurm gives a task the name of its node.
const NODE_NAME: &str = "SLURMD_NODENAME";
/// The variable that Slurm sets for tasks of a step and their descendants.
const STEP: &str = "SLURM_STEP_ID";
/// Variables that the step's environment keeps in spite of their prefix (`PREFIXES`): those that identify the job and
/// its controller, and `SLURM_NETWORK`, which steps on Slingshot networks need.
const KEPT: [&str; 9] = [
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_CONF",
    "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_NETWORK",
];
const PREFIXES: [&str; 8] =
    ["SLURM", "SRUN_", "SALLOC_", "SBATCH_", "SSH_", "XDG_RUNTIME_DIR", "XDG_SESSION_", "DBUS_SESSION_"];

pub struct Srun;

impl BatchSystem for Srun {
    fn options(&self) -> &'static [&'static str] {
        &OPTIONS
    }

    fn placement(&self, hosts: &[String]) -> Vec<String> {
        let nodes = hosts::collapse(hosts.iter().map(String::as_str));
        vec![
            format!("--nodes={0}-{0}", hosts.len()),
            format!("--ntasks={}", hosts.len()),
            format!("--nodelist={nodes}"),
        ]
    }

    fn keeps(&self, variable: &str) -> bool {
        let speaks_of_this_machine =
            PREFIXES.iter().any(|prefix| variable.starts_with(prefix)) || variable == "HOSTNAME";
        KEPT.contains(&variable) || !speaks_of_this_machine
    }

    fn is_here(&self) -> bool {
        std::env::var_os(STEP).is_some()
    }

    fn own_node(&self) -> Result<String, String> {
        std::env::var(NODE_NAME).map_err(|_| format!("{NODE_NAME} is not set: this process is not a Slurm task"))
    }

    fn complaint(&self, line: &str) -> Option<Complaint> {
        if let Some((_, words)) = line.split_once("error: *** ") {
            return words
                .contains("CANCELLED")
                .then(|| Complaint::Cancelled(words.trim_end_matches([' ', '*']).to_owned()));
        }
        let said = line.strip_prefix("srun: error: ")?;
        if said.starts_with("Application launch failed") {
            return Some(Complaint::GivenUp);
        }
        let (nodes, problem) = if let Some((nodes, rest)) = said.split_once(": task") {
            (nodes, rest.split_once(": ")?.1)
        } else if let Some((_, rest)) = said.split_once(" failed on node ") {
            rest.split_once(": ")?
        } else {
            (said.strip_prefix("Node failure on ")?, "its node failed")
        };
        let nodes = hosts::expand(nodes).ok()?;
        Some(Complaint::About { nodes, problem: in_words(problem) })
    }
}

/// The problem of a task, from the text of `srun`.
fn in_words(problem: &str) -> Problem {
    let kind = match problem {
        "Killed" => ProblemKind::TaskKilled,
        "Exited with exit code 137" => ProblemKind::Killed,
        _ => ProblemKind::Other,
    };
    kind.with(match problem.strip_prefix("Exited with exit code ").and_then(|code| code.parse().ok()) {
        Some(NEEDED) => {
            "this version of wireup is not installed there; install it in a directory that all nodes see".into()
        }
        Some(2) => {
            "its task could not execute wireup (exit code 2); install it in a directory that all nodes see".into()
        }
        Some(code) => format!("its task exited with code {code}"),
        None => problem.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(line: &str) -> Option<(String, Problem)> {
        match Srun.complaint(line)? {
            Complaint::About { nodes, problem } => Some((nodes.join(" "), problem)),
            Complaint::Cancelled(words) => Some(("all".into(), words.into())),
            Complaint::GivenUp => Some(("all".into(), "given up".into())),
        }
    }

    #[test]
    fn failed_nodes_are_read_from_srun_messages() {
        let cases = [
            ("srun: error: n[1-2],m4: tasks 0-2: Exited with exit code 7", "n1 n2 m4", "its task exited with code 7"),
            (
                "srun: error: Task launch for StepId=4.1 failed on node n2: Communication connection failure",
                "n2",
                "Communication connection failure",
            ),
            ("srun: error: Application launch failed: Communication connection failure", "all", "given up"),
            ("srun: error: Node failure on n3", "n3", "its node failed"),
            (
                "slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10 DUE TO TIME LIMIT ***",
                "all",
                "STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10 DUE TO TIME LIMIT",
            ),
        ];
        for (line, nodes, problem) in cases {
            assert_eq!(about(line), Some((nodes.into(), problem.into())), "{line}");
        }
        for (said, kind, words) in [
            ("Killed", ProblemKind::TaskKilled, "Killed"),
            ("Exited with exit code 137", ProblemKind::Killed, "its task exited with code 137"),
        ] {
            let killed = about(&format!("srun: error: n2: task 1: {said}"));
            assert_eq!(killed, Some(("n2".into(), kind.with(words))));
        }
        for line in [
            "srun: cluster configuration lacks support for cpu binding", "srun: error: n[1-: task 0: Killed",
            "wireup agent: cannot connect to the parent agent: nobody", "",
        ] {
            assert_eq!(about(line), None, "{line}");
        }
    }
}

//! What `srun` writes about the tasks of a step: which nodes it means, and what is wrong there.
//!
//! ```text
//!   srun: error: n[1-2]: tasks 0-1: Exited with exit code 2
//!   srun: error: Task launch for StepId=4.1 failed on node n2: Communication connection failure
//!   srun: error: Node failure on n2
//!   slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10 DUE TO TIME LIMIT ***
//! ```

use crate::hosts;
use wireup_proto::NEEDED;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Complaint {
    About {
        nodes: Vec<String>,
        problem: String,
    },
    /// The whole step, with its words.
    Cancelled(String),
    /// The whole step, as not all of its tasks could be launched; they were named before.
    GivenUp,
}

impl Complaint {
    /// `None`: nothing that is known to name a node.
    pub fn read(line: &str) -> Option<Complaint> {
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

fn in_words(problem: &str) -> String {
    match problem.strip_prefix("Exited with exit code ").and_then(|code| code.parse().ok()) {
        Some(NEEDED) => "wireup of this version is not there; install it where all nodes see it".into(),
        Some(2) => "its task could not execute wireup (exit code 2); install it where all nodes see it".into(),
        Some(code) => format!("its task left with exit code {code}"),
        None => problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(line: &str) -> Option<(String, String)> {
        match Complaint::read(line)? {
            Complaint::About { nodes, problem } => Some((nodes.join(" "), problem)),
            Complaint::Cancelled(words) => Some(("all".into(), words)),
            Complaint::GivenUp => Some(("all".into(), "given up".into())),
        }
    }

    #[test]
    fn nodes_are_found_in_what_srun_says() {
        let cases = [
            ("srun: error: n2: task 1: Killed", "n2", "Killed"),
            (
                "srun: error: n[1-2],m4: tasks 0-2: Exited with exit code 7",
                "n1 n2 m4",
                "its task left with exit code 7",
            ),
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
        for line in [
            "srun: cluster configuration lacks support for cpu binding",
            "srun: error: n[1-: task 0: Killed",
            "wireup agent: dialling the parent agent: nobody",
            "",
        ] {
            assert_eq!(about(line), None, "{line}");
        }
    }
}

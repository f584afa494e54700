//! The file server of all nodes; and staging, as the launcher and the agents of `wireup run --stage` do it: a job of
//! its own, before the job that needs the files.
//!
//! The launcher reads the files, then starts one rank on each node. All ranks of the staging job read the same standard
//! input, which goes down the tree of agents: the name of the set of files, the list of the files, their contents. Each
//! rank answers each of these parts with a line. The launcher sends the list when the first rank has answered, and the
//! contents when all have answered the list. The other job is launched when the staging job is over; its ranks do not
//! ask the file server.

use crate::cx::Cx;
use crate::phases::Point;
use crate::spec::{JobPlan, WorldSpec};
use crate::workload::{Script, Step};
use wireup_proto::Instant;
use wireup_wire::job::StdinTarget;

/// Length of an answer of a rank (bytes): `lacks`, `missing 0-9` and `kept` are about as long.
const ANSWER_BYTES: u16 = 10;

impl JobPlan {
    /// A staging job on these nodes. `parts`: length of each part of the standard input (bytes).
    fn staging(nodes: impl IntoIterator<Item = u32>, parts: &[u64]) -> JobPlan {
        let mut end = 0;
        let ends = parts.iter().map(|bytes| {
            end += bytes;
            end
        });
        let stage_parts: Vec<u64> = ends.collect();
        let answer = Step::Write { stream: 1, lines: 1, line_bytes: ANSWER_BYTES };
        let mut steps: Vec<Step> =
            stage_parts.iter().flat_map(|end| [Step::ReadStdinTo { bytes: *end }, answer]).collect();
        steps.insert(steps.len() - 1, Step::Reach(Point::Staged));
        let mut job = JobPlan { stdin_bytes: end, stage_parts, ..JobPlan::even(nodes, 1, Script::plain(&steps)) };
        (job.options.stdio.stdin, job.options.stdio.split_output) = (StdinTarget::AllByMemory, true);
        job
    }

    pub(crate) fn is_staging(&self) -> bool {
        !self.stage_parts.is_empty()
    }

    /// Whether each node reads the job's program from the file server: the program is not staged.
    pub(crate) fn loads(&self) -> bool {
        !self.is_staging() && self.staged_by.is_none()
    }

    /// Number of bytes of standard input that the launcher may have sent once it has received this many answers of
    /// ranks.
    pub(crate) fn stdin_until(&self, answers: u64) -> u64 {
        self.stage_parts.get(self.parts_answered(answers)).copied().unwrap_or(self.stdin_bytes)
    }

    /// Whether the launcher, having received this many answers of ranks, waits for more before it sends the next part.
    pub(crate) fn awaits_answers(&self, answers: u64) -> bool {
        self.parts_answered(answers) < self.stage_parts.len()
    }

    fn parts_answered(&self, answers: u64) -> usize {
        let parts = (answers / u64::from(self.size().max(1))) as usize;
        if parts == 0 { usize::from(answers > 0) } else { parts }
    }
}

impl WorldSpec {
    /// This world as a session in which files are staged on some nodes before the first job is launched. `parts`:
    /// lengths of the name, of the list and of the contents (bytes).
    pub fn staged(mut self, nodes: impl IntoIterator<Item = u32>, parts: [u64; 3]) -> WorldSpec {
        let staging = JobPlan { at_ns: self.jobs[0].at_ns, ..JobPlan::staging(nodes, &parts) };
        (self.jobs[0].at_ns, self.jobs[0].staged_by) = (0, Some(self.jobs.len() as u32));
        self.jobs.push(staging);
        WorldSpec { is_standing: true, ..self }
    }
}

#[derive(Default)]
pub struct FileServer {
    /// Time at which the server has served all requests so far.
    free_at: Instant,
}

impl FileServer {
    /// Time (ns) until the server has sent the program to one more reader.
    pub fn load(&mut self, cx: &Cx) -> u64 {
        self.ask(cx.clock.now(), cx.spec.timing.costs.map_or(0, |costs| costs.load_ns))
    }

    /// Time (ns) until a request of `work_ns` has been served, after all requests before it.
    pub fn ask(&mut self, now: Instant, work_ns: u64) -> u64 {
        self.free_at = self.free_at.max(now) + work_ns;
        self.free_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_for_each_other() {
        let mut server = FileServer::default();
        assert_eq!(server.ask(Instant(100), 10), 10);
        assert_eq!(server.ask(Instant(103), 10), 17);
        assert_eq!(server.ask(Instant(200), 10), 10);
    }
}

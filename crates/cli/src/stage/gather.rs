//! `--stage-out`: files are gathered when the job is over, by a job with one rank on each node whose standard output is
//! the stream.
//!
//! If a node is lost meanwhile, its job ends; another one gathers from those that have not sent everything.

use super::{bytes, travel};
use crate::progress::{Progress, waiting_for};
use crate::session::attach_to;
use crate::words::count;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;
use wireup_coll::Mapping;
use wireup_node::launcher::{Next, Program};
use wireup_node::trace::Phase;
use wireup_os::clock::monotonic_ns;
use wireup_proto::exit_code::OURS;
use wireup_stage::gather::request::GatheredNode;
use wireup_stage::gather::{GatheredNodes, Gathering, Request, Rule};
use wireup_wire::ids::{AgentId, NodeId, Rank};
use wireup_wire::job::{JobSpec, NodeSpec, StdinTarget};
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::Presence;

/// Most problems, and most lines of a listing, that are shown.
const PROBLEMS_SHOWN: usize = 10;
const LINES_SHOWN: usize = 40;

/// The files of some nodes, and who can send them.
#[derive(Clone)]
struct Group {
    /// Nodes that see the same files (virtual nodes of one machine): any one of them can send the files of all.
    nodes: Vec<NodeSpec>,
    places: GatheredNodes,
}

/// What is to be gathered after a job.
pub struct Gather<'a> {
    pub rules: &'a [Rule],
    pub job: &'a JobSpec,
    pub session: &'a SessionSpec,
    /// The folder against which relative folders are resolved.
    pub base: &'a Path,
    pub verbose: bool,
}

impl Gather<'_> {
    /// Gathers the files; `say` gets lines for the user. Returns the exit code (that of the job, unless it is 0 and
    /// something could not be gathered), and the time stamps for a profile.
    pub fn run(&self, job_code: u8, say: &mut dyn FnMut(&str)) -> (u8, Phase) {
        let from_ns = monotonic_ns();
        let mut ended = Vec::new();
        let (code, amount) = self.gather(job_code, &mut ended, say);
        let mut phase = Phase::new("stage out", from_ns, monotonic_ns(), amount);
        phase.nodes = ended;
        (code, phase)
    }

    fn gather(&self, job_code: u8, ended: &mut Vec<(NodeId, u64)>, say: &mut dyn FnMut(&str)) -> (u8, String) {
        let begun = Instant::now();
        let names = self.job.nodes.iter().map(|node| node.name.clone()).collect();
        let mut gathering = Gathering::new(self.rules, self.base, names);
        let interrupted = self.rounds(&mut gathering, ended).unwrap_or_else(|problem| {
            gathering.problem(problem);
            None
        });
        gathering.finish();
        let (problems, count) = gathering.problems();
        for problem in problems.iter().take(PROBLEMS_SHOWN) {
            say(&format!("--stage-out: {problem}"));
        }
        if count > PROBLEMS_SHOWN as u64 {
            say(&format!("--stage-out: and {} more that could not be gathered", count - PROBLEMS_SHOWN as u64));
        }
        let (files, len) = gathering.amount();
        let amount = format!("{files} {}, {}", if files == 1 { "file" } else { "files" }, bytes(len));
        if let Some(code) = interrupted {
            say("--stage-out: interrupted; not everything was gathered");
            return (if job_code == 0 { code } else { job_code }, amount);
        }
        for rule in gathering.unmatched() {
            say(&format!("--stage-out: nothing matches {} on any node", String::from_utf8_lossy(&rule.pattern)));
        }
        if self.verbose {
            say(&format!("gathered {amount} in {:.2} s", begun.elapsed().as_secs_f64()));
        }
        (if job_code == 0 && count > 0 { OURS } else { job_code }, amount)
    }

    /// Runs gathering jobs until nothing is left to gather. Returns the exit code if the user has interrupted one.
    fn rounds(&self, gathering: &mut Gathering, ended: &mut Vec<(NodeId, u64)>) -> Result<Option<u8>, String> {
        let mut left = self.groups()?;
        loop {
            let lost = lost(&self.session.name)?;
            let mut chosen = Vec::new();
            left.retain(|group| match group.nodes.iter().find(|node| !lost.contains_key(&node.agent)) {
                Some(node) => {
                    chosen.push(node.clone());
                    true
                }
                None => {
                    for node in &group.nodes {
                        let why = lost.get(&node.agent).map_or("", String::as_str);
                        gathering.problem(format!("node {} is lost ({why}), with its files", node.name));
                    }
                    false
                }
            });
            if left.is_empty() {
                return Ok(None);
            }
            let outcome = self.round(gathering, ended, &left, &chosen)?;
            if outcome.interrupted {
                return Ok(Some(outcome.code));
            }
            // The files of a lost node are lost with its gathering rank; the other nodes send theirs again.
            let failed = outcome.ended.failure.and_then(|failure| failure.rank).map(Rank::index);
            let now = self::lost(&self.session.name)?;
            let (before, is_new) = (left.len(), now.keys().any(|agent| !lost.contains_key(agent)));
            let mut number = 0..;
            left.retain(|group| {
                let own = number.next().unwrap_or_default();
                let is_failed = failed == Some(own as usize) && !gathering.is_done(own);
                if is_failed {
                    incomplete(group, gathering);
                }
                !is_failed && !gathering.is_done(own)
            });
            if left.len() == before && !is_new {
                left.iter().for_each(|group| incomplete(group, gathering));
                return Ok(None);
            }
        }
    }

    fn round(
        &self,
        gathering: &mut Gathering,
        ended: &mut Vec<(NodeId, u64)>,
        groups: &[Group],
        nodes: &[NodeSpec],
    ) -> Result<wireup_node::launcher::RunOutcome, String> {
        let gatherers = groups.iter().map(|group| group.places.clone()).collect();
        let folders = self.job.apps.iter().map(|app| app.cwd.clone()).collect();
        let mut told = Request { rules: self.rules.to_vec(), gatherers, folders }.encode();
        told.extend_from_slice(&gathering.expect_gatherers(groups.iter().map(|group| &group.places[..])));
        let mut taker = Taker { gathering, told, nodes, groups, ended, progress: Progress::new() };
        let outcome = travel::run(self.session, nodes, (&[b"gather".to_vec()], StdinTarget::All), None, &mut taker);
        taker.progress.end();
        outcome
    }

    /// The nodes with ranks; those that share a machine are one group.
    fn groups(&self) -> Result<Vec<Group>, String> {
        let mut groups: Vec<Group> = Vec::new();
        for (node, place) in places(self.job)? {
            match groups.first_mut() {
                Some(group) if node.shared => {
                    group.nodes.push(node.clone());
                    group.places.push(place);
                }
                _ => groups.push(Group { nodes: vec![node.clone()], places: vec![place] }),
            }
        }
        Ok(groups)
    }

    /// The text for the user that lists what would be gathered.
    pub fn listing(&self) -> Result<String, String> {
        let mut text = "gathered after the job:\n".to_owned();
        let (mut seen, mut lines) = (BTreeSet::new(), Vec::new());
        let places = places(self.job)?;
        for rule in self.rules {
            for (_, place) in &places {
                for (rank, folder) in place.ranks_of(rule) {
                    let cwd = Path::new(OsStr::from_bytes(&self.job.apps[folder as usize].cwd));
                    let from = cwd.join(OsStr::from_bytes(&rule.pattern_of(rank, &place.name)));
                    let to = self.base.join(OsStr::from_bytes(&rule.folder_of(rank, &place.name)));
                    let line = format!("  {}:{}  to {}\n", place.name, from.display(), to.display());
                    if seen.insert(line.clone()) {
                        lines.push(line);
                    }
                }
            }
        }
        lines.iter().take(LINES_SHOWN).for_each(|line| text += line);
        if lines.len() > LINES_SHOWN {
            text += &format!("  and {} more\n", lines.len() - LINES_SHOWN);
        }
        Ok(text)
    }
}

fn incomplete(group: &Group, gathering: &mut Gathering) {
    for place in &group.places {
        gathering.problem(format!("node {}: its files did not all arrive", place.name));
    }
}

/// The nodes with ranks, each with its ranks and with the numbers of their working directories.
fn places(job: &JobSpec) -> Result<Vec<(&NodeSpec, GatheredNode)>, String> {
    let mapping =
        Mapping::new(&job.blocks, job.job_size(), job.nodes.len() as u32).map_err(|error| error.to_string())?;
    // For each program, the rank after its last rank.
    let ends: Vec<u32> = job
        .apps
        .iter()
        .scan(0, |end, app| {
            *end += app.ranks;
            Some(*end)
        })
        .collect();
    let place = |(number, node): (u32, &NodeSpec)| {
        let folder = |rank: u32| ends.partition_point(|end| *end <= rank) as u32;
        let ranks = mapping.ranks_of(NodeId(number)).map(|rank| (rank.0, folder(rank.0)));
        GatheredNode::new(number, &node.name, ranks)
    };
    let all = (0..).zip(&job.nodes).map(|node| (node.1, place(node)));
    Ok(all.filter(|(_, place)| !place.ranks.is_empty()).collect())
}

/// The lost nodes of a session, with the reasons.
fn lost(session: &str) -> Result<BTreeMap<AgentId, String>, String> {
    let attached = attach_to(session)?;
    let reason = |(agent, node): (u32, &wireup_wire::session::NodeState)| match &node.presence {
        Presence::Lost { problem } => Some((AgentId(agent), problem.words.clone())),
        Presence::Up | Presence::Starting => None,
    };
    Ok((0..).zip(&attached.welcome.nodes).filter_map(reason).collect())
}

/// The launcher's end of a gathering job.
struct Taker<'a> {
    gathering: &'a mut Gathering,
    /// Bytes to be sent to the gatherers: permissions to send.
    told: Vec<u8>,
    nodes: &'a [NodeSpec],
    groups: &'a [Group],
    /// For each node that has sent everything, the time at which it had (ns).
    ended: &'a mut Vec<(NodeId, u64)>,
    progress: Progress,
}

impl Program for Taker<'_> {
    fn input(&mut self, bytes_max: usize) -> Next {
        if !self.told.is_empty() {
            let count = self.told.len().min(bytes_max);
            return Next::Bytes(Bytes::from(self.told.drain(..count).collect::<Vec<u8>>()));
        }
        if self.gathering.is_over() { Next::End } else { Next::Waits }
    }

    fn output(&mut self, rank: Rank, bytes: &[u8]) {
        if let Some(permission) = self.gathering.output(rank.0, bytes) {
            self.told.extend_from_slice(&permission);
            let now_ns = monotonic_ns();
            let places = self.groups.get(rank.index()).map_or(&[][..], |group| &group.places);
            self.ended.extend(places.iter().map(|place| (NodeId(place.node), now_ns)));
        }
        let (gathering, nodes) = (&*self.gathering, self.nodes);
        self.progress.show(|| {
            let (files, len) = gathering.amount();
            let silent =
                (0..).zip(nodes).filter(|(own, _)| !gathering.is_done(*own)).map(|(_, node)| node.name.as_str());
            let (done, waiting) = (gathering.done(), waiting_for(silent));
            format!(
                "gathering: {files} files, {}; done on {done} of {}{waiting}",
                super::bytes(len),
                count(nodes.len() as u32, "node")
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::JobId;
    use wireup_wire::job::{AppSpec, Block, JobOptions};

    fn job() -> JobSpec {
        let node = |agent: u32| NodeSpec { agent: AgentId(agent), name: format!("n{agent}"), shared: false };
        let app = |ranks, cwd: &[u8]| AppSpec { ranks, argv: vec![b"a".to_vec()], cwd: cwd.to_vec(), env: Vec::new() };
        JobSpec {
            job: JobId(1),
            nspace: "x".into(),
            nodes: vec![node(0), node(1), node(2)],
            blocks: vec![Block { first_node: 0, nodes: 2, ppn: 2 }],
            apps: vec![app(3, b"/one"), app(1, b"/two")],
            env: Vec::new(),
            endpoints: Vec::new(),
            spawned: None,
            options: JobOptions::default(),
        }
    }

    #[test]
    fn nodes_with_ranks_are_places_with_the_folders_of_their_programs() {
        let job = job();
        let places = places(&job).unwrap();
        let ranks: Vec<_> = places.iter().map(|(node, place)| (node.name.as_str(), place.ranks.clone())).collect();
        assert_eq!(ranks, [("n0", vec![(0, 2, 0)]), ("n1", vec![(2, 1, 0), (3, 1, 1)])]);
    }

    #[test]
    fn a_listing_shows_sources_and_folders() {
        let (job, session) = (job(), SessionSpec::default());
        let rules = [Rule::parse(b"out.{rank}=>got").unwrap(), Rule::parse(b"/tmp/log=>logs/{node}").unwrap()];
        let gather = Gather { rules: &rules, job: &job, session: &session, base: Path::new("/here"), verbose: false };
        assert_eq!(
            gather.listing().unwrap(),
            "gathered after the job:\n  n0:/one/out.0  to /here/got\n  n0:/one/out.1  to /here/got\n  \
             n1:/one/out.2  to /here/got\n  n1:/two/out.3  to /here/got\n  n0:/tmp/log  to /here/logs/n0\n  \
             n1:/tmp/log  to /here/logs/n1\n"
        );
    }
}

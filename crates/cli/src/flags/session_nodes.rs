//! The nodes of a standing session that a job gets, with what else the session determines.
//!
//! Nodes are named as for a run with agents of its own: all of the session's nodes by default; `--hosts`, in the given
//! order and with the given slots; or a number of virtual nodes. A job that names hosts outside of the session cannot
//! run in it.

use super::chosen;
use super::parsed::Parsed;
use crate::hosts::{Host, Hosts, Names};
use crate::surroundings::Surroundings;
use std::collections::BTreeMap;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::NodeSpec;
use wireup_wire::peer::{AgentSpec, LinkOptions, RemoteShell, SessionSpec};
use wireup_wire::session::{NodeState, Presence, SeatOrder, Welcome};

/// The nodes of a standing session on which a job runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionNodes {
    pub job: JobId,
    /// The description of the session, with only the parts that a launcher needs.
    pub session: SessionSpec,
    pub nodes: Vec<NodeSpec>,
    /// The hosts of `nodes`, with their slots; `None` for nodes of this machine without slots.
    pub hosts: Option<Hosts>,
    /// Lost nodes, which are left out.
    pub lost: Vec<String>,
    /// Whether these are all nodes of the session that are not lost.
    pub is_whole: bool,
    /// Whether slots were given to `wireup up`.
    pub slots_stated: bool,
    /// How the nodes were chosen among `all`, unless the user has said which.
    pub seats: Option<SeatOrder>,
    pub all: Option<(Vec<NodeSpec>, Option<Hosts>)>,
    /// Modules that the session imports for the ranks of each job.
    pub preload: Vec<String>,
}

/// What a session's files tell in addition to its `Welcome`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatedToUp {
    pub slots_stated: bool,
    pub slots_max: Vec<Option<u32>>,
    /// Modules that are imported once for all ranks of a job on a node.
    pub preload: Vec<String>,
}

/// Why a job cannot run in a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotThere {
    /// The session lacks what the job asks for; the job may run outside of the session instead.
    Elsewhere(String),
    Refused(String),
}

impl From<String> for NotThere {
    fn from(problem: String) -> NotThere {
        NotThere::Refused(problem)
    }
}

impl SessionNodes {
    pub fn new(
        parsed: &Parsed,
        surroundings: &Surroundings,
        welcome: &Welcome,
        told: &StatedToUp,
    ) -> Result<SessionNodes, NotThere> {
        let session = welcome.session.clone();
        // A user who names a session means its nodes, not those of the surrounding batch job.
        let named = parsed.names_hosts();
        let asked = match parsed.session.is_some() && !named {
            true => None,
            false => chosen::chosen(parsed, surroundings)?.map(|chosen| chosen.hosts),
        };
        let is_left_out = |agent: usize| parsed.excludes_local() && agent == 0 && !welcome.shared;
        let own = |agent: usize| welcome.nodes[agent].slots > 0 && !is_left_out(agent);
        let all: Vec<usize> = (0..welcome.nodes.len()).filter(|&agent| own(agent)).collect();
        let count = welcome.nodes.iter().filter(|node| node.slots > 0).count();
        let elsewhere = |what: String| NotThere::Elsewhere(format!("session {session} does not have {what}"));
        let mut lost = Vec::new();
        let mut there = |agent: &usize| match &welcome.nodes[*agent].presence {
            Presence::Up | Presence::Starting => true,
            Presence::Lost { .. } => {
                lost.push(welcome.nodes[*agent].host.clone());
                false
            }
        };
        let (agents, hosts) = match (asked, parsed.virtual_nodes) {
            (Some(hosts), _) => {
                let mut agents = of_hosts(&hosts, &all, surroundings, welcome, &elsewhere, named)?;
                let kept: Vec<bool> = agents.iter().map(&mut there).collect();
                let mut each = kept.iter().copied();
                let hosts = hosts.retain(|_| each.next().unwrap_or(true));
                let mut each = kept.iter().copied();
                agents.retain(|_| each.next().unwrap_or(true));
                (agents, Some(hosts))
            }
            (None, Some(count)) if !welcome.shared => return Err(elsewhere(format!("{count} virtual nodes"))),
            (None, Some(count)) if (count as usize) > all.len() => {
                return Err(elsewhere(format!("{count} virtual nodes; it has {}", all.len())));
            }
            (None, count) => {
                let room = count.map_or(all.len(), |count| count as usize);
                let agents: Vec<usize> = all.into_iter().filter(&mut there).take(room).collect();
                let has_slots = !welcome.shared || told.slots_stated;
                let hosts = has_slots.then(|| of_session(&agents, welcome, told, parsed.slots));
                (agents, hosts)
            }
        };
        if agents.is_empty() {
            let cure = format!("to restart them: wireup up {session}; to run without them: --no-session");
            return Err(format!("all nodes of session {session} are lost; {cure}").into());
        }
        let shared = welcome.shared && welcome.nodes.len() > 1;
        let node =
            |&agent: &usize| NodeSpec { agent: AgentId(agent as u32), name: welcome.nodes[agent].host.clone(), shared };
        let nodes = agents.iter().map(node).collect();
        Ok(SessionNodes {
            job: welcome.job,
            session: spec(welcome),
            is_whole: agents.len() + lost.len() == count,
            slots_stated: told.slots_stated,
            nodes,
            hosts,
            lost,
            seats: None,
            all: None,
            preload: told.preload.clone(),
        })
    }

    /// Limits the job to the nodes of these agents, in this order. Jobs that its ranks spawn may run on all nodes.
    pub fn limited_to(self, agents: &[AgentId], by: SeatOrder) -> SessionNodes {
        let at: BTreeMap<AgentId, usize> = self.nodes.iter().zip(0..).map(|(node, at)| (node.agent, at)).collect();
        let taken: Vec<usize> = agents.iter().filter_map(|agent| at.get(agent).copied()).collect();
        if taken.is_empty() {
            return self;
        }
        let nodes: Vec<NodeSpec> = taken.iter().map(|at| self.nodes[*at].clone()).collect();
        let of_all = |hosts: &Hosts| Hosts {
            list: taken.iter().map(|at| hosts.list[*at].clone()).collect(),
            stated: hosts.stated,
            order: (0..taken.len() as u32).collect(),
            slots_of: None,
        };
        let hosts = self.hosts.as_ref().map(of_all);
        SessionNodes { all: Some((self.nodes, self.hosts)), nodes, hosts, seats: Some(by), ..self }
    }
}

/// The agents of these hosts. It is an error if a host that the user named is lost.
fn of_hosts(
    hosts: &Hosts,
    all: &[usize],
    surroundings: &Surroundings,
    welcome: &Welcome,
    elsewhere: &impl Fn(String) -> NotThere,
    named: bool,
) -> Result<Vec<usize>, NotThere> {
    let names = Names::new(&surroundings.host, surroundings.addresses.clone(), &[]);
    let find = |host: &Host| {
        let same = |state: &NodeState| state.host == host.name || (host.is_local && names.is_local(&state.host));
        all.iter().copied().find(|&agent| same(&welcome.nodes[agent]))
    };
    let mut agents = Vec::with_capacity(hosts.list.len());
    for host in &hosts.list {
        let agent = find(host).ok_or_else(|| elsewhere(host.name.clone()))?;
        if let Presence::Lost { problem } = &welcome.nodes[agent].presence
            && named
        {
            let (session, host) = (&welcome.session, &host.name);
            let cure = format!("to restart it: wireup up {session}");
            return Err(format!("node {host} of session {session} is lost: {}; {cure}", problem.words).into());
        }
        agents.push(agent);
    }
    Ok(agents)
}

/// The session's own hosts, with the slots that were given to `wireup up`.
fn of_session(agents: &[usize], welcome: &Welcome, told: &StatedToUp, slots: Option<u32>) -> Hosts {
    let host = |&agent: &usize| Host {
        name: welcome.nodes[agent].host.clone(),
        slots: slots.filter(|_| !told.slots_stated).unwrap_or(welcome.nodes[agent].slots),
        slots_max: told.slots_max.get(agent).copied().flatten(),
        is_local: agent == 0,
    };
    let list: Vec<Host> = agents.iter().map(host).collect();
    let order = (0..list.len() as u32).collect();
    Hosts { list, stated: told.slots_stated || slots.is_some(), order, slots_of: None }
}

fn spec(welcome: &Welcome) -> SessionSpec {
    SessionSpec {
        name: welcome.session.clone(),
        fanout: welcome.fanout,
        agents: welcome.nodes.iter().map(|node| AgentSpec { host: node.host.clone() }).collect(),
        // Which remote shell it is matters only to the session; a job in it starts no agents.
        remote_shell: RemoteShell::like(welcome.shared, welcome.by_step),
        links: LinkOptions { transport: welcome.transport, ..LinkOptions::default() },
        ..SessionSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed::parsed_words;

    /// Agent 0 is this machine, which is not a node of the session.
    fn welcome() -> Welcome {
        let node = |host: &str, slots, presence| NodeState { host: host.into(), slots, presence };
        Welcome {
            job: JobId(7),
            session: "lab".into(),
            fanout: 2,
            shared: false,
            by_step: false,
            transport: Default::default(),
            nodes: vec![
                node("cn17", 0, Presence::Up),
                node("n1", 4, Presence::Up),
                node("n2", 4, Presence::Lost { problem: "cut".into() }),
                node("n3", 8, Presence::Up),
            ],
        }
    }

    fn new(line: &str, welcome: &Welcome, slots_stated: bool) -> Result<SessionNodes, String> {
        let told = StatedToUp { slots_stated, ..StatedToUp::default() };
        SessionNodes::new(&parsed_words(line.split(' ')), &Surroundings::example(), welcome, &told)
            .map_err(|(NotThere::Elsewhere(why) | NotThere::Refused(why))| why)
    }

    /// The agents of the nodes, and their slots.
    fn session_nodes(
        line: &str,
        welcome: &Welcome,
        slots_stated: bool,
    ) -> Result<(Vec<u32>, Option<Vec<u32>>), String> {
        let session_nodes = new(line, welcome, slots_stated)?;
        let slots = session_nodes.hosts.map(|hosts| hosts.list.iter().map(|host| host.slots).collect());
        Ok((session_nodes.nodes.iter().map(|node| node.agent.0).collect(), slots))
    }

    #[test]
    fn without_flags_a_job_uses_all_running_nodes_of_the_session() {
        assert_eq!(session_nodes("./a", &welcome(), true), Ok((vec![1, 3], Some(vec![4, 8]))));
        let session_nodes = new("./a", &welcome(), true).expect("nodes");
        assert_eq!((session_nodes.lost, session_nodes.job), (vec!["n2".to_owned()], JobId(7)));
    }

    #[test]
    fn named_hosts_are_used_in_order_and_unknown_ones_refused() {
        assert_eq!(session_nodes("--hosts n3:2,n1 ./a", &welcome(), true), Ok((vec![3, 1], Some(vec![2, 1]))));
        let refused = |line: &str| session_nodes(line, &welcome(), true).expect_err(line);
        assert_eq!(refused("--hosts n1,n9 ./a"), "session lab does not have n9");
        assert_eq!(refused("--hosts cn17 ./a"), "session lab does not have cn17");
        assert_eq!(refused("--hosts n2 ./a"), "node n2 of session lab is lost: cut; to restart it: wireup up lab");
        assert_eq!(refused("--virtual-nodes 2 ./a"), "session lab does not have 2 virtual nodes");
    }

    #[test]
    fn a_job_uses_the_requested_number_of_virtual_nodes() {
        let mut virtual_ones = Welcome { shared: true, ..welcome() };
        virtual_ones.nodes[0].slots = 4;
        assert_eq!(session_nodes("./a", &virtual_ones, false), Ok((vec![0, 1, 3], None)));
        let two = |slots_stated| session_nodes("--virtual-nodes 2 ./a", &virtual_ones, slots_stated);
        assert_eq!((two(false), two(true)), (Ok((vec![0, 1], None)), Ok((vec![0, 1], Some(vec![4, 4])))));
        let refused = session_nodes("--virtual-nodes 5 ./a", &virtual_ones, true).expect_err("it has four");
        assert_eq!(refused, "session lab does not have 5 virtual nodes; it has 4");
        for node in &mut virtual_ones.nodes {
            node.presence = Presence::Lost { problem: "cut".into() };
        }
        let refused = session_nodes("./a", &virtual_ones, true).expect_err("lost");
        assert!(refused.starts_with("all nodes of session lab are lost"), "{refused}");
    }
}

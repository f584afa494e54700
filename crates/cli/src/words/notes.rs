//! Summarizes what agents report about their start; never one line per node.

use super::{Setting, count};
use crate::hosts::collapse_short;
use std::collections::BTreeMap;
use std::net::IpAddr;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Lacking, Note};

/// How many agents that were started by another agent than their parent are reported one by one.
const STARTED_FOR_SHOWN: u32 = 3;
/// How many pairs without a direct link are reported.
const ROUTED_SHOWN: u32 = 3;
/// How many nodes whose ranks lack something are reported.
const LACKING_SHOWN: u32 = 3;
/// Most nodes whose bindings are shown.
const PICTURES_SHOWN: u32 = 64;
/// How many PMIx server processes have their messages shown.
const SAID_SHOWN: usize = 4;
/// How many networks of links are reported.
const NETWORKS_SHOWN: usize = 4;

#[derive(Default)]
pub struct Notes {
    linked: Vec<Link>,
    sent: Vec<AgentId>,
    is_second_cache_told: bool,
    started_for: u32,
    retried: bool,
    routed: u32,
    lacking: u32,
    /// Whether a node has told what it preloads.
    preloads: bool,
    pictures: u32,
    /// The hosts whose PMIx servers have said something.
    said: Vec<String>,
    is_said_cut: bool,
}

/// A link from a child to its parent at this address.
struct Link {
    agent: AgentId,
    address: IpAddr,
    interface: Option<String>,
}

impl Notes {
    /// The lines that a note produces immediately.
    pub fn lines(&mut self, note: &Note, setting: &Setting) -> Vec<String> {
        match note {
            Note::Linked { agent, address, .. } => {
                if let Some((address, interface)) = place(address).filter(|_| setting.verbose) {
                    self.linked.push(Link { agent: *agent, address, interface });
                }
                Vec::new()
            }
            Note::Sent { agent, to_second_cache } => {
                if setting.verbose {
                    self.sent.push(*agent);
                }
                if !to_second_cache || std::mem::replace(&mut self.is_second_cache_told, true) {
                    return Vec::new();
                }
                let host = setting.host(*agent);
                vec![format!(
                    "{host}: ~/.cache/wireup is read-only, full or mounted with noexec, so wireup was copied to \
                     wireup-programs-UID in $XDG_RUNTIME_DIR, /tmp or /dev/shm; further hosts are not reported"
                )]
            }
            Note::NoPmix { host, problem, .. } if setting.verbose => {
                vec![format!("node {host} has no PMIx: {problem}")]
            }
            Note::NotSealed { problem } if setting.verbose => vec![format!(
                "the session's secret and the job travel through srun in the clear, because munge could not seal them: \
                 {problem}; to fix this, make \"munge -n\" work on this host"
            )],
            // Only `wireup doctor` shows what was dialled. The ranks of a node without PMIx can do without it.
            Note::Dialled { .. } | Note::NoPmix { .. } | Note::NotSealed { .. } => Vec::new(),
            Note::StoreClosed { host, problem } => {
                vec![format!("node {host}: a connection to the store for PyTorch was closed: {problem}")]
            }
            Note::PmixSaid { host, text } => self.said(host, text),
            Note::NoRankPorts { host, problem } => {
                vec![format!("node {host}: {problem}; jobs with --instant-on choose their own ports there")]
            }
            Note::Lacks { host, what } => self.lacks(host, what),
            // Only the first node's modules are shown: other nodes preload the same modules, unless they lack the
            // record from which `--preload auto` takes them.
            Note::Preloads { .. } if std::mem::replace(&mut self.preloads, true) => Vec::new(),
            Note::Preloads { host, modules } => vec![format!("node {host}: --preload auto: {modules}")],
            Note::Bound { host, picture } => match is_within(&mut self.pictures, PICTURES_SHOWN) {
                true => picture.lines().map(|line| format!("{host}: {line}")).collect(),
                false => Vec::new(),
            },
            Note::StartedFor { agent, parent, starter, problem } => {
                if !is_within(&mut self.started_for, STARTED_FOR_SHOWN) {
                    return Vec::new();
                }
                let [agent, parent, starter] = [agent, parent, starter].map(|agent| setting.host(*agent));
                vec![format!("{agent} was started by {starter}, because {parent} could not start it: {problem}")]
            }
            Note::NoTransport(missing) => {
                let host = setting.host(missing.agent);
                vec![format!("node {host} {}; all nodes use TCP instead of UCX", missing.problem)]
            }
            Note::Waits { agents } => {
                let who = names(&mut agents.clone(), setting);
                vec![format!(
                    "waiting for nodes that have not started yet: {who} (see wireup status); Ctrl-C ends the job"
                )]
            }
            Note::Routed { agent, peer, problem } => {
                if !is_within(&mut self.routed, ROUTED_SHOWN) {
                    return Vec::new();
                }
                let [agent, peer] = [agent, peer].map(|agent| setting.host(*agent));
                let more = if self.routed == ROUTED_SHOWN { "; further pairs are not reported" } else { "" };
                vec![format!(
                    "{agent} and {peer} have no direct link and communicate through the tree: {problem}{more}"
                )]
            }
            Note::Retry { .. } if std::mem::replace(&mut self.retried, true) => Vec::new(),
            Note::Retry { agent, problem, .. } => vec![format!(
                "{}: its sshd is busy ({problem}); retrying; to avoid this, raise MaxStartups in its sshd_config",
                setting.host(*agent)
            )],
        }
    }

    /// What the ranks of a node lack, for the first nodes.
    fn lacks(&mut self, host: &str, what: &Lacking) -> Vec<String> {
        if !is_within(&mut self.lacking, LACKING_SHOWN) {
            return Vec::new();
        }
        let more = if self.lacking == LACKING_SHOWN { "; further nodes are not reported" } else { "" };
        vec![match what {
            Lacking::Namespace => format!(
                "node {host}: the first process of the session's PID namespace was killed, so processes of the job \
                 may outlive it; to restore the namespace: wireup down, then wireup up{more}"
            ),
            Lacking::Mounts { problem } => format!(
                "node {host}: {problem}; its ranks see the staged files through a library, which does not work for \
                 static programs, programs without glibc, and set-user-ID programs{more}"
            ),
            Lacking::Preload { problem } => {
                format!("node {host}: --preload is not used, so each rank imports the modules itself: {problem}{more}")
            }
            Lacking::Prefetch { problem } => format!("node {host}: --stage=prefetch: {problem}{more}"),
            Lacking::Staged { problem } => format!("node {host}: its ranks use the original files: {problem}{more}"),
        }]
    }

    /// The message of a PMIx server process, each line with its node.
    fn said(&mut self, host: &str, text: &str) -> Vec<String> {
        if !self.said.iter().any(|known| known == host) {
            match self.said.len() {
                0..SAID_SHOWN => self.said.push(host.to_owned()),
                _ if std::mem::replace(&mut self.is_said_cut, true) => return Vec::new(),
                _ => return vec!["messages of further PMIx servers are not shown".into()],
            }
        }
        let line = |line| format!("node {host}: its PMIx server said: {line}");
        text.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
    }

    /// The summary after the job's startup has completed; its lines are returned only once.
    pub fn summary(&mut self, setting: &Setting) -> Vec<String> {
        let mut lines = Vec::new();
        let more = self.started_for.saturating_sub(STARTED_FOR_SHOWN);
        if more > 0 {
            lines.push(format!("{} more were not started by their parents", count(more, "agent")));
            self.started_for = STARTED_FOR_SHOWN;
        }
        if !self.sent.is_empty() {
            lines.push(format!("wireup was sent to {}", names(&mut self.sent, setting)));
            self.sent.clear();
        }
        lines.extend(links(std::mem::take(&mut self.linked), setting));
        lines
    }
}

/// Counts one more; whether it is among the first `most`, which are shown.
fn is_within(count: &mut u32, most: u32) -> bool {
    *count += 1;
    *count <= most
}

/// The network that most links use with their number, the exceptions by name.
fn links(linked: Vec<Link>, setting: &Setting) -> Vec<String> {
    let mut networks: BTreeMap<IpAddr, Vec<Link>> = BTreeMap::new();
    for link in linked {
        networks.entry(network(link.address)).or_default().push(link);
    }
    let mut networks: Vec<_> = networks.into_iter().collect();
    networks.sort_by_key(|(_, links)| std::cmp::Reverse(links.len()));
    let mut lines = Vec::new();
    for (index, (network, links)) in networks.iter().take(NETWORKS_SHOWN).enumerate() {
        let mut agents: Vec<AgentId> = links.iter().map(|link| link.agent).collect();
        let who = match index {
            0 => count(agents.len() as u32, "agent"),
            _ => names(&mut agents, setting),
        };
        lines.push(format!("links: {who} over {}", way(*network, links)));
    }
    let more: usize = networks.iter().skip(NETWORKS_SHOWN).map(|(_, links)| links.len()).sum();
    if more > 0 {
        lines.push(format!("links: {} over other networks", count(more as u32, "agent")));
    }
    lines
}

/// `eth0 (10.77.0.0/24)`: what the links of a network have in common.
fn way(network: IpAddr, links: &[Link]) -> String {
    let alike = |same: fn(&Link, &Link) -> bool| links.windows(2).all(|pair| same(&pair[0], &pair[1]));
    let interface = links.first().and_then(|link| link.interface.as_deref());
    let interface = interface.filter(|_| alike(|a, b| a.interface == b.interface));
    let address = match links.first() {
        Some(link) if alike(|a, b| a.address == b.address) => link.address.to_string(),
        _ if network.is_ipv4() => format!("{network}/24"),
        _ => format!("{network}/64"),
    };
    match interface {
        Some(interface) => format!("{interface} ({address})"),
        None => address,
    }
}

fn names(agents: &mut [AgentId], setting: &Setting) -> String {
    agents.sort_unstable();
    collapse_short(agents.iter().map(|agent| setting.host(*agent)))
}

/// Parses the address and the interface from `10.0.0.1 (eth0)`.
fn place(text: &str) -> Option<(IpAddr, Option<String>)> {
    let (address, interface) = text.split_once(' ').unwrap_or((text, ""));
    let interface = interface.strip_prefix('(').and_then(|text| text.strip_suffix(')')).map(str::to_owned);
    Some((address.parse().ok()?, interface))
}

/// The network of an address; addresses in the same network are reported together.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) & !0xff).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(verbose: bool) -> Setting {
        let agents = (0..20).map(|index| format!("n{index}")).collect();
        Setting { agents, verbose, ..Setting::example() }
    }

    fn linked(agent: u32, address: &str) -> Note {
        Note::Linked { agent: AgentId(agent), parent: AgentId(0), address: address.into() }
    }

    fn sent(agent: u32) -> Note {
        Note::Sent { agent: AgentId(agent), to_second_cache: false }
    }

    #[test]
    fn links_are_summarized_by_interface() {
        let (mut notes, setting) = (Notes::default(), setting(true));
        for agent in 1..16 {
            let address = if agent < 9 { "10.77.0.1 (eth0)" } else { "10.77.0.2 (eth0)" };
            assert!(notes.lines(&linked(agent, address), &setting).is_empty());
        }
        notes.lines(&linked(17, "172.17.0.1 (docker0)"), &setting);
        notes.lines(&linked(16, "172.17.0.1 (docker0)"), &setting);
        notes.lines(&linked(18, "fd00::1"), &setting);
        assert_eq!(
            notes.summary(&setting),
            [
                "links: 15 agents over eth0 (10.77.0.0/24)", "links: n[16-17] over docker0 (172.17.0.1)",
                "links: n18 over fd00::1"
            ]
        );
        assert!(notes.summary(&setting).is_empty());
    }

    #[test]
    fn without_verbose_only_problems_are_reported() {
        let (mut notes, setting) = (Notes::default(), setting(false));
        notes.lines(&linked(1, "10.77.0.1 (eth0)"), &setting);
        assert!(notes.lines(&sent(1), &setting).is_empty());
        assert!(notes.summary(&setting).is_empty());
        let started = |agent| Note::StartedFor {
            agent: AgentId(agent),
            parent: AgentId(1),
            starter: AgentId(0),
            problem: "Permission denied".into(),
        };
        let expected = ["n5 was started by n0, because n1 could not start it: Permission denied"];
        assert_eq!(notes.lines(&started(5), &setting), expected);
        let told: usize = (6..11).map(|agent| notes.lines(&started(agent), &setting).len()).sum();
        assert_eq!(told, 2);
        assert_eq!(notes.summary(&setting), ["3 agents more were not started by their parents"]);
        let retry = Note::Retry { agent: AgentId(3), attempt: 1, problem: "Connection closed".into() };
        assert!(notes.lines(&retry, &setting)[0].starts_with("n3: its sshd is busy (Connection closed); retrying"));
        assert!(notes.lines(&retry, &setting).is_empty());
    }

    #[test]
    fn only_the_first_pairs_without_a_direct_link_are_reported() {
        let (mut notes, setting) = (Notes::default(), setting(false));
        let note = |agent| Note::Routed { agent: AgentId(agent), peer: AgentId(9), problem: "a: refused".into() };
        let told: Vec<String> = (0..9).flat_map(|agent| notes.lines(&note(agent), &setting)).collect();
        let line = |agent| format!("n{agent} and n9 have no direct link and communicate through the tree: a: refused");
        assert_eq!(told, [line(0), line(1), format!("{}; further pairs are not reported", line(2))]);
    }

    #[test]
    fn the_output_of_the_first_pmix_servers_is_shown() {
        let note = |node| Note::PmixSaid { host: format!("n{node}"), text: "one\n\ntwo\n".into() };
        let (mut notes, setting) = (Notes::default(), setting(false));
        let lines = ["node n1: its PMIx server said: one", "node n1: its PMIx server said: two"];
        assert_eq!([notes.lines(&note(1), &setting), notes.lines(&note(1), &setting)], [lines, lines]);
        let told: usize = (2..20).map(|node| notes.lines(&note(node), &setting).len()).sum();
        assert_eq!(told, 2 * (SAID_SHOWN - 1) + 1, "a limited number and one summary");
        assert_eq!(notes.lines(&note(2), &setting).len(), 2);
    }

    #[test]
    fn hosts_that_received_wireup_are_named() {
        let (mut notes, setting) = (Notes::default(), setting(true));
        for agent in [3, 1, 2] {
            notes.lines(&sent(agent), &setting);
        }
        assert_eq!(notes.summary(&setting), ["wireup was sent to n[1-3]"]);
    }

    #[test]
    fn one_line_says_that_a_home_directory_takes_no_program() {
        let (mut notes, setting) = (Notes::default(), setting(false));
        let note = |agent| Note::Sent { agent: AgentId(agent), to_second_cache: true };
        notes.lines(&sent(1), &setting);
        let lines = notes.lines(&note(2), &setting);
        assert!(lines[0].starts_with("n2: ~/.cache/wireup is read-only"), "{lines:?}");
        assert!(notes.lines(&note(3), &setting).is_empty());
    }
}

//! Hosts on which no agent started: all of them in one sentence, grouped by problem, with advice for each problem.

use super::Setting;
use crate::hosts::collapse_short;
use std::net::IpAddr;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem, ProblemKind, remedy};

/// Most problems that are shown; the rest is only counted.
const PROBLEMS_SHOWN: usize = 6;

/// Advice about a host whose key differs from the known one.
const KEY_CHANGED: &str = "its host key has changed; find out why (was it reinstalled? it could also be an attack), \
                           then run ssh-keygen -R {host} and log in once";

/// What `ssh` and similar programs print for a problem, in lower case, and the advice for it, in which `{host}` is the
/// first host with this problem and `{login}` a login there. The first row that fits decides: a message about a changed
/// key also says that the verification failed, and if `ssh` gives a reason, it follows the words of the last row. Where
/// the advice is empty, the problem's own text contains it.
#[rustfmt::skip]
const ADVICE: &[(&[&str], &str)] = &[
    (&["permission denied (", "permission denied,", "too many authentication failures"],
        "\"{login} true\" must work without a password: install a key there (ssh-copy-id) or load one into your ssh \
         agent (ssh-add)"),
    (&["identification has changed"], KEY_CHANGED),
    (&["host key verification failed", "no matching host key"],
        "log in once to check and accept its key, or add it: ssh-keyscan {host} >> ~/.ssh/known_hosts"),
    (&["could not resolve", "name or service not known", "name resolution", "unknown host"],
        "is the name correct? \"getent hosts {host}\" must find it"),
    (&["matches --interface"], ""),
    (&["connection refused"], "is sshd running there, on that port? Try \"{login} true\""),
    (&["no route to host", "network is unreachable", "timed out", "did not answer"],
        "is the node up? Try \"{login} true\"; --start-timeout gives it more time"),
    (&["exchange_identification", "banner exchange", "connection closed by", "connection reset by",
        "not allowed at this time"],
        "its sshd, or that of a jump host, refuses more logins at once; raise MaxStartups in its sshd_config"),
    (&["(finding the program)"],
        "the remote shell was not found on the calling host; install it, or choose another one with --remote-shell"),
    (&["it is a symbolic link"], ""),
    (&["no space left", "quota exceeded", "read-only file system", "mounted with noexec"],
        "free some space in ~/.cache there; if its file system is read-only or mounted with noexec, install wireup on \
         the host's PATH"),
    (&["did not start an agent", "did not connect to its parent"],
        "is the node up? Try \"{login} true\"; if {host} answers at once, check for a firewall between it and its \
         parent; --interface chooses another network"),
];

/// Agents with the same problem.
struct Group<'a> {
    /// The advice, as in [`ADVICE`].
    advice: &'static str,
    /// The text of the first agent's problem.
    problem: &'a str,
    /// The problem's text without host names and addresses, so that equal problems of several hosts are grouped.
    general: String,
    /// The host of each agent.
    hosts: Vec<&'a str>,
    agents: Vec<AgentId>,
}

pub fn sentence(missing: &[MissingAgent], setting: &Setting) -> String {
    let groups = groups(missing, setting);
    let mut told: Vec<String> = groups.iter().take(PROBLEMS_SHOWN).map(Group::shown).collect();
    let more: usize = groups.iter().skip(PROBLEMS_SHOWN).map(|group| group.hosts.len()).sum();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    let mut advised = Vec::new();
    for group in groups.iter().take(PROBLEMS_SHOWN) {
        if !advised.contains(&group.advice) {
            advised.push(group.advice);
            told.extend(group.cure(setting));
        }
    }
    let nodes = match setting.node_count {
        0 => super::count(missing.len() as u32, "node"),
        all => format!("{} of {}", missing.len(), super::count(all, "node")),
    };
    format!("no agent could be started on {nodes}: {}", told.join("; "))
}

/// Hosts with the same problem, and advice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Positions in the list of missing agents.
    pub agents: Vec<AgentId>,
    pub problem: String,
    pub cure: Option<String>,
}

/// A separate entry for each problem, instead of one sentence for all.
pub fn lines(missing: &[MissingAgent], setting: &Setting) -> Vec<Advice> {
    let told = |group: &Group| Advice {
        agents: group.agents.clone(),
        problem: group.problem_shown(),
        cure: group.cure(setting),
    };
    groups(missing, setting).iter().map(told).collect()
}

/// The missing agents grouped by problem, the largest group first.
fn groups<'a>(missing: &'a [MissingAgent], setting: &'a Setting) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut sorted: Vec<&MissingAgent> = missing.iter().collect();
    sorted.sort_by_key(|missing| missing.agent);
    for MissingAgent { agent, problem } in sorted {
        let host = setting.host(*agent);
        let advice = advice_for(problem, setting);
        let general = without_addresses(&replace_word(problem, bare(host), "HOST"));
        match groups.iter_mut().find(|group| (group.advice, &group.general) == (advice, &general)) {
            Some(group) => {
                group.hosts.push(host);
                group.agents.push(*agent);
            }
            None => groups.push(Group { advice, problem, general, hosts: vec![host], agents: vec![*agent] }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.hosts.len()));
    groups
}

impl Group<'_> {
    fn shown(&self) -> String {
        let mut hosts = self.hosts.clone();
        hosts.dedup();
        format!("{}: {}", collapse_short(hosts), self.problem_shown())
    }

    fn problem_shown(&self) -> String {
        let problem = if self.hosts.len() == 1 { self.problem } else { &self.general };
        problem.trim_end_matches(['.', '\r', '\n', ' ']).to_owned()
    }

    /// The advice for the first host.
    fn cure(&self, setting: &Setting) -> Option<String> {
        let host = self.hosts[0];
        let advice = self.advice.replace("{host}", bare(host));
        (!advice.is_empty()).then(|| advice.replace("{login}", &format!("{} {host}", setting.shell)))
    }
}

/// Replaces `word` where it is a word of its own: host `c` does not match inside `code`.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let joins = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let last = before.chars().next_back().or(replaced.chars().next_back());
        let alone = !last.is_some_and(joins) && !after.starts_with(joins);
        replaced.push_str(before);
        replaced.push_str(if alone { by } else { word });
        rest = after;
    }
    replaced + rest
}

/// The text with `ADDRESS` instead of each IP address. An address with the length of its network's prefix is kept: it
/// tells the user which networks a host has.
fn without_addresses(text: &str) -> String {
    let is_around = |letter: char| !letter.is_ascii_hexdigit();
    let part = |word: &str| {
        let address = word.trim_matches(is_around);
        if address.parse::<IpAddr>().is_ok() { word.replace(address, "ADDRESS") } else { word.to_owned() }
    };
    text.split(' ').map(part).collect::<Vec<_>>().join(" ")
}

/// A host without the user name, as ssh's messages name it.
fn bare(host: &str) -> &str {
    host.rsplit_once('@').map_or(host, |(_, host)| host)
}

/// The advice for a problem, as in [`ADVICE`].
fn advice_for(problem: &Problem, setting: &Setting) -> &'static str {
    match problem.kind {
        ProblemKind::Advised => "",
        ProblemKind::NothingStarted => {
            "\"{login} echo ok\" must print ok: does a start-up file of the login shell there (~/.bashrc) call exit or \
             exec?"
        }
        ProblemKind::Killed | ProblemKind::TaskKilled => "killed by someone or out of memory: check dmesg on the node",
        ProblemKind::System(errno) if remedy(errno).is_some() => remedy(errno).unwrap_or_default(),
        ProblemKind::System(_)
        | ProblemKind::Silent
        | ProblemKind::StepCancelled
        | ProblemKind::NotInstalled
        | ProblemKind::Other => match setting.local {
            true => "run wireup doctor to check this machine",
            false => advice_for_text(problem),
        },
    }
}

/// The advice for what `ssh` or a similar program has printed.
fn advice_for_text(problem: &str) -> &'static str {
    let problem = problem.to_ascii_lowercase();
    let says = |text: &&str| problem.contains(text);
    let is_changed_key = |advice| advice == KEY_CHANGED && says(&"host key for") && says(&"has changed");
    let found = ADVICE.iter().find(|(texts, advice)| texts.iter().any(says) || is_changed_key(*advice));
    found.map_or("try \"{login} true\"", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_replaced_only_as_whole_words() {
        assert_eq!(replace_word("c: code of c", "c", "HOST"), "HOST: code of HOST");
        assert_eq!(replace_word("n1 and n10, n1", "n1", "HOST"), "HOST and n10, HOST");
        assert_eq!(replace_word("aa", "a", "HOST"), "aa");
    }

    #[test]
    fn addresses_are_replaced_but_for_those_of_networks() {
        let text = "it has eth0 10.77.0.1/16, not 10.77.0.2";
        assert_eq!(without_addresses(text), "it has eth0 10.77.0.1/16, not ADDRESS");
    }

    fn setting() -> Setting {
        let agents = ["head", "n1", "n2", "n3", "n4", "root@n5"].map(str::to_owned).to_vec();
        Setting { node_count: 5, agents, local: false, shell: "ssh".into(), ..Setting::example() }
    }

    fn said(missing: &[(u32, &str)]) -> String {
        let agent = |&(agent, problem): &(u32, &str)| MissingAgent { agent: AgentId(agent), problem: problem.into() };
        sentence(&missing.iter().map(agent).collect::<Vec<_>>(), &setting())
    }

    #[test]
    fn hosts_with_the_same_problem_are_named_together() {
        let refused = |host: &str| format!("ssh: connect to host {host} port 22: Connection refused");
        assert_eq!(
            said(&[
                (3, &refused("n3")),
                (1, &refused("n1")),
                (2, &refused("n2")),
                (4, "it did not answer within 60 s")
            ]),
            "no agent could be started on 4 of 5 nodes: n[1-3]: ssh: connect to host HOST port 22: Connection refused; \
             n4: it did not \
             answer within 60 s; is sshd running there, on that port? Try \"ssh n1 true\"; is the node up? Try \"ssh \
             n4 true\"; --start-timeout gives it more time"
        );
        let expected = "no agent could be started on 2 of 5 nodes: n[1-2]: odd HOST; try \"ssh n1 true\"";
        assert_eq!(said(&[(1, "odd n1"), (2, "odd n2")]), expected);
    }

    #[test]
    fn each_host_has_its_own_cause() {
        let said = said(&[
            (1, "cannot write /a: No space left on device"),
            (2, "cannot write /b: Read-only file system"),
            (3, "Connection closed by 10.0.0.3 port 22"),
            (4, "Connection closed by 10.0.0.4 port 22"),
        ]);
        for words in
            ["n1: cannot write /a: No", "n2: cannot write /b: Read", "n[3-4]: Connection closed by ADDRESS port 22"]
        {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(said.matches("free some space").count(), 1, "{said}");
    }

    #[test]
    fn advice_fits_the_problem() {
        for (problem, advice) in [
            ("root@n5: Permission denied (publickey,password).", "\"ssh root@n5 true\" must work without a password"),
            ("Host key verification failed.", "ssh-keyscan n5 >> ~/.ssh/known_hosts"),
            ("ssh: Could not resolve hostname n5: Name or service not known", "\"getent hosts n5\" must find it"),
            ("ssh: connect to host n5 port 22: No route to host", "is the node up?"),
            (
                "its agent did not connect to its parent within 60 s",
                "is the node up? Try \"ssh root@n5 true\"; if n5 answers at once",
            ),
            ("its remote shell did not start an agent within 60 s", "--interface chooses another network"),
            (
                "its remote shell did not start an agent within 60 s: root@n5: Permission denied (publickey).",
                "must work without a password",
            ),
            ("kex_exchange_identification: Connection closed by remote host", "raise MaxStartups"),
            ("cannot write: No space left on device", "free some space"),
            ("ssh (finding the program)", "choose another one with --remote-shell"),
            ("something else", "try \"ssh root@n5 true\""),
        ] {
            let said = said(&[(5, problem)]);
            assert!(
                said.starts_with("no agent could be started on 1 of 5 nodes: root@n5: ") && said.contains(advice),
                "{said}"
            );
        }
        let of_kind = |kind: ProblemKind, words: &str, local| {
            let missing = [MissingAgent { agent: AgentId(5), problem: kind.with(words) }];
            sentence(&missing, &Setting { local, ..setting() })
        };
        let told = "it is an s390x machine without wireup; install wireup for s390x there";
        let head = "no agent could be started on 1 of 5 nodes: root@n5: ";
        assert_eq!(of_kind(ProblemKind::Advised, told, false), format!("{head}{told}"));
        for (kind, advice) in [
            (ProblemKind::NothingStarted, "; \"ssh root@n5 echo ok\" must print ok: does a start-up file"),
            (ProblemKind::Killed, "; killed by someone or out of memory: check dmesg"),
            (ProblemKind::System(24), "; raise its limit of open files (ulimit -n)"),
        ] {
            for local in [false, true] {
                let said = of_kind(kind, "words", local);
                assert!(said.contains(&format!("root@n5: words{advice}")), "{said}");
            }
        }
        assert!(of_kind(ProblemKind::Other, "words", true).ends_with("; run wireup doctor to check this machine"));
    }

    #[test]
    fn accepting_a_changed_host_key_is_never_advised() {
        for changed in [
            "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! Host key verification failed.",
            "Host key for n5 has changed and you have requested strict checking.; Host key verification failed.",
            "Host key for n5 has changed.; Host key verification failed.",
        ] {
            let said = said(&[(5, changed)]);
            assert!(said.contains("find out why") && said.contains("ssh-keygen -R n5"), "{said}");
            assert!(!said.contains("keyscan"), "{said}");
        }
    }

    #[test]
    fn problems_beyond_the_first_six_are_counted() {
        let problems: Vec<String> = (0..9).map(|index| format!("odd thing {index}")).collect();
        let missing: Vec<(u32, &str)> = problems.iter().map(|problem| (1, problem.as_str())).collect();
        assert!(said(&missing).contains("odd thing 5; and 3 more; try"), "{}", said(&missing));
    }
}

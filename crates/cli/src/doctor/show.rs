//! The report on hosts: a line for each that answered, the findings with their cures, a summary.

use super::finding::{Finding, Level, OK, row};
use super::judge::{self, Case, Setting};
use crate::hosts::collapse_short;
use crate::words::{self, count, missing_lines};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use wireup_node::doctor::Facts;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::MissingAgent;

/// Up to this many hosts get a line each; more are grouped if their lines are equal.
const LINES_MAX: usize = 32;

/// Hosts with what was found on each.
pub struct Report<'a> {
    cases: &'a [Case<'a>],
    groups: Vec<Group>,
    problems: BTreeSet<usize>,
    remarks: BTreeSet<usize>,
}

impl<'a> Report<'a> {
    pub fn new(cases: &'a [Case<'a>], local: &Facts, setting: &Setting) -> Report<'a> {
        let mut findings = judge::findings(cases, local, setting);
        findings.extend(unreached(cases, setting));
        let having = |level| -> BTreeSet<usize> {
            findings.iter().filter(|(_, finding)| finding.level == level).map(|(host, _)| *host).collect()
        };
        let (problems, mut remarks) = (having(Level::Problem), having(Level::Remark));
        remarks.retain(|host| !problems.contains(host));
        Report { cases, groups: group(findings), problems, remarks }
    }

    pub fn has_problem(&self) -> bool {
        !self.problems.is_empty()
    }

    fn verdict(&self, host: usize) -> &'static str {
        match () {
            () if self.problems.contains(&host) => Level::Problem.word(),
            () if self.remarks.contains(&host) => Level::Remark.word(),
            () => OK,
        }
    }

    fn names(&self) -> Vec<&str> {
        self.cases.iter().map(|case| case.host).collect()
    }

    pub fn text(&self) -> String {
        let mut text = host_lines(self.cases, &|host| self.verdict(host));
        if !self.groups.is_empty() && !text.is_empty() {
            text.push('\n');
        }
        let names = self.names();
        for group in &self.groups {
            text.push_str(&group.lines(&names));
        }
        if !self.groups.is_empty() {
            text.push('\n');
        }
        text + &sum(self.cases.len(), self.problems.len(), self.remarks.len())
    }

    /// An object for each host that answered, then one for each finding.
    pub fn json(&self) -> Vec<Value> {
        let host = |(index, case): (usize, &Case)| {
            let said = words::one_line(&line(case, case.facts?, false));
            Some(row(&[case.host], "host", self.verdict(index), &said, None))
        };
        let hosts = self.cases.iter().enumerate().filter_map(host);
        let names = self.names();
        hosts.chain(self.groups.iter().map(|group| group.json(&names))).collect()
    }
}

fn sum(hosts: usize, problems: usize, remarks: usize) -> String {
    let mut text = format!("{}: {} ok", count(hosts as u32, "host"), hosts - problems - remarks);
    for (number, what) in [(remarks, "with remarks"), (problems, "with problems")] {
        if number > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {number} {what}");
        }
    }
    text.push('\n');
    text
}

/// One line for each host that answered.
fn host_lines(cases: &[Case], verdict: &dyn Fn(usize) -> &'static str) -> String {
    // With many hosts, equal lines are joined.
    let mut lines: Vec<(Vec<&str>, &str, String)> = Vec::new();
    let many = cases.len() > LINES_MAX;
    for (index, case) in cases.iter().enumerate() {
        let Some(facts) = case.facts else { continue };
        let (verdict, said) = (verdict(index), words::one_line(&line(case, facts, many)));
        match lines.iter_mut().find(|line| many && (line.1, &line.2) == (verdict, &said)) {
            Some((hosts, _, _)) => hosts.push(case.host),
            None => lines.push((vec![case.host], verdict, said)),
        }
    }
    let lines: Vec<(String, &str, String)> =
        lines.into_iter().map(|(hosts, verdict, said)| (collapse_short(hosts), verdict, said)).collect();
    let width = lines.iter().map(|(hosts, _, _)| hosts.len()).max().unwrap_or(0);
    lines.iter().map(|(hosts, verdict, said)| format!("{hosts:<width$}  {verdict}  {said}\n")).collect()
}

/// The line about one host. With `many` hosts, details that differ on every host are left out.
fn line(case: &Case, facts: &Facts, many: bool) -> String {
    let mut text = format!("{} {}, wireup {}, {}", facts.arch, facts.kernel, facts.version, count(facts.cpus, "cpu"));
    if let Some(address) = facts.offered.iter().flatten().next() {
        // Writing to a string cannot fail.
        let _ = match many {
            true => write!(text, ", {}", address.interface),
            false => write!(text, ", {} {}", address.interface, address.ip),
        };
    }
    match case.seen {
        None => text.push_str(", this machine"),
        Some(seen) => {
            if let (Some(back), false) = (&seen.back, many) {
                let _ = write!(text, ", {:.1} ms back", back.took_ns as f64 / 1e6);
            }
        }
    }
    text
}

/// Hosts that did not answer, reported as a run reports them.
fn unreached(cases: &[Case], setting: &Setting) -> Vec<(usize, Finding)> {
    let missing: Vec<MissingAgent> = cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| {
            let problem = judge::unreached(case)?;
            let problem = problem.kind.with(words::one_line(problem.trim()));
            Some(MissingAgent { agent: AgentId(index as u32), problem })
        })
        .collect();
    let setting = words::Setting {
        node_count: cases.len() as u32,
        shell: setting.shell.clone(),
        agents: cases.iter().map(|case| case.host.to_owned()).collect(),
        ..words::Setting::default()
    };
    let told = missing_lines(&missing, &setting).into_iter().flat_map(|told| {
        let finding = Finding { cure: told.cure, ..Finding::problem(told.problem, "") };
        told.agents.into_iter().map(move |agent| (agent.index(), finding.clone()))
    });
    told.collect()
}

/// A finding and the hosts that have it.
struct Group {
    finding: Finding,
    hosts: Vec<usize>,
}

/// Groups equal findings: problems first, then in the order in which they were found.
fn group(findings: Vec<(usize, Finding)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (host, finding) in findings {
        let alike = |group: &&mut Group| {
            (group.finding.level, &group.finding.text, &group.finding.cure)
                == (finding.level, &finding.text, &finding.cure)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => {
                if group.finding.single != finding.single {
                    group.finding.single = None;
                }
                group.hosts.push(host);
            }
            None => groups.push(Group { finding, hosts: vec![host] }),
        }
    }
    groups.sort_by_key(|group| group.finding.level);
    groups
}

impl Group {
    /// The finding as a JSON object.
    fn json(&self, names: &[&str]) -> Value {
        let hosts: Vec<&str> = self.hosts.iter().map(|&host| names[host]).collect();
        row(&hosts, "finding", self.finding.level.word(), &self.text(), self.finding.cure.as_deref())
    }

    /// The text on one line, since parts of it come from the host.
    fn text(&self) -> String {
        words::one_line(self.finding.single.as_ref().unwrap_or(&self.finding.text))
    }

    /// The finding's line, followed by the line with its cure.
    fn lines(&self, names: &[&str]) -> String {
        let hosts = collapse_short(self.hosts.iter().map(|&host| names[host]));
        let cure = self.finding.cure.iter().map(|cure| format!("         fix: {}\n", words::one_line(cure)));
        format!("{}  {hosts}: {}\n{}", self.finding.level.word(), self.text(), cure.collect::<String>())
    }
}

#[cfg(test)]
pub mod tests;

//! Hosts with the same finding are reported together.

use super::finding::{Finding, row};
use crate::hosts::collapse_short;
use crate::words::one_line;
use serde_json::Value;

/// A finding and the hosts that have it.
pub struct Group {
    pub finding: Finding,
    pub hosts: Vec<usize>,
}

/// Groups equal findings: problems first, then in the order in which they were found.
pub fn group(findings: Vec<(usize, Finding)>) -> Vec<Group> {
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
    pub fn json(&self, names: &[&str]) -> Value {
        let hosts: Vec<&str> = self.hosts.iter().map(|&host| names[host]).collect();
        row(&hosts, "finding", self.finding.level.word(), &self.text(), self.finding.cure.as_deref())
    }

    /// The text on one line, since parts of it come from the host.
    fn text(&self) -> String {
        one_line(self.finding.single.as_ref().unwrap_or(&self.finding.text))
    }

    /// The finding's line, followed by the line with its cure.
    pub fn lines(&self, names: &[&str]) -> String {
        let hosts = collapse_short(self.hosts.iter().map(|&host| names[host]));
        let cure = self.finding.cure.iter().map(|cure| format!("         fix: {}\n", one_line(cure)));
        format!("{}  {hosts}: {}\n{}", self.finding.level.word(), self.text(), cure.collect::<String>())
    }
}

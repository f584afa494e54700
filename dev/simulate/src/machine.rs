//! Machine files: how long work takes on the nodes, in the network and at the file server of a machine.
//!
//! A file is TOML. `costs` has the fields of [`Costs`], and `shared` those of [`Shared`]; times are nanoseconds. Each
//! number should have a comment that says where it comes from.

use serde::{Deserialize, Serialize};
use std::path::Path;
use wireup_sim::costs::{Costs, Shared};
use wireup_sim::spec::{Delay, Timing};

/// The machine files that the program contains.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("here", include_str!("../machines/here.toml")),
    ("s4", include_str!("../machines/s4.toml")),
    ("s2", include_str!("../machines/s2.toml")),
    ("frontier-like", include_str!("../machines/frontier-like.toml")),
    ("aurora", include_str!("../machines/aurora.toml")),
];

/// Longest time that a file may state (ns): sums of many of them still fit into 64 bits.
const NS_MAX: i64 = 3_600_000_000_000;
/// Largest allowed value of a key that is not a time.
const NUMBER_MAX: i64 = u32::MAX as i64;
/// Keys whose values must be greater than zero.
const POSITIVE: [&str; 3] = ["cores", "hosts", "link_bytes_per_us"];

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Time from the exec of the launcher until it starts agents (ns).
    pub launcher_ns: u64,
    pub costs: Costs,
    /// Nodes that share a machine; without this section each node is a machine of its own.
    #[serde(default)]
    pub shared: Shared,
    pub network: Network,
    pub delays: Delays,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// One-way latency between two nodes, least and most (ns).
    pub latency_ns: Span,
    /// Bandwidth of a link between two nodes (bytes per µs).
    pub link_bytes_per_us: u64,
}

/// Delays that occupy no processor, least and most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delays {
    /// Time from the start of a remote shell or of a batch system's step until the agent's program begins.
    pub shell_ns: Span,
    /// Time to make a link between agents or a connection between ranks on two nodes, without the processor time
    /// (`costs`).
    pub handshake_ns: Span,
    /// Time from the fork of a rank until its program begins, without the processor time (`costs`): the skew of ranks.
    pub spawn_ns: Span,
    /// Delay between an event at a keeper and its agent's receipt of the report.
    pub report_ns: Span,
    /// One-way delay between two processes of a node: a rank and its agent, or two ranks.
    pub client_ns: Span,
}

/// Least and greatest value of a time (ns), written `[least, most]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "[u64; 2]", into = "[u64; 2]")]
pub struct Span(Delay);

impl TryFrom<[u64; 2]> for Span {
    type Error = String;

    fn try_from([least, most]: [u64; 2]) -> Result<Span, String> {
        if least <= most {
            Ok(Span(Delay::between(least, most)))
        } else {
            Err(format!("[{least}, {most}]: the first is the least, the second the most time"))
        }
    }
}

impl From<Span> for [u64; 2] {
    fn from(Span(delay): Span) -> Self {
        [delay.delay_ns_min, delay.delay_ns_max]
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("machine file {path}: {error}; the machines that need no file are {}", built_in_names())]
    Unreadable { path: String, error: std::io::Error },
    #[error("machine file {path}, line {line}: {problem}")]
    Wrong { path: String, line: usize, problem: String },
}

/// The machine that `name` means, and the reason: `local`, `ssh` and `srun` mean the user's machine file for agents
/// that are started in that way, or else a built-in machine.
pub fn meant(name: &str) -> (String, &'static str) {
    let fallback = match name {
        "local" => "here",
        "ssh" | "srun" => "frontier-like",
        _ => return (name.to_owned(), "as --machine says"),
    };
    let folder = wireup_node::user_folder("XDG_CONFIG_HOME", ".config");
    let file = folder.map(|folder| folder.join(format!("wireup/machine-{name}.toml")));
    match file.filter(|path| path.is_file()) {
        Some(path) => (path.display().to_string(), "the machine file of this user"),
        None => (fallback.to_owned(), "built in, not measured here; see wireup help simulate"),
    }
}

pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(built_in, _)| *built_in == name)
}

pub fn built_in_names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

impl Machine {
    /// The built-in machine of this name, or else the file of this name.
    ///
    /// # Errors
    /// There is no such file, or something in it is wrong.
    pub fn load(name: &str) -> Result<Machine, MachineError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Machine::parse(name, text);
        }
        let unreadable = |error| MachineError::Unreadable { path: name.to_owned(), error };
        Machine::parse(name, &std::fs::read_to_string(Path::new(name)).map_err(unreadable)?)
    }

    /// This machine with one constant multiplied.
    ///
    /// # Panics
    /// `constant` is not one of [`Machine::constants`], or the product is no valid number.
    pub fn scaled(&self, constant: &str, factor: f64) -> Machine {
        let mut table = self.table();
        let mut at = &mut table;
        let mut path = constant.split('.').peekable();
        while let Some(key) = path.next() {
            let value = &mut at[key];
            if path.peek().is_some() {
                at = value.as_table_mut().expect("a section");
                continue;
            }
            // A constant that is at least 1 is not scaled below 1.
            let least = |number: i64| number.min(1) as f64;
            let scale = |number: i64| toml::Value::Integer((number as f64 * factor).max(least(number)) as i64);
            *value = match value.as_array() {
                Some(span) => span.iter().filter_map(toml::Value::as_integer).map(scale).collect::<Vec<_>>().into(),
                None => scale(value.as_integer().expect("a number")),
            };
            break;
        }
        table.try_into().expect("a machine")
    }

    /// The names of all times and rates that are not zero, `section.key`.
    pub fn constants(&self) -> Vec<String> {
        let table = self.table();
        let mut all = Vec::new();
        for (key, value) in &table {
            let section =
                value.as_table().map(|section| section.iter().map(|(inner, value)| (format!("{key}.{inner}"), value)));
            match section {
                Some(section) => all.extend(section),
                None => all.push((key.clone(), value)),
            }
        }
        let is_zero = |value: &toml::Value| *value == toml::Value::from(vec![0, 0]) || value.as_integer() == Some(0);
        let counts = |key: &str| !key.contains("_ns") && !key.contains("_us");
        all.into_iter().filter(|(key, value)| !is_zero(value) && !counts(key)).map(|(key, _)| key).collect()
    }

    /// The machine as a table in the form of its file.
    pub fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("a machine is a table")
    }

    fn parse(path: &str, text: &str) -> Result<Machine, MachineError> {
        let wrong = |line: usize, problem: String| MachineError::Wrong { path: path.to_owned(), line, problem };
        let of_toml = |error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            // If a key is missing, the parser's line is not the line of the error, but the message contains the name of
            // the key.
            wrong(text[..at].matches('\n').count() + 1, error.message().replace('\n', ", "))
        };
        let table: toml::Table = text.parse().map_err(of_toml)?;
        if let Some((key, problem)) = out_of_range(&table) {
            return Err(wrong(line_of(text, key), format!("{key}: {problem}")));
        }
        toml::from_str(text).map_err(of_toml)
    }

    /// The durations in a world on this machine, without split frames and other unusual behaviour.
    pub fn timing(&self) -> Timing {
        let none = Delay::between(0, 0);
        Timing {
            link: self.network.latency_ns.0,
            link_bytes_per_us: self.network.link_bytes_per_us,
            cut_permille: 0,
            batch_permille: 0,
            agent_start: self.delays.shell_ns.0,
            handshake: self.delays.handshake_ns.0,
            spawn: self.delays.spawn_ns.0,
            report: self.delays.report_ns.0,
            client: self.delays.client_ns.0,
            think: none,
            stdio: none,
            terminal: none,
            costs: Some(Costs { shared: self.shared, ..self.costs }),
        }
    }
}

/// The first key whose number is out of range, and the problem with it.
fn out_of_range(table: &toml::Table) -> Option<(&str, String)> {
    table.iter().find_map(|(key, value)| {
        let numbers = match value {
            toml::Value::Table(inner) => return out_of_range(inner),
            toml::Value::Integer(number) => vec![*number],
            toml::Value::Array(all) => all.iter().filter_map(toml::Value::as_integer).collect(),
            _ => Vec::new(),
        };
        let least = i64::from(POSITIVE.contains(&key.as_str()));
        let most = if key.ends_with("_ns") { NS_MAX } else { NUMBER_MAX };
        let bad = numbers.into_iter().find(|number| !(least..=most).contains(number))?;
        Some((key.as_str(), format!("{bad} is not a whole number from {least} to {most}")))
    })
}

fn line_of(text: &str, key: &str) -> usize {
    let has_key =
        |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    text.lines().position(has_key).map_or(1, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of the built-in machine file `here` after `from` is replaced by `to` in its text.
    fn problem(from: &str, to: &str) -> String {
        let text = BUILT_IN[0].1;
        assert!(text.contains(from), "{from}");
        Machine::parse("m.toml", &text.replacen(from, to, 1)).expect_err(to).to_string()
    }

    fn line(of: &str) -> usize {
        BUILT_IN[0].1.lines().position(|line| line.starts_with(of)).expect(of) + 1
    }

    #[test]
    fn built_in_machines_are_valid() {
        for (name, _) in BUILT_IN {
            Machine::load(name).expect(name);
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_file_line_and_key() {
        for (key, to) in [("cores = ", "cores = 0 #"), ("shell_ns = ", "shell_ns = 9000000000000 #")] {
            let message = problem(key, to);
            let key = key.trim_end_matches(" = ");
            assert!(message.starts_with(&format!("machine file m.toml, line {}: {key}: ", line(key))), "{message}");
        }
        for (from, to, expected) in [
            ("cores = ", "corse = ", "unknown field `corse`"),
            ("cores = ", "cores = \"two\" #", "invalid type"),
            ("cores = ", "cores = -1 #", "-1 is not a whole number"),
            ("cores = ", "cores = ] #", ""),
        ] {
            let message = problem(from, to);
            let head = format!("machine file m.toml, line {}: ", line("cores"));
            assert!(message.starts_with(&head) && message.contains(expected), "{message}");
        }
        let reversed = problem("latency_ns = ", "latency_ns = [9, 8] #");
        assert!(reversed.contains(&format!("line {}: [9, 8]", line("latency_ns"))), "{reversed}");
        assert!(problem("cores = ", "# cores = ").contains("missing field `cores`"));
    }

    #[test]
    fn each_constant_can_be_scaled_alone() {
        let machine = Machine::load("s2").expect("it is built in");
        let constants = machine.constants();
        for name in ["launcher_ns", "costs.exec_ns", "network.link_bytes_per_us", "costs.load_ns"] {
            assert!(constants.iter().any(|constant| constant == name), "{name}: {constants:?}");
        }
        assert!(!constants.contains(&"costs.cores".to_owned()) && !constants.contains(&"delays.shell_ns".to_owned()));
        for constant in &constants {
            let doubled = machine.scaled(constant, 2.0);
            assert_ne!(doubled, machine, "{constant}");
            assert_eq!(doubled.scaled(constant, 0.5), machine, "{constant}");
        }
    }

    #[test]
    fn a_missing_file_is_named_with_the_machines_that_exist() {
        let message = Machine::load("no-such.toml").expect_err("no file").to_string();
        assert!(message.starts_with("machine file no-such.toml: ") && message.ends_with("aurora"), "{message}");
    }
}

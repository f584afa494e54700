//! `wireup stage`: staged files that stay on the nodes of a session.

use super::{Nodes, Outcome, Plan, bytes, listing, send, travel};
use crate::flags::parsed::{self, Parsed};
use crate::flags::session_nodes::SessionNodes;
use crate::flags::table as flag;
use crate::session::{SESSION, attach_to, name_of, session_nodes};
use crate::surroundings::Surroundings;
use crate::words::since;
use crate::{environment, json_output, out};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_flags::{Command, Flag, Line, Section, Words};

pub const COMMAND: Command = Command {
    name: "stage",
    purpose: "keep files on the nodes of a session for jobs with --stage; list or drop them",
    intro: "
  wireup stage up ./env ./app           copies both, and the libraries that programs need, to every node
  wireup run --stage --stage-also ./env ./app    sends only what has changed since
  wireup stage list
  wireup stage drop                     drops all that no job uses; or name sets, as shown by list

Files are stored by content: only new and changed files are sent. They outlive the session; they are removed when they
are dropped, or when space is needed (--stage-room) and they are the least recently used.
",
    words: Words::Named(&["up|list|drop", "[PATH or SET]..."]),
    sections: &[Section { title: "Flags", flags: &[SESSION, STAGE, STAGE_ROOM, DRY_RUN, JSON] }],
    end: "",
};

const STAGE: Flag =
    Flag { help: "=DIR keeps the copies there (default: in the node's memory, /dev/shm).", ..flag::STAGE };
const JSON: Flag = Flag {
    help: "With list: print JSON instead of text; =FILE writes it to FILE, and prints the text.",
    ..wireup_flags::JSON
};
const STAGE_ROOM: Flag = Flag { is_advanced: false, ..flag::STAGE_ROOM };
const DRY_RUN: Flag = Flag { help: "List the files that up would stage, and send nothing.", ..flag::DRY_RUN };

pub fn run(line: &Line) -> Result<u8, String> {
    let what = line.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let rest = &line.words[1..];
    let stage = Parsed::read(line)?.stage.unwrap_or_default();
    let parsed = Parsed { session: Some(name_of(line)?), ..Parsed::default() };
    let surroundings = Surroundings::read(|_| false).map_err(|error| error.to_string())?;
    match &*what {
        "up" if rest.is_empty() => Err("wireup stage up: name the files and folders to stage".into()),
        "up" if stage.auto || stage.prefetch => {
            Err("wireup stage up: --stage=auto and --stage=prefetch are for wireup run; leave them out".into())
        }
        "up" => {
            let stage = parsed::Stage { also: rest.iter().map(PathBuf::from).collect(), ..stage };
            let inherited = environment::inherited(&surroundings.env, environment::Reached::ThisMachine);
            let env = environment::job_env(&inherited, &parsed::EnvList::All, &[]);
            let plan = Plan::of_paths(&stage, &env)?;
            if line.has(flag::DRY_RUN) {
                out::print(&listing(&plan));
                return Ok(0);
            }
            let stage = parsed::Stage { required: true, ..stage };
            plan.tell_refused(&stage, true)?;
            let found = nodes(&parsed, &surroundings)?;
            let nodes = Nodes { session: &found.session, nodes: &found.nodes };
            match send(&stage, &plan, &nodes, None, true)? {
                Outcome::Done(_) => Ok(0),
                Outcome::Interrupted(code) => Ok(code),
            }
        }
        "list" if rest.is_empty() => {
            let found = nodes(&parsed, &surroundings)?;
            let argv = [b"list".to_vec(), stage.store()];
            let told = travel::ask(&found.session, &found.nodes, &argv)?;
            let staged = Staged::of(&told);
            json_output::print(line, || staged.json(), || staged.table())?;
            Ok(0)
        }
        "list" => Err("wireup stage list takes no arguments".into()),
        "drop" => {
            let found = nodes(&parsed, &surroundings)?;
            let mut argv = vec![b"drop".to_vec(), stage.store()];
            argv.extend(rest.iter().map(|set| set.as_bytes().to_vec()));
            let told = travel::ask(&found.session, &found.nodes, &argv)?;
            dropped(&told, !rest.is_empty())
        }
        _ => Err(format!("wireup stage {what}: use up, list or drop; see wireup help stage")),
    }
}

fn nodes(parsed: &Parsed, surroundings: &Surroundings) -> Result<SessionNodes, String> {
    let session = attach_to(parsed.session.as_deref().unwrap_or_default())?;
    session_nodes(parsed, surroundings, &session)?
}

/// A set, and the nodes that have it.
#[derive(Default)]
struct Row {
    nodes: u32,
    used: u32,
    bytes: u64,
    files: u64,
    age_s: u64,
    of: String,
}

/// The sets on all nodes of a session; numbers of bytes and files are those of one node.
struct Staged<'a> {
    rows: BTreeMap<&'a str, Row>,
    problems: Vec<&'a str>,
}

impl<'a> Staged<'a> {
    fn of(told: &'a BTreeMap<u32, Vec<String>>) -> Staged<'a> {
        let mut staged = Staged { rows: BTreeMap::new(), problems: Vec::new() };
        for line in told.values().flatten() {
            let mut words = line.splitn(7, ' ');
            let mut next = || words.next().unwrap_or_default();
            match next() {
                "set" => {
                    let row = staged.rows.entry(next()).or_default();
                    let mut number = || next().parse().unwrap_or_default();
                    (row.bytes, row.files, row.age_s) = (number(), number(), number());
                    row.nodes += 1;
                    row.used += u32::from(next() == "used");
                    next().clone_into(&mut row.of);
                }
                "failed" => staged.problems.push(line.strip_prefix("failed ").unwrap_or_default()),
                _ => {}
            }
        }
        staged
    }

    fn table(&self) -> String {
        if self.rows.is_empty() && self.problems.is_empty() {
            return "nothing is staged\n".into();
        }
        let mut text = String::new();
        if !self.rows.is_empty() {
            text += &format!("{:14}{:>6}{:>8}{:>12}  {:10}files\n", "set", "nodes", "files", "size", "last used");
        }
        for (name, row) in &self.rows {
            let name = name.get(..12).unwrap_or(name);
            let age = if row.used > 0 { "in use".to_owned() } else { since(row.age_s) };
            text += &format!("{name:14}{:>6}{:>8}{:>12}  {age:10}{}\n", row.nodes, row.files, bytes(row.bytes), row.of);
        }
        text + &self.problems.iter().map(|problem| format!("{problem}\n")).collect::<String>()
    }

    fn json(&self) -> Result<Value, String> {
        if let Some(problem) = self.problems.first() {
            return Err((*problem).to_owned());
        }
        let row = |(name, row): (&&str, &Row)| {
            serde_json::json!({
                "set": name, "nodes": row.nodes, "nodes_in_use": row.used, "files": row.files, "bytes": row.bytes,
                "idle_seconds": row.age_s, "of": row.of,
            })
        };
        Ok(self.rows.iter().map(row).collect())
    }
}

fn dropped(told: &BTreeMap<u32, Vec<String>>, is_named: bool) -> Result<u8, String> {
    let mut sets: BTreeMap<&str, u32> = BTreeMap::new();
    let mut problem = None;
    for line in told.values().flatten() {
        match line.split_once(' ') {
            Some(("dropped", name)) => *sets.entry(name).or_default() += 1,
            Some(("busy", name)) => {
                problem = Some(format!("set {} is in use by a job", name.get(..12).unwrap_or(name)))
            }
            Some(("failed", why)) => problem = Some(why.to_owned()),
            _ => {}
        }
    }
    for (name, nodes) in &sets {
        let node = if *nodes == 1 { "node" } else { "nodes" };
        out::tell(&format!("dropped {} on {nodes} {node}", name.get(..12).unwrap_or(name)));
    }
    match problem {
        Some(problem) => Err(problem),
        None if sets.is_empty() && is_named => Err("no such set; wireup stage list shows them".into()),
        None if sets.is_empty() => {
            out::tell("nothing is staged");
            Ok(0)
        }
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_several_nodes_are_one_row() {
        let told = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let one = "set 0123456789abcdef 20971520 3 70 idle /a b /c";
        let all = BTreeMap::from([(0, told(&[one])), (1, told(&[one, "failed no room"]))]);
        assert_eq!(
            Staged::of(&all).table(),
            "set            nodes   files        size  last used files\n\
             0123456789ab       2       3      20 MiB  1 min     /a b /c\nno room\n"
        );
        assert_eq!(Staged::of(&all).json(), Err("no room".to_owned()));
        assert_eq!(Staged::of(&BTreeMap::new()).table(), "nothing is staged\n");
        let whole = BTreeMap::from([(0, told(&[one]))]);
        let row = r#"[{"bytes":20971520,"files":3,"idle_seconds":70,"nodes":1,"nodes_in_use":0,"of":"/a b /c","#;
        assert!(Staged::of(&whole).json().is_ok_and(|sets| sets.to_string().starts_with(row)));
    }
}

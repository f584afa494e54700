//! `wireup jobs`: lists the jobs of a session.

use super::{SESSION, attach_to, name_of};
use crate::hosts::collapse_short;
use crate::words::{one_line, since};
use crate::{json_output, out};
use wireup_flags::{Command, JSON, Line, Section, Words};
use wireup_node::session::{Attached, spool};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::session::{JobEntry, JobState, SeatOrder};
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

pub const COMMAND: Command = Command {
    name: "jobs",
    purpose: "list the jobs of a session, and finished detached jobs whose output is kept",
    intro: "
  wireup jobs                   or wireup ps
  wireup jobs --session lab
  wireup jobs --json            as JSON
",
    words: Words::Named(&[]),
    sections: &[Section { title: "Flags", flags: &[SESSION, JSON] }],
    end: "",
};

pub fn run(line: &Line) -> Result<u8, String> {
    let name = name_of(line)?;
    let mut session = attach_to(&name)?;
    let jobs = list(&mut session)?;
    let nodes = session.welcome.nodes.clone();
    let own = |agent: &AgentId| nodes.get(agent.index()).map(|node| node.host.clone()).unwrap_or_default();
    let hosts = |job: &JobEntry| job.nodes.iter().map(own).chain(job.added.iter().cloned()).collect::<Vec<String>>();
    let detached = spool::jobs(&name).map_err(|error| error.to_string())?;
    let json = || {
        let running = jobs.iter().map(|job| {
            serde_json::json!({
                "job": job.job.0,
                "parent": job.parent.map(|parent| parent.0),
                "state": state(job.state),
                "program": job.program,
                "ranks": job.ranks,
                "nodes": hosts(job),
                "place": job.seats.map(place),
                "seconds": job.age_ns as f64 / 1e9,
                "detached": detached.iter().any(|spool| spool.job == job.job),
            })
        });
        let over = detached.iter().filter(|spool| jobs.iter().all(|job| job.job != spool.job)).map(|spool| {
            serde_json::json!({
                "job": spool.job.0,
                "state": "finished",
                "program": spool.program,
                "exit_code": spool.code,
                "detached": true,
            })
        });
        Ok(running.chain(over).collect())
    };
    let text = || {
        let mut rows = vec![["job", "state", "ranks", "age", "nodes", "place", "program"].map(str::to_owned)];
        for (depth, job) in as_tree(&jobs) {
            let is_detached = detached.iter().any(|spool| spool.job == job.job);
            rows.push([
                format!("{}{}", "  ".repeat(depth), job.job),
                format!("{}{}", state(job.state), if is_detached { ", detached" } else { "" }),
                job.ranks.to_string(),
                since(job.age_ns / 1_000_000_000),
                collapse_short(hosts(job).iter().map(String::as_str)),
                job.seats.map_or("-", place).to_owned(),
                one_line(&job.program),
            ]);
        }
        for spool in detached.iter().filter(|spool| jobs.iter().all(|job| job.job != spool.job)) {
            let state = match (spool.code, spool.is_running) {
                (Some(code), _) => format!("finished, code {code}"),
                (None, true) => "ending, detached".to_owned(),
                (None, false) => "finished, launcher killed".to_owned(),
            };
            let [ranks, age, nodes, place] = [(); 4].map(|()| "-".to_owned());
            rows.push([spool.job.to_string(), state, ranks, age, nodes, place, one_line(&spool.program)]);
        }
        if rows.len() == 1 { format!("session {name} has no jobs\n") } else { out::table(&rows) }
    };
    json_output::print(line, json, text)?;
    Ok(0)
}

/// The jobs in the order in which they are shown, each after the one whose rank has asked for it, with its depth.
fn as_tree(jobs: &[JobEntry]) -> Vec<(usize, &JobEntry)> {
    let is_here = |job: JobId| jobs.iter().any(|other| other.job == job);
    // A parent has a lower number than its children.
    let top = jobs.iter().filter(|job| job.parent.is_none_or(|parent| parent >= job.job || !is_here(parent)));
    let mut waiting: Vec<(usize, &JobEntry)> = top.map(|job| (0, job)).collect();
    waiting.sort_by_key(|(_, job)| std::cmp::Reverse(job.job));
    let mut shown = Vec::new();
    while let Some((depth, job)) = waiting.pop() {
        shown.push((depth, job));
        let mut children: Vec<_> =
            jobs.iter().filter(|child| child.parent == Some(job.job) && child.job > job.job).collect();
        children.sort_by_key(|child| std::cmp::Reverse(child.job));
        waiting.extend(children.into_iter().map(|child| (depth + 1, child)));
    }
    shown
}

pub fn list(session: &mut Attached) -> Result<Vec<JobEntry>, String> {
    let jobs = session.ask(&Control::FromLauncher(FromLauncher::AskJobs), None, |answer| match answer {
        Control::ToLauncher(ToLauncher::JobList(jobs)) => Some(jobs),
        _ => None,
    });
    jobs.map_err(|error| error.to_string())
}

/// The value of `--place` for an order.
fn place(order: SeatOrder) -> &'static str {
    match order {
        SeatOrder::Spread => "spread",
        SeatOrder::Pack => "pack",
    }
}

fn state(state: JobState) -> &'static str {
    match state {
        JobState::Starting => "starting",
        JobState::Running => "running",
        JobState::Ending => "ending",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_follow_the_one_that_has_asked_for_them() {
        let job = |number, parent: Option<u32>| JobEntry {
            job: JobId(number),
            parent: parent.map(JobId),
            nspace: String::new(),
            program: String::new(),
            ranks: 1,
            nodes: Vec::new(),
            added: Vec::new(),
            seats: None,
            age_ns: 0,
            state: JobState::Running,
        };
        let jobs = [job(1, None), job(2, None), job(3, Some(1)), job(4, Some(3)), job(5, Some(1)), job(6, Some(99))];
        let shown: Vec<_> = as_tree(&jobs).into_iter().map(|(depth, job)| (depth, job.job.0)).collect();
        assert_eq!(shown, [(0, 1), (1, 3), (2, 4), (1, 5), (0, 2), (0, 6)]);
    }
}

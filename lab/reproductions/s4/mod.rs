//! Table 1 of S4: the whole start of a job until every process is connected to every other.
//!
//! `scheme` lists the schemes with their formulas. A job is real processes: a `launcher` (its clock is the
//! measurement), the `process`es, and for three of the schemes standing `agent`s. They exchange the addresses of
//! `sockets` in messages (`wire`), and connect these sockets. Only `ours` uses wireup's own agents.
pub mod agent;
mod launcher;
pub mod ours;
pub mod process;
mod scheme;
pub mod sockets;
mod wire;

use std::cell::RefCell;
use std::net::SocketAddrV4;

use agent::{READY, Seat};
use launcher::{Outcome, by_agents, by_shells};
use scheme::{PARTS, SCHEMES, SIZE_MAX, Scheme, Starter, divides};
use serde_json::json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{ACROSS, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, together};
use wireup_bench::remote::{Remote, Remotes};
use wireup_bench::samples::{Measures, bytes, count, seconds};
use wireup_flags::{Command, Flag, Section};
use wireup_os::process::raise_open_files;
use wireup_os::random;

const SCHEME: Flag = Flag::value(&["--scheme"], "A,B,..", "Only these.")
    .or("original,ssh-dr,ssh-bc,mpd,mpd-bc,hypercube,wireup,wireup-session");
const PROCESSES: Flag = Flag::value(&["--processes"], "A,B,..", "Numbers of processes.").or("4,8,16,32,64,128");

pub const COMMAND: Command = Command {
    name: "reproduce s4",
    purpose: "time the start of a job until all processes are connected",
    intro: "
Jobs whose processes connect to each other, one socket for each pair, by six schemes (lab/reproductions/s4/README.md)
and by wireup. What each scheme sends is counted and compared with its formula; a difference is an error.
",
    sections: &[
        Section { title: "Jobs", flags: &[SCHEME, PROCESSES, ROUNDS, WIREUP, WIREUP_ARG, LIMIT] },
        ACROSS,
        RESULTS,
    ],
    end: "
  wireup-testbed run -n 16 -- wireup-reproduce s4 --hosts $(seq -s, -f n%g 0 15)

With more processes than hosts each host has the same number. --hosts is needed.
",
    ..NO_WORDS
};

const ROUNDS_DEFAULT: u32 = 3;
const LIMIT_S: u64 = 120;

/// What starts the processes and connects them: a scheme of S4, or `wireup run`, alone or in a session.
#[derive(Clone, Copy, Debug)]
enum By {
    Scheme(Scheme),
    Wireup { in_session: bool },
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let hosts = bench.hosts.len();
    if hosts == 0 {
        return Ok(together("s4 needs --hosts A,B,..: processes are started by a remote shell")?);
    }
    let ours =
        [("wireup", false), ("wireup-session", true)].map(|(name, in_session)| (name, By::Wireup { in_session }));
    let all: Vec<(&str, By)> = SCHEMES.iter().map(|scheme| (scheme.name, By::Scheme(*scheme))).chain(ours).collect();
    let chosen = all.iter().map(|one| (one.0, *one)).collect::<Vec<_>>();
    let chosen = line.one(SCHEME, |value| value.list(|scheme| scheme.choice(&chosen)))?;
    let sizes = line.one(PROCESSES, |value| value.list(|size| Ok(size.number_in(2, SIZE_MAX.into())? as u16)))?;
    let shell = bench.remote_shell()?;
    let shell_name = shell.rsplit('/').next();
    let mut turns = Vec::new();
    for (&size, &(name, by)) in sizes.iter().flat_map(|size| chosen.iter().map(move |one| (size, one))) {
        divides(size, hosts as u16).or_else(together)?;
        if let By::Scheme(scheme) = by {
            scheme.fits(size, hosts as u16).or_else(together)?;
        }
        let case = json!({ "ranks": size, "hosts": hosts, "shell": shell_name });
        turns.push(Turn::new(name, &case, bench.rounds.unwrap_or(ROUNDS_DEFAULT), (by, size)));
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let limit = bench.limit_or(LIMIT_S);
    // Each process has a channel, and a remote shell with two pipes.
    raise_open_files()?;
    // The standing agents of the ring and of the hypercube; they end if one of their jobs has failed.
    let mut standing: [Option<(Remotes, Door)>; 2] = [None, None];
    let (mut session, mismatch) = (None, RefCell::new(None));
    bench.turns(&turns, |&(by, size), _| {
        let scheme = match by {
            By::Scheme(scheme) => scheme,
            By::Wireup { in_session } => {
                if in_session && session.is_none() {
                    session = Some(ours::raise(bench, limit)?);
                }
                let name = session.as_ref().filter(|_| in_session).map(|(_, name)| name.as_str());
                return ours::by_wireup(bench, size, name, limit);
            }
        };
        let outcome = if scheme.starter == Starter::Star {
            by_shells(bench, scheme, size, limit)?
        } else {
            let is_ring = scheme.starter == Starter::Ring;
            let agents = &mut standing[usize::from(is_ring)];
            if agents.is_none() {
                *agents = Some(stand(bench, is_ring)?);
            }
            let door = agents.as_ref().map(|(_, door)| *door).ok_or_else(|| wrong("no agents"))?;
            by_agents(scheme, size, &door, limit).inspect_err(|_| *agents = None)?
        };
        let (sent, wanted) = (outcome.slowest.traffic, scheme.formula(size, hosts as u16));
        if sent != wanted {
            let why = format!("{} {size}: sent {sent:?}, the formula gives {wanted:?}", scheme.name);
            return Err(mismatch.borrow_mut().insert(wrong(why)).clone());
        }
        Ok(measures(&outcome))
    });
    drop(standing);
    session.map_or(Ok(()), |(session, _)| session.end())?;
    mismatch.into_inner().map_or(Ok(()), |failure| Err(failure.into()))
}

/// The address of agent 0, and the agents' secret.
type Door = (SocketAddrV4, wire::Secret);

/// Starts standing agents and links them.
fn stand(bench: &Bench, is_ring: bool) -> Result<(Remotes<'_>, Door), Failure> {
    let mut agents = Remotes::start(bench, agent::WORD)?;
    let address = |agent: &Remote| match agent.hello.parse() {
        Ok(port) => Ok(SocketAddrV4::new(agent.address, port)),
        Err(_) => Err(wrong(format!("agent on {}: {}", agent.host, agent.hello))),
    };
    let all: Vec<SocketAddrV4> = agents.all.iter().map(address).collect::<Result<_, _>>()?;
    let (secret, first) = (random::bytes()?, all[0]);
    let mut seat = Seat { index: 0, is_ring, secret, all };
    for index in 0..bench.hosts.len() {
        seat.index = index as u16;
        agents.tell(index, &serde_json::to_string(&seat).map_err(wrong)?)?;
    }
    for index in 0..bench.hosts.len() {
        match agents.answer(index)? {
            line if line == READY => {}
            line => return Err(wrong(format!("agent on {}: {line}", bench.hosts[index]))),
        }
    }
    bench.keep_running();
    Ok((agents, (first, secret)))
}

fn measures(Outcome { connected_s, initiated_s, slowest }: &Outcome) -> Measures {
    let mut measures = vec![
        seconds("connected", *connected_s),
        seconds("initiated", *initiated_s),
        seconds("set-up", connected_s - initiated_s),
        seconds("exchange-max", slowest.exchange_ns as f64 / 1e9),
        seconds("connecting-max", slowest.connecting_ns as f64 / 1e9),
    ];
    for (name, [messages, sent]) in PARTS.into_iter().zip(slowest.traffic).filter(|(_, [messages, _])| *messages > 0) {
        measures.push(count(format!("{name}-messages"), messages as f64));
        measures.push(bytes(format!("{name}-bytes"), sent as f64));
    }
    measures
}

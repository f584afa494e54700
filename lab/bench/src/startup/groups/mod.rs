//! Groups of ranks and address exchange, as parts of `wireup bench exchange`.
//!
//! `counted` runs every `scheme` with real ranks and in the simulator, and compares their `counts`; `held` has the
//! table of connections, addresses and memory; `beside` times libwireup in turns with what it replaces, `first_use`
//! whole jobs from the start of their ranks, `spinning` ranks that compute. `target` judges, `table` shows.
mod beside;
mod counted;
mod counts;
mod first_use;
mod held;
mod scheme;
mod spinning;
pub mod table;
pub mod target;

use super::flags::Flags;
use super::report::{Cell, Key, Report};
use super::surroundings::Surroundings;
use crate::cases::Place;
use crate::command::Failure;

/// The kinds of figures, in place of the route's name.
pub const PEERS: &str = "peers";
pub const SIMULATED: &str = "peers simulated";
pub const HELD: &str = "held";
pub const HELD_SIMULATED: &str = "held simulated";
pub const PAIR: &str = "barrier of 2";
pub const AGENTS: &str = "barrier of agents";
pub const JOINS: &str = "joining";
pub const FROM_MAIN: &str = "from main";
pub const FROM_EXEC: &str = "from exec";
pub const FROM_EXEC_CORES: &str = "from exec, a core each";
pub const SPINNING: &str = "first connection to a rank that spins";

/// The parts of `wireup bench exchange` that are here.
pub const PARTS: [&str; 4] = ["groups", "connections", "library", "spinning"];

/// Jobs that one part runs one after the other.
type Case<'a> = (Place, &'static str, Box<dyn Fn() -> Result<Vec<Cell>, Failure> + 'a>);

/// Runs the chosen parts. A case that fails leaves an empty cell, so that it is not overlooked.
pub fn run(flags: &Flags, surroundings: &Surroundings, report: &mut Report) {
    for (place, case, run) in cases(flags, surroundings) {
        if surroundings.interrupt.is_set() {
            return;
        }
        let name = format!("{case}, {place}");
        eprintln!("wireup bench exchange: {name}");
        let cells = run();
        if cells.is_err() {
            report.cells.push(Cell::new(key(flags, place, case, case)));
        }
        report.add(&name, cells);
    }
}

fn cases<'a>(flags: &'a Flags, surroundings: &'a Surroundings) -> Vec<Case<'a>> {
    let mut cases: Vec<Case> = Vec::new();
    let plan = Plan::of(flags);
    for place in plan.groups {
        cases.push((place, PEERS, Box::new(move || counted::real(flags, surroundings, place))));
    }
    for place in plan.simulated {
        cases.push((place, SIMULATED, Box::new(move || counted::simulated(flags, place))));
    }
    for place in plan.held {
        cases.push((place, HELD, Box::new(move || held::real(flags, surroundings, place))));
    }
    for place in plan.held_simulated {
        cases.push((place, HELD_SIMULATED, Box::new(move || held::simulated(flags, place))));
    }
    if flags.has_part("library") {
        cases.push((beside::PAIR_PLACE, PAIR, Box::new(|| beside::pair(flags, surroundings))));
        cases.push((beside::BARRIER_PLACE, AGENTS, Box::new(|| beside::barriers(flags, surroundings))));
        cases.push((beside::JOINS_PLACE, JOINS, Box::new(|| beside::joins(flags, surroundings))));
        cases.push((first_use::NODE_PLACE, FROM_MAIN, Box::new(|| first_use::node(flags, surroundings))));
        for (place, case) in first_use::byte_cases() {
            cases.push((place, case, Box::new(move || first_use::byte(flags, surroundings, place, case))));
        }
    }
    if flags.has_part("spinning") {
        cases.push((spinning::PLACE, SPINNING, Box::new(|| spinning::run(flags, surroundings))));
    }
    cases
}

/// The sizes of the jobs of each kind.
#[derive(Default)]
struct Plan {
    groups: Vec<Place>,
    simulated: Vec<Place>,
    held: Vec<Place>,
    held_simulated: Vec<Place>,
}

impl Plan {
    fn of(flags: &Flags) -> Plan {
        let places = |sizes: &[u32]| sizes.iter().map(|size| flags.place(*size)).collect();
        let chosen = |own: &[u32]| places(if flags.ranks.is_empty() { own } else { &flags.ranks });
        let mut plan = Plan::default();
        if flags.has_part("groups") {
            (plan.groups, plan.simulated) = (chosen(&counted::RANKS), places(&flags.simulated));
        }
        if flags.has_part("connections") {
            (plan.held, plan.held_simulated) = (chosen(&held::RANKS), places(&held::SIMULATED_RANKS));
        }
        plan
    }
}

/// A description of what would be run.
pub fn describe(flags: &Flags) -> String {
    let plan = Plan::of(flags);
    let kinds =
        [(PEERS, plan.groups), (SIMULATED, plan.simulated), (HELD, plan.held), (HELD_SIMULATED, plan.held_simulated)];
    let mut text = String::new();
    for (kind, places) in kinds {
        text.extend(places.into_iter().map(|place| format!("{kind}: {place}\n")));
    }
    if flags.has_part("library") {
        let [pair, barriers, joins] =
            [beside::PAIR_SCHEMES, beside::BARRIER_SCHEMES, beside::JOINS_SCHEMES].map(|names| names.join(" "));
        text += &format!(
            "{PAIR}: {} of {pair}\n{AGENTS}: {} of {barriers}\n{JOINS}: {} of {joins}\n",
            beside::PAIR_PLACE,
            beside::BARRIER_PLACE,
            beside::JOINS_PLACE
        );
        text += &format!("{FROM_MAIN}: {} of {}\n", first_use::NODE_PLACE, first_use::NODE.join(" "));
        for (place, case) in first_use::byte_cases() {
            text += &format!("{case}: {place} of {}\n", first_use::BYTE.join(" "));
        }
    }
    if flags.has_part("spinning") {
        text += &format!("{SPINNING}: {} of {}\n", spinning::PLACE, spinning::SCHEMES.join(" "));
    }
    text
}

fn key(flags: &Flags, place: Place, case: &str, scheme: &str) -> Key {
    Key { place, exchange: case.to_owned(), scheme: scheme.to_owned(), lengths: flags.lengths }
}

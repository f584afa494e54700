//! Determines the CPUs of each rank of a node.
//!
//! ```text
//!   even            the node's cores divided (os/bind)
//!   an object       ranks go to the objects of --map-by in turn; within one, each rank takes the next
//!                   objects of the kind that it is bound to, starting over when all are taken
//!   a larger object the one around the object of --map-by
//!   lists, slots    as written
//! ```

use std::fmt::Write as _;
use std::io;
use wireup_os::bind::{CpuSet, Even, Machine};
use wireup_proto::io::SpawnPlan;
use wireup_wire::ids::Rank;
use wireup_wire::job::{BindTo, Binding, Object, Over};

/// The CPUs of each rank in the kernel's list format, `0-3,8`; `None`: not bound.
pub fn cpus_of_ranks(binding: &Binding, ranks: usize) -> io::Result<Vec<Option<String>>> {
    let sets = sets(binding, &Machine::this()?, ranks)?;
    Ok(sets.into_iter().map(|set| set.map(|set| set.to_string())).collect())
}

/// The CPUs of `ranks` ranks, in the order of local ranks; `None`: the rank is not bound.
///
/// # Errors
/// The machine does not report an object of the kind in `binding`, or has none of the CPUs that are listed.
pub fn sets(binding: &Binding, machine: &Machine, ranks: usize) -> io::Result<Vec<Option<CpuSet>>> {
    let machine = match &binding.cpus {
        None => machine.clone(),
        Some(list) => machine.limited(&named(list, machine)?),
    };
    if !binding.slots.is_empty() {
        return (0..ranks)
            .map(|rank| binding.slots.get(rank).map_or(Ok(None), |slot| of_slot(slot, &machine)))
            .collect();
    }
    match &binding.to {
        BindTo::None => Ok(vec![None; ranks]),
        BindTo::Even => Ok(even(&machine, ranks, binding.cpus.is_some())),
        BindTo::Lists(lists) => {
            let sets: Vec<CpuSet> = lists.iter().map(|list| named(list, &machine)).collect::<io::Result<_>>()?;
            Ok((0..ranks).map(|rank| sets.get(rank % sets.len().max(1)).cloned()).collect())
        }
        BindTo::To { object, count } => {
            let sets = within(&machine, *object, (*count).max(1) as usize, binding.over, ranks)?;
            Ok(sets.into_iter().map(Some).collect())
        }
    }
}

/// The CPU sets of all objects of a kind (threads, cores, caches, ...); each set has only CPUs that ranks may use.
///
/// # Errors
/// The machine does not report objects of this kind.
pub fn objects(machine: &Machine, object: Object) -> io::Result<Vec<CpuSet>> {
    match object {
        Object::Thread => Ok(machine.threads()),
        Object::Core => machine.cores(),
        Object::L1 => machine.caches(1),
        Object::L2 => machine.caches(2),
        Object::L3 => machine.caches(3),
        Object::Numa => Ok(machine.numa_domains()),
        Object::Socket => machine.sockets(),
        Object::Machine => Ok(vec![machine.allowed().clone()]),
    }
}

/// Most ranks of a node in a picture. Chosen: more than a node has cores today, and the picture still fits into a
/// frame.
const LINES_MAX: usize = 512;

/// A picture of how the ranks of a plan are bound on this machine. `None`: the binding cannot be determined, which also
/// makes the start of the ranks fail.
pub fn picture_of(plan: &SpawnPlan) -> Option<String> {
    let machine = Machine::this().ok()?;
    let sets = sets(&plan.binding, &machine, plan.ranks.len()).ok()?;
    let ranks = plan.ranks.iter().zip(&sets).map(|(rank, set)| (rank.rank, set.as_ref()));
    Some(picture(&machine, ranks.take(LINES_MAX)))
}

/// A line for each rank: brackets are sockets, slashes separate cores, each letter is a hardware thread, B if the rank
/// may run there.
///
/// ```text
///   rank 0  [BB/BB/../..][../../../..]  cpus 0-1,8-9
///   rank 1  not bound
/// ```
pub fn picture<'r>(machine: &Machine, ranks: impl Iterator<Item = (Rank, Option<&'r CpuSet>)>) -> String {
    let sockets = machine.sockets().unwrap_or_else(|_| vec![machine.allowed().clone()]);
    let cores = machine.cores().unwrap_or_else(|_| machine.threads());
    let mut text = String::new();
    for (rank, set) in ranks {
        let written = match set {
            None => writeln!(text, "rank {rank}  not bound"),
            Some(set) => writeln!(text, "rank {rank}  {}  cpus {set}", drawn(&sockets, &cores, set)),
        };
        written.expect("a string takes every text");
    }
    text
}

fn drawn(sockets: &[CpuSet], cores: &[CpuSet], set: &CpuSet) -> String {
    let letters = |core: &CpuSet| core.iter().map(|cpu| if set.contains(cpu) { 'B' } else { '.' }).collect::<String>();
    let of_socket = |socket: &CpuSet| {
        let own = cores.iter().filter(|core| !core.intersection(socket).is_empty());
        format!("[{}]", own.map(letters).collect::<Vec<_>>().join("/"))
    };
    sockets.iter().map(of_socket).collect()
}

/// The CPUs in a list, without those that ranks may not use.
fn named(list: &str, machine: &Machine) -> io::Result<CpuSet> {
    let set = CpuSet::parse(list).unwrap_or_default().intersection(machine.allowed());
    match set.is_empty() {
        true => Err(none_of(&format!("cpus {list}"), machine)),
        false => Ok(set),
    }
}

fn none_of(what: &str, machine: &Machine) -> io::Error {
    let problem = format!("none of {what} may be used here, only {}; name others", machine.allowed());
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// Divides the node's CPUs evenly. `always`: ranks that would not be bound are bound to all CPUs of the node, because
/// the node has only a part of the machine's CPUs.
fn even(machine: &Machine, ranks: usize, always: bool) -> Vec<Option<CpuSet>> {
    match machine.even(ranks) {
        Even::Cores { shares, .. } | Even::Domains { shares, .. } => shares.into_iter().map(Some).collect(),
        Even::Unbound => vec![always.then(|| machine.allowed().clone()); ranks],
    }
}

/// An object of `--map-by`, with the objects that ranks are bound to in it.
struct MappedObject {
    choices: Vec<CpuSet>,
    next: usize,
}

fn within(machine: &Machine, to: Object, count: usize, over: Option<Over>, ranks: usize) -> io::Result<Vec<CpuSet>> {
    let parts = objects(machine, to)?;
    let mut places: Vec<MappedObject> = match over {
        None => vec![MappedObject { choices: parts, next: 0 }],
        Some(over) => objects(machine, over.object)?.iter().map(|place| MappedObject::new(place, &parts)).collect(),
    };
    if places.iter().any(|place| place.choices.is_empty()) {
        return Err(none_of("the objects that ranks are to be bound to", machine));
    }
    let order = Order::new(over, places.len(), ranks);
    Ok((0..ranks).map(|rank| places[order.place(rank)].take(count)).collect())
}

impl MappedObject {
    /// The parts (objects to bind to) that overlap `place`, each limited to `place` unless the part contains all of it.
    fn new(place: &CpuSet, parts: &[CpuSet]) -> MappedObject {
        let overlapping = parts.iter().filter(|part| !part.intersection(place).is_empty());
        let is_larger = |part: &CpuSet| part.intersection(place) == *place;
        let choices = overlapping.map(|part| if is_larger(part) { part.clone() } else { part.intersection(place) });
        MappedObject { choices: choices.collect(), next: 0 }
    }

    /// The CPUs of the next `count` objects, or of all objects if there are fewer.
    fn take(&mut self, count: usize) -> CpuSet {
        let len = self.choices.len();
        let count = count.min(len);
        // If a rank's objects would wrap around the end, it takes the first ones instead, so that they are neighbours.
        if self.next % len + count > len {
            self.next += len - self.next % len;
        }
        let taken = (self.next..self.next + count).flat_map(|index| self.choices[index % len].iter());
        let set = taken.collect();
        self.next += count;
        set
    }
}

/// The order in which local ranks are assigned to the objects of `--map-by`.
struct Order {
    places: usize,
    step: usize,
    /// Number of consecutive ranks that go to the same place.
    together: usize,
}

impl Order {
    fn new(over: Option<Over>, places: usize, ranks: usize) -> Order {
        let together = match over.map(|over| over.ranks as usize) {
            Some(0) => ranks.div_ceil(places.max(1)),
            together => together.unwrap_or(1),
        };
        let step = over.map_or(1, |over| over.step.max(1) as usize);
        Order { places, step, together: together.max(1) }
    }

    fn place(&self, rank: usize) -> usize {
        let turn = rank / self.together * self.step;
        // With a step, each further round begins one place later, until all places have had their turn.
        let round = turn / self.places.next_multiple_of(self.step);
        (turn % self.places.next_multiple_of(self.step) + round % self.step) % self.places
    }
}

/// The CPUs that a slot names. `0-2`: cores. `1:0,1`: cores of a socket. `*`: all. Several of these are separated by
/// semicolons. Empty: not bound.
fn of_slot(slot: &str, machine: &Machine) -> io::Result<Option<CpuSet>> {
    let mut set = CpuSet::new();
    if slot.is_empty() {
        return Ok(None);
    }
    for part in slot.split(';').filter(|part| !part.is_empty()) {
        let (cpus, list) = match part.split_once(':') {
            None => (machine.allowed().clone(), part),
            Some((socket, list)) => {
                let sockets = machine.sockets()?;
                let socket = socket.trim().parse().ok().and_then(|socket: usize| sockets.get(socket).cloned());
                (socket.ok_or_else(|| none_of(&format!("slot {slot}"), machine))?, list)
            }
        };
        let cores = machine.limited(&cpus).cores()?;
        let wanted = match list.trim() {
            "*" => (0..cores.len() as u32).collect(),
            list => CpuSet::parse(list).unwrap_or_default(),
        };
        for core in wanted.iter() {
            let core = cores.get(core as usize).ok_or_else(|| none_of(&format!("slot {slot}"), machine))?;
            core.iter().for_each(|cpu| set.insert(cpu));
        }
    }
    match set.is_empty() {
        true => Err(none_of(&format!("slot {slot}"), machine)),
        false => Ok(Some(set)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight cores of two threads, c and c + 8, in two NUMA domains.
    fn machine() -> Machine {
        Machine::described("binding", 16, true, 2)
    }

    fn bound(binding: &Binding, ranks: usize) -> Vec<String> {
        let sets = sets(binding, &machine(), ranks).unwrap();
        sets.into_iter().map(|set| set.map_or("free".into(), |set| set.to_string())).collect()
    }

    fn to(object: Object, count: u32) -> Binding {
        Binding { to: BindTo::To { object, count }, ..Binding::default() }
    }

    fn over(binding: Binding, object: Object, step: u32, ranks: u32) -> Binding {
        Binding { over: Some(Over { object, step, ranks }), ..binding }
    }

    #[test]
    fn ranks_take_objects_in_turn() {
        assert_eq!(bound(&to(Object::Core, 1), 3), ["0,8", "1,9", "2,10"]);
        assert_eq!(bound(&to(Object::Core, 3), 3), ["0-2,8-10", "3-5,11-13", "0-2,8-10"]);
        assert_eq!(bound(&to(Object::Thread, 1), 2), ["0", "1"]);
        assert_eq!(bound(&to(Object::L3, 1), 3), ["0-3,8-11", "4-7,12-15", "0-3,8-11"]);
        assert_eq!(bound(&to(Object::Core, 1), 9)[8], "0,8");
        assert_eq!(bound(&to(Object::Socket, 1), 1), ["0-15"]);
    }

    #[test]
    fn ranks_are_bound_within_the_objects_that_they_are_mapped_to() {
        assert_eq!(bound(&over(to(Object::Core, 1), Object::Numa, 1, 1), 4), ["0,8", "4,12", "1,9", "5,13"]);
        assert_eq!(
            bound(&over(to(Object::Core, 2), Object::Numa, 1, 2), 4),
            ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]
        );
        assert_eq!(bound(&over(to(Object::Core, 1), Object::Numa, 1, 0), 4), ["0,8", "1,9", "4,12", "5,13"]);
        assert_eq!(bound(&over(to(Object::Numa, 1), Object::Core, 1, 1), 5)[3..], ["0-3,8-11", "4-7,12-15"]);
        assert_eq!(bound(&over(to(Object::Core, 1), Object::Core, 2, 1), 5), ["0,8", "2,10", "4,12", "6,14", "1,9"]);
    }

    #[test]
    fn named_cpus_limit_all_bindings() {
        let limited = |binding| Binding { cpus: Some("2-5".into()), ..binding };
        assert_eq!(bound(&limited(to(Object::Core, 1)), 2), ["2", "3"]);
        assert_eq!(bound(&limited(Binding::default()), 9)[8], "2-5");
        let lists = Binding { to: BindTo::Lists(vec!["0,2".into(), "1".into()]), ..Binding::default() };
        assert_eq!(bound(&lists, 3), ["0,2", "1", "0,2"]);
        let nowhere = Binding { cpus: Some("99".into()), ..Binding::default() };
        let error = sets(&nowhere, &machine(), 1).unwrap_err().to_string();
        assert_eq!(error, "none of cpus 99 may be used here, only 0-15; name others");
    }

    #[test]
    fn the_picture_shows_threads_cores_and_sockets() {
        let set = CpuSet::parse("0-1,8").unwrap();
        let ranks = [(Rank(4), Some(&set)), (Rank(5), None)];
        assert_eq!(
            picture(&machine(), ranks.into_iter()),
            "rank 4  [BB/B./../../../../../..]  cpus 0-1,8\nrank 5  not bound\n"
        );
    }

    #[test]
    fn slots_of_a_file_name_cores() {
        let slots = |slots: &[&str]| Binding {
            slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
            ..Binding::default()
        };
        assert_eq!(bound(&slots(&["0-1", "0:3;0:5", "", "*"]), 4), ["0-1,8-9", "3,5,11,13", "free", "0-15"]);
        for wrong in ["8", "1:0", "x", "0:x"] {
            assert!(sets(&slots(&[wrong]), &machine(), 1).is_err(), "{wrong}");
        }
    }
}

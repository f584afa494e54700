//! The schemes of table 1 of S4, and the hypercube of its section 6.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// One ssh and one connection back per process, one after the other. The launcher gathers all values and sends all
    /// to each process.
    Original,
    /// The same, but each process is sent only the values that are meant for it (data reassembly).
    SshDr,
    /// The launcher passes on only what makes a ring of the processes; the values go around that ring (bootstrap
    /// channel).
    SshBc,
    /// Standing agents in a ring start the processes and pass on what makes the ring of the processes.
    MpdBc,
    /// Standing agents in a hypercube start the processes and pass on what makes a hypercube of the processes.
    Hypercube,
}

/// Who starts the processes and serves them until they have connections of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// The launcher, by a remote shell for each process.
    Star,
    /// Agents that each send to the next one.
    Ring,
    /// Agents that each send to those whose number differs in one bit.
    Cube,
}

/// How the values get from process to process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Through the launcher, which sends all values to each process.
    Whole,
    /// Through the launcher, which sends to each process what is meant for it.
    Reassembled,
    /// Around a ring of the processes.
    Ring,
    /// In log2 N rounds between processes whose ranks differ in one bit.
    Cube,
}

impl Scheme {
    pub const ALL: [Scheme; 5] = [Scheme::Original, Scheme::SshDr, Scheme::SshBc, Scheme::MpdBc, Scheme::Hypercube];

    pub fn name(self) -> &'static str {
        match self {
            Scheme::Original => "original",
            Scheme::SshDr => "ssh-dr",
            Scheme::SshBc => "ssh-bc",
            Scheme::MpdBc => "mpd-bc",
            Scheme::Hypercube => "hypercube",
        }
    }

    pub fn of(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    pub fn starter(self) -> Starter {
        match self {
            Scheme::Original | Scheme::SshDr | Scheme::SshBc => Starter::Star,
            Scheme::MpdBc => Starter::Ring,
            Scheme::Hypercube => Starter::Cube,
        }
    }

    pub fn exchange(self) -> Exchange {
        match self {
            Scheme::Original => Exchange::Whole,
            Scheme::SshDr => Exchange::Reassembled,
            Scheme::SshBc | Scheme::MpdBc => Exchange::Ring,
            Scheme::Hypercube => Exchange::Cube,
        }
    }

    /// The ranks to which a process has connections before it knows all values, in the order of its slots.
    pub fn neighbours(self, rank: u16, size: u16) -> Vec<u16> {
        match self.exchange() {
            Exchange::Whole | Exchange::Reassembled => Vec::new(),
            Exchange::Ring => vec![(rank + size - 1) % size, (rank + 1) % size],
            Exchange::Cube => (0..size.ilog2()).map(|bit| rank ^ (1 << bit)).collect(),
        }
    }

    /// The neighbour's slot whose value belongs to a process's own slot.
    pub fn far_slot(self, slot: u16) -> u16 {
        // What is left of this process calls it its right neighbour. In a hypercube both sides use the same bit.
        if self.exchange() == Exchange::Ring { 1 - slot } else { slot }
    }

    /// Whether this process calls its neighbour, which otherwise calls it.
    pub fn calls(self, rank: u16, slot: u16) -> bool {
        match self.exchange() {
            Exchange::Ring => slot == 1,
            _ => rank & (1 << slot) == 0,
        }
    }
}

/// More processes were not measured (chosen: a process may have 1,024 descriptors).
pub const SIZE_MAX: u16 = 512;

/// The agents that have processes, if the first of `agents` get equal parts.
pub fn agents_used(size: u16, agents: u16) -> u16 {
    size.min(agents)
}

/// Whether `size` processes can be divided among `agents`, and whether the scheme knows this many.
///
/// # Errors
/// The reason.
pub fn fits(scheme: Scheme, size: u16, agents: u16) -> Result<(), String> {
    if size > agents && !size.is_multiple_of(agents) {
        return Err(format!("{size} processes cannot be divided evenly among {agents} hosts"));
    }
    if scheme == Scheme::Hypercube && !(size.is_power_of_two() && agents.is_power_of_two()) {
        return Err(format!("a hypercube needs powers of two, not {size} processes on {agents} hosts"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbours_neighbour_is_oneself_and_one_of_both_calls() {
        for (scheme, sizes) in
            [(Scheme::SshBc, &[2, 3, 4, 16][..]), (Scheme::MpdBc, &[2, 5, 16]), (Scheme::Hypercube, &[2, 4, 16])]
        {
            for &size in sizes {
                for rank in 0..size {
                    for (slot, neighbour) in scheme.neighbours(rank, size).into_iter().enumerate() {
                        let far = scheme.far_slot(slot as u16);
                        assert_eq!(scheme.neighbours(neighbour, size)[usize::from(far)], rank, "{scheme:?} {size}");
                        assert_ne!(scheme.calls(rank, slot as u16), scheme.calls(neighbour, far), "{scheme:?} {size}");
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(fits(Scheme::Hypercube, 128, 16).is_ok() && fits(Scheme::MpdBc, 6, 3).is_ok());
        assert!(fits(Scheme::Hypercube, 12, 4).unwrap_err().contains("powers of two"));
        assert!(fits(Scheme::Original, 10, 4).unwrap_err().contains("evenly"));
        assert!(Scheme::ALL.into_iter().all(|scheme| Scheme::of(scheme.name()) == Some(scheme)));
    }
}

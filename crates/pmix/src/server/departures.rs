//! Clients of version 4 leave together.
//!
//! That version's server removes, as soon as one client of a node is gone, the files that all of them have registered to be removed when
//! they end; Open MPI 4, whose ranks remove their shared-memory files themselves before they finalize, complains where it finds none.
//! So a client that finalizes has its answer when all others of the node have come as far, and after [`HOLD_MAX`] at the latest: the
//! time that the kernel's delayed acknowledgements take there where nobody hastens them (see [`super::acks`]).

use super::state::Callback;
use crate::sys::types::OpCallback;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wireup_wire::ids::Rank;

const HOLD_MAX: Duration = Duration::from_millis(40);

/// Answers to clients that finalize, to be given now.
pub type Released = Vec<Callback<OpCallback>>;

#[derive(Default)]
pub struct Departures(Mutex<State>);

#[derive(Default)]
struct State {
    /// Clients that have connected and neither finalized nor died.
    here: BTreeSet<Rank>,
    held: Released,
    due: Option<Instant>,
}

impl Departures {
    /// For a library of this version, if it needs it.
    pub fn of(version: &str) -> Option<Departures> {
        version.starts_with("4.").then(Departures::default)
    }

    /// A client has connected.
    pub fn arrive(&self, rank: Rank) {
        self.state().here.insert(rank);
    }

    /// A client finalizes, or is gone with nobody to answer. `true` besides: the main thread is to know when the answer is due.
    pub fn leave(&self, rank: Rank, callback: Option<Callback<OpCallback>>) -> (Released, bool) {
        let mut state = self.state();
        state.here.remove(&rank);
        state.held.extend(callback);
        if state.here.is_empty() {
            return (state.release(), false);
        }
        let is_first = state.due.is_none() && !state.held.is_empty();
        if is_first {
            state.due = Some(Instant::now() + HOLD_MAX);
        }
        (Vec::new(), is_first)
    }

    /// How long until answers are due, if some are held.
    pub fn timeout(&self) -> Option<Duration> {
        self.state().due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// What has been held long enough.
    pub fn take_due(&self) -> Released {
        let mut state = self.state();
        match state.due {
            Some(due) if Instant::now() >= due => state.release(),
            _ => Vec::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn release(&mut self) -> Released {
        self.due = None;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::types::Status;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    unsafe extern "C" fn done(_: Status, _: *mut c_void) {}

    fn callback() -> Option<Callback<OpCallback>> {
        Callback::new(Some(done as OpCallback), null_mut())
    }

    fn three() -> Departures {
        let departures = Departures::of("4.2.2").expect("it needs it");
        (0..3).for_each(|rank| departures.arrive(Rank(rank)));
        departures
    }

    #[test]
    fn the_last_one_releases_all() {
        let departures = three();
        let (released, tell) = departures.leave(Rank(1), callback());
        assert!(released.is_empty() && tell && departures.timeout().is_some());
        let (released, tell) = departures.leave(Rank(0), callback());
        assert!(released.is_empty() && !tell, "the time of the first goes for all");
        let (released, tell) = departures.leave(Rank(2), callback());
        assert!(released.len() == 3 && !tell && departures.timeout().is_none());
    }

    #[test]
    fn who_dies_is_not_waited_for() {
        let departures = three();
        assert!(!departures.leave(Rank(0), None).1, "nobody waits");
        assert!(departures.leave(Rank(1), callback()).1);
        assert_eq!(departures.leave(Rank(2), None).0.len(), 1);
    }

    #[test]
    fn nobody_waits_long() {
        let departures = three();
        assert!(departures.leave(Rank(0), callback()).0.is_empty());
        assert!(departures.take_due().is_empty());
        std::thread::sleep(departures.timeout().expect("it is held"));
        assert_eq!(departures.take_due().len(), 1);
        assert!(departures.timeout().is_none());
        // The others are a group of their own.
        assert!(departures.leave(Rank(1), callback()).1);
        assert_eq!(departures.leave(Rank(2), callback()).0.len(), 2);
    }

    #[test]
    fn other_versions_do_not_need_it() {
        assert!(Departures::of("5.0.1").is_none());
    }
}

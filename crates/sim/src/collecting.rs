//! The ranks' side of collectives: what they start, wait for and look up, and whether the results are what all ranks contributed.

use crate::client::Op;
use crate::contributions::{self, Lens};
use crate::ranks::Doing;
use crate::rng::Rng;
use crate::workload::{self, Speaks, Which, Whose};
use crate::world::World;
use wireup_wire::collective::Collective;
use wireup_wire::job::PmiFence;
use wireup_wire::shared::rows::{Form, Rows};

/// The collectives of one rank.
#[derive(Debug, Default)]
pub struct Collecting {
    /// Started and not yet waited for, oldest first.
    started: Vec<Started>,
    last_id: u32,
    waits: Option<Waits>,
    /// The collective whose request is answered when it is complete.
    blocking: Option<u32>,
    /// Whether something was put since the last fence.
    has_put: bool,
    /// The last fence that was answered before it was complete.
    lazy: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    id: u32,
    epoch: u32,
    what: What,
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Fence,
    Allgather { lens: Lens, shared: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    For(u32),
    All,
}

impl Collecting {
    /// Whether a started collective is not complete.
    pub fn is_under_way(&self) -> bool {
        self.started.iter().any(|one| !one.is_over)
    }

    pub fn on_put(&mut self) {
        self.has_put = true;
    }

    /// Whether what the rank waits for is complete; if so, it is forgotten.
    fn take_awaited(&mut self) -> bool {
        match self.waits {
            None => return false,
            Some(Waits::All) if self.is_under_way() => return false,
            Some(Waits::All) => self.started.clear(),
            Some(Waits::For(id)) => {
                let Some(at) = self.started.iter().position(|one| one.id == id && one.is_over) else { return false };
                self.started.remove(at);
            }
        }
        self.waits = None;
        true
    }

    fn pick(&self, which: Which, rng: &mut Rng) -> Option<Waits> {
        let last = self.started.len().checked_sub(1)?;
        let at = match which {
            Which::Oldest => 0,
            Which::Newest => last,
            Which::Random => rng.below(self.started.len() as u64) as usize,
            Which::All => return Some(Waits::All),
        };
        Some(Waits::For(self.started[at].id))
    }
}

impl World {
    fn enter(&mut self, rank: u32, collective: Collective) -> u32 {
        let proc = &mut self.procs[rank as usize];
        let epoch = proc.entered;
        proc.entered += 1;
        self.checks.collectives.on_enter(epoch, collective);
        epoch
    }

    /// Enters a collective whose request is answered when it is complete: one at a time.
    pub(crate) fn enter_blocking(&mut self, rank: u32, collective: Collective) -> u32 {
        let epoch = self.enter(rank, collective);
        self.procs[rank as usize].collecting.blocking = Some(epoch);
        epoch
    }

    pub(crate) fn start_fence(&mut self, rank: u32) {
        let epoch = self.enter(rank, Collective::Fence);
        let id = self.note_started(rank, epoch, What::Fence);
        self.procs[rank as usize].collecting.has_put = false;
        self.ask_and_go_on(rank, Op::StartFence { id });
    }

    pub(crate) fn start_allgather(&mut self, rank: u32, lens: Lens, shared: bool) {
        let epoch = self.enter(rank, Collective::Allgather);
        let id = self.note_started(rank, epoch, What::Allgather { lens, shared });
        let value = contributions::value(self.spec.seed, rank, epoch, lens);
        self.ask_and_go_on(rank, Op::StartAllgather { id, max_len: lens.max(), shared, value: &value });
    }

    fn note_started(&mut self, rank: u32, epoch: u32, what: What) -> u32 {
        let collecting = &mut self.procs[rank as usize].collecting;
        collecting.last_id += 1;
        let id = collecting.last_id;
        collecting.started.push(Started { id, epoch, what, is_over: false });
        id
    }

    pub(crate) fn wait_for(&mut self, rank: u32, which: Which) {
        let proc = &mut self.procs[rank as usize];
        proc.collecting.waits = proc.collecting.pick(which, &mut self.rng);
        proc.doing = Doing::Reply;
        if proc.collecting.waits.is_none() || proc.collecting.take_awaited() {
            self.step_done(rank);
        } else if proc.socket != [true; 2] {
            self.pmi_fails(rank);
        }
    }

    pub(crate) fn on_fence_over(&mut self, rank: u32, id: u32, version: u32) -> Result<(), String> {
        let (epoch, _) = self.note_over(rank, id, |what| what == What::Fence)?;
        self.checks.collectives.on_release(epoch)?;
        self.checks.collectives.on_version(epoch, version)?;
        self.go_on_if_awaited(rank);
        Ok(())
    }

    pub(crate) fn on_allgather_over(&mut self, rank: u32, id: u32, array: &[u8]) -> Result<(), String> {
        let (epoch, what) = self.note_over(rank, id, |what| what != What::Fence)?;
        self.checks.collectives.on_release(epoch)?;
        if let What::Allgather { lens, shared } = what {
            self.check_array(rank, epoch, lens, shared, array)?;
        }
        self.go_on_if_awaited(rank);
        Ok(())
    }

    fn note_over(&mut self, rank: u32, id: u32, is_right: impl Fn(What) -> bool) -> Result<(u32, What), String> {
        let started = &mut self.procs[rank as usize].collecting.started;
        let found = started.iter_mut().find(|one| one.id == id && !one.is_over && is_right(one.what));
        let one = found.ok_or_else(|| format!("is told that {id} is complete, which it did not start in this way"))?;
        one.is_over = true;
        Ok((one.epoch, one.what))
    }

    fn go_on_if_awaited(&mut self, rank: u32) {
        if self.procs[rank as usize].collecting.take_awaited() {
            self.step_done(rank);
        }
    }

    /// Checks that an array holds the contributions of all ranks. The first rank of a node checks all of it, the others only their
    /// neighbours' values.
    fn check_array(&self, rank: u32, epoch: u32, lens: Lens, shared: bool, array: &[u8]) -> Result<(), String> {
        let size = self.spec.job_size();
        let rows = Rows::read(array).map_err(|error| format!("allgather {epoch}: {error}"))?;
        let is_padded = rows.form() == Form::Rows;
        if (rows.count(), rows.stride()) != (size, lens.max() as usize) || (shared && !is_padded) {
            return Err(format!("allgather {epoch}: {:?} of {} rows of {}", rows.form(), rows.count(), rows.stride()));
        }
        let reads_all = self.procs[rank as usize].local.0 == 0;
        let mut count = 0;
        for (value, of) in rows.values().zip(0..) {
            let value = value.map_err(|error| format!("allgather {epoch}: {error}"))?;
            count += 1;
            if !reads_all && of != (rank + 1) % size && of != (rank + size - 1) % size {
                continue;
            }
            let mut expected = contributions::value(self.spec.seed, of, epoch, lens);
            if is_padded {
                expected.resize(rows.stride(), 0);
            }
            if value != expected {
                return Err(format!("gets a wrong value of rank {of} in allgather {epoch}"));
            }
        }
        if count != size { Err(format!("allgather {epoch} has {count} values")) } else { Ok(()) }
    }

    /// The answer to a blocking fence, which is complete unless it is lazy.
    pub(crate) fn on_fence_answer(&mut self, rank: u32) -> Result<(), String> {
        let is_lazy = self.spec.pmi_fence == PmiFence::Lazy;
        let collecting = &mut self.procs[rank as usize].collecting;
        let epoch = collecting.blocking.take().ok_or("leaves a fence that it never entered")?;
        if std::mem::take(&mut collecting.has_put) && is_lazy {
            collecting.lazy = Some(epoch);
            self.checks.collectives.on_lazy(epoch);
            return Ok(());
        }
        self.checks.collectives.on_release(epoch)
    }

    /// A get was answered, so the rank's lazy fences must be complete.
    pub(crate) fn on_get_answer(&mut self, rank: u32) -> Result<(), String> {
        let lazy = self.procs[rank as usize].collecting.lazy.take();
        lazy.map_or(Ok(()), |epoch| self.checks.collectives.expect_complete(epoch))
    }

    pub(crate) fn on_ring_answer(&mut self, rank: u32, place: u32, left: &[u8], right: &[u8]) -> Result<(), String> {
        let epoch = self.procs[rank as usize].collecting.blocking.take().ok_or("leaves a ring it never entered")?;
        let whose = |value| contributions::ring_rank(value, epoch).ok_or(format!("gets a wrong value in ring {epoch}"));
        let (left, right) = (whose(left)?, whose(right)?);
        self.checks.collectives.on_release(epoch)?;
        self.checks.collectives.on_place(epoch, place, rank, left, right)
    }

    /// Looks up pairs in mapped memory, after fetching it if a fence has published more.
    pub(crate) fn look_up(&mut self, rank: u32, pair: u16, value_bytes: u16, whose: Whose) {
        let Some(client) = &self.procs[rank as usize].pmi else { return };
        if client.is_behind() == Some(true) {
            return self.ask(rank, Op::Map);
        }
        let (size, mut nth, mut problem) = (self.spec.job_size(), 0, None);
        while let Some(other) = whose.nth(rank, size, nth, &mut self.rng) {
            let expected = workload::value(self.spec.seed, other, pair, value_bytes);
            match client.lookup(&workload::key(other, pair)) {
                Ok(Some(value)) if value == expected.as_bytes() => self.checks.gets += 1,
                Ok(found) => {
                    problem.get_or_insert(format!("rank {rank} finds {found:?} of rank {other}, not {expected}"));
                }
                Err(error) => {
                    problem.get_or_insert(format!("rank {rank}: {error}"));
                }
            }
            nth += 1;
        }
        match problem {
            Some(problem) => self.checks.problem(problem),
            None => self.step_done(rank),
        }
    }

    /// A rank exits by itself and no longer waits for anything.
    pub(crate) fn abandon(&mut self, rank: u32) {
        let collecting = std::mem::take(&mut self.procs[rank as usize].collecting);
        let started = collecting.started.iter().filter(|one| !one.is_over).map(|one| one.epoch);
        for epoch in started.chain(collecting.blocking) {
            self.checks.collectives.on_abandon(epoch);
        }
    }

    /// Whether this rank's program is linked with our own library.
    pub(crate) fn is_own(&self, rank: u32) -> bool {
        self.procs[rank as usize].script.speaks == Speaks::Own
    }
}

//! The ranks' side of collectives: what they start, wait for and look up, and whether the results are what all ranks
//! contributed.

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
    /// Collectives that were started and not yet waited for, oldest first.
    started: Vec<Started>,
    last_request: u32,
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
    request: u32,
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

    /// Whether the collective for which the rank waits is complete; if so, it is forgotten.
    fn take_awaited(&mut self) -> bool {
        match self.waits {
            None => return false,
            Some(Waits::All) if self.is_under_way() => return false,
            Some(Waits::All) => self.started.clear(),
            Some(Waits::For(request)) => {
                let Some(at) = self.started.iter().position(|one| one.request == request && one.is_over) else {
                    return false;
                };
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
        Some(Waits::For(self.started[at].request))
    }
}

impl World {
    fn enter(&mut self, id: u32, collective: Collective) -> u32 {
        let proc = &mut self.procs[id as usize];
        let epoch = proc.entered;
        proc.entered += 1;
        self.checks_of(id).collectives.on_enter(epoch, collective);
        epoch
    }

    /// Enters a collective whose request is answered when it is complete: one at a time.
    pub(crate) fn enter_blocking(&mut self, id: u32, collective: Collective) -> u32 {
        let epoch = self.enter(id, collective);
        self.procs[id as usize].collecting.blocking = Some(epoch);
        epoch
    }

    pub(crate) fn start_fence(&mut self, id: u32) {
        let epoch = self.enter(id, Collective::Fence);
        let request = self.note_started(id, epoch, What::Fence);
        self.procs[id as usize].collecting.has_put = false;
        self.ask_and_go_on(id, Op::StartFence { id: request });
    }

    pub(crate) fn start_allgather(&mut self, id: u32, lens: Lens, shared: bool) {
        let epoch = self.enter(id, Collective::Allgather);
        let request = self.note_started(id, epoch, What::Allgather { lens, shared });
        let value = contributions::value(self.job(id).seed, self.rank_of(id), epoch, lens);
        self.ask_and_go_on(id, Op::StartAllgather { id: request, max_len: lens.max(), shared, value: &value });
    }

    fn note_started(&mut self, id: u32, epoch: u32, what: What) -> u32 {
        let collecting = &mut self.procs[id as usize].collecting;
        collecting.last_request += 1;
        let request = collecting.last_request;
        collecting.started.push(Started { request, epoch, what, is_over: false });
        request
    }

    pub(crate) fn wait_for(&mut self, id: u32, which: Which) {
        let proc = &mut self.procs[id as usize];
        proc.collecting.waits = proc.collecting.pick(which, &mut self.rng);
        proc.doing = Doing::Reply;
        if proc.collecting.waits.is_none() || proc.collecting.take_awaited() {
            self.step_done(id);
        } else if proc.socket != [true; 2] {
            self.pmi_fails(id);
        }
    }

    pub(crate) fn on_fence_over(&mut self, id: u32, request: u32, version: u32) -> Result<(), String> {
        let (epoch, _) = self.note_over(id, request, |what| what == What::Fence)?;
        self.checks_of(id).collectives.on_release(epoch)?;
        self.checks_of(id).collectives.on_version(epoch, version)?;
        self.go_on_if_awaited(id);
        Ok(())
    }

    pub(crate) fn on_allgather_over(&mut self, id: u32, request: u32, array: &[u8]) -> Result<(), String> {
        let (epoch, what) = self.note_over(id, request, |what| what != What::Fence)?;
        self.checks_of(id).collectives.on_release(epoch)?;
        if let What::Allgather { lens, shared } = what {
            self.check_array(id, epoch, lens, shared, array)?;
        }
        self.go_on_if_awaited(id);
        Ok(())
    }

    fn note_over(&mut self, id: u32, request: u32, is_right: impl Fn(What) -> bool) -> Result<(u32, What), String> {
        let started = &mut self.procs[id as usize].collecting.started;
        let found = started.iter_mut().find(|one| one.request == request && !one.is_over && is_right(one.what));
        let one =
            found.ok_or_else(|| format!("is told that {request} is complete, which it did not start in this way"))?;
        one.is_over = true;
        Ok((one.epoch, one.what))
    }

    fn go_on_if_awaited(&mut self, id: u32) {
        if self.procs[id as usize].collecting.take_awaited() {
            self.step_done(id);
        }
    }

    /// Checks that an array holds the contributions of all ranks. The first rank of a node checks all of it, the others
    /// only their neighbours' values.
    fn check_array(&self, id: u32, epoch: u32, lens: Lens, shared: bool, array: &[u8]) -> Result<(), String> {
        let (rank, job) = (self.rank_of(id), self.job(id));
        let size = job.size();
        let rows = Rows::read(array).map_err(|error| format!("allgather {epoch}: {error}"))?;
        let is_padded = rows.form() == Form::Rows;
        if (rows.count(), rows.stride()) != (size, lens.max() as usize) || (shared && !is_padded) {
            return Err(format!("allgather {epoch}: {:?} of {} rows of {}", rows.form(), rows.count(), rows.stride()));
        }
        let reads_all = self.procs[id as usize].local.0 == 0;
        let mut count = 0;
        for (value, of) in rows.values().zip(0..) {
            let value = value.map_err(|error| format!("allgather {epoch}: {error}"))?;
            count += 1;
            if !reads_all && of != (rank + 1) % size && of != (rank + size - 1) % size {
                continue;
            }
            let mut expected = contributions::value(job.seed, of, epoch, lens);
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
    pub(crate) fn on_fence_answer(&mut self, id: u32) -> Result<(), String> {
        let is_lazy = self.plan_of(id).options.pmi.fence == PmiFence::Lazy;
        let collecting = &mut self.procs[id as usize].collecting;
        let epoch = collecting.blocking.take().ok_or("leaves a fence that it never entered")?;
        if std::mem::take(&mut collecting.has_put) && is_lazy {
            collecting.lazy = Some(epoch);
            self.checks_of(id).collectives.on_lazy(epoch);
            return Ok(());
        }
        self.checks_of(id).collectives.on_release(epoch)
    }

    /// A get was answered, so the rank's lazy fences must be complete.
    pub(crate) fn on_get_answer(&mut self, id: u32) -> Result<(), String> {
        let lazy = self.procs[id as usize].collecting.lazy.take();
        lazy.map_or(Ok(()), |epoch| self.checks_of(id).collectives.expect_complete(epoch))
    }

    pub(crate) fn on_ring_answer(&mut self, id: u32, place: u32, left: &[u8], right: &[u8]) -> Result<(), String> {
        let epoch = self.procs[id as usize].collecting.blocking.take().ok_or("leaves a ring it never entered")?;
        let whose = |value| contributions::ring_rank(value, epoch).ok_or(format!("gets a wrong value in ring {epoch}"));
        let (left, right) = (whose(left)?, whose(right)?);
        self.checks_of(id).collectives.on_release(epoch)?;
        let rank = self.rank_of(id);
        self.checks_of(id).collectives.on_place(epoch, place, rank, left, right)
    }

    /// Looks up pairs in mapped memory, after fetching it if a fence has published more.
    pub(crate) fn look_up(&mut self, id: u32, pair: u16, value_bytes: u16, whose: Whose) {
        let (rank, seed, size) = (self.rank_of(id), self.job(id).seed, self.job(id).size());
        let Some(client) = &self.procs[id as usize].pmi else { return };
        if client.is_behind() == Some(true) {
            return self.ask(id, Op::Map);
        }
        let (mut nth, mut problem) = (0, None);
        while let Some(other) = whose.nth(rank, size, nth, &mut self.rng) {
            let expected = workload::value(seed, other, pair, value_bytes);
            match client.lookup(&workload::key(other, pair)) {
                Ok(Some(value)) if value == expected.as_bytes() => self.checks.gets += 1,
                Ok(found) => {
                    problem.get_or_insert(format!("finds {found:?} of rank {other}, not {expected}"));
                }
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
            nth += 1;
        }
        match problem {
            Some(problem) => self.rank_problem(id, &problem),
            None => self.step_done(id),
        }
    }

    /// A rank exits by itself and no longer waits for anything.
    pub(crate) fn abandon(&mut self, id: u32) {
        let collecting = std::mem::take(&mut self.procs[id as usize].collecting);
        let started = collecting.started.iter().filter(|one| !one.is_over).map(|one| one.epoch);
        for epoch in started.chain(collecting.blocking) {
            self.checks_of(id).collectives.on_abandon(epoch);
        }
    }

    /// Whether this rank's program is linked with our own library.
    pub(crate) fn is_own(&self, id: u32) -> bool {
        self.procs[id as usize].script.speaks == Speaks::Own
    }
}

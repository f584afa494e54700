//! The ranks' side of collectives: ranks start collectives, wait for them, look up values, and check that the results
//! are the contributions of all ranks.

use crate::client::Op;
use crate::contributions::{self, Lens};
use crate::cx::Cx;
use crate::jobs::Job;
use crate::rank_links::RingPlace;
use crate::ranks::{Doing, Proc};
use crate::rng::Rng;
use crate::steps::Then;
use crate::workload::{self, Which, Whose};
use bytes::Bytes;
use wireup_wire::collective::Collective;
use wireup_wire::job::PmiFence;
use wireup_wire::shared::rows::{Form, Rows};

/// Number of allgather arrays that a job remembers as read. Chosen: more than a rank usually has in progress.
const ARRAYS_READ_MAX: usize = 4;

/// The collectives of one rank.
#[derive(Debug, Default)]
pub struct Collecting {
    /// The number of collectives that the rank has entered.
    pub entered: u32,
    /// Collectives that were started and not yet waited for, oldest first.
    started: Vec<Started>,
    last_request: u32,
    waits: Option<Waits>,
    /// The collective whose request is not answered until it is complete, so that the rank is blocked.
    blocking: Option<u32>,
    /// Whether the rank has put a value since its last fence.
    has_put: bool,
    /// The last lazy fence, that is, a fence that the agent answers without waiting until all ranks have entered it.
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
    /// Whether a collective that the rank has started is not complete.
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

    fn start(&mut self, epoch: u32, what: What) -> u32 {
        self.last_request += 1;
        self.started.push(Started { request: self.last_request, epoch, what, is_over: false });
        self.last_request
    }

    fn on_over(&mut self, request: u32, is_right: impl Fn(What) -> bool) -> Result<(u32, What), String> {
        let found = self.started.iter_mut().find(|one| one.request == request && !one.is_over && is_right(one.what));
        let one =
            found.ok_or_else(|| format!("is told that {request} is complete, which it did not start in this way"))?;
        one.is_over = true;
        Ok((one.epoch, one.what))
    }

    pub fn enter(&mut self, job: &mut Job, collective: Collective) -> u32 {
        let epoch = self.entered;
        self.entered += 1;
        job.checks.collectives.on_enter(epoch, collective);
        epoch
    }

    /// Enters a collective whose request is answered only when it is complete. A rank has at most one of these.
    pub fn enter_blocking(&mut self, job: &mut Job, collective: Collective) -> u32 {
        let epoch = self.enter(job, collective);
        self.blocking = Some(epoch);
        epoch
    }

    /// The answer to a blocking fence, which is complete unless it is lazy.
    pub fn on_fence_answer(&mut self, job: &mut Job) -> Result<(), String> {
        let is_lazy = job.plan.options.pmi.fence == PmiFence::Lazy;
        let epoch = self.blocking.take().ok_or("leaves a fence that it never entered")?;
        if std::mem::take(&mut self.has_put) && is_lazy {
            self.lazy = Some(epoch);
            job.checks.collectives.on_lazy(epoch);
            return Ok(());
        }
        job.checks.collectives.on_release(epoch)
    }

    /// A get was answered, so the rank's lazy fences must be complete.
    pub fn on_get_answer(&mut self, job: &Job) -> Result<(), String> {
        let lazy = self.lazy.take();
        lazy.map_or(Ok(()), |epoch| job.checks.collectives.expect_complete(epoch))
    }

    pub fn on_ring_answer(
        &mut self,
        job: &mut Job,
        (place, rank): (u32, u32),
        left: &[u8],
        right: &[u8],
    ) -> Result<RingPlace, String> {
        let epoch = self.blocking.take().ok_or("leaves a ring it never entered")?;
        let whose = |value| contributions::ring_rank(value, epoch).ok_or(format!("gets a wrong value in ring {epoch}"));
        let (left, right) = (whose(left)?, whose(right)?);
        job.checks.collectives.on_release(epoch)?;
        job.checks.collectives.on_place(epoch, place, rank, left, right)?;
        Ok(RingPlace { position: place, left, right })
    }

    /// A rank exits by itself and no longer waits for anything.
    pub fn abandon(&mut self, job: &mut Job) {
        let collecting = self.forget();
        let started = collecting.started.iter().filter(|one| !one.is_over).map(|one| one.epoch);
        for epoch in started.chain(collecting.blocking) {
            job.checks.collectives.on_abandon(epoch);
        }
    }

    /// Forgets everything but the number of entered collectives; returns the state before that.
    pub fn forget(&mut self) -> Self {
        std::mem::replace(self, Collecting { entered: self.entered, ..Collecting::default() })
    }
}

impl Proc {
    pub fn start_fence(&mut self, cx: &mut Cx, job: &mut Job) -> Then {
        let epoch = self.collecting.enter(job, Collective::Fence);
        let request = self.collecting.start(epoch, What::Fence);
        self.collecting.has_put = false;
        self.ask_and_go_on(cx, job, Op::StartFence { id: request })
    }

    pub fn start_allgather(&mut self, cx: &mut Cx, job: &mut Job, lens: Lens, shared: bool) -> Then {
        let epoch = self.collecting.enter(job, Collective::Allgather);
        let request = self.collecting.start(epoch, What::Allgather { lens, shared });
        let value = contributions::value(job.seed, self.rank, epoch, lens);
        self.ask_and_go_on(cx, job, Op::StartAllgather { id: request, max_len: lens.max(), shared, value: &value })
    }

    pub fn wait_for(&mut self, cx: &mut Cx, job: &mut Job, which: Which) -> Then {
        self.collecting.waits = self.collecting.pick(which, &mut cx.rng);
        self.doing = Doing::Reply;
        if self.collecting.waits.is_none() || self.collecting.take_awaited() {
            self.step_done(cx);
        } else if self.socket.open != [true; 2] {
            return self.pmi_fails(job);
        }
        Then::Waits
    }

    pub fn on_fence_over(&mut self, cx: &mut Cx, job: &mut Job, request: u32, version: u32) -> Result<(), String> {
        let (epoch, _) = self.collecting.on_over(request, |what| what == What::Fence)?;
        job.checks.collectives.on_release(epoch)?;
        job.checks.collectives.on_version(epoch, version)?;
        self.go_on_if_awaited(cx);
        Ok(())
    }

    pub fn on_allgather_over(&mut self, cx: &mut Cx, job: &mut Job, request: u32, array: &Bytes) -> Result<(), String> {
        let (epoch, what) = self.collecting.on_over(request, |what| what != What::Fence)?;
        job.checks.collectives.on_release(epoch)?;
        if let What::Allgather { lens, shared } = what {
            check_array(job, epoch, lens, shared, array)?;
        }
        self.go_on_if_awaited(cx);
        Ok(())
    }

    fn go_on_if_awaited(&mut self, cx: &mut Cx) {
        if self.collecting.take_awaited() {
            self.step_done(cx);
        }
    }

    /// Looks up pairs in mapped memory, after fetching it if a fence has published more.
    pub fn look_up(&mut self, cx: &mut Cx, job: &mut Job, pair: u16, value_bytes: u16, whose: Whose) -> Then {
        let Some(client) = &self.pmi else { return Then::Waits };
        if client.is_behind() == Some(true) {
            return self.ask(cx, job, Op::Map);
        }
        let (mut nth, mut problem) = (0, None);
        while let Some(other) = whose.nth(self.rank, job.size(), nth, &mut cx.rng) {
            let expected = workload::value(job.seed, other, pair, value_bytes);
            match client.lookup(&workload::key(other, pair)) {
                Ok(Some(value)) if value == expected.as_bytes() => cx.checks.gets += 1,
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
            Some(problem) => self.problem(cx, job, &problem),
            None => self.step_done(cx),
        }
        Then::Waits
    }
}

/// Checks that an array holds the contributions of all ranks. An array that many ranks share is checked only once.
fn check_array(job: &mut Job, epoch: u32, lens: Lens, shared: bool, array: &Bytes) -> Result<(), String> {
    let size = job.size();
    let rows = Rows::read(array).map_err(|error| format!("allgather {epoch}: {error}"))?;
    let is_padded = rows.form() == Form::Rows;
    if (rows.count(), rows.stride()) != (size, lens.max() as usize) || (shared && !is_padded) {
        return Err(format!("allgather {epoch}: {:?} of {} rows of {}", rows.form(), rows.count(), rows.stride()));
    }
    let is_it = |(of, known): &(u32, Bytes)| *of == epoch && known.as_ptr() == array.as_ptr();
    if job.checks.arrays_read.iter().any(is_it) {
        return Ok(());
    }
    let mut count = 0;
    for (value, of) in rows.values().zip(0..) {
        let value = value.map_err(|error| format!("allgather {epoch}: {error}"))?;
        count += 1;
        let mut expected = contributions::value(job.seed, of, epoch, lens);
        if is_padded {
            expected.resize(rows.stride(), 0);
        }
        if value != expected {
            return Err(format!("gets a wrong value of rank {of} in allgather {epoch}"));
        }
    }
    if count != size {
        return Err(format!("allgather {epoch} has {count} values"));
    }
    job.checks.arrays_read.truncate(ARRAYS_READ_MAX - 1);
    job.checks.arrays_read.push_front((epoch, array.clone()));
    Ok(())
}

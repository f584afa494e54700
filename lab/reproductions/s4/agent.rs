//! A standing agent, without I/O: requests, puts and gets among agents in a ring (S4 4.2), or in a hypercube.
//!
//! ```text
//!   ring                                                        hypercube
//!   Launch    from agent 0 around, back to agent 0              along the binomial tree of the hypercube
//!   Gathered  around, each agent keeps it until its processes   Spread: log2 A rounds, each with all values of half of the agents
//!             are in the fence; Released: around                  that are still unknown; then every agent has all values
//!   Get       around, until the owner's agent makes it Value,   answered by the own agent
//!             which goes on around to the asker's agent
//!   Collect   around, back to agent 0: the end of the job, in both
//! ```
use std::collections::BTreeMap;

use super::message::{Kind, Message, SLOT_LEN};
use super::scheme::{SIZE_MAX, Scheme, Starter, agents_used};
use super::traffic::Traffic;
use super::values::VALUE_LEN;

/// What an agent knows of a rank: its slot, and the value.
type Values = BTreeMap<(u16, u16), [u8; VALUE_LEN]>;

/// Whom a message comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Only of agent 0.
    Launcher,
    /// The agent before this one, if something comes; the one after it, if something goes.
    Ring,
    /// The agent across this bit.
    Cube(u16),
    Process(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send(End, Message),
    /// Start these processes of a job.
    Start {
        scheme: Scheme,
        size: u16,
        ranks: std::ops::Range<u16>,
    },
    /// End the processes of the job, wait for them, and add to the message's traffic what this agent has sent. Then
    /// send it on.
    Collect(End, Message),
}

pub struct Agent {
    index: u16,
    agents: u16,
    job: Option<Job>,
    /// The number of the last job.
    number: u8,
    /// Messages across the hypercube that have overtaken the request for their job.
    ahead: Vec<(End, Message)>,
}

struct Job {
    scheme: Scheme,
    size: u16,
    ranks: std::ops::Range<u16>,
    values: Values,
    /// Processes in the fence.
    fenced: u16,
    /// The other agents are in the fence, as far as this one must know.
    is_gathered: bool,
    /// Rounds of the hypercube: the next one, and messages that came too early.
    round: u16,
    early: BTreeMap<u16, Vec<u8>>,
    reports: Vec<[u8; REPORT_LEN]>,
}

/// The longest body that an agent takes: all values of the largest job.
pub const BODY_LEN_MAX: usize = SIZE_MAX as usize * SIZE_MAX.ilog2() as usize * VALUE_LEN;

/// The longest times of processes (ns): until they had the values, and then until they were connected.
pub const REPORT_LEN: usize = 16;

impl Job {
    fn is_fenced(&self) -> bool {
        usize::from(self.fenced) == self.ranks.len()
    }

    fn slots(&self) -> u16 {
        match self.scheme.starter() {
            Starter::Cube => self.size.ilog2() as u16,
            _ => 2,
        }
    }

    /// The values of the ranks of some agents, in order.
    fn encoded(&self, owners: impl Iterator<Item = u16>) -> Vec<u8> {
        let keys = owners.flat_map(|rank| (0..self.slots()).map(move |slot| (rank, slot)));
        keys.filter_map(|key| self.values.get(&key)).flatten().copied().collect()
    }

    fn learn(&mut self, owners: impl Iterator<Item = u16>, bytes: &[u8]) {
        let slots = self.slots();
        let keys = owners.flat_map(|rank| (0..slots).map(move |slot| (rank, slot)));
        self.values.extend(keys.zip(bytes.as_chunks::<VALUE_LEN>().0.iter().copied()));
    }
}

/// The ranks of an agent.
pub fn ranks_of(agent: u16, agents: u16, size: u16) -> std::ops::Range<u16> {
    let used = agents_used(size, agents);
    let each = size / used;
    if agent < used { agent * each..(agent + 1) * each } else { 0..0 }
}

fn agent_of(rank: u16, agents: u16, size: u16) -> u16 {
    rank / (size / agents_used(size, agents))
}

/// The body of a launch request.
pub fn encode_job(scheme: Scheme, size: u16) -> Vec<u8> {
    let scheme = Scheme::ALL.iter().position(|one| *one == scheme).unwrap_or_default() as u16;
    [scheme.to_le_bytes(), size.to_le_bytes()].concat()
}

fn decode_job(body: &[u8], agents: u16) -> Option<(Scheme, u16)> {
    let &[scheme_low, scheme_high, size_low, size_high] = body else { return None };
    let scheme = *Scheme::ALL.get(usize::from(u16::from_le_bytes([scheme_low, scheme_high])))?;
    let size = u16::from_le_bytes([size_low, size_high]);
    let is_known = scheme.starter() != Starter::Star
        && (2..=SIZE_MAX).contains(&size)
        && super::scheme::fits(scheme, size, agents).is_ok();
    is_known.then_some((scheme, size))
}

fn slot_of(body: &[u8]) -> Option<(u16, u16)> {
    let &[rank_low, rank_high, slot_low, slot_high] = body.get(..SLOT_LEN)? else { return None };
    Some((u16::from_le_bytes([rank_low, rank_high]), u16::from_le_bytes([slot_low, slot_high])))
}

/// The body of a get.
pub fn encode_slot(rank: u16, slot: u16) -> Vec<u8> {
    [rank.to_le_bytes(), slot.to_le_bytes()].concat()
}

impl Agent {
    pub fn new(index: u16, agents: u16) -> Agent {
        Agent { index, agents, job: None, number: 0, ahead: Vec::new() }
    }

    /// Takes a message; what it does follows in order. Messages of other jobs, and those that make no sense, have no
    /// effect.
    pub fn take(&mut self, from: End, message: Message) -> Vec<Effect> {
        let mut effects = Vec::new();
        if from == End::Launcher {
            self.on_launcher(message, &mut effects);
        } else if message.kind == Kind::Launch {
            self.on_launch(from, message, &mut effects);
        } else if message.job == self.number || matches!(from, End::Process(_)) {
            self.on_message(from, message, &mut effects);
        } else if matches!(from, End::Cube(_)) && self.is_ahead(&message) {
            self.ahead.push((from, message));
        }
        effects
    }

    /// Each neighbour sends at most one such message before it waits for this agent.
    fn is_ahead(&self, message: &Message) -> bool {
        message.job.wrapping_sub(self.number) <= u8::MAX / 2 && self.ahead.len() < usize::from(self.bits())
    }

    /// The launcher is gone: its job ends.
    pub fn launcher_gone(&mut self) -> Vec<Effect> {
        self.job.take().map(|_| self.collect(Traffic::default().encoded())).into_iter().collect()
    }

    fn message(&self, kind: Kind, who: u16, body: Vec<u8>) -> Message {
        Message { kind, job: self.number, who, body }
    }

    fn collect(&self, body: Vec<u8>) -> Effect {
        Effect::Collect(End::Ring, self.message(Kind::Collect, 0, body))
    }

    fn on_launcher(&mut self, message: Message, effects: &mut Vec<Effect>) {
        match message.kind {
            Kind::Launch if self.job.is_none() => {
                self.number = self.number.wrapping_add(1);
                self.begin(message.body, effects);
            }
            Kind::Collect if self.job.take().is_some() => effects.push(self.collect(message.body)),
            _ => {}
        }
    }

    fn on_launch(&mut self, from: End, message: Message, effects: &mut Vec<Effect>) {
        // Agent 0 has started it: the request has been around.
        if self.index == 0 {
            return;
        }
        debug_assert!(from != End::Launcher);
        self.number = message.job;
        self.begin(message.body, effects);
    }

    /// Passes the request on, then starts the processes.
    fn begin(&mut self, body: Vec<u8>, effects: &mut Vec<Effect>) {
        let Some((scheme, size)) = decode_job(&body, self.agents) else { return };
        let further: Vec<End> = match scheme.starter() {
            Starter::Cube => (self.own_bits()..self.bits()).rev().map(End::Cube).collect(),
            _ => vec![End::Ring],
        };
        effects.extend(further.into_iter().map(|to| Effect::Send(to, self.message(Kind::Launch, 0, body.clone()))));
        let ranks = ranks_of(self.index, self.agents, size);
        effects.push(Effect::Start { scheme, size, ranks: ranks.clone() });
        let (values, early, reports) = Default::default();
        let job =
            Job { scheme, size, ranks, values, fenced: 0, is_gathered: self.index == 0, round: 0, early, reports };
        self.job = Some(job);
        self.advance(effects);
        for (from, message) in std::mem::take(&mut self.ahead) {
            if message.job == self.number {
                self.on_message(from, message, effects);
            }
        }
    }

    fn bits(&self) -> u16 {
        self.agents.ilog2() as u16
    }

    /// The bits of the own number: its parent in the binomial tree is across the highest of them.
    fn own_bits(&self) -> u16 {
        (u16::BITS - self.index.leading_zeros()) as u16
    }

    /// Where the launcher is.
    fn towards_launcher(&self, scheme: Scheme) -> End {
        match (self.index, scheme.starter()) {
            (0, _) => End::Launcher,
            (_, Starter::Cube) => End::Cube(self.own_bits() - 1),
            _ => End::Ring,
        }
    }

    fn on_message(&mut self, from: End, message: Message, effects: &mut Vec<Effect>) {
        if message.kind == Kind::Collect {
            return self.on_collect(message, effects);
        }
        let Some(job) = &mut self.job else { return };
        match message.kind {
            Kind::Put => {
                if let End::Process(rank) = from {
                    job.learn(std::iter::once(rank), &message.body);
                }
            }
            Kind::Fence => {
                job.fenced += 1;
                self.advance(effects);
            }
            // It has been around if this is agent 0.
            Kind::Gathered if self.index == 0 => self.release(effects),
            Kind::Gathered => {
                job.is_gathered = true;
                self.advance(effects);
            }
            Kind::Released if self.index == 0 => {}
            Kind::Released => self.release(effects),
            Kind::Spread => {
                job.early.insert(message.who, message.body);
                self.advance(effects);
            }
            Kind::Get => self.on_get(from, message, effects),
            Kind::Value => self.on_value(message, effects),
            Kind::Report => self.on_report(from, message, effects),
            _ => {}
        }
    }

    fn on_collect(&mut self, message: Message, effects: &mut Vec<Effect>) {
        if self.index == 0 {
            effects.push(Effect::Send(End::Launcher, message));
        } else if self.job.take().is_some() {
            effects.push(self.collect(message.body));
        }
    }

    /// Goes on with the fence, if its own processes and the other agents are as far.
    fn advance(&mut self, effects: &mut Vec<Effect>) {
        let Some(job) = &self.job else { return };
        if !job.is_fenced() {
            return;
        }
        match job.scheme.starter() {
            Starter::Cube => self.spread(effects),
            _ if job.is_gathered => {
                effects.push(Effect::Send(End::Ring, self.message(Kind::Gathered, 0, Vec::new())));
                if let Some(job) = &mut self.job {
                    job.is_gathered = false;
                }
            }
            _ => {}
        }
    }

    /// Sends its values in each round that can begin, and ends the fence after the last.
    fn spread(&mut self, effects: &mut Vec<Effect>) {
        let (bits, index, agents, number) = (self.bits(), self.index, self.agents, self.number);
        let Some(job) = &mut self.job else { return };
        let size = job.size;
        // In round d an agent knows the values of those who agree with it from bit d on.
        let owners = |agent: u16, round: u16| {
            let below = (1 << round) - 1;
            let known = (0..=below).map(move |low| agent & !below | low);
            known.flat_map(move |agent| ranks_of(agent, agents, size))
        };
        let send = |job: &Job, round: u16, effects: &mut Vec<Effect>| {
            let body = job.encoded(owners(index, round));
            effects.push(Effect::Send(End::Cube(round), Message { kind: Kind::Spread, job: number, who: round, body }));
        };
        if job.round == 0 {
            job.round = 1;
            if bits > 0 {
                send(job, 0, effects);
            }
        }
        while job.round <= bits {
            let round = job.round - 1;
            let Some(body) = job.early.remove(&round) else { return };
            job.learn(owners(index ^ 1 << round, round), &body);
            job.round += 1;
            if job.round <= bits {
                send(job, job.round - 1, effects);
            }
        }
        if job.round == bits + 1 {
            job.round += 1;
            self.release(effects);
        }
    }

    /// The fence is over.
    fn release(&mut self, effects: &mut Vec<Effect>) {
        let Some(job) = &self.job else { return };
        if self.index == 0 {
            effects.push(Effect::Send(End::Launcher, self.message(Kind::Started, 0, Vec::new())));
        }
        if job.scheme.starter() == Starter::Ring {
            effects.push(Effect::Send(End::Ring, self.message(Kind::Released, 0, Vec::new())));
        }
        let released = |rank| Effect::Send(End::Process(rank), self.message(Kind::Released, rank, Vec::new()));
        effects.extend(job.ranks.clone().map(released));
    }

    /// Answers if the value is here, else passes the request on.
    fn on_get(&mut self, from: End, mut message: Message, effects: &mut Vec<Effect>) {
        let Some(job) = &self.job else { return };
        let Some(key) = slot_of(&message.body).filter(|(rank, slot)| *rank < job.size && *slot < job.slots()) else {
            return;
        };
        message.job = self.number;
        if let End::Process(rank) = from {
            message.who = rank;
        }
        if let Some(value) = job.values.get(&key) {
            message.body.extend(value);
            message.kind = Kind::Value;
            return self.on_value(message, effects);
        }
        // Back at the asker's agent: nobody has put it.
        if matches!(from, End::Process(_)) || !job.ranks.contains(&message.who) {
            effects.push(Effect::Send(End::Ring, message));
        }
    }

    fn on_value(&mut self, message: Message, effects: &mut Vec<Effect>) {
        let Some(job) = self.job.as_ref().filter(|job| message.who < job.size) else { return };
        let to = match agent_of(message.who, self.agents, job.size) == self.index {
            true => End::Process(message.who),
            false => End::Ring,
        };
        effects.push(Effect::Send(to, message));
    }

    /// Passes on the reports of others, and one of its own once all of its processes have reported.
    fn on_report(&mut self, from: End, message: Message, effects: &mut Vec<Effect>) {
        let Some(scheme) = self.job.as_ref().map(|job| job.scheme) else { return };
        let to = self.towards_launcher(scheme);
        let Some(job) = &mut self.job else { return };
        if !matches!(from, End::Process(_)) {
            return effects.push(Effect::Send(to, message));
        }
        let Ok(times) = <[u8; REPORT_LEN]>::try_from(message.body) else { return };
        job.reports.push(times);
        if job.reports.len() == job.ranks.len() {
            let body = longest(&job.reports);
            effects.push(Effect::Send(to, self.message(Kind::Report, self.index, body)));
        }
    }
}

/// The longest of each time.
fn longest(reports: &[[u8; REPORT_LEN]]) -> Vec<u8> {
    let times = |half: usize| {
        let of = |report: &[u8; REPORT_LEN]| u64::from_le_bytes(report.as_chunks::<8>().0[half]);
        reports.iter().map(of).max().unwrap_or(0).to_le_bytes()
    };
    [times(0), times(1)].concat()
}

#[cfg(test)]
mod tests;

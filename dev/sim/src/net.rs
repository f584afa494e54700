//! Links between agents, and between the root and the launcher: delay, bandwidth, classes, loss.
//!
//! A link has two lanes. A frame waits in the queue of its class until the lane is free; the lowest class is sent
//! first, so a control frame overtakes waiting output, as in the real driver. On the wire, frames stay in order. A
//! frame arrives as a header and the sender's own payload buffer, so that all receivers of a blob share it. Sometimes
//! frames arrive split at random places, or joined to the previous one.

use crate::clock::{Clock, Event};
use crate::rng::Rng;
use crate::spec::Timing;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use wireup_proto::Instant;
use wireup_proto::io::{LinkId, Peer};
use wireup_wire::frame::{Class, Frame, FrameKind};
use wireup_wire::route::Routed;

/// Length of the longest frame that is joined to the previous one, since joining copies.
const GLUE_BYTES_MAX: usize = 4096;

/// The owner of one end of a link, with the owner's number for the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A process of an agent.
    Agent(u32, LinkId),
    Launcher(u32),
}

impl End {
    pub fn agent(self) -> Option<u32> {
        match self {
            End::Agent(agent, _) => Some(agent),
            End::Launcher(_) => None,
        }
    }
}

/// An arrival at an end of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    Up,
    /// A chunk of bytes, followed directly by a second chunk, which may be empty.
    Bytes(Bytes, Bytes),
    Down(&'static str),
}

/// All links of a world.
pub struct Net {
    links: Vec<Link>,
    timing: Timing,
    rng: Rng,
    pub classes: [ClassCount; Class::ALL.len()],
    /// Number of hops of frames that are routed between agents that are not neighbours. Frames that carry only an
    /// endpoint do not count.
    pub routed_frames: u64,
}

/// The number of frames and bytes of one class over all links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCount {
    pub frames: u64,
    pub bytes: u64,
}

struct Link {
    ends: [End; 2],
    /// Lanes of the link; lane `n` carries what end `n` sends.
    lanes: [Lane; 2],
    sort: Sort,
    /// The role of the peer at the other end, as seen from each end.
    peers: [Peer; 2],
}

/// The kind of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// A link between root and launcher in one process: no delay, no loss. End 0 of a launcher's link is the
    /// launcher's.
    InMemory,
    /// A link between parent and child, or between the root and a launcher that attaches to it; end 0 is the parent's
    /// or the launcher's.
    Tree,
    /// A link between any two agents; end 0 is the one that was dialled.
    Direct,
}

#[derive(Default)]
struct Lane {
    /// Frames that are not sent yet, by class, each with the time from which its sender can send it.
    waiting: [VecDeque<(Instant, Frame)>; Class::ALL.len()],
    wire: VecDeque<Arrival>,
    free_at: Instant,
    last_arrival: Instant,
    /// Time of the scheduled `LinkFree` event, which checks whether the lane can send.
    wakes_at: Option<Instant>,
    /// Whether everything that is sent on the lane gets lost.
    muted: bool,
    state: LaneState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum LaneState {
    #[default]
    Open,
    /// The lane closes after it has sent the waiting frames.
    Closing,
    /// The lane accepts nothing more; frames on the wire still arrive.
    Closed,
    /// The receiver of the lane no longer exists.
    Deaf,
}

impl Net {
    pub fn new(seed: u64, timing: Timing) -> Self {
        Net { links: Vec::new(), timing, rng: Rng::stream(seed, "net"), classes: Default::default(), routed_frames: 0 }
    }

    /// The number that the next new link will have.
    pub fn next_link(&self) -> u32 {
        self.links.len() as u32
    }

    pub fn ends(&self, link: u32) -> [End; 2] {
        self.links[link as usize].ends
    }

    pub fn is_direct(&self, link: u32) -> bool {
        self.links[link as usize].sort == Sort::Direct
    }

    /// The role of the peer at the other end, as seen from end `end`.
    pub fn peer(&self, link: u32, end: usize) -> Peer {
        self.links[link as usize].peers[end]
    }

    /// The process at the end of a link that is nearer to the root; `None`: a launcher.
    pub fn upper_end(&self, link: u32) -> Option<u32> {
        self.ends(link)[0].agent()
    }

    pub fn lower_end(&self, link: u32) -> Option<u32> {
        self.ends(link)[1].agent()
    }

    /// The end of a link at this process.
    pub fn end_of(&self, link: u32, agent: u32) -> usize {
        usize::from(self.lower_end(link) == Some(agent))
    }

    /// The process at the other end of a link.
    pub fn other_end(&self, link: u32, agent: u32) -> Option<u32> {
        self.ends(link)[1 - self.end_of(link, agent)].agent()
    }

    /// Both ends of each direct link that is still open.
    pub fn open_direct(&self) -> impl Iterator<Item = [End; 2]> {
        let is_open =
            |link: &&Link| link.sort == Sort::Direct && link.lanes.iter().any(|lane| lane.state == LaneState::Open);
        self.links.iter().filter(is_open).map(|link| link.ends)
    }

    /// Brings a link up, after `pause_ns`; each end learns of the link after a separate delay. Returns the link's
    /// number.
    pub fn connect(&mut self, clock: &mut Clock, ends: [End; 2], peers: [Peer; 2], sort: Sort, pause_ns: u64) -> u32 {
        let link = self.next_link();
        self.links.push(Link { ends, lanes: Default::default(), sort, peers });
        for lane in 0..2 {
            self.put_on_wire(clock, link, lane, Arrival::Up, pause_ns);
        }
        link
    }

    /// Sends a frame from end `from` as soon as its sender is `ready`; a closed lane drops the frame. Frames that are
    /// sent before `ready` do not wait for it.
    pub fn send(&mut self, clock: &mut Clock, link: u32, from: usize, frame: Frame, ready: Instant) {
        let lane = &mut self.links[link as usize].lanes[from];
        if lane.state != LaneState::Open {
            return;
        }
        let class = &mut self.classes[frame.class as usize];
        class.frames += 1;
        class.bytes += frame.wire_len() as u64;
        if frame.kind == FrameKind::Routed {
            let routed = Routed::unwrap(frame.clone()).expect("an agent encoded it");
            self.routed_frames += u64::from(routed.frame.is_some());
        }
        lane.waiting[frame.class as usize].push_back((ready, frame));
        self.pump(clock, link, from);
    }

    /// Closes end `from` after the frames that it has sent; frames still on the way to this end are lost.
    pub fn close(&mut self, clock: &mut Clock, link: u32, from: usize) {
        let lanes = &mut self.links[link as usize].lanes;
        lanes[1 - from].deafen();
        if lanes[from].state == LaneState::Open {
            lanes[from].state = LaneState::Closing;
            self.pump(clock, link, from);
        }
    }

    /// Breaks the link: each end receives a part of what is in flight, then the loss.
    pub fn cut(&mut self, clock: &mut Clock, link: u32) {
        for lane in 0..2 {
            self.cut_lane(clock, link, lane, "connection timed out");
        }
    }

    /// From now on nothing arrives on the link; each end notices the silence when it has received nothing for
    /// `timeout_ns`.
    pub fn silence(&mut self, clock: &mut Clock, link: u32, timeout_ns: u64) {
        for lane in 0..2 {
            let Lane { waiting, wire, muted, .. } = &mut self.links[link as usize].lanes[lane];
            if std::mem::replace(muted, true) {
                continue;
            }
            waiting.iter_mut().for_each(VecDeque::clear);
            // The event `Up`, which comes before all frames, is kept.
            wire.truncate(1);
            let late_ns = self.rng.below(timeout_ns / 4 + 1);
            clock.after(timeout_ns + late_ns, Event::LinkSilent(link, lane as u8));
        }
    }

    /// The receiver of a lane has received nothing for too long and gives up the link.
    pub fn on_silent(&mut self, clock: &mut Clock, link: u32, lane: usize) {
        let at = &mut self.links[link as usize].lanes[lane];
        at.muted = false;
        if at.state != LaneState::Deaf {
            at.silence();
            self.put_on_wire(clock, link, lane, Arrival::Down("nothing was heard of it"), 0);
        }
    }

    /// End `from` dies without closing the link.
    pub fn kill_end(&mut self, clock: &mut Clock, link: u32, from: usize) {
        self.cut_lane(clock, link, from, "connection reset by peer");
        self.links[link as usize].lanes[1 - from].deafen();
    }

    /// A lane may be free to send the next frame.
    pub fn on_free(&mut self, clock: &mut Clock, link: u32, lane: usize) {
        self.links[link as usize].lanes[lane].wakes_at.take_if(|at| *at <= clock.now());
        self.pump(clock, link, lane);
    }

    /// The next arrival at the receiving end of a lane; `None` if it was lost on the way.
    pub fn on_arrive(&mut self, link: u32, lane: usize) -> Option<Arrival> {
        let lanes = &mut self.links[link as usize].lanes;
        let arrival = lanes[lane].wire.pop_front()?;
        if matches!(arrival, Arrival::Down(_)) {
            // An end that has received `Down` sends nothing more, and the frames still in its lane are lost.
            lanes[lane].deafen();
            lanes[1 - lane].silence();
        }
        Some(arrival)
    }

    fn pump(&mut self, clock: &mut Clock, link: u32, at: usize) {
        loop {
            let Link { lanes, sort, .. } = &mut self.links[link as usize];
            let lane = &mut lanes[at];
            if let Some(wakes_at) = lane.sends_later(clock.now()) {
                if lane.wakes_at.is_none_or(|planned| wakes_at < planned) {
                    lane.wakes_at = Some(wakes_at);
                    clock.at(wakes_at, Event::LinkFree(link, at as u8));
                }
                return;
            }
            let Some(frame) = lane.take_ready(clock.now()) else {
                if lane.state == LaneState::Closing {
                    lane.state = LaneState::Closed;
                    self.put_on_wire(clock, link, at, Arrival::Down("closed by peer"), 0);
                }
                return;
            };
            if *sort != Sort::InMemory {
                let cost_ns = frame.wire_len() as u64 * 1000 / self.timing.link_bytes_per_us.max(1);
                lane.free_at = clock.now() + cost_ns;
            }
            self.put_frame(clock, link, at, frame);
        }
    }

    fn put_frame(&mut self, clock: &mut Clock, link: u32, at: usize, frame: Frame) {
        let Link { lanes, sort, .. } = &mut self.links[link as usize];
        if lanes[at].muted {
            return;
        }
        let header = Bytes::copy_from_slice(&frame.header());
        if *sort == Sort::InMemory || !self.rng.chance(self.timing.cut_permille) {
            return self.put_on_wire(clock, link, at, Arrival::Bytes(header, frame.payload), 0);
        }
        let mut whole = BytesMut::with_capacity(frame.wire_len());
        whole.extend_from_slice(&header);
        whole.extend_from_slice(&frame.payload);
        let glue = whole.len() <= GLUE_BYTES_MAX && self.rng.chance(500);
        let last = lanes[at].wire.back_mut().filter(|last| glue && last.is_short());
        if let Some(Arrival::Bytes(head, body)) = last {
            *head = Bytes::from([&head[..], &body[..], &whole[..]].concat());
            *body = Bytes::new();
            return;
        }
        let mut rest = whole.freeze();
        while !rest.is_empty() {
            let cut = self.rng.between(1, (rest.len() as u64).min(200_000)) as usize;
            // Most splits are near a header, where bugs in readers are most likely.
            let cut = if self.rng.chance(500) { cut.min(1 + self.rng.below(20) as usize) } else { cut };
            let rest_of_it = if self.rng.chance(300) { rest.len() } else { cut };
            let chunk = rest.split_to(rest_of_it);
            let pause_ns = self.rng.below(20_000);
            self.put_on_wire(clock, link, at, Arrival::Bytes(chunk, Bytes::new()), pause_ns);
        }
    }

    fn put_on_wire(&mut self, clock: &mut Clock, link: u32, at: usize, arrival: Arrival, pause_ns: u64) {
        let Link { lanes, sort, .. } = &mut self.links[link as usize];
        let lane = &mut lanes[at];
        if lane.state == LaneState::Deaf || lane.muted {
            return;
        }
        let delay_ns = if *sort == Sort::InMemory { 0 } else { self.timing.link.draw(&mut self.rng) + pause_ns };
        lane.last_arrival = lane.last_arrival.max(lane.free_at.max(clock.now()) + delay_ns);
        lane.wire.push_back(arrival);
        clock.at(lane.last_arrival, Event::LinkArrive(link, at as u8));
    }

    fn cut_lane(&mut self, clock: &mut Clock, link: u32, at: usize, problem: &'static str) {
        let lane = &mut self.links[link as usize].lanes[at];
        if lane.muted {
            return lane.silence();
        }
        let was_down = lane.wire.iter().any(|arrival| matches!(arrival, Arrival::Down(_)));
        let is_over = matches!(lane.state, LaneState::Deaf) || (lane.state == LaneState::Closed && !was_down);
        lane.silence();
        if is_over {
            return;
        }
        // The event `Up`, which comes before all frames, is kept.
        let keep = 1 + self.rng.below(lane.wire.len() as u64 + 1) as usize;
        let torn = lane.wire.get(keep).cloned();
        lane.wire.truncate(keep);
        if let Some(Arrival::Bytes(mut head, mut body)) = torn {
            let whole = (head.len() + body.len()) as u64;
            let part = self.rng.below(whole) as usize;
            body.truncate(part.saturating_sub(head.len()));
            head.truncate(part);
            if !head.is_empty() {
                self.put_on_wire(clock, link, at, Arrival::Bytes(head, body), 0);
            }
        }
        self.put_on_wire(clock, link, at, Arrival::Down(problem), 0);
    }
}

impl Lane {
    /// The next time at which the lane may be able to send, if it cannot now because it is busy or because no sender of
    /// a waiting frame is ready.
    fn sends_later(&self, now: Instant) -> Option<Instant> {
        let ready = self.waiting.iter().filter_map(VecDeque::front).map(|(ready, _)| *ready).min();
        [Some(self.free_at), ready].into_iter().flatten().find(|at| *at > now)
    }

    /// Removes and returns the first waiting frame whose sender is ready, of the lowest class that has such a frame.
    fn take_ready(&mut self, now: Instant) -> Option<Frame> {
        let is_ready = |(ready, _): &(Instant, Frame)| *ready <= now;
        let mut queues = self.waiting.iter_mut();
        let queue = queues.find(|queue| queue.front().is_some_and(is_ready))?;
        queue.pop_front().map(|(_, frame)| frame)
    }

    /// From now on nothing more is sent on this lane.
    fn silence(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
        if self.state != LaneState::Deaf {
            self.state = LaneState::Closed;
        }
    }

    /// From now on nothing more is received from this lane.
    fn deafen(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
        self.wire.clear();
        self.state = LaneState::Deaf;
    }
}

impl Arrival {
    fn is_short(&self) -> bool {
        matches!(self, Arrival::Bytes(head, body) if head.len() + body.len() <= GLUE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Delay;
    use wireup_proto::control_frame;
    use wireup_wire::ids::JobId;
    use wireup_wire::talk::{Control, FromLauncher};

    #[test]
    fn a_frame_does_not_wait_until_the_sender_of_the_next_is_ready() {
        let timing = Timing { link: Delay::between(0, 0), cut_permille: 0, ..Timing::default() };
        let (mut clock, mut net) = (Clock::new(1), Net::new(1, timing));
        let ends = [End::Launcher(0), End::Launcher(1)];
        let link = net.connect(&mut clock, ends, [Peer::Launcher; 2], Sort::Tree, 0);
        let start = clock.now();
        for ready_us in [1, 500] {
            let frame = control_frame(JobId(0), &Control::FromLauncher(FromLauncher::AskJobs));
            net.send(&mut clock, link, 0, frame, start + ready_us * 1_000);
        }
        let mut arrived_us = Vec::new();
        while let Some(event) = clock.next() {
            match event {
                Event::LinkFree(link, lane) => net.on_free(&mut clock, link, lane.into()),
                Event::LinkArrive(link, lane) => {
                    if let Some(Arrival::Bytes(..)) = net.on_arrive(link, lane.into()) {
                        arrived_us.push((clock.now() - start) / 1_000);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(arrived_us, [1, 500]);
    }
}

//! Links over UCX: greetings, then frames, on the one worker of this agent.
//!
//! A link is a pair of tags. Frames are bytes as on any link: small ones together in a message, large ones in their own, without a
//! copy. A link that cannot be made here is tried by TCP; one that breaks is a link that broke.

use crate::transport::greeting::Greeting;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_ucx::{Endpoint, Message, Worker};
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;
use wireup_wire::route::UcxPoint;

/// The tag of greetings.
const GREETING: u64 = u64::MAX;
/// Time for an answer (ns); then TCP is tried. Chosen: two messages take less than a second on a busy machine.
const ANSWER_NS_MAX: u64 = 5_000_000_000;
/// Frames that are put together into one message. Chosen: below this a copy costs less than a message of its own.
const SMALL_BYTES_MAX: usize = 8 << 10;

pub struct UcxLinks {
    me: AgentId,
    worker: Worker,
    key: [u8; 32],
    links: BTreeMap<LinkId, UcxLink>,
    by_tag: BTreeMap<u64, LinkId>,
    messages: Vec<Message>,
}

struct UcxLink {
    endpoint: Endpoint,
    tag_in: u64,
    stage: Stage,
    joined: Vec<u8>,
    queue: Vec<Bytes>,
    closing: bool,
}

enum Stage {
    /// Dialled; the answer is waited for. Frames may come before it.
    Greeted {
        target: AgentId,
        key: [u8; 32],
        until_ns: u64,
        addresses: Vec<String>,
        early: Vec<Bytes>,
    },
    Up {
        tag_out: u64,
    },
}

/// A peer that is to be dialled by TCP instead.
pub struct Instead {
    pub agent: AgentId,
    pub addresses: Vec<String>,
}

impl UcxLinks {
    /// Opens the library.
    ///
    /// # Errors
    /// Why it cannot be used here, in words.
    pub fn open(me: AgentId) -> Result<UcxLinks, String> {
        let worker = Worker::open().map_err(|error| error.to_string())?;
        let mut key = [0; 32];
        random(&mut key)?;
        let (links, by_tag) = Default::default();
        Ok(UcxLinks { me, worker, key, links, by_tag, messages: Vec::new() })
    }

    /// Where others reach this agent.
    pub fn point(&self) -> UcxPoint {
        UcxPoint { address: self.worker.address().to_vec(), key: self.key }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.worker.fd()
    }

    /// Greets an agent.
    ///
    /// # Errors
    /// It cannot be reached this way.
    pub fn dial(
        &mut self,
        id: LinkId,
        target: AgentId,
        point: &UcxPoint,
        addresses: &[String],
        now_ns: u64,
    ) -> Result<(), String> {
        let endpoint = self.worker.connect(&point.address).map_err(|error| error.to_string())?;
        let tag_in = fresh_tag()?;
        let address = self.worker.address().to_vec();
        let hello = Greeting { from: self.me, to: target, tag: tag_in, echo: None, address };
        let sent = self.worker.send(endpoint, GREETING, hello.encode(&point.key).into());
        if let Err(error) = sent {
            self.worker.close(endpoint);
            return Err(error.to_string());
        }
        let (addresses, until_ns) = (addresses.to_vec(), now_ns + ANSWER_NS_MAX);
        let stage = Stage::Greeted { target, key: point.key, until_ns, addresses, early: Vec::new() };
        self.insert(id, endpoint, tag_in, stage);
        Ok(())
    }

    fn insert(&mut self, id: LinkId, endpoint: Endpoint, tag_in: u64, stage: Stage) {
        let link = UcxLink { endpoint, tag_in, stage, joined: Vec::new(), queue: Vec::new(), closing: false };
        self.by_tag.insert(tag_in, id);
        self.links.insert(id, link);
    }

    /// Takes in what has come. `next` numbers new links; who cannot be had this way is returned.
    pub fn poll(&mut self, next: &mut u32, inputs: &mut Vec<Input>) -> Vec<Instead> {
        let (mut messages, mut broken) = (std::mem::take(&mut self.messages), Vec::new());
        self.worker.poll(&mut messages, &mut broken);
        // Greetings first: others may follow them at once.
        for message in messages.iter().filter(|message| message.tag == GREETING) {
            self.on_greeting(&message.bytes, next, inputs);
        }
        for message in messages.drain(..).filter(|message| message.tag != GREETING) {
            let Some(&link) = self.by_tag.get(&message.tag) else { continue };
            match self.links.get_mut(&link).map(|link| &mut link.stage) {
                Some(Stage::Up { .. }) => inputs.push(Input::LinkBytes { link, bytes: message.bytes }),
                Some(Stage::Greeted { early, .. }) => early.push(message.bytes),
                None => {}
            }
        }
        self.messages = messages;
        let mut instead = Vec::new();
        for (endpoint, status) in broken {
            let id = self.links.iter().find(|(_, link)| link.endpoint == endpoint).map(|(id, _)| *id);
            instead.extend(id.and_then(|id| self.fail(id, &format!("UCX gave it up (status {status})"), inputs)));
        }
        instead
    }

    fn on_greeting(&mut self, bytes: &[u8], next: &mut u32, inputs: &mut Vec<Input>) {
        if let Some(hello) =
            Greeting::decode(bytes, &self.key).filter(|hello| hello.to == self.me && hello.echo.is_none())
        {
            let Ok(endpoint) = self.worker.connect(&hello.address) else { return };
            let Ok(tag_in) = fresh_tag() else { return };
            let answer =
                Greeting { from: self.me, to: hello.from, tag: tag_in, echo: Some(hello.tag), address: Vec::new() };
            if self.worker.send(endpoint, GREETING, answer.encode(&self.key).into()).is_err() {
                return self.worker.close(endpoint);
            }
            let id = LinkId(*next);
            *next += 1;
            self.insert(id, endpoint, tag_in, Stage::Up { tag_out: hello.tag });
            inputs.push(Input::LinkUp { link: id, peer: Peer::Direct(hello.from), local: String::new() });
            return;
        }
        // The answer to one of ours, by the key that it was made with.
        for (&id, link) in &mut self.links {
            let Stage::Greeted { target, key, early, .. } = &mut link.stage else { continue };
            let Some(answer) = Greeting::decode(bytes, key) else { continue };
            if answer.from == *target && answer.to == self.me && answer.echo == Some(link.tag_in) {
                let (peer, early) = (Peer::Direct(*target), std::mem::take(early));
                link.stage = Stage::Up { tag_out: answer.tag };
                inputs.push(Input::LinkUp { link: id, peer, local: String::new() });
                inputs.extend(early.into_iter().map(|bytes| Input::LinkBytes { link: id, bytes }));
                return;
            }
        }
    }

    /// A link is of no use any more.
    fn fail(&mut self, id: LinkId, problem: &str, inputs: &mut Vec<Input>) -> Option<Instead> {
        let link = self.forget(id)?;
        match link.stage {
            Stage::Greeted { target, addresses, .. } => Some(Instead { agent: target, addresses }),
            Stage::Up { .. } => {
                inputs.push(Input::LinkDown { link: id, problem: problem.to_owned() });
                None
            }
        }
    }

    fn forget(&mut self, id: LinkId) -> Option<UcxLink> {
        let link = self.links.remove(&id)?;
        self.by_tag.remove(&link.tag_in);
        self.worker.close(link.endpoint);
        Some(link)
    }

    /// Queues a frame; `flush` sends it.
    pub fn send(&mut self, id: LinkId, frame: Frame) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let header = frame.header();
        if link.joined.len() + frame.wire_len() <= SMALL_BYTES_MAX {
            link.joined.extend_from_slice(&header);
            link.joined.extend_from_slice(&frame.payload);
            return;
        }
        link.joined.extend_from_slice(&header);
        if frame.payload.len() <= SMALL_BYTES_MAX {
            link.joined.extend_from_slice(&frame.payload);
        }
        link.queue.push(std::mem::take(&mut link.joined).into());
        if frame.payload.len() > SMALL_BYTES_MAX {
            link.queue.push(frame.payload);
        }
    }

    pub fn close(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.closing = true;
        }
    }

    /// Sends what was queued on a link.
    pub fn flush(&mut self, id: LinkId, inputs: &mut Vec<Input>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Stage::Up { tag_out } = link.stage else { return };
        if !link.joined.is_empty() {
            link.queue.push(std::mem::take(&mut link.joined).into());
        }
        let worker = &mut self.worker;
        let sent = link.queue.drain(..).try_for_each(|bytes| worker.send(link.endpoint, tag_out, bytes));
        match sent {
            Err(error) => drop(self.fail(id, &error.to_string(), inputs)),
            Ok(()) if link.closing => drop(self.forget(id)),
            Ok(()) => {}
        }
    }

    /// Whether all that has come was taken in, so that the descriptor tells of more.
    pub fn arm(&mut self) -> bool {
        self.worker.arm()
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let until = |link: &UcxLink| match link.stage {
            Stage::Greeted { until_ns, .. } => Some(until_ns),
            Stage::Up { .. } => None,
        };
        self.links.values().filter_map(until).min()
    }

    /// Who has not answered is tried by TCP.
    pub fn on_tick(&mut self, now_ns: u64) -> Vec<Instead> {
        let is_late = |link: &UcxLink| matches!(link.stage, Stage::Greeted { until_ns, .. } if until_ns <= now_ns);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, link)| is_late(link)).map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| self.fail(id, "", &mut Vec::new())).collect()
    }
}

fn random(bytes: &mut [u8]) -> Result<(), String> {
    let length = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
    let length = length.map_err(|error| format!("random bytes: {error}"))?;
    assert_eq!(length, bytes.len(), "the kernel gives up to 256 random bytes at once");
    Ok(())
}

fn fresh_tag() -> Result<u64, String> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes).min(GREETING - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use wireup_wire::frame::{Class, FrameReader, Kind};

    fn open(me: u32) -> Option<UcxLinks> {
        UcxLinks::open(AgentId(me)).map_err(|problem| eprintln!("not run: {problem}")).ok()
    }

    fn frame(arg: u32, bytes: usize) -> Frame {
        let payload = vec![arg as u8; bytes].into();
        Frame { kind: Kind::Direct, class: Class::Exchange, stream: 0, job: 1, arg, payload }
    }

    /// Lets both work until `done` says so of what they were told.
    fn run(ends: &mut [UcxLinks; 2], inputs: &mut [Vec<Input>; 2], done: impl Fn(&[Vec<Input>; 2]) -> bool) {
        let (mut next, begun) = ([10, 20], Instant::now());
        while !done(inputs) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{inputs:?}");
            for at in 0..2 {
                assert!(ends[at].poll(&mut next[at], &mut inputs[at]).is_empty());
            }
        }
    }

    #[test]
    fn a_greeted_agent_is_linked_and_frames_go_both_ways() {
        let (Some(one), Some(two)) = (open(1), open(2)) else { return };
        let point = two.point();
        let mut ends = [one, two];
        ends[0].dial(LinkId(5), AgentId(2), &point, &[], 0).unwrap();
        let mut inputs = [Vec::new(), Vec::new()];
        run(&mut ends, &mut inputs, |inputs| inputs.iter().all(|inputs| !inputs.is_empty()));
        let up = |link, agent| Input::LinkUp {
            link: LinkId(link),
            peer: Peer::Direct(AgentId(agent)),
            local: String::new(),
        };
        assert_eq!(inputs, [vec![up(5, 2)], vec![up(20, 1)]]);
        let sizes = [8, 9000, 0, 300_000, 8_000, 200, 8];
        for (at, id) in [(0, LinkId(5)), (1, LinkId(20))] {
            for (n, size) in sizes.iter().enumerate() {
                ends[at].send(id, frame(n as u32, *size));
            }
            ends[at].flush(id, &mut inputs[at]);
        }
        let frames = |inputs: &[Input]| {
            let (mut reader, mut frames) = (FrameReader::new(), Vec::new());
            for input in inputs {
                if let Input::LinkBytes { bytes, .. } = input {
                    let mut bytes = bytes.clone();
                    while let Ok(Some(frame)) = reader.next(&mut bytes) {
                        frames.push((frame.arg, frame.payload.len()));
                    }
                }
            }
            frames
        };
        run(&mut ends, &mut inputs, |inputs| inputs.iter().all(|inputs| frames(inputs).len() == sizes.len()));
        let wanted: Vec<(u32, usize)> = sizes.iter().enumerate().map(|(n, size)| (n as u32, *size)).collect();
        assert_eq!(inputs.map(|inputs| frames(&inputs)), [wanted.clone(), wanted]);
    }

    #[test]
    fn who_does_not_know_the_key_is_not_heard_and_who_is_not_answered_dials_otherwise() {
        let (Some(one), Some(two)) = (open(1), open(2)) else { return };
        let point = UcxPoint { key: [9; 32], ..two.point() };
        let mut ends = [one, two];
        ends[0].dial(LinkId(5), AgentId(2), &point, &["a2".into()], 7).unwrap();
        let begun = Instant::now();
        let mut inputs = Vec::new();
        while begun.elapsed() < Duration::from_millis(50) {
            let mut next = 0;
            ends[0].poll(&mut next, &mut inputs);
            ends[1].poll(&mut next, &mut inputs);
        }
        assert!(inputs.is_empty());
        assert_eq!(ends[0].deadline_ns(), Some(7 + ANSWER_NS_MAX));
        assert!(ends[0].on_tick(7).is_empty());
        let instead = ends[0].on_tick(7 + ANSWER_NS_MAX);
        assert_eq!((instead[0].agent, &instead[0].addresses[..]), (AgentId(2), &["a2".to_owned()][..]));
        assert_eq!(ends[0].deadline_ns(), None);
    }
}

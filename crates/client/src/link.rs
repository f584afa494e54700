//! The conversation with the PMI server, without I/O.
//!
//! The driver sends what [`Link::to_send`] holds, hands over what it receives, and calls [`Link::next`] until it
//! returns `false`:
//!
//! ```text
//!   ask, post, start, begin_fence ──► to_send ══► server
//!   next ◄── push, push_memory ◄══════════════════╯
//!     ├─ answer to a request of the caller:  handed to `take`
//!     ├─ answer to a posted put:             counted; a refusal is reported by the next fence
//!     ├─ answer to the fence:                kept until `take_fence_end`
//!     └─ answer to a numbered request:       kept until `next_completion`, `take_addresses`, `take_gathers`
//! ```

use crate::escape::halve;
use crate::number;
use crate::pipeline::{Answer, Broken, Pipeline};
use alloc::vec::Vec;
use wireup_wire::pmi::{Command, Dialect, Request};

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server is gone, or sent something that cannot be understood: no call will succeed any more.
    Broken,
    /// The server refused the request.
    Refused,
}

/// The fence that every server has. One at a time is under way.
enum Fence {
    Idle,
    UnderWay,
    Over(Result<(), Failure>),
}

/// A numbered request has succeeded.
#[derive(Debug)]
pub struct Completion<M> {
    pub id: u32,
    /// Of a fence: how often the kvs has grown. Of an allgather: the place of the array in the arena; 0: in memory of
    /// its own.
    pub number: u32,
    /// Of an allgather: the array, or a new arena; `None` if none came, or if it could not be mapped.
    pub memory: Option<M>,
}

pub struct Link<M> {
    pipeline: Pipeline,
    out: Vec<u8>,
    fence: Fence,
    posts: Posts,
    /// Received, and not taken yet by the answer that it belongs to. `None`: it could not be mapped.
    received: Vec<Option<M>>,
    /// What came with the last answer.
    taken: Vec<Option<M>>,
    completions: Vec<Completion<M>>,
    /// By number: where ranks are reached; `None`: the rank has left.
    addresses: Vec<(u32, Option<Vec<u8>>)>,
    gathers: Vec<(u32, Gathered<M>)>,
    is_broken: bool,
}

/// The result of a collective of a group: an array of its members' values, as in [`wireup_wire::shared::rows`].
#[derive(Debug)]
pub enum Gathered<M> {
    /// All values are empty.
    Empty,
    Bytes(Vec<u8>),
    /// `None`: it could not be mapped.
    Memory(Option<M>),
}

/// Puts that nobody waits for one by one: their answers are counted, and a refusal shows at the next fence.
#[derive(Default)]
struct Posts {
    sent: u64,
    answered: u64,
    /// The first and the last that were refused, counted from 1, since somebody last asked.
    refused: Option<(u64, u64)>,
}

impl Posts {
    fn unanswered(&self) -> u64 {
        self.sent - self.answered
    }

    fn on_answered(&mut self, succeeded: bool) {
        self.answered += 1;
        if !succeeded {
            let first = self.refused.map_or(self.answered, |(first, _)| first);
            self.refused = Some((first, self.answered));
        }
    }

    /// Whether one of the first `sent` was refused; that is then forgotten.
    fn take_refusal(&mut self, sent: u64) -> bool {
        match self.refused {
            Some((first, last)) if first <= sent => {
                self.refused = (last > sent).then_some((last, last));
                true
            }
            _ => false,
        }
    }
}

/// Receives the answers to the caller's own requests.
pub type Take<'t> = &'t mut dyn FnMut(&Answer<'_>);

impl<M> Link<M> {
    pub fn new(dialect: Dialect) -> Self {
        Link {
            pipeline: Pipeline::new(dialect),
            out: Vec::new(),
            fence: Fence::Idle,
            posts: Posts::default(),
            received: Vec::new(),
            taken: Vec::new(),
            completions: Vec::new(),
            addresses: Vec::new(),
            gathers: Vec::new(),
            is_broken: false,
        }
    }

    pub fn dialect(&self) -> Dialect {
        self.pipeline.dialect()
    }

    /// For a conversation that begins after `init` in PMI-2.
    pub fn switch_to_pmi2(&mut self) {
        self.pipeline.switch_to_pmi2();
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the dialect has no such request.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        if self.is_broken {
            return Err(Failure::Broken);
        }
        let known = self.pipeline.ask(request, &mut self.out);
        if known { Ok(()) } else { Err(Failure::Refused) }
    }

    /// Adds a put whose answer the caller does not wait for.
    pub fn post(&mut self, put: &Request<'_>) -> Result<(), Failure> {
        self.ask(put)?;
        self.posts.sent += 1;
        Ok(())
    }

    /// Puts that were posted.
    pub fn posted(&self) -> u64 {
        self.posts.sent
    }

    /// Posted puts that are not answered yet.
    pub fn unanswered_posts(&self) -> u64 {
        self.posts.unanswered()
    }

    /// Whether one of the first `posted` puts was refused. The refusal is reported once.
    pub fn take_refusal(&mut self, posted: u64) -> bool {
        self.posts.take_refusal(posted)
    }

    /// Requests of the caller that are not answered yet.
    pub fn awaited(&self) -> usize {
        // A caller that waits posts nothing meanwhile.
        self.pipeline.unanswered() - self.posts.unanswered() as usize
    }

    /// Adds a fence, among some ranks only if there is a group (PMI 1.2). Refusals of puts that were posted before it
    /// become the fence's.
    pub fn begin_fence(&mut self, group: Option<&[u8]>) -> Result<(), Failure> {
        self.ask(&Request::Barrier { group })?;
        self.fence = Fence::UnderWay;
        Ok(())
    }

    /// Whether a fence is under way.
    pub fn is_in_fence(&self) -> bool {
        matches!(self.fence, Fence::UnderWay)
    }

    /// The outcome of a fence that is over. It is reported once.
    pub fn take_fence_end(&mut self) -> Option<Result<(), Failure>> {
        let Fence::Over(result) = self.fence else { return None };
        self.fence = Fence::Idle;
        let refused = self.posts.take_refusal(self.posts.sent);
        Some(if refused { result.and(Err(Failure::Refused)) } else { result })
    }

    /// The next numbered request that has succeeded.
    pub fn next_completion(&mut self) -> Option<Completion<M>> {
        if self.completions.is_empty() { None } else { Some(self.completions.remove(0)) }
    }

    /// The answers to questions for addresses, by number; `None`: the rank has left without telling one.
    pub fn take_addresses(&mut self) -> Vec<(u32, Option<Vec<u8>>)> {
        core::mem::take(&mut self.addresses)
    }

    /// The results of collectives of groups, by number.
    pub fn take_gathers(&mut self) -> Vec<(u32, Gathered<M>)> {
        core::mem::take(&mut self.gathers)
    }

    /// The memory that came with the last answer; `None` for a piece that could not be mapped.
    pub fn take_memory(&mut self) -> Vec<Option<M>> {
        core::mem::take(&mut self.taken)
    }

    /// Bytes for the server.
    pub fn to_send(&self) -> &[u8] {
        &self.out
    }

    /// To be called when all bytes of [`Link::to_send`] were sent.
    pub fn on_sent(&mut self) {
        self.out.clear();
    }

    /// Takes the bytes for the server, for a driver that keeps them until they are sent. Replaces [`Link::to_send`] and
    /// [`Link::on_sent`].
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Takes bytes of the server, cut anywhere. To be called when [`Link::next`] has returned `false`.
    ///
    /// # Errors
    /// [`Broken`]: nothing more can be read.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let pushed = self.pipeline.push(bytes);
        if pushed.is_err() {
            self.on_closed();
        }
        pushed
    }

    /// Takes memory that came along with the bytes; `None`: it could not be mapped.
    pub fn push_memory(&mut self, memory: Option<M>) {
        self.received.push(memory);
    }

    /// The connection to the server is closed: nothing more can be sent or received.
    #[cold]
    pub fn on_closed(&mut self) {
        self.is_broken = true;
        if let Fence::UnderWay = self.fence {
            self.fence = Fence::Over(Err(Failure::Broken));
        }
    }

    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Takes one answer; `false`: no whole answer has been received.
    ///
    /// # Errors
    /// [`Broken`]: nothing more can be read.
    pub fn next(&mut self, take: Take<'_>) -> Result<bool, Broken> {
        let taken = self.take_answer(take);
        if taken.is_err() {
            self.on_closed();
        }
        taken
    }

    fn take_answer(&mut self, take: Take<'_>) -> Result<bool, Broken> {
        let answer = match self.pipeline.next() {
            Err(broken) => return Err(broken),
            Ok(None) => return Ok(false),
            Ok(Some(answer)) => answer,
        };
        let mut is_complete = true;
        if answer.descriptors > 0 {
            is_complete = answer.descriptors <= self.received.len();
            let coming = answer.descriptors.min(self.received.len());
            self.taken = self.received.drain(..coming).collect();
        }
        match answer.command {
            Command::Barrier => {
                let succeeded = answer.fields.succeeded();
                self.fence = Fence::Over(if succeeded { Ok(()) } else { Err(Failure::Refused) });
            }
            Command::FenceNb | Command::Allgather => {
                let memory = self.taken.pop().flatten();
                // A fence's answer has the first field, an allgather's may have the second one.
                let number = answer.fields.get("kvs").or_else(|| answer.fields.get("place")).and_then(number::parse);
                let number = number.unwrap_or(0);
                self.completions.extend(answer.id.map(|id| Completion { id, number, memory }));
            }
            Command::AddressGet => {
                self.addresses.extend(answer.id.map(|id| (id, answer.fields.get("value").map(<[u8]>::to_vec))));
            }
            Command::Gather => {
                let gathered = match (answer.fields.get("value"), answer.descriptors) {
                    (_, 1..) => Gathered::Memory(self.taken.pop().flatten()),
                    (Some(value), 0) => Gathered::Bytes(halve(value, &mut Vec::new()).to_vec()),
                    (None, 0) => Gathered::Empty,
                };
                self.gathers.extend(answer.id.map(|id| (id, gathered)));
            }
            Command::Put if self.posts.unanswered() > 0 => {
                is_complete &= answer.fields.answers(Command::Put);
                self.posts.on_answered(answer.fields.succeeded());
            }
            _ => take(&answer),
        }
        if is_complete { Ok(true) } else { Err(Broken::Unasked) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec;
    use wireup_wire::pmi::Raw;

    fn link() -> Link<&'static str> {
        let mut link = Link::new(Dialect::Pmi2);
        link.switch_to_pmi2();
        link
    }

    fn counted(body: &str) -> String {
        std::format!("{:6}{body}", body.len())
    }

    fn put() -> Request<'static> {
        Request::Put { kvsname: None, key: b"k", value: b"v" }
    }

    fn allgather(id: u32) -> Request<'static> {
        Request::Allgather { id, max_len: 8, shared: false, freed: b"", value: Raw(b"v") }
    }

    /// The commands of the answers that the caller gets.
    fn hear(link: &mut Link<&'static str>, body: &str) -> Result<Vec<Command>, Broken> {
        link.push(counted(body).as_bytes())?;
        let mut heard = Vec::new();
        while link.next(&mut |answer| heard.push(answer.command))? {}
        Ok(heard)
    }

    #[test]
    fn each_answer_reaches_the_request_that_waits_for_it() {
        let mut link = link();
        link.post(&put()).unwrap();
        link.begin_fence(None).unwrap();
        link.ask(&allgather(2)).unwrap();
        link.ask(&Request::GetJobAttr { key: b"k" }).unwrap();
        assert_eq!((link.awaited(), link.unanswered_posts(), link.to_send().is_empty()), (1, 1, false));
        link.push_memory(Some("array"));
        assert_eq!(hear(&mut link, "cmd=wireup-allgather-response;rc=0;id=2;"), Ok(vec![]));
        assert_eq!(hear(&mut link, "cmd=kvs-put-response;rc=-1;errmsg=no;"), Ok(vec![]));
        let attribute = "cmd=info-getjobattr-response;rc=0;found=FALSE;";
        assert_eq!(hear(&mut link, attribute), Ok(vec![Command::GetJobAttr]));
        assert!(link.is_in_fence() && link.take_fence_end().is_none());
        assert_eq!(hear(&mut link, "cmd=kvs-fence-response;rc=0;"), Ok(vec![]));
        // The refusal of the put is the fence's.
        assert_eq!((link.take_fence_end(), link.take_fence_end()), (Some(Err(Failure::Refused)), None));
        let over = link.next_completion().unwrap();
        assert_eq!((over.id, over.memory, link.next_completion().is_none()), (2, Some("array"), true));
    }

    #[test]
    fn a_refused_post_is_reported_once_at_the_next_fence() {
        let mut posts = Posts { sent: 4, ..Posts::default() };
        for succeeded in [true, false, true, false] {
            posts.on_answered(succeeded);
        }
        assert_eq!(posts.unanswered(), 0);
        assert!(!posts.take_refusal(1));
        assert!(posts.take_refusal(3) && !posts.take_refusal(3));
        assert!(posts.take_refusal(4) && !posts.take_refusal(4));
    }

    #[test]
    fn addresses_arrive_in_any_order() {
        let mut link = link();
        for (id, rank) in [(1, 7), (2, 8)] {
            link.ask(&Request::AddressGet { id, rank, name: b"net" }).unwrap();
        }
        assert_eq!(link.awaited(), 0, "calls do not wait for them");
        assert_eq!(hear(&mut link, "cmd=wireup-address-get-response;rc=0;id=2;value=ab;"), Ok(vec![]));
        assert_eq!(hear(&mut link, "cmd=wireup-address-get-response;rc=0;id=1;"), Ok(vec![]));
        assert_eq!(link.take_addresses(), [(2, Some(b"ab".to_vec())), (1, None)]);
        let unasked = hear(&mut link, "cmd=wireup-address-get-response;rc=0;id=1;");
        assert_eq!((unasked, link.take_addresses()), (Err(Broken::Unasked), vec![]));
    }

    #[test]
    fn collectives_of_groups_end_with_text_or_memory() {
        let mut link = link();
        for id in [1, 2, 3] {
            link.ask(&Request::Gather { id, group: 1, value: Raw(b"v") }).unwrap();
        }
        link.push_memory(Some("array"));
        assert_eq!(hear(&mut link, "cmd=wireup-gather-response;rc=0;id=2;memory=1;"), Ok(vec![]));
        assert_eq!(hear(&mut link, "cmd=wireup-gather-response;rc=0;id=1;value=a;;b;"), Ok(vec![]));
        assert_eq!(hear(&mut link, "cmd=wireup-gather-response;rc=0;id=3;"), Ok(vec![]));
        let all = link.take_gathers();
        assert!(matches!(&all[0], (2, Gathered::Memory(Some("array")))), "{all:?}");
        assert!(matches!(&all[1], (1, Gathered::Bytes(bytes)) if bytes == b"a;b"), "{all:?}");
        assert!(matches!(&all[2], (3, Gathered::Empty)), "{all:?}");
    }

    #[test]
    fn memory_belongs_to_the_answer_that_names_it() {
        let mut link = link();
        link.ask(&Request::KvsMap { have: b"" }).unwrap();
        link.push_memory(Some("one"));
        link.push_memory(None);
        let map = "cmd=wireup-kvs-map-response;rc=0;keep=0;ends=3,4;";
        assert_eq!(hear(&mut link, map), Ok(vec![Command::KvsMap]));
        assert_eq!(link.take_memory(), [Some("one"), None]);
        // An answer whose memory is missing.
        link.ask(&allgather(1)).unwrap();
        assert_eq!(hear(&mut link, "cmd=wireup-allgather-response;rc=0;id=1;"), Err(Broken::Unasked));
        assert_eq!(link.ask(&put()), Err(Failure::Broken));
    }

    #[test]
    fn a_fence_fails_when_the_server_closes() {
        let mut link = link();
        link.begin_fence(None).unwrap();
        link.on_closed();
        assert_eq!(link.take_fence_end(), Some(Err(Failure::Broken)));
        assert!(link.is_broken());
    }
}

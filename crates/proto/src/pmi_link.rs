//! The server's half of one rank's PMI conversation: requests in, replies out.
//!
//! What concerns others than the asking rank is an [`Effect`], which the job applies. Replies are written into one
//! buffer per input, so that a batch of requests is answered by one write.

mod collectives;
mod segments;

pub use collectives::{Ticket, Told};

use crate::exchange::Entry;
use crate::kvs::Kvs;
use crate::memory::{Memory, Shared};
use crate::node_attrs::{Full, NodeAttrs, Parked};
use crate::pmi_state::{Event, Refused, State};
use collectives::WaitingGet;
use wireup_wire::blob::PAIR_OVERHEAD;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, PENDING_PUT_BYTES_MAX, THREAD_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Dialect, Envelope, PmiError, Reply, Request, RequestReader, encode_reply};

/// The commands of our own clients, as they are now.
const EXTENSION_VERSION: u32 = 1;

/// What every client of the job on this node is told.
pub struct Facts<'a> {
    pub nspace: &'a str,
    pub job_size: u32,
    /// `PMI_process_mapping`, if it fits a value.
    pub process_mapping: Option<&'a [u8]>,
    /// Fences of text clients are answered at once where they may be.
    pub lazy_fence: bool,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    pub local: LocalRank,
    pub rank: Rank,
    pub appnum: u16,
}

/// The tables that a request may read or change.
pub struct Tables<'a> {
    pub kvs: &'a mut Kvs,
    pub attrs: &'a mut NodeAttrs,
    /// Makes what the rank reads itself.
    pub memory: &'a mut dyn Memory,
    /// Of such memory: goes to the rank along with the replies.
    pub shares: Vec<Shared>,
}

/// What a request means for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Initialised,
    /// The rank starts its next collective.
    Enter {
        entry: Entry,
        ticket: Ticket,
    },
    Finalized,
    Abort {
        code: i32,
        message: String,
    },
    /// Gets of other ranks that a put has answered, with the value.
    Woken {
        parked: Vec<Parked>,
        value: Vec<u8>,
    },
    /// The pairs of the fences cannot be read here: the job is over.
    Unreadable {
        problem: String,
    },
}

pub struct PmiLink {
    reader: RequestReader,
    state: State,
    dialect: Dialect,
    /// Our own client's collectives that are under way.
    outstanding: u32,
    /// Something was put since the last fence.
    has_put: bool,
    /// Fences that were answered and are not complete.
    lazy: u32,
    /// Holds up what comes behind it.
    waiting_get: Option<WaitingGet>,
}

impl Default for PmiLink {
    fn default() -> Self {
        PmiLink {
            reader: RequestReader::new(),
            state: State::Fresh,
            dialect: Dialect::Pmi1,
            outstanding: 0,
            has_put: false,
            lazy: 0,
            waiting_get: None,
        }
    }
}

impl PmiLink {
    pub fn state(&self) -> State {
        self.state
    }

    /// Bytes of the rank. `reply` grows by the answers, `effects` by what others must know.
    ///
    /// # Errors
    /// The link is beyond repair: its framing is broken.
    pub fn on_bytes(
        &mut self,
        bytes: &[u8],
        who: Who,
        facts: &Facts<'_>,
        tables: &mut Tables<'_>,
        reply: &mut Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PmiError> {
        self.reader.push(bytes)?;
        self.go_on(who, facts, tables, reply, effects)
    }

    /// Answers the get that has waited for the rank's lazy fences, and what came behind it.
    ///
    /// # Errors
    /// As [`PmiLink::on_bytes`].
    pub fn go_on(
        &mut self,
        who: Who,
        facts: &Facts<'_>,
        tables: &mut Tables<'_>,
        reply: &mut Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PmiError> {
        loop {
            if self.waiting_get.is_some() && self.lazy > 0 {
                return Ok(());
            }
            let Self { reader, state, outstanding, has_put, lazy, waiting_get, dialect } = &mut *self;
            let mut turn = Turn {
                state,
                outstanding,
                has_put,
                lazy,
                waiting_get,
                dialect: *dialect,
                who,
                facts,
                tables: &mut *tables,
                reply: &mut *reply,
                effects: &mut *effects,
            };
            turn.answer_waiting();
            let Some(envelope) = reader.next()? else {
                return Ok(());
            };
            match turn.on_request(&envelope) {
                Next::Go => {}
                Next::Wait => return Ok(()),
                Next::SwitchToPmi2 => {
                    *dialect = Dialect::Pmi2;
                    reader.switch_to_pmi2();
                }
            }
        }
    }

    /// Answers a get that was parked.
    pub fn wake(&self, parked: &Parked, value: &[u8], reply: &mut Vec<u8>) {
        encode_reply(self.dialect, Command::GetNodeAttr, parked.thread.as_deref(), &Reply::Value(value), reply);
    }

    /// The socket is closed. Returns the state before.
    pub fn close(&mut self) -> State {
        let before = self.state;
        self.state = before.next(Event::Close).unwrap_or(State::Closed);
        self.reader = RequestReader::new();
        before
    }
}

enum Next {
    Go,
    /// Until the rank's lazy fences are complete.
    Wait,
    SwitchToPmi2,
}

/// One request being answered.
struct Turn<'a, 't> {
    state: &'a mut State,
    outstanding: &'a mut u32,
    has_put: &'a mut bool,
    lazy: &'a mut u32,
    waiting_get: &'a mut Option<WaitingGet>,
    dialect: Dialect,
    who: Who,
    facts: &'a Facts<'a>,
    tables: &'a mut Tables<'t>,
    reply: &'a mut Vec<u8>,
    effects: &'a mut Vec<Effect>,
}

impl Turn<'_, '_> {
    fn on_request(&mut self, envelope: &Envelope<'_>) -> Next {
        let event = match &envelope.request {
            Request::Init { version: 2, .. } => Event::Init2,
            Request::Init { .. } => Event::Init1,
            Request::FullInit { .. } => Event::FullInit,
            Request::Barrier { .. } | Request::Ring { .. } => Event::Fence,
            Request::Finalize if *self.outstanding > 0 => {
                self.answer(envelope, &Reply::Failed { message: "finalize_with_collectives_outstanding" });
                return Next::Go;
            }
            Request::Finalize => Event::Finalize,
            Request::Abort { code, message, .. } => {
                let message = String::from_utf8_lossy(message).into_owned();
                self.effects.push(Effect::Abort { code: *code, message });
                return Next::Go;
            }
            _ => Event::Ask,
        };
        match self.state.next(event) {
            Ok(next) => *self.state = next,
            Err(Refused) => {
                let problem = refusal(*self.state, event);
                self.answer(envelope, &Reply::Failed { message: problem });
                return Next::Go;
            }
        }
        match &envelope.request {
            Request::Init { version: 2, .. } => {
                self.answer(envelope, &Reply::Init { version: 2, subversion: 0, rc: 0 });
                return Next::SwitchToPmi2;
            }
            Request::Init { version, .. } => self.on_init(envelope, *version),
            Request::Barrier { group } => self.on_fence(envelope, *group),
            Request::Finalize => {
                self.effects.push(Effect::Finalized);
                self.answer(envelope, &Reply::Done);
            }
            Request::Put { key, value, kvsname } => self.on_put(envelope, *kvsname, key, value),
            Request::Get { key, kvsname, .. } => return self.on_get(envelope, *kvsname, key),
            Request::FenceNb { id } => self.on_own_fence(*id),
            Request::Allgather { id, max_len, shared, value } => {
                self.on_allgather(envelope, *id, *max_len, *shared, value);
            }
            Request::Ring { left, right, .. } => self.on_ring(envelope, left, right),
            Request::KvsMap { have } => self.on_kvs_map(envelope, have),
            Request::PutNodeAttr { key, value } => self.on_put_attr(envelope, key, value),
            Request::GetNodeAttr { key, wait } => self.on_get_attr(envelope, key, *wait),
            _ => self.on_fact(envelope),
        }
        Next::Go
    }

    /// PMI-1.1 is what is spoken: with 1.2's group barriers MPICH's client would spin while it waits.
    fn on_init(&mut self, envelope: &Envelope<'_>, version: u32) {
        if version == 1 {
            self.effects.push(Effect::Initialised);
            self.answer(envelope, &Reply::Init { version: 1, subversion: 1, rc: 0 });
        } else {
            *self.state = State::Fresh;
            self.answer(envelope, &Reply::Init { version: 1, subversion: 1, rc: -1 });
        }
    }

    /// Requests whose answers are known beforehand.
    fn on_fact(&mut self, envelope: &Envelope<'_>) {
        let facts = self.facts;
        if let Request::Malformed { problem, .. } = &envelope.request {
            let message = problem.to_string().replace(' ', "_");
            return self.answer(envelope, &Reply::Failed { message: &message });
        }
        let reply = match &envelope.request {
            Request::FullInit { .. } => {
                self.effects.push(Effect::Initialised);
                Reply::FullInit {
                    version: 2,
                    subversion: 0,
                    rank: self.who.rank.0,
                    size: facts.job_size,
                    appnum: self.who.appnum.into(),
                    spawner: None,
                    extension: Some(EXTENSION_VERSION),
                }
            }
            Request::GetMaxes => {
                Reply::Maxes { kvsname: KVSNAME_LEN_MAX as u32, key: KEY_LEN_MAX as u32, value: VALUE_LEN_MAX as u32 }
            }
            Request::GetUniverseSize => Reply::UniverseSize(facts.job_size),
            Request::GetAppnum => Reply::Appnum(self.who.appnum.into()),
            Request::GetMyKvsname => Reply::KvsName(facts.nspace.as_bytes()),
            Request::JobGetId => Reply::JobId(facts.nspace.as_bytes()),
            Request::GetJobAttr { key } => return self.on_job_attr(envelope, key),
            Request::Spawn(_) => Reply::Failed { message: "spawn_is_not_offered_by_this_version" },
            Request::PublishName { .. } | Request::UnpublishName { .. } | Request::LookupName { .. } => {
                Reply::Failed { message: "name_publishing_is_not_offered_by_this_version" }
            }
            _ => Reply::Failed { message: "command_not_supported" },
        };
        self.answer(envelope, &reply);
    }

    fn on_put(&mut self, envelope: &Envelope<'_>, kvsname: Option<&[u8]>, key: &[u8], value: &[u8]) {
        let problem = if !self.is_own_kvs(kvsname) {
            Some("kvsname_is_not_that_of_this_job")
        } else if key.is_empty() || key.len() > KEY_LEN_MAX {
            Some("key_is_empty_or_longer_than_64")
        } else if value.len() > VALUE_LEN_MAX {
            Some("value_is_longer_than_1024")
        } else if key.starts_with(b"PMI_") {
            Some("keys_that_begin_with_PMI__are_reserved")
        } else if self.tables.kvs.pending_bytes() + PAIR_OVERHEAD + key.len() + value.len() > PENDING_PUT_BYTES_MAX {
            Some("too_many_puts_without_a_fence")
        } else {
            None
        };
        match problem {
            Some(message) => self.answer(envelope, &Reply::Failed { message }),
            None => {
                self.tables.kvs.put(key, value);
                *self.has_put = true;
                self.answer(envelope, &Reply::Done);
            }
        }
    }

    fn on_get(&mut self, envelope: &Envelope<'_>, kvsname: Option<&[u8]>, key: &[u8]) -> Next {
        if !self.is_own_kvs(kvsname) {
            self.answer(envelope, &Reply::Failed { message: "kvsname_is_not_that_of_this_job" });
        } else if key.starts_with(b"PMI_") || key == b"universeSize" {
            self.on_job_attr(envelope, key);
        } else {
            return self.on_get_pair(envelope, key);
        }
        Next::Go
    }

    fn on_job_attr(&mut self, envelope: &Envelope<'_>, key: &[u8]) {
        let size = self.facts.job_size.to_string();
        let value = match key {
            b"PMI_process_mapping" => self.facts.process_mapping,
            b"universeSize" => Some(size.as_bytes()),
            _ => None,
        };
        self.answer(envelope, &value.map_or(Reply::NotFound, Reply::Value));
    }

    fn on_put_attr(&mut self, envelope: &Envelope<'_>, key: &[u8], value: &[u8]) {
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            self.answer(envelope, &Reply::Failed { message: "key_or_value_is_too_long" });
            return;
        }
        match self.tables.attrs.put(key, value) {
            Err(Full) => self.answer(envelope, &Reply::Failed { message: "too_many_node_attributes" }),
            Ok(parked) => {
                self.answer(envelope, &Reply::Done);
                if !parked.is_empty() {
                    self.effects.push(Effect::Woken { parked, value: value.to_vec() });
                }
            }
        }
    }

    fn on_get_attr(&mut self, envelope: &Envelope<'_>, key: &[u8], wait: bool) {
        let Self { tables, reply, dialect, who, .. } = self;
        let answer = match tables.attrs.get(key) {
            Some(value) => Reply::Value(value),
            None if wait
                && (key.len() > KEY_LEN_MAX || envelope.thread.is_some_and(|id| id.len() > THREAD_LEN_MAX)) =>
            {
                Reply::Failed { message: "key_or_thrid_is_too_long" }
            }
            None if wait => {
                let thread = envelope.thread.map(<[u8]>::to_vec);
                match tables.attrs.park(Parked { local: who.local, key: key.to_vec(), thread }) {
                    Ok(()) => return,
                    Err(Full) => Reply::Failed { message: "too_many_gets_wait" },
                }
            }
            None => Reply::NotFound,
        };
        encode_reply(*dialect, envelope.request.command(), envelope.thread, &answer, reply);
    }

    fn is_own_kvs(&self, kvsname: Option<&[u8]>) -> bool {
        kvsname.is_none_or(|name| name.is_empty() || name == self.facts.nspace.as_bytes())
    }

    fn answer(&mut self, envelope: &Envelope<'_>, reply: &Reply<'_>) {
        encode_reply(self.dialect, envelope.request.command(), envelope.thread, reply, self.reply);
    }
}

fn refusal(state: State, event: Event) -> &'static str {
    match (state, event) {
        (State::Fresh | State::Greeted, _) => "not_initialised",
        (State::Finalized | State::Closed, _) => "already_finalized",
        (State::Fenced, Event::Fence) => "already_in_a_fence",
        (State::Fenced, Event::Finalize) => "finalize_while_in_a_fence",
        (State::Ready | State::Fenced, _) => "already_initialised",
    }
}

#[cfg(test)]
mod tests {
    use super::segments::UNREADABLE;
    use super::*;
    use crate::memory::Heap;
    use wireup_wire::shared::segment::Segment;

    /// One rank, its tables, and the text of a conversation.
    #[derive(Default)]
    struct Bench {
        link: PmiLink,
        kvs: Kvs,
        attrs: NodeAttrs,
        effects: Vec<Effect>,
        lazy: bool,
        shares: Vec<Shared>,
    }

    impl Bench {
        fn say(&mut self, request: &str) -> String {
            let facts = Facts {
                nspace: "job-1",
                job_size: 8,
                process_mapping: Some(b"(vector,(0,2,4))"),
                lazy_fence: self.lazy,
            };
            let who = Who { local: LocalRank(1), rank: Rank(5), appnum: 2 };
            let mut tables =
                Tables { kvs: &mut self.kvs, attrs: &mut self.attrs, memory: &mut Heap, shares: Vec::new() };
            let mut reply = Vec::new();
            let said = self.link.on_bytes(request.as_bytes(), who, &facts, &mut tables, &mut reply, &mut self.effects);
            self.shares.append(&mut tables.shares);
            match said {
                Ok(()) => String::from_utf8(reply).unwrap(),
                Err(error) => format!("broken: {error}"),
            }
        }

        fn fence(&mut self) -> String {
            let blob = self.kvs.take_pending();
            self.kvs.commit(blob, &mut Heap).unwrap();
            let mut reply = Vec::new();
            for effect in std::mem::take(&mut self.effects) {
                if let Effect::Enter { ticket, .. } = effect {
                    self.link.answer(&ticket, &Told::Fence { version: 1 }, &mut reply);
                }
            }
            String::from_utf8(reply).unwrap()
        }
    }

    #[test]
    fn pmi1_from_init_to_finalize() {
        let mut bench = Bench::default();
        let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
        assert_eq!(bench.say(init), "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
        assert_eq!(bench.say("cmd=get_maxes\n"), "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n");
        assert_eq!(bench.say("cmd=get_appnum\n"), "cmd=appnum rc=0 appnum=2\n");
        assert_eq!(bench.say("cmd=get_my_kvsname\n"), "cmd=my_kvsname rc=0 kvsname=job-1\n");
        assert_eq!(bench.say("cmd=get_universe_size\n"), "cmd=universe_size rc=0 size=8\n");
        let mapping = bench.say("cmd=get kvsname=job-1 key=PMI_process_mapping\n");
        assert!(mapping.contains(" rc=0") && mapping.contains("value=(vector,(0,2,4))"), "{mapping}");
        assert!(bench.say("cmd=put kvsname=job-1 key=k value=v=1;\n").starts_with("cmd=put_result rc=0"));
        assert!(bench.say("cmd=get kvsname=job-1 key=k\n").contains("rc=-1"), "not before the barrier");
        assert_eq!(bench.say("cmd=barrier_in\n"), "");
        assert!(bench.fence().starts_with("cmd=barrier_out"));
        assert!(bench.say("cmd=get kvsname=job-1 key=k\n").contains("value=v=1;"));
        assert!(bench.say("cmd=finalize\n").starts_with("cmd=finalize_ack"));
        assert_eq!(bench.effects, [Effect::Finalized]);
    }

    #[test]
    fn pmi2_with_node_attributes() {
        let framed = |body: &str| format!("{:>6}{body}", body.len());
        let mut bench = Bench::default();
        let greeting = bench.say("cmd=init pmi_version=2 pmi_subversion=0\n");
        assert_eq!(greeting, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
        let full = bench.say(&framed("cmd=fullinit;pmijobid=job-1;pmirank=5;threaded=FALSE;"));
        for part in ["cmd=fullinit-response;", "rc=0;", "rank=5;", "size=8;", "appnum=2;"] {
            assert!(full.contains(part), "{full} lacks {part}");
        }
        assert_eq!(bench.say(&framed("cmd=info-getnodeattr;key=a;wait=TRUE;thrid=0x7;")), "", "parked");
        let put = bench.say(&framed("cmd=info-putnodeattr;key=a;value=b;"));
        assert!(put.contains("cmd=info-putnodeattr-response;") && put.contains("rc=0;"), "{put}");
        let Some(Effect::Woken { parked, value }) = bench.effects.last().cloned() else {
            panic!("the parked get wakes up");
        };
        let mut woken = Vec::new();
        bench.link.wake(&parked[0], &value, &mut woken);
        let woken = String::from_utf8(woken).unwrap();
        assert!(woken.contains("value=b;") && woken.contains("thrid=0x7;") && woken.contains("found=TRUE;"), "{woken}");
        let job = bench.say(&framed("cmd=info-getjobattr;key=PMI_process_mapping;"));
        assert!(job.contains("value=(vector,(0,2,4));"), "{job}");
        let none = bench.say(&framed("cmd=kvs-get;jobid=job-1;srcid=-1;key=-NONEXIST-KEY;"));
        assert!(none.contains("found=FALSE;") && none.contains("rc=0;"), "{none}");
    }

    #[test]
    fn what_is_not_allowed_is_refused_and_the_link_lives_on() {
        let mut bench = Bench::default();
        assert!(bench.say("cmd=get kvsname=job-1 key=k\n").contains("not_initialised"));
        bench.say("cmd=init pmi_version=1 pmi_subversion=1\n");
        let long = "x".repeat(VALUE_LEN_MAX + 1);
        for (request, word) in [
            (format!("cmd=put kvsname=job-1 key=k value={long}\n"), "longer"),
            (format!("cmd=put kvsname=job-1 key={} value=v\n", "k".repeat(65)), "longer"),
            ("cmd=put kvsname=other key=k value=v\n".into(), "kvsname"),
            ("cmd=put kvsname=job-1 key=PMI_x value=v\n".into(), "reserved"),
            ("cmd=put kvsname=job-1 key=k\n".into(), "missing"),
            ("cmd=make_tea\n".into(), "not_supported"),
            ("cmd=barrier_in group=WORLD:0\n".into(), "group"),
        ] {
            let reply = bench.say(&request);
            assert!(reply.contains(word) && !reply.contains("rc=0"), "{request} gave {reply}");
        }
        assert!(bench.say("cmd=put kvsname=job-1 key=k value=v\n").contains("rc=0"));
    }

    #[test]
    fn our_own_clients_map_what_is_new() {
        let framed = |body: &str| format!("{:>6}{body}", body.len());
        let mut bench = Bench::default();
        bench.say("cmd=init pmi_version=2 pmi_subversion=0\n");
        assert!(bench.say(&framed("cmd=fullinit;pmijobid=job-1;pmirank=5;threaded=FALSE;")).contains("wireup=1;"));
        let none = bench.say(&framed("cmd=wireup-kvs-map;have=;"));
        assert!(none.ends_with("rc=0;keep=0;") && bench.shares.is_empty(), "{none}");
        for (round, have, answer) in
            [(1, "", "keep=0;ends=1;"), (2, "1", "keep=1;ends=2;"), (3, "1,2", "keep=1;ends=3;")]
        {
            let value = "x".repeat(if round == 1 { 100 } else { 10 });
            bench.say(&framed(&format!("cmd=kvs-put;key=k{round};value={value};")));
            bench.fence();
            let mapped = bench.say(&framed(&format!("cmd=wireup-kvs-map;have={have};")));
            assert!(mapped.contains("rc=0;") && mapped.contains(answer), "{mapped}");
            let share = bench.shares.pop().expect("a segment comes along");
            assert!(bench.shares.is_empty());
            let segment = Segment::read(share.bytes()).unwrap();
            assert_eq!(segment.get(format!("k{round}").as_bytes()), Some(value.as_bytes()));
        }
        assert!(bench.say(&framed("cmd=wireup-kvs-map;have=1,x;")).contains("not_a_list"));
        assert!(bench.shares.is_empty());
    }

    #[test]
    fn broken_pairs_end_the_job() {
        let mut bench = Bench::default();
        bench.say("cmd=init pmi_version=1 pmi_subversion=1\n");
        bench.kvs.commit(bytes::Bytes::from_static(b"\x09cut"), &mut Heap).unwrap();
        assert!(bench.say("cmd=get kvsname=job-1 key=k\n").contains(UNREADABLE));
        assert!(matches!(bench.effects.last(), Some(Effect::Unreadable { .. })), "{:?}", bench.effects);
    }

    #[test]
    fn broken_framing_ends_the_link() {
        let mut bench = Bench::default();
        bench.say("cmd=init pmi_version=2 pmi_subversion=0\n");
        assert!(bench.say("abcdefcmd=fullinit;").starts_with("broken: "));
        let mut bench = Bench::default();
        assert!(bench.say(&"x".repeat(200_000)).starts_with("broken: "));
    }
}

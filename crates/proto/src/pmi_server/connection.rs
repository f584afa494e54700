//! The server's half of the ranks' PMI conversations: reads requests, and answers each or records it.
//!
//! A request that starts a collective, asks the root, or concerns the job as a whole gives an [`Asked`]. The rank's
//! next request is read after [`PmiServer`] or the job has handled it. Replies are collected in [`Tables`]. Fences are
//! here, from the request to the answers; other collectives are started in `collectives`, what a rank reads is answered
//! in `gets`, requests about names, processes and addresses are in `names`.
//!
//! A text client has at most one collective outstanding and waits for it; our own clients have any number, identified
//! by their ids. A lazy fence (S1 IV-E, note) is answered before it is complete, if the rank has put something since
//! its last fence. From then on the rank's gets wait until all of its fences are complete.

use super::addresses::Addresses;
use super::arena::{Arenas, Shares, lay_out};
use super::endpoints::{self, Endpoints};
use super::kvs::{Kvs, stored};
use super::node_attrs::NodeAttrs;
use super::relays::Relays;
use super::state::{Event, Refused, State};
use crate::collective::{Arrived, CollectiveConfig, Collectives, Entry, Finished, Outcome, ReplyTo};
use crate::io::Output;
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::job::names;
use crate::memory::ShareId;
use crate::plan::app_of;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_coll::scan::Down;
use wireup_wire::blob::{self, PAIR_OVERHEAD};
use wireup_wire::block;
use wireup_wire::group::Group;
use wireup_wire::ids::{Client, LocalRank, Rank};
use wireup_wire::job::{PmiFence, PmiVersion};
use wireup_wire::limits::{GROUPS_PER_RANK_MAX, KEY_LEN_MAX, KVSNAME_LEN_MAX, PENDING_PUT_BYTES_MAX, VALUE_LEN_MAX};
use wireup_wire::names::{Ask, Asker};
use wireup_wire::peer::Cause;
use wireup_wire::pmi::{Command, Dialect, Envelope, PmiError, Reply, Request, RequestReader, encode_reply};

/// The version of the PMI extensions that only wireup's own client libraries use.
const EXTENSION_VERSION: u32 = 1;

const MAXES: Reply<'_> =
    Reply::Maxes { kvsname: KVSNAME_LEN_MAX as u32, key: KEY_LEN_MAX as u32, value: VALUE_LEN_MAX as u32 };

/// The reason why a request is refused, as one word for the reply to the rank.
pub type RefusalText = Cow<'static, str>;

/// What a request needs of other parts of the job, or the reason why it is refused.
pub type Handled = Result<Option<Asked>, RefusalText>;

pub struct PmiServer {
    pub clients: Clients,
    pub tables: Tables,
    /// The collectives of the ranks.
    pub collectives: Collectives,
    /// Clients whose pending requests can be handled now, since what those waited for has arrived. Clients are resumed
    /// one after another: nested calls would use stack for each client, of which there may be thousands.
    pub resumed: VecDeque<Client>,
}

impl PmiServer {
    pub fn new(facts: &Facts, config: CollectiveConfig) -> Self {
        PmiServer {
            clients: Clients::new(facts),
            tables: Tables::new(facts),
            collectives: Collectives::new(facts, config, false),
            resumed: VecDeque::new(),
        }
    }

    /// Takes bytes from a rank, and handles its requests until one needs something of another part of the job, which is
    /// returned; then call again without bytes. `None`: all requests were handled, or the next request waits for
    /// something.
    pub fn on_bytes(&mut self, cx: &mut Cx<'_>, client: Client, mut bytes: &[u8]) -> Option<Asked> {
        loop {
            let PmiServer { clients, tables, .. } = self;
            let line = clients.line(client).filter(|line| line.link.state != State::Closed)?;
            let read = line.on_bytes(cx, tables, std::mem::take(&mut bytes));
            let asked = read.unwrap_or_else(|problem| Some(Asked::Unreadable { problem: problem.to_string() }));
            if asked.as_ref().is_some_and(Asked::is_silent) {
                return asked;
            }
            tables.send_replies(cx, client);
            tables.give_memory_up(cx);
            if tables.relays.has_news() {
                self.carry_relays(cx);
            }
            if self.tables.addresses.has_news() {
                self.send_addresses(cx);
            }
            match asked {
                Some(Asked::Enter { entry, reply_to }) => {
                    if let Some(rows) = self.enter(cx, client.local, entry, reply_to) {
                        return Some(Asked::Endpoints(rows));
                    }
                }
                Some(Asked::EnterGroup { group, value }) => self.enter_group(cx, client.local, group, value),
                Some(Asked::Name { client, ask }) => names::ask(cx, cx.rank(client.local), Asker::Client(client), ask),
                Some(Asked::Unreadable { .. }) => {
                    self.clients.line(client).map(Line::close);
                    cx.output(Output::CloseClient { job: cx.facts.id(), client });
                    return asked;
                }
                asked => return asked,
            }
        }
    }

    /// A rank starts its next collective. Returns one row of rank addresses for each node if this call has completed
    /// the exchange of addresses ([`ReplyTo::Endpoints`]).
    pub fn enter(&mut self, cx: &mut Cx<'_>, local: LocalRank, entry: Entry, reply_to: ReplyTo) -> Option<Vec<Bytes>> {
        let pending = || self.tables.kvs.take_pending();
        let finished = self.collectives.exchanges.enter(cx, local, (entry, reply_to), pending);
        self.on_finished(cx, finished)
    }

    /// Handles another node's frame of a collective of the whole job. Returns rows of addresses as
    /// [`PmiServer::enter`] does.
    pub fn on_exchange(&mut self, cx: &mut Cx<'_>, arrived: Arrived) -> Option<Vec<Bytes>> {
        let finished = self.collectives.exchanges.on_frame(cx, arrived);
        self.on_finished(cx, finished)
    }

    /// Stores the outcomes of complete collectives and answers the local ranks. Returns rows of addresses as
    /// [`PmiServer::enter`] does.
    fn on_finished(&mut self, cx: &mut Cx<'_>, finished: Vec<Finished>) -> Option<Vec<Bytes>> {
        let mut endpoints = None;
        for Finished { waiting, outcome, trace } in finished {
            let is_of_endpoints = waiting.iter().any(|(_, reply_to)| *reply_to == ReplyTo::Endpoints);
            let result = match outcome {
                Outcome::Values { blocks, .. } if is_of_endpoints => {
                    endpoints::table(cx.facts.spec.nodes.len(), &blocks).map(|rows| {
                        self.on_endpoints(cx, rows.clone());
                        endpoints = Some(rows);
                    })
                }
                Outcome::Pairs(blocks) => self.publish(cx, blocks).map(|()| self.answer_fence(cx, waiting)),
                Outcome::Values { max_len, shared, blocks } => lay_out(&cx.facts.mapping, (max_len, shared), &blocks)
                    .map(|array| self.answer_allgather(cx, waiting, array)),
                Outcome::Places(places) => {
                    for (local, reply_to) in waiting {
                        self.answer(cx, local, &reply_to, &Completion::Place(&places[local.index()]), Vec::new());
                    }
                    Ok(())
                }
            };
            if let Err(problem) = result {
                cx.fail_here(Cause::Pmi { problem });
            }
            cx.trace(trace);
        }
        endpoints
    }

    /// Answers a rank whose collective is complete.
    pub(super) fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        local: LocalRank,
        reply_to: &ReplyTo,
        told: &Completion<'_>,
        shares: Vec<ShareId>,
    ) {
        let mut reply = Vec::new();
        self.clients.own(local).answer_collective(reply_to, told, &mut reply);
        self.tables.send(cx, local.into(), reply.into(), shares);
    }

    /// Publishes the pairs of all nodes after a fence.
    fn publish(&mut self, cx: &Cx<'_>, parts: Vec<Bytes>) -> Result<(), String> {
        let mut pairs = Vec::new();
        let mut heard = vec![false; cx.facts.spec.nodes.len()];
        for block in parts.into_iter().flat_map(block::blocks) {
            let block = block.map_err(|error| error.to_string())?;
            let known = heard.get_mut(block.node.index()).is_some_and(|heard| !std::mem::replace(heard, true));
            if !known {
                return Err(format!(
                    "a fence delivered pairs of node {} twice, or of a node that does not exist",
                    block.node
                ));
            }
            pairs.push(block.into_plain().map_err(|error| error.to_string())?);
        }
        self.tables.kvs.commit(pairs)
    }

    /// Answers the ranks whose fence is complete.
    fn answer_fence(&mut self, cx: &mut Cx<'_>, waiting: Vec<(LocalRank, ReplyTo)>) {
        let PmiServer { clients, tables, resumed, .. } = self;
        let told = Completion::Fence { version: tables.kvs.version };
        let (mut reply, mut shared) = (Vec::new(), Bytes::new());
        for (local, reply_to) in waiting {
            reply.clear();
            let link = clients.own(local);
            link.answer_collective(&reply_to, &told, &mut reply);
            if link.may_resume() {
                resumed.push_back(local.into());
            }
            if shared != reply {
                // Most ranks get exactly the same reply.
                shared = Bytes::copy_from_slice(&reply);
            }
            tables.send(cx, local.into(), shared.clone(), Vec::new());
        }
    }
}

/// What a rank is told when its collective is complete.
pub enum Completion<'a> {
    /// A fence. `version`: a number that each fence with published pairs increments.
    Fence { version: u32 },
    /// An allgather. `place`: the array's place in the arena; `None`: the array has memory of its own. `new`: whether
    /// the rank has not used this arena before.
    Array { place: Option<u32>, new: bool },
    /// A ring: the rank's position, and the values of its neighbours.
    Place(&'a Down),
}

/// PMI 1.2 clients identify barriers by their tags; the barrier of all ranks belongs to no group and has tag 0, as in
/// Hydra.
fn barrier_out(subversion: u32) -> Reply<'static> {
    Reply::BarrierOut { tag: (subversion >= 2).then_some(0) }
}

/// The PMI conversations with this node's ranks: one over the socket that each rank inherits, and those of secondary
/// clients, which are other PMI libraries in a rank's process.
///
/// A secondary client has groups, addresses, relays and published names of its own. The job's fences, pairs and node
/// attributes belong to the inherited socket.
pub struct Clients {
    /// Conversations over the inherited sockets, by local rank.
    own: Vec<Line>,
    pub secondary: BTreeMap<Client, Line>,
    /// Ranks that enter no more collectives of the job.
    pub departed: BTreeSet<LocalRank>,
}

impl Clients {
    pub fn new(facts: &Facts) -> Self {
        let ranks = facts.node.map(|node| facts.mapping.ranks_of(node));
        let line = |(local, rank)| Line::new(LocalRank(local).into(), rank, app_of(&facts.spec, rank));
        Clients {
            own: (0..).zip(ranks.into_iter().flatten()).map(line).collect(),
            secondary: BTreeMap::new(),
            departed: BTreeSet::new(),
        }
    }

    /// Adds the conversation with a secondary client (another PMI library in a rank's process).
    pub fn join(&mut self, client: Client) {
        if let Some(Line { link: PmiLink { client: PmiClient { rank, appnum, .. }, .. }, .. }) =
            self.own.get(client.local.index())
        {
            self.secondary.insert(client, Line::new(client, *rank, *appnum));
        }
    }

    pub fn line(&mut self, client: Client) -> Option<&mut Line> {
        if client.is_secondary() { self.secondary.get_mut(&client) } else { self.own.get_mut(client.local.index()) }
    }

    /// The conversation of a client that may still get answers.
    pub fn open(&mut self, client: Client) -> Option<&mut PmiLink> {
        self.line(client).map(|line| &mut line.link).filter(|link| link.state != State::Closed)
    }

    /// The conversation over a rank's inherited socket.
    pub fn own(&mut self, local: LocalRank) -> &mut PmiLink {
        &mut self.own[local.index()].link
    }

    /// The conversation in which a rank has started a collective of a group that is not complete.
    pub fn in_group(&mut self, local: LocalRank, group: &Group) -> Option<&mut PmiLink> {
        let own = self.own.get_mut(local.index()).into_iter();
        let all = (Client { local, number: 1 })..=(Client { local, number: u16::MAX });
        let secondary = self.secondary.range_mut(all).map(|(_, line)| line);
        own.chain(secondary).map(|line| &mut line.link).find(|link| link.own_groups.is_under_way(group))
    }

    /// Whether neither the rank itself nor a secondary client in its process can enter a collective any more.
    pub fn has_left(&self, local: LocalRank) -> bool {
        self.departed.contains(&local) && !self.secondary.keys().any(|client| client.local == local)
    }
}

/// A conversation, and the bytes that were received and not handled yet.
pub struct Line {
    reader: RequestReader,
    pub link: PmiLink,
}

pub struct PmiLink {
    pub(super) client: PmiClient,
    pub(super) state: State,
    /// Subversion of PMI-1 that was agreed on.
    pub(super) subversion: u32,
    /// Number of group barriers in which the rank waits.
    pub(super) groups: usize,
    /// Number of our own client's collectives in progress.
    pub(super) outstanding: u32,
    /// Number of the arena that the rank uses; 0: none.
    pub(super) arena: u32,
    /// Whether something was put since the last fence.
    pub(super) has_put: bool,
    /// Number of lazy fences in progress: fences that were answered although they are not complete.
    pub(super) lazy: u32,
    /// A get that is not answered yet; the rank's later requests are handled after it.
    pub(super) waiting_get: Option<WaitingGet>,
    /// A request about a name that is not answered yet; the rank's later requests are handled after it.
    pub(super) waiting_name: Option<WaitingName>,
    pub(super) own_groups: OwnGroups,
    /// Number of requests for addresses that are not answered.
    pub(super) questions: u32,
}

/// The client at the other end of a conversation. Its methods answer requests that do not change the conversation's
/// state.
pub struct PmiClient {
    pub(super) id: Client,
    pub(super) rank: Rank,
    pub(super) appnum: u16,
    pub(super) dialect: Dialect,
}

/// A get that waits until the rank's lazy fences are complete.
pub enum WaitingGet {
    /// A get of one pair.
    Key { key: Vec<u8>, thread: Option<Vec<u8>> },
    /// A step of the iteration over all pairs.
    Number(u32),
}

/// A request about a name or for processes that the root has not answered.
pub struct WaitingName {
    pub command: Command,
    pub thread: Option<Vec<u8>>,
}

/// The groups that one rank of our own client has defined, and its collectives in them that are in progress.
#[derive(Default)]
pub struct OwnGroups {
    /// Groups by the number that the rank has given to each.
    defined: BTreeMap<u32, Group>,
    /// Numbers of the requests in progress in each group, oldest first: a group's collectives end in the order in which
    /// the rank has started them.
    under_way: BTreeMap<Group, VecDeque<u32>>,
}

impl OwnGroups {
    /// # Errors
    /// Why the group cannot be defined.
    pub fn define(&mut self, number: u32, group: Group) -> Result<(), &'static str> {
        if self.defined.len() == GROUPS_PER_RANK_MAX {
            return Err("too_many_groups");
        }
        self.defined.insert(number, group);
        Ok(())
    }

    /// Forgets a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn free(&mut self, number: u32) -> Result<(), &'static str> {
        self.defined.remove(&number).map(drop).ok_or("there_is_no_such_group")
    }

    /// Starts a collective; `None`: there is no such group.
    pub fn start_collective(&mut self, number: u32, request: u32) -> Option<Group> {
        let group = self.defined.get(&number)?.clone();
        self.under_way.entry(group.clone()).or_default().push_back(request);
        Some(group)
    }

    pub fn is_under_way(&self, group: &Group) -> bool {
        self.under_way.contains_key(group)
    }

    /// Ends the group's oldest collective; returns the number of its request.
    pub fn end(&mut self, group: &Group) -> Option<u32> {
        let waiting = self.under_way.get_mut(group)?;
        let request = waiting.pop_front();
        if waiting.is_empty() {
            self.under_way.remove(group);
        }
        request
    }
}

impl Line {
    /// The conversation of a rank, or of a secondary client in its process.
    pub fn new(client: Client, rank: Rank, appnum: u16) -> Line {
        let link = PmiLink {
            client: PmiClient { id: client, rank, appnum, dialect: Dialect::Pmi1 },
            state: State::Fresh,
            subversion: 0,
            groups: 0,
            outstanding: 0,
            arena: 0,
            has_put: false,
            lazy: 0,
            waiting_get: None,
            waiting_name: None,
            own_groups: OwnGroups::default(),
            questions: 0,
        };
        Line { reader: RequestReader::new(), link }
    }

    /// Takes bytes from the rank, and handles requests until one needs something of another part, or all have been
    /// handled, or the next ones must wait.
    ///
    /// # Errors
    /// The framing is invalid: the link cannot recover.
    pub fn on_bytes(&mut self, cx: &mut Cx<'_>, tables: &mut Tables, bytes: &[u8]) -> Result<Option<Asked>, PmiError> {
        let Line { reader, link } = self;
        if !bytes.is_empty() {
            reader.push(bytes)?;
        }
        loop {
            if link.waiting_name.is_some() || (link.waiting_get.is_some() && link.lazy > 0) {
                return Ok(None);
            }
            link.answer_waiting(cx, tables);
            let Some(envelope) = reader.next()? else { return Ok(None) };
            let dialect = link.client.dialect;
            let asked = link.on_request(cx, tables, &envelope).unwrap_or_else(|problem| {
                link.client.answer(tables, &envelope, &Reply::Failed { message: &problem });
                None
            });
            if link.client.dialect != dialect {
                reader.switch_to_pmi2();
            }
            if asked.is_some() {
                return Ok(asked);
            }
        }
    }

    /// Records that the socket is closed. Returns the previous state.
    pub fn close(&mut self) -> State {
        let before = self.link.state;
        self.link.state = before.next(Event::Close).unwrap_or(State::Closed);
        self.reader = RequestReader::new();
        before
    }
}

impl PmiLink {
    /// Answers a request, or records it to be answered later. Returns what the request needs of other parts of the job.
    ///
    /// # Errors
    /// Why the request is refused.
    fn on_request(&mut self, cx: &mut Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) -> Handled {
        // Requests about the whole rank are refused to a secondary client.
        if self.client.id.is_secondary() && !is_offered(&envelope.request) {
            return Err("not_offered_to_further_libraries".into());
        }
        let event = match &envelope.request {
            Request::Init { version: 2, .. } => Event::Init2,
            Request::Init { .. } => Event::Init1,
            Request::FullInit { .. } => Event::FullInit,
            Request::Barrier { group: None } | Request::Ring { .. } => Event::Fence,
            Request::Finalize if self.outstanding > 0 => return Err("finalize_with_collectives_outstanding".into()),
            Request::Finalize if self.groups > 0 => return Err("finalize_while_in_the_barrier_of_a_group".into()),
            Request::Finalize => Event::Finalize,
            Request::Abort { code, message, .. } => {
                let message = String::from_utf8_lossy(message).into_owned();
                return Ok(Some(Asked::Abort { code: *code, message }));
            }
            // All other requests need an initialised client; the match below handles each of them.
            _ => Event::Ask,
        };
        let before = self.state;
        self.state = before.next(event).map_err(|Refused| refusal(before, event))?;
        match &envelope.request {
            Request::Init { version: 2, .. } => {
                self.client.answer(t, envelope, &Reply::Init { version: 2, subversion: 0, rc: 0 });
                self.client.dialect = Dialect::Pmi2;
            }
            Request::Init { version, subversion, extension } => {
                return Ok(self.on_init(cx, t, envelope, before, (*version, *subversion), extension.is_some()));
            }
            Request::FullInit { .. } => return Ok(self.client.on_full_init(cx, t, envelope)),
            Request::Barrier { group: None } => return Ok(Some(self.on_fence(cx, t, envelope))),
            Request::Barrier { group: Some(group) } => return self.on_group(cx, t, group),
            Request::Finalize => {
                self.client.answer(t, envelope, &Reply::Done);
                return Ok((!self.client.id.is_secondary()).then_some(Asked::Finalized));
            }
            Request::Put { key, value, kvsname } => {
                check_kvsname(cx, *kvsname)?;
                self.on_put(t, key, value)?;
                self.client.answer(t, envelope, &Reply::Done);
            }
            Request::Get { key, kvsname, .. } => {
                check_kvsname(cx, *kvsname)?;
                return Ok(self.on_get(cx, t, envelope, key));
            }
            // An iteration over all pairs by number returns the published pairs with the values that look-ups would
            // return.
            Request::GetByIdx { kvsname, index } => {
                let number = u32::try_from(*index).map_err(|_| "idx_is_negative")?;
                check_kvsname(cx, *kvsname)?;
                match self.lazy {
                    0 => self.client.answer_number(cx, t, number),
                    _ => self.waiting_get = Some(WaitingGet::Number(number)),
                }
            }
            Request::FenceNb { id } => return Ok(Some(self.on_own_fence(*id))),
            Request::Allgather { id, max_len, shared, freed, value } => {
                self.client.on_freed(t, freed);
                return self.on_allgather(cx, t, *id, (*max_len, *shared), value.0);
            }
            Request::Ring { left, right, .. } => return self.on_ring(envelope, left, right),
            Request::GroupSet { group, members, tag } => {
                self.on_group_set(cx, *group, members, tag)?;
                self.client.answer(t, envelope, &Reply::Done);
            }
            Request::GroupFree { group } => {
                self.own_groups.free(*group)?;
                self.client.answer(t, envelope, &Reply::Done);
            }
            Request::Gather { id, group, value } => return self.on_gather(*id, *group, value.0),
            Request::Endpoints => self.client.on_endpoints(cx, t, envelope)?,
            Request::Secret => self.client.on_secret(cx, t, envelope),
            Request::AddressSet { name, value } => {
                self.client.on_address_set(t, name, value)?;
                self.client.answer(t, envelope, &Reply::Done);
            }
            Request::AddressGet { id, rank, name } => self.on_address_get(cx, t, *id, *rank, name)?,
            Request::Relay { rank, name } => self.client.on_relay(cx, t, envelope, *rank, name)?,
            Request::KvsMap { have } => self.client.on_kvs_map(cx, t, envelope, have)?,
            Request::PutNodeAttr { key, value } => self.client.on_put_attr(cx, t, envelope, key, value)?,
            Request::GetNodeAttr { key, wait } => self.client.on_get_attr(t, envelope, key, *wait)?,
            Request::GetMaxes => self.client.answer(t, envelope, &MAXES),
            Request::GetUniverseSize => {
                let size = cx.facts.spec.options.pmi.universe_size;
                let size = size.map_or(-1, |size| i32::try_from(size).unwrap_or(i32::MAX));
                self.client.answer(t, envelope, &Reply::UniverseSize(size));
            }
            Request::GetAppnum => self.client.answer(t, envelope, &Reply::Appnum(self.client.appnum.into())),
            Request::GetMyKvsname => self.client.answer(t, envelope, &Reply::KvsName(cx.facts.spec.nspace.as_bytes())),
            Request::JobGetId => self.client.answer(t, envelope, &Reply::JobId(cx.facts.spec.nspace.as_bytes())),
            Request::GetJobAttr { key } => return Ok(self.client.on_job_attr(cx, t, envelope, key)),
            Request::Malformed { problem, .. } => return Err(problem.to_string().replace(' ', "_").into()),
            Request::Spawn(request) => return self.on_spawn(envelope, request),
            Request::PublishName { name, port } => return self.on_publish(envelope, name, port),
            Request::UnpublishName { name } => return self.on_unpublish(envelope, name),
            Request::LookupName { name } => return self.on_look_up(envelope, name),
            // An abort was handled above and has no answer.
            Request::Abort { .. } => {}
            Request::JobConnect { .. }
            | Request::JobDisconnect { .. }
            | Request::CreateKvs
            | Request::DestroyKvs { .. }
            | Request::InitAck { .. }
            | Request::SingInit { .. }
            | Request::Unknown { .. } => return Err("command_not_supported".into()),
        }
        Ok(None)
    }

    /// A client that requests PMI 1.1 gets 1.1 unless the user chooses otherwise: with 1.2 MPICH's client would spin
    /// while it waits in barriers of groups.
    fn on_init(
        &mut self,
        cx: &Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        before: State,
        (version, subversion): (u32, u32),
        own: bool,
    ) -> Option<Asked> {
        if version != 1 {
            self.state = before;
            self.client.answer(t, envelope, &Reply::Init { version: 1, subversion: 1, rc: -1 });
            return None;
        }
        self.subversion = match cx.facts.spec.options.pmi.version {
            PmiVersion::Asked if subversion >= 2 || own => 2,
            PmiVersion::Asked | PmiVersion::Plain => 1,
            PmiVersion::Groups => 2,
        };
        self.client.answer(t, envelope, &Reply::Init { version: 1, subversion: self.subversion, rc: 0 });
        (before == State::Fresh).then_some(Asked::Initialised)
    }

    fn on_fence(&mut self, cx: &Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) -> Asked {
        let has_put = std::mem::take(&mut self.has_put);
        if has_put && cx.facts.spec.options.pmi.fence == PmiFence::Lazy {
            self.state = State::Ready;
            self.lazy += 1;
            self.client.answer(t, envelope, &barrier_out(self.subversion));
            return Asked::Enter { entry: Entry::Fence, reply_to: ReplyTo::Lazy };
        }
        let reply_to = ReplyTo::Fence { thread: envelope.thread.map(<[u8]>::to_vec) };
        Asked::Enter { entry: Entry::Fence, reply_to }
    }

    fn on_own_fence(&mut self, id: u32) -> Asked {
        self.outstanding += 1;
        self.has_put = false;
        Asked::Enter { entry: Entry::Fence, reply_to: ReplyTo::OwnFence { id } }
    }

    /// A collective is complete: writes its reply.
    pub fn answer_collective(&mut self, reply_to: &ReplyTo, told: &Completion<'_>, reply: &mut Vec<u8>) {
        if self.state == State::Closed {
            return;
        }
        let (command, thread, answer) = match (reply_to, told) {
            (ReplyTo::Fence { thread }, Completion::Fence { .. }) => {
                (Command::Barrier, thread.as_deref(), barrier_out(self.subversion))
            }
            (ReplyTo::Ring { thread }, Completion::Place(place)) => {
                let answer = Reply::Ring { count: place.before as i32, left: &place.left, right: &place.right };
                (Command::Ring, thread.as_deref(), answer)
            }
            (ReplyTo::OwnFence { id }, Completion::Fence { version }) => {
                (Command::FenceNb, None, Reply::FenceNb { id: *id, version: *version })
            }
            (ReplyTo::Allgather { id }, Completion::Array { place, new }) => {
                (Command::Allgather, None, Reply::Allgather { id: *id, place: *place, new: new.then_some(1) })
            }
            (ReplyTo::Lazy, _) => return self.lazy -= 1,
            (ReplyTo::Server | ReplyTo::Endpoints, _) => return,
            (reply_to, _) => panic!("the result does not match the collective: {reply_to:?}"),
        };
        encode_reply(self.client.dialect, command, thread, &answer, reply);
        match command {
            Command::FenceNb | Command::Allgather => self.outstanding -= 1,
            // The link may have been closed in the meantime.
            _ => self.state = self.state.next(Event::Release).unwrap_or(self.state),
        }
    }

    /// Whether a get waits for the rank's lazy fences and these are complete.
    pub fn may_resume(&self) -> bool {
        self.waiting_get.is_some() && self.lazy == 0
    }

    fn on_put(&mut self, t: &mut Tables, key: &[u8], value: &[u8]) -> Result<(), RefusalText> {
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Err("key_is_empty_or_longer_than_64".into());
        } else if value.len() > VALUE_LEN_MAX {
            return Err("value_is_longer_than_1024".into());
        } else if key.starts_with(b"PMI_") {
            return Err("keys_that_begin_with_PMI__are_reserved".into());
        } else if t.kvs.pending.len() + PAIR_OVERHEAD + key.len() + value.len() > PENDING_PUT_BYTES_MAX {
            return Err("too_many_puts_without_a_fence".into());
        }
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let key = stored(self.client.dialect, key, &mut key_room);
        blob::push(&mut t.kvs.pending, key, stored(self.client.dialect, value, &mut value_room));
        self.has_put = true;
        Ok(())
    }
}

fn check_kvsname(cx: &Cx<'_>, kvsname: Option<&[u8]>) -> Result<(), RefusalText> {
    match kvsname {
        Some(name) if !name.is_empty() && name != cx.facts.spec.nspace.as_bytes() => {
            Err("kvsname_is_not_that_of_this_job".into())
        }
        _ => Ok(()),
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

/// Whether a secondary client may send this request.
fn is_offered(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Init { version: 2, .. }
            | Request::FullInit { .. }
            | Request::Finalize
            | Request::Abort { .. }
            | Request::GroupSet { .. }
            | Request::GroupFree { .. }
            | Request::Gather { .. }
            | Request::Secret
            | Request::AddressSet { .. }
            | Request::AddressGet { .. }
            | Request::Relay { .. }
            | Request::PublishName { .. }
            | Request::UnpublishName { .. }
            | Request::LookupName { .. }
            | Request::GetMaxes
            | Request::GetUniverseSize
            | Request::GetAppnum
            | Request::JobGetId
            | Request::GetJobAttr { .. }
            | Request::Malformed { .. }
    )
}

impl PmiClient {
    /// Encodes a reply to an earlier request, not to one of those that are being handled.
    pub(super) fn encode(&self, command: Command, thread: Option<&[u8]>, reply: &Reply<'_>) -> Vec<u8> {
        let mut encoded = Vec::new();
        encode_reply(self.dialect, command, thread, reply, &mut encoded);
        encoded
    }

    pub(super) fn answer(&self, t: &mut Tables, envelope: &Envelope<'_>, reply: &Reply<'_>) {
        encode_reply(self.dialect, envelope.request.command(), envelope.thread, reply, &mut t.reply);
    }

    fn on_full_init(&mut self, cx: &Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) -> Option<Asked> {
        let reply = Reply::FullInit {
            version: 2,
            subversion: 0,
            rank: self.rank.0,
            size: cx.facts.job_size,
            appnum: self.appnum.into(),
            spawner: cx.facts.spec.spawned.as_ref().map(|spawned| spawned.nspace.as_bytes()),
            extension: Some(EXTENSION_VERSION),
        };
        self.answer(t, envelope, &reply);
        (!self.id.is_secondary()).then_some(Asked::Initialised)
    }
}

/// What the conversations with a node's ranks share: the tables from which requests are answered, and the replies that
/// are collected until they are sent.
pub struct Tables {
    /// Value of `PMI_process_mapping`; `None`: it is longer than a value may be.
    pub process_mapping: Option<Vec<u8>>,
    pub kvs: Kvs,
    pub attrs: NodeAttrs,
    pub addresses: Addresses,
    pub endpoints: Endpoints,
    pub relays: Relays,
    pub arenas: Arenas,
    pub shares: Shares,
    /// Replies to the rank whose requests are being handled, so that a batch of requests is answered by one write.
    pub reply: Vec<u8>,
    /// Shared memory whose descriptors are sent to that rank with the replies.
    pub handed: Vec<ShareId>,
}

/// What a request of a rank needs of the server's collectives, of the root, or of other parts of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The rank has called init.
    Initialised,
    /// The rank has asked which ranks share its node: its library begins to wait for them in shared memory.
    MeetsNode,
    /// The rank starts its next collective.
    Enter { entry: Entry, reply_to: ReplyTo },
    /// The rank enters the barrier of a group, or (with its packed value) another collective of the group.
    EnterGroup { group: Group, value: Option<Bytes> },
    /// The addresses of all ranks are known, which the job's PMIx server needs: one row for each node.
    Endpoints(Vec<Bytes>),
    /// The rank publishes, looks up or withdraws a name, or asks for processes.
    Name { client: Client, ask: Ask },
    /// The rank has called finalize.
    Finalized,
    /// The rank ends the job, with this exit code.
    Abort { code: i32, message: String },
    /// The rank's requests cannot be understood: its conversation was closed.
    Unreadable { problem: String },
}

impl Asked {
    /// Whether handling this sends nothing to the rank, so that the collected replies may be sent together with the
    /// replies to the next requests.
    pub fn is_silent(&self) -> bool {
        matches!(self, Asked::Initialised | Asked::MeetsNode | Asked::Abort { .. })
    }
}

/// Room for replies that is kept between two reads (bytes). Chosen: more than a batch of answers to gets of the longest
/// values that a rank sends in one write.
const REPLY_ROOM_KEPT: usize = 64 << 10;

/// Error text for a rank whose request needs stored pairs that cannot be read; its job fails for the same reason.
pub const UNREADABLE: &str = "the_pairs_of_the_fences_cannot_be_read";

impl Tables {
    pub fn new(facts: &Facts) -> Tables {
        Tables {
            process_mapping: facts.mapping.process_mapping(),
            kvs: Kvs::with(facts.spec.spawned.iter().flat_map(|spawned| &spawned.preput)),
            attrs: NodeAttrs::default(),
            addresses: Addresses::default(),
            endpoints: Endpoints::default(),
            relays: Relays::default(),
            arenas: Arenas::default(),
            shares: Shares::new(facts.id()),
            reply: Vec::new(),
            handed: Vec::new(),
        }
    }

    /// Sends the collected replies to the rank whose requests were handled.
    pub fn send_replies(&mut self, cx: &mut Cx<'_>, client: Client) {
        // The copy has no spare capacity; the buffer is reused.
        let bytes = Bytes::copy_from_slice(&self.reply);
        self.reply.clear();
        self.reply.shrink_to(REPLY_ROOM_KEPT);
        let shares = std::mem::take(&mut self.handed);
        self.send(cx, client, bytes, shares);
    }

    /// Sends a reply, and first makes the memory that it refers to.
    pub fn send(&mut self, cx: &mut Cx<'_>, client: Client, bytes: Bytes, shares: Vec<ShareId>) {
        self.shares.put_made(cx);
        if !bytes.is_empty() {
            cx.output(Output::Reply { job: cx.facts.id(), client, bytes, shares });
        }
    }

    /// Releases memory to which no later reply refers; must be called after the replies.
    pub fn give_memory_up(&mut self, cx: &mut Cx<'_>) {
        self.kvs.merged.drain(..).for_each(|share| self.shares.give_up(share));
        self.shares.put_dropped(cx);
    }
}

/// Fails the job because the pairs that fences have published cannot be read on this node.
pub fn fail_unreadable(cx: &mut Cx<'_>, problem: String) {
    cx.fail_here(Cause::Pmi { problem });
}

#[cfg(test)]
mod tests;

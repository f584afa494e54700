//! The requests that are under way on one link.
//!
//! Servers answer in order, at least requests of one name, but for two kinds. A fence's answer comes when all ranks
//! have entered, and what is asked meanwhile is answered before it: one such may be under way, told apart by its name.
//! Fences, allgathers, collectives of groups and questions for addresses of our own server carry a number: any number
//! of them may be under way, and their answers come in any order. Bytes to send are appended to `out`; nothing here
//! waits.
//!
//! ```text
//!   ask(put) ask(fence) ask(get)              ──►   put_result  get_result  …  fence's answer
//!   ask(fence 1) ask(put) ask(allgather 2)    ──►   put_result  …  allgather 2  …  fence 1
//! ```
//!
//! An answer says how many descriptors come along: the allgather's array or the arena where it lies, the segments of a
//! kvs.

use crate::number;
use alloc::vec::Vec;
use wireup_wire::pmi::{Command, Dialect, PmiError, ReplyFields, ReplyReader, Request, encode_request};

/// Lines that answer `initack`: itself, then `size`, `rank`, `debug`.
const INIT_ACK_LINES: usize = 4;

/// Commands whose answers come in any order.
const NUMBERED: [Command; 4] = [Command::FenceNb, Command::Allgather, Command::AddressGet, Command::Gather];

#[derive(Clone, Debug)]
pub struct Pipeline {
    dialect: Dialect,
    reader: ReplyReader,
    /// The server has answered a request for PMI-2: what follows is counted.
    has_agreed: bool,
    /// Commands that will be answered in order.
    asked: Vec<Command>,
    fence: bool,
    /// Numbered requests, in the order in which they were asked.
    numbered: Vec<(Command, u32)>,
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub command: Command,
    pub fields: ReplyFields<'a>,
    /// Requests answered in order that were asked later and are not answered yet.
    pub after: usize,
    /// The number of a numbered request.
    pub id: Option<u32>,
    /// Descriptors that belong to this answer.
    pub descriptors: usize,
}

/// Why nothing more can be read from the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The server's bytes cannot be cut into messages.
    Bytes(PmiError),
    /// An answer came that nobody asked for.
    Unasked,
    /// One of our own server's commands was refused; which request it was is not said.
    Refused,
}

impl Pipeline {
    pub fn new(dialect: Dialect) -> Self {
        let reader = ReplyReader::new();
        Pipeline { dialect, reader, has_agreed: false, asked: Vec::new(), fence: false, numbered: Vec::new() }
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Requests answered in order that are not answered yet.
    pub fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// Appends a request; `false` if the dialect has none such.
    ///
    /// # Panics
    /// If a second fence is asked for before the first is answered.
    pub fn ask(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> bool {
        let command = request.command();
        // The lines before and up to `init` are PMI-1's in any case.
        let dialect = if command == Command::InitAck { Dialect::Pmi1 } else { self.dialect };
        if encode_request(dialect, request, None, out).is_err() {
            return false;
        }
        match request {
            Request::Abort { .. } => {}
            Request::Barrier { .. } => {
                assert!(!self.fence, "one fence at a time is on a link");
                self.fence = true;
            }
            Request::FenceNb { id }
            | Request::Allgather { id, .. }
            | Request::AddressGet { id, .. }
            | Request::Gather { id, .. } => self.numbered.push((command, *id)),
            Request::InitAck { .. } => self.asked.extend([Command::InitAck; INIT_ACK_LINES]),
            _ => self.asked.push(command),
        }
        true
    }

    /// For a conversation that begins after `init`: everything is counted.
    pub fn switch_to_pmi2(&mut self) {
        self.reader.switch_to_pmi2();
    }

    /// Takes bytes of the server, cut anywhere. To be called when [`Pipeline::next`] has said `None`.
    ///
    /// # Errors
    /// [`Broken`]: nothing more can be read.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.reader.push(bytes).map_err(Broken::Bytes)
    }

    /// The next answer; `None`: more bytes needed.
    ///
    /// # Errors
    /// [`Broken`]: nothing more can be read.
    #[allow(clippy::should_implement_trait)] // It lends from the reader: no iterator can.
    pub fn next(&mut self) -> Result<Option<Answer<'_>>, Broken> {
        if core::mem::take(&mut self.has_agreed) {
            self.reader.switch_to_pmi2();
        }
        let Some(fields) = self.reader.next().map_err(Broken::Bytes)? else {
            return Ok(None);
        };
        let mut at = 0;
        let (command, id) = if self.fence && fields.answers(Command::Barrier) {
            self.fence = false;
            (Command::Barrier, None)
        } else if let Some(command) = NUMBERED.into_iter().find(|one| fields.answers(*one)) {
            (command, Some(take_numbered(&mut self.numbered, command, &fields)?))
        } else {
            // Of another name than the first only where a server answers some before others, as Hydra does.
            at = self.asked.iter().position(|one| fields.answers(*one)).unwrap_or(0);
            if at == self.asked.len() {
                return Err(Broken::Unasked);
            }
            // Queues are short and their entries a byte: moving them up costs less code than a ring buffer.
            (self.asked.remove(at), None)
        };
        self.has_agreed = command == Command::Init && self.dialect == Dialect::Pmi2;
        if command == Command::KvsMap && !fields.succeeded() {
            return Err(Broken::Refused);
        }
        Ok(Some(Answer {
            command,
            fields,
            after: self.asked.len() - at,
            id,
            descriptors: descriptors(command, &fields),
        }))
    }
}

/// The number of an answer, which is then no longer under way.
fn take_numbered(
    numbered: &mut Vec<(Command, u32)>,
    command: Command,
    fields: &ReplyFields<'_>,
) -> Result<u32, Broken> {
    if !fields.succeeded() {
        return Err(Broken::Refused);
    }
    let id = fields.get("id").and_then(number::parse);
    let id = id.ok_or(Broken::Unasked)?;
    let at = numbered.iter().position(|one| *one == (command, id)).ok_or(Broken::Unasked)?;
    numbered.remove(at);
    Ok(id)
}

fn descriptors(command: Command, fields: &ReplyFields<'_>) -> usize {
    match command {
        _ if !fields.succeeded() => 0,
        Command::Allgather => usize::from(fields.get("place").is_none() | fields.get("new").is_some()),
        Command::Gather => usize::from(fields.get("memory").is_some()),
        Command::Endpoints | Command::Relay => 1,
        Command::KvsMap => match fields.get("ends") {
            None | Some(b"") => 0,
            Some(ends) => ends.split(|byte| *byte == b',').count(),
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec;
    use wireup_wire::pmi::Raw;

    fn counted(body: &str) -> String {
        std::format!("{:6}{body}", body.len())
    }

    #[test]
    fn other_answers_may_overtake_a_fences_answer() {
        let mut link = Pipeline::new(Dialect::Pmi2);
        link.switch_to_pmi2();
        let mut out = Vec::new();
        assert!(link.ask(&Request::Put { kvsname: None, key: b"k", value: b"v" }, &mut out));
        assert!(link.ask(&Request::Barrier { group: None }, &mut out));
        assert!(link.ask(&Request::Get { kvsname: None, key: b"k", source: Some(0) }, &mut out));
        assert!(link.fence);
        let answers = counted("cmd=kvs-put-response;rc=0;")
            + &counted("cmd=kvs-get-response;rc=0;found=TRUE;value=v;")
            + &counted("cmd=kvs-fence-response;rc=0;");
        let mut seen = vec![];
        for byte in answers.bytes() {
            link.push(&[byte]).unwrap();
            while let Some(answer) = link.next().unwrap() {
                seen.push((answer.command, answer.after));
            }
        }
        assert_eq!(seen, [(Command::Put, 1), (Command::Get, 0), (Command::Barrier, 0)]);
        assert!(!link.fence);
    }

    fn allgather(id: u32) -> Request<'static> {
        Request::Allgather { id, max_len: 8, shared: false, freed: b"", value: Raw(b"v") }
    }

    #[test]
    fn answers_to_different_commands_may_overtake() {
        let mut link = Pipeline::new(Dialect::Pmi2);
        link.switch_to_pmi2();
        let mut out = Vec::new();
        for _ in 0..2 {
            assert!(link.ask(&Request::Put { kvsname: None, key: b"k", value: b"v" }, &mut out));
        }
        assert!(link.ask(&Request::GetJobAttr { key: b"k" }, &mut out));
        let put = counted("cmd=kvs-put-response;rc=0;");
        let answers = put.clone() + &counted("cmd=info-getjobattr-response;rc=0;found=FALSE;") + &put;
        link.push(answers.as_bytes()).unwrap();
        let mut seen = vec![];
        while let Some(answer) = link.next().unwrap() {
            seen.push((answer.command, answer.after));
        }
        assert_eq!(seen, [(Command::Put, 2), (Command::GetJobAttr, 0), (Command::Put, 0)]);
    }

    #[test]
    fn numbered_answers_may_arrive_in_any_order() {
        let mut link = Pipeline::new(Dialect::Pmi2);
        link.switch_to_pmi2();
        let mut out = Vec::new();
        assert!(link.ask(&Request::FenceNb { id: 1 }, &mut out));
        assert!(link.ask(&allgather(2), &mut out));
        assert!(link.ask(&Request::KvsMap { have: b"3" }, &mut out));
        assert!(link.ask(&Request::FenceNb { id: 3 }, &mut out));
        assert!(link.ask(&allgather(4), &mut out));
        assert!(link.ask(&allgather(5), &mut out));
        assert_eq!((link.unanswered(), link.fence), (1, false));
        let answers = counted("cmd=wireup-fence-response;rc=0;id=3;kvs=1;")
            + &counted("cmd=wireup-allgather-response;rc=0;id=2;")
            + &counted("cmd=wireup-kvs-map-response;rc=0;keep=1;ends=7,9;")
            + &counted("cmd=wireup-allgather-response;rc=0;id=4;place=5;")
            + &counted("cmd=wireup-allgather-response;rc=0;id=5;place=6;new=1;")
            + &counted("cmd=wireup-fence-response;rc=0;id=1;kvs=2;");
        let mut seen = vec![];
        for byte in answers.bytes() {
            link.push(&[byte]).unwrap();
            while let Some(answer) = link.next().unwrap() {
                seen.push((answer.command, answer.id, answer.after, answer.descriptors));
            }
        }
        let fence = |id| (Command::FenceNb, Some(id), if id == 3 { 1 } else { 0 }, 0);
        let array = (Command::Allgather, Some(2), 1, 1);
        let placed = |id, descriptors| (Command::Allgather, Some(id), 0, descriptors);
        let map = (Command::KvsMap, None, 0, 2);
        assert_eq!(seen, [fence(3), array, map, placed(4, 0), placed(5, 1), fence(1)]);
    }

    #[test]
    fn an_answer_with_an_unknown_number_breaks_the_link() {
        let cases = [
            ("cmd=wireup-fence-response;rc=0;id=2;kvs=0;", Broken::Unasked),
            ("cmd=wireup-allgather-response;rc=0;id=1;", Broken::Unasked),
            ("cmd=wireup-fence-response;rc=0;id=x;kvs=0;", Broken::Unasked),
            ("cmd=wireup-fence-response;rc=0;kvs=0;", Broken::Unasked),
            ("cmd=wireup-fence-response;rc=-1;errmsg=too many;", Broken::Refused),
        ];
        for (answer, broken) in cases {
            let mut link = Pipeline::new(Dialect::Pmi2);
            link.switch_to_pmi2();
            assert!(link.ask(&Request::FenceNb { id: 1 }, &mut Vec::new()));
            link.push(counted(answer).as_bytes()).unwrap();
            assert_eq!(link.next().map(|_| ()), Err(broken), "{answer}");
        }
    }

    #[test]
    fn an_unrequested_answer_breaks_the_link() {
        let mut link = Pipeline::new(Dialect::Pmi1);
        link.push(b"cmd=barrier_out rc=0\n").unwrap();
        assert!(matches!(link.next(), Err(Broken::Unasked)));
    }

    #[test]
    fn a_four_line_initack_answer_completes_one_request() {
        let mut link = Pipeline::new(Dialect::Pmi2);
        let mut out = Vec::new();
        assert!(link.ask(&Request::InitAck { pmiid: 7 }, &mut out));
        assert_eq!(out, b"cmd=initack pmiid=7\n");
        link.push(b"cmd=initack rc=0\ncmd=set size=16\ncmd=set rank=7\ncmd=set debug=0\n").unwrap();
        let mut size = None;
        while let Some(answer) = link.next().unwrap() {
            size = size.or(answer.fields.get("size").map(<[u8]>::to_vec));
        }
        assert_eq!((size.as_deref(), link.unanswered()), (Some(&b"16"[..]), 0));
    }
}

//! Reads and writes spawn, the only request that is not a flat list of fields.
//!
//! PMI-1 sends a block of lines for each program and counts the blocks (`spawnssofar` of `totspawns`); PMI-2 sends one
//! body in which `subcmd` starts each program. Arguments, info pairs and preputs are numbered; they are used in
//! ascending order, whatever the first number is.

use super::error::{Excerpt, PmiError, Problem};
use super::pairs::Pairs;
use super::spawn_request::{SpawnCommand, SpawnRequest};
use super::value::{FieldName, MessageWriter, Value, write_number};
use super::{Command, Request};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Maximum size of all blocks of one PMI-1 spawn: Linux' default limit for the arguments of one program (bytes).
const SPAWN_LEN_MAX: usize = 2 << 20;

/// The field names of a dialect.
struct Words {
    program: &'static str,
    ranks: &'static str,
    arg: &'static str,
    info: (&'static str, &'static str),
    preput: (&'static str, &'static str),
}

const PMI1: Words = Words {
    program: "execname",
    ranks: "nprocs",
    arg: "arg",
    info: ("info_key_", "info_val_"),
    preput: ("preput_key_", "preput_val_"),
};
const PMI2: Words = Words {
    program: "subcmd",
    ranks: "maxprocs",
    arg: "argv",
    info: ("infokey", "infoval"),
    preput: ("ppkey", "ppval"),
};

/// Pairs whose key and value come as two numbered fields.
#[derive(Default)]
struct NumberedPairs(BTreeMap<u32, (Vec<u8>, Vec<u8>)>);

impl NumberedPairs {
    /// Adds the field if it belongs to these pairs; returns whether it does.
    fn add_pair(&mut self, words: (&str, &str), key: &[u8], value: &[u8]) -> bool {
        if let Some(number) = numbered(key, words.0) {
            self.0.entry(number).or_default().0 = value.to_vec();
        } else if let Some(number) = numbered(key, words.1) {
            self.0.entry(number).or_default().1 = value.to_vec();
        } else {
            return false;
        }
        true
    }

    fn into_vec(self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.0.into_values().collect()
    }
}

/// The number that follows `word`.
fn numbered(key: &[u8], word: &str) -> Option<u32> {
    let digits = key.strip_prefix(word.as_bytes())?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// One program while its fields are being read.
#[derive(Default)]
struct Draft {
    program: Vec<u8>,
    ranks: Option<u32>,
    args: BTreeMap<u32, Vec<u8>>,
    info: NumberedPairs,
}

impl Draft {
    fn add_pair(&mut self, words: &Words, key: &[u8], value: &[u8]) -> Result<(), Problem> {
        if key == words.program.as_bytes() {
            self.program = value.to_vec();
        } else if key == words.ranks.as_bytes() {
            self.ranks =
                Some(u32::read(FieldName { command: Command::Spawn.name(), field: words.ranks }, Some(value))?);
        } else if let Some(number) = numbered(key, words.arg) {
            self.args.insert(number, value.to_vec());
        } else {
            self.info.add_pair(words.info, key, value);
        }
        Ok(())
    }

    fn finish(self, words: &Words) -> Result<SpawnCommand, Problem> {
        let missing = |field| Problem::Missing { command: Command::Spawn.name(), field };
        if self.program.is_empty() {
            return Err(missing(words.program));
        }
        Ok(SpawnCommand {
            program: self.program,
            args: self.args.into_values().collect(),
            ranks: self.ranks.ok_or(missing(words.ranks))?,
            info: self.info.into_vec(),
            env: Vec::new(),
        })
    }
}

/// Decodes a PMI-2 body after its `cmd=spawn;`.
pub(super) fn decode_pmi2(pairs: Pairs<'_>) -> Result<SpawnRequest, Problem> {
    let mut commands = Vec::new();
    let mut preput = NumberedPairs::default();
    let mut draft: Option<Draft> = None;
    for (key, value) in pairs {
        if preput.add_pair(PMI2.preput, key, value) {
            continue;
        }
        if key == PMI2.program.as_bytes()
            && let Some(done) = draft.replace(Draft::default())
        {
            commands.push(done.finish(&PMI2)?);
        }
        if key == PMI2.program.as_bytes() || draft.is_some() {
            draft.get_or_insert_default().add_pair(&PMI2, key, value)?;
        }
    }
    let last = draft.ok_or(Problem::Missing { command: Command::Spawn.name(), field: PMI2.program })?;
    commands.push(last.finish(&PMI2)?);
    Ok(SpawnRequest { commands, preput: preput.into_vec() })
}

/// A PMI-1 spawn whose last block has not arrived yet.
#[derive(Clone, Debug)]
pub(super) struct PartialSpawn {
    request: SpawnRequest,
    /// Lines of the block that is being read; `None` between two blocks.
    block: Option<Vec<u8>>,
    /// Bytes of all blocks so far.
    bytes: usize,
    /// Whether the block is a spawn; a block of any other command is read to its end and refused.
    is_spawn: bool,
}

impl PartialSpawn {
    /// A spawn of which the first line, `mcmd=…`, was read.
    pub(super) fn new(is_spawn: bool) -> Self {
        PartialSpawn { request: SpawnRequest::default(), block: Some(Vec::new()), bytes: 0, is_spawn }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.max(1)
    }

    /// Adds one line; returns the request when it is complete.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<Option<Request<'static>>, PmiError> {
        self.bytes += line.len() + 1;
        if self.bytes > SPAWN_LEN_MAX {
            return Err(PmiError::SpawnTooLong { limit: SPAWN_LEN_MAX });
        }
        match &mut self.block {
            None if line.trim_ascii().is_empty() => Ok(None),
            None if line.trim_ascii() == b"mcmd=spawn" => {
                self.block = Some(Vec::new());
                Ok(None)
            }
            None => Err(PmiError::SpawnInterrupted { start: Excerpt::of(line) }),
            Some(block) if line.trim_ascii() != b"endcmd" => {
                block.extend_from_slice(line);
                block.push(b'\n');
                Ok(None)
            }
            Some(_) if !self.is_spawn => Ok(Some(Request::Unknown { name: b"mcmd" })),
            Some(_) => {
                let block = self.block.take().unwrap_or_default();
                Ok(match self.end_block(&block) {
                    Ok(false) => None,
                    Ok(true) => Some(Request::Spawn(core::mem::take(&mut self.request))),
                    Err(problem) => Some(Request::Malformed { command: Command::Spawn, problem }),
                })
            }
        }
    }

    /// Adds the program of a block; returns whether the block was the last one.
    fn end_block(&mut self, block: &[u8]) -> Result<bool, Problem> {
        let mut draft = Draft::default();
        let mut preput = NumberedPairs::default();
        let (mut total, mut so_far) = (1, 1);
        for (key, value) in Pairs::of_lines(block) {
            let number = |field| u32::read(FieldName { command: Command::Spawn.name(), field }, Some(value));
            match key {
                b"totspawns" => total = number("totspawns")?,
                b"spawnssofar" => so_far = number("spawnssofar")?,
                _ if preput.add_pair(PMI1.preput, key, value) => {}
                _ => draft.add_pair(&PMI1, key, value)?,
            }
        }
        self.request.commands.push(draft.finish(&PMI1)?);
        if self.request.preput.is_empty() {
            self.request.preput = preput.into_vec();
        }
        Ok(so_far >= total)
    }
}

fn line(name: &str, number: Option<usize>, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    if let Some(number) = number {
        write_number(number as i64, out);
    }
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn count_line(name: &str, count: usize, out: &mut Vec<u8>) {
    let mut digits = Vec::new();
    write_number(count as i64, &mut digits);
    line(name, None, &digits, out);
}

/// Appends the blocks; arguments are numbered from 1, as in MPICH.
pub(super) fn encode_pmi1(request: &SpawnRequest, out: &mut Vec<u8>) {
    for (index, command) in request.commands.iter().enumerate() {
        out.extend_from_slice(b"mcmd=spawn\n");
        count_line(PMI1.ranks, command.ranks as usize, out);
        line(PMI1.program, None, &command.program, out);
        count_line("totspawns", request.commands.len(), out);
        count_line("spawnssofar", index + 1, out);
        count_line("argcnt", command.args.len(), out);
        for (number, arg) in command.args.iter().enumerate() {
            line(PMI1.arg, Some(number + 1), arg, out);
        }
        count_line("preput_num", request.preput.len(), out);
        numbered_lines(PMI1.preput, &request.preput, out);
        count_line("info_num", command.info.len(), out);
        numbered_lines(PMI1.info, &command.info, out);
        out.extend_from_slice(b"endcmd\n");
    }
}

fn numbered_lines(words: (&str, &str), pairs: &[(Vec<u8>, Vec<u8>)], out: &mut Vec<u8>) {
    for (number, (key, value)) in pairs.iter().enumerate() {
        line(words.0, Some(number), key, out);
        line(words.1, Some(number), value, out);
    }
}

/// Writes the body's fields in the order that Slurm's parser requires.
pub(super) fn encode_pmi2(request: &SpawnRequest, writer: &mut MessageWriter<'_>) {
    writer.field("ncmds", &(request.commands.len() as u32));
    writer.field("preputcount", &(request.preput.len() as u32));
    writer.numbered_pairs(PMI2.preput, &request.preput);
    for command in &request.commands {
        writer.raw(PMI2.program, &command.program);
        writer.field(PMI2.ranks, &command.ranks);
        writer.field("argc", &(command.args.len() as u32));
        for (number, arg) in command.args.iter().enumerate() {
            writer.numbered(PMI2.arg, number, arg);
        }
        writer.field("infokeycount", &(command.info.len() as u32));
        writer.numbered_pairs(PMI2.info, &command.info);
    }
}

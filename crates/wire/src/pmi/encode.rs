//! Writes requests and replies.

use super::spawn;
use super::table::THREAD_FIELD;
use super::value::{MessageWriter, RESPONSE, write_number};
use super::{Command, Dialect, Reply, Request};
use alloc::vec::Vec;
use thiserror::Error;

/// The dialect has no such request.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("{dialect:?} has no request \"{command}\"", command = .command.name())]
pub struct NotInDialect {
    pub dialect: Dialect,
    pub command: Command,
}

/// Longest message of a failed reply: clients read it into buffers of 256 bytes or more.
const FAILURE_LEN_MAX: usize = 200;

/// `init` and its reply are PMI-1 lines, whatever dialect follows.
fn dialect_of(command: Command, dialect: Dialect) -> Dialect {
    if command == Command::Init { Dialect::Pmi1 } else { dialect }
}

/// Appends a request. The caller must make sure that no text contains its terminator: blanks and line ends in PMI-1, a
/// single `;` in PMI-2.
pub fn encode_request(
    dialect: Dialect,
    request: &Request<'_>,
    thread: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), NotInDialect> {
    let command = request.command();
    let dialect = dialect_of(command, dialect);
    let name = match request {
        Request::Unknown { name } => *name,
        Request::Malformed { .. } => return Err(NotInDialect { dialect, command }),
        _ => command.request_name(dialect).ok_or(NotInDialect { dialect, command })?.as_bytes(),
    };
    if let (Request::Spawn(request), Dialect::Pmi1) = (request, dialect) {
        spawn::encode_pmi1(request, out);
        return Ok(());
    }
    let mut writer = MessageWriter::new(dialect, (name, ""), out);
    write_thread(dialect, thread, &mut writer);
    match request {
        Request::Spawn(request) => spawn::encode_pmi2(request, &mut writer),
        _ => request.encode_fields(dialect, &mut writer),
    }
    writer.end();
    Ok(())
}

/// Appends the reply `reply` to a request `to`; `thread`: the `thrid` that the request carried.
///
/// Nothing is appended for [`Command::Abort`], which is never answered. A [`Reply::Failed`] message may contain any
/// characters; terminators in it are replaced.
pub fn encode_reply(dialect: Dialect, to: Command, thread: Option<&[u8]>, reply: &Reply<'_>, out: &mut Vec<u8>) {
    let dialect = dialect_of(to, dialect);
    if to == Command::Abort {
        return;
    }
    let name = match dialect {
        Dialect::Pmi1 => (to.pmi1_reply_name().unwrap_or("unknown_result"), ""),
        Dialect::Pmi2 => (to.request_name(dialect).unwrap_or("unknown"), RESPONSE),
    };
    let name = (name.0.as_bytes(), name.1);
    encode_named(dialect, to, name, thread, reply, out);
}

/// Appends a refusal of a group's barrier. It contains the tag, since PMI 1.2 clients recognise the answer by it.
pub fn encode_barrier_refusal(tag: i32, message: &str, out: &mut Vec<u8>) {
    let (dialect, to) = (Dialect::Pmi1, Command::Barrier);
    let mut writer = MessageWriter::new(dialect, (to.pmi1_reply_name().unwrap_or_default().as_bytes(), ""), out);
    writer.raw("rc", b"-1");
    write_failure(dialect, to, message, &mut writer);
    Reply::BarrierOut { tag: Some(tag) }.encode_fields(dialect, &mut writer);
    writer.end();
}

/// Appends a refusal of a command that is not in the table, under that command's own name.
pub fn encode_unknown(dialect: Dialect, name: &[u8], thread: Option<&[u8]>, out: &mut Vec<u8>) {
    let name = match dialect {
        Dialect::Pmi1 => (name, "_result"),
        Dialect::Pmi2 => (name, RESPONSE),
    };
    encode_named(dialect, Command::Unknown, name, thread, &Reply::Failed { message: "unknown command" }, out);
}

fn encode_named(
    dialect: Dialect,
    to: Command,
    name: (&[u8], &str),
    thread: Option<&[u8]>,
    reply: &Reply<'_>,
    out: &mut Vec<u8>,
) {
    let mut writer = MessageWriter::new(dialect, name, out);
    write_thread(dialect, thread, &mut writer);
    match reply {
        Reply::Init { .. } => {}
        Reply::NotFound if dialect == Dialect::Pmi2 => writer.raw("rc", b"0"),
        Reply::NotFound if to == Command::GetByIdx => writer.raw("rc", b"-2"),
        Reply::NotFound | Reply::Failed { .. } => writer.raw("rc", b"-1"),
        _ => writer.raw("rc", b"0"),
    }
    match reply {
        Reply::NotFound => write_not_found(dialect, to, &mut writer),
        Reply::Failed { message } => write_failure(dialect, to, message, &mut writer),
        _ => write_success_words(dialect, to, &mut writer),
    }
    reply.encode_fields(dialect, &mut writer);
    writer.end();
    if let Reply::InitAck { size, rank, debug } = reply {
        for (name, number) in [("size", size), ("rank", rank), ("debug", debug)] {
            out.extend_from_slice(b"cmd=set ");
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            write_number(i64::from(*number), out);
            out.push(b'\n');
        }
    }
}

fn write_thread(dialect: Dialect, thread: Option<&[u8]>, writer: &mut MessageWriter<'_>) {
    if let (Dialect::Pmi2, Some(thread)) = (dialect, thread) {
        writer.raw(THREAD_FIELD, thread);
    }
}

/// PMI-1's name service reports the result twice: Hydra's clients read `rc`, Slurm's `info`.
fn has_info_word(dialect: Dialect, to: Command) -> bool {
    dialect == Dialect::Pmi1 && matches!(to, Command::PublishName | Command::UnpublishName | Command::LookupName)
}

fn write_success_words(dialect: Dialect, to: Command, writer: &mut MessageWriter<'_>) {
    if has_info_word(dialect, to) {
        writer.raw("info", b"ok");
    }
    if dialect == Dialect::Pmi2 && to.reply_kind() == super::ReplyKind::Value {
        writer.raw("found", b"TRUE");
    }
}

fn write_not_found(dialect: Dialect, to: Command, writer: &mut MessageWriter<'_>) {
    match (dialect, to) {
        (Dialect::Pmi1, Command::Get) => {
            writer.raw("msg", b"key_not_found");
            writer.raw("value", b"unknown");
        }
        // This reply ends an iteration over all pairs by number.
        (Dialect::Pmi1, Command::GetByIdx) => writer.raw("reason", b"no_more_keyvals"),
        (Dialect::Pmi1, _) => writer.raw("msg", b"not_found"),
        (Dialect::Pmi2, _) => writer.raw("found", b"FALSE"),
    }
    if has_info_word(dialect, to) {
        writer.raw("info", b"fail");
    }
}

fn write_failure(dialect: Dialect, to: Command, message: &str, writer: &mut MessageWriter<'_>) {
    let mut text = Vec::with_capacity(message.len().min(FAILURE_LEN_MAX));
    text.extend(message.bytes().take(FAILURE_LEN_MAX).map(|byte| match (dialect, byte) {
        (_, 0..=31 | 127) | (Dialect::Pmi1, b' ' | b'=' | b'\\') => b'_',
        (Dialect::Pmi2, b';') => b',',
        _ => byte,
    }));
    writer.raw(if dialect == Dialect::Pmi1 { "msg" } else { "errmsg" }, &text);
    if has_info_word(dialect, to) {
        writer.raw("info", b"fail");
    }
}

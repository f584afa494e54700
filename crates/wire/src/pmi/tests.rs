//! Messages exactly as in the reference implementations, and the documented table.

use super::table::{Row, command_rows, reply_rows};
use super::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::string::String;
use std::vec::Vec;

/// Reads all requests of a byte stream that is given in pieces, as text.
pub(super) fn requests(dialect: Dialect, pieces: &[&[u8]]) -> Result<Vec<String>, PmiError> {
    let mut reader = RequestReader::new();
    if dialect == Dialect::Pmi2 {
        reader.switch_to_pmi2();
    }
    let mut seen = Vec::new();
    for piece in pieces {
        reader.push(piece)?;
        while let Some(envelope) = reader.next()? {
            seen.push(std::format!("{envelope:?}"));
        }
    }
    Ok(seen)
}

/// Reads the first request of the bytes; `storage` holds its text.
pub(super) fn reader_of<'a>(dialect: Dialect, bytes: &[u8], storage: &'a mut RequestReader) -> Envelope<'a> {
    if dialect == Dialect::Pmi2 {
        storage.switch_to_pmi2();
    }
    storage.push(bytes).unwrap();
    storage.next().unwrap().expect("the message is whole")
}

#[test]
fn a_get_is_decoded_in_each_dialect() {
    let mut storage = RequestReader::new();
    let envelope = reader_of(Dialect::Pmi1, b"cmd=get kvsname=job key=-bcast-1-0 color=blue\n", &mut storage);
    assert_eq!(envelope.request, Request::Get { kvsname: Some(b"job"), key: b"-bcast-1-0", source: None });
    let mut storage = RequestReader::new();
    let body = b"cmd=kvs-get;thrid=0x7f;jobid=;srcid=-1;key=a b;";
    let mut bytes = std::format!("{:<6}", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    let envelope = reader_of(Dialect::Pmi2, &bytes, &mut storage);
    assert_eq!(envelope.thread, Some(&b"0x7f"[..]));
    assert_eq!(envelope.request, Request::Get { kvsname: Some(b""), key: b"a b", source: Some(-1) });
}

#[test]
fn wrong_fields_affect_only_their_request() {
    let seen =
        requests(Dialect::Pmi1, &[b"cmd=put key=k\ncmd=init pmi_version=x\ncmd=teleport\ncmd=get_maxes\n"]).unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen[0].contains("Missing { command: \"put\", field: \"value\" }"), "{}", seen[0]);
    assert!(seen[1].contains("BadNumber"), "{}", seen[1]);
    assert!(seen[2].contains("Unknown"), "{}", seen[2]);
    assert!(seen[3].contains("GetMaxes"), "{}", seen[3]);
}

#[test]
fn garbage_is_a_link_error() {
    assert!(matches!(requests(Dialect::Pmi1, &[b"GET / HTTP/1.1\r\n"]), Err(PmiError::NotACommand { .. })));
    assert!(matches!(requests(Dialect::Pmi2, &[b"cmd=finalize\n"]), Err(PmiError::BadLength { .. })));
    assert!(matches!(requests(Dialect::Pmi2, &[b"999999cmd="]), Err(PmiError::BodyTooLong { .. })));
    assert!(matches!(requests(Dialect::Pmi2, &[b"     3abc"]), Err(PmiError::NotACommand { .. })));
}

#[test]
fn the_switch_to_pmi_2_applies_to_buffered_bytes() {
    let mut reader = RequestReader::new();
    reader.push(b"cmd=init pmi_version=2 pmi_subversion=0\n13    cmd=finalize;").unwrap();
    assert_eq!(reader.next().unwrap().unwrap().request, Request::Init { version: 2, subversion: 0, extension: None });
    reader.switch_to_pmi2();
    assert_eq!(reader.next().unwrap().unwrap().request, Request::Finalize);
    assert_eq!(reader.held_bytes(), 0);
}

#[test]
fn replies_match_the_reference_texts() {
    let text = |dialect, to, thread, reply: Reply<'_>| {
        let mut out = Vec::new();
        encode_reply(dialect, to, thread, &reply, &mut out);
        String::from_utf8(out).unwrap()
    };
    let init = Reply::Init { version: 1, subversion: 1, rc: 0 };
    assert_eq!(
        text(Dialect::Pmi1, Command::Init, None, init),
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
    );
    assert_eq!(text(Dialect::Pmi1, Command::Get, None, Reply::Value(b"v")), "cmd=get_result rc=0 value=v\n");
    assert_eq!(
        text(Dialect::Pmi1, Command::Get, None, Reply::NotFound),
        "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
    );
    assert_eq!(
        text(Dialect::Pmi2, Command::Get, Some(b"0x1"), Reply::NotFound),
        "    48cmd=kvs-get-response;thrid=0x1;rc=0;found=FALSE;"
    );
    assert_eq!(
        text(Dialect::Pmi1, Command::LookupName, None, Reply::Failed { message: "no name service" }),
        "cmd=lookup_result rc=-1 msg=no_name_service info=fail\n"
    );
    assert_eq!(
        text(Dialect::Pmi2, Command::LookupName, None, Reply::Port(b"p")),
        "    45cmd=name-lookup-response;rc=0;value=p;port=p;"
    );
    assert_eq!(
        text(Dialect::Pmi1, Command::InitAck, None, Reply::InitAck { size: 16, rank: 7, debug: 0 }),
        "cmd=initack rc=0\ncmd=set size=16\ncmd=set rank=7\ncmd=set debug=0\n"
    );
    assert_eq!(text(Dialect::Pmi1, Command::Abort, None, Reply::Done), "");
    let pair = Reply::Pair { next_index: 7, key: b"k", value: b"v" };
    assert_eq!(text(Dialect::Pmi1, Command::GetByIdx, None, pair), "cmd=getbyidx_results rc=0 nextidx=7 key=k val=v\n");
    assert_eq!(
        text(Dialect::Pmi1, Command::GetByIdx, None, Reply::NotFound),
        "cmd=getbyidx_results rc=-2 reason=no_more_keyvals\n"
    );
    let over = Reply::BarrierOut { tag: Some(7) };
    assert_eq!(text(Dialect::Pmi1, Command::Barrier, None, over), "cmd=barrier_out rc=0 tag=7\n");
    let mut out = Vec::new();
    encode_barrier_refusal(7, "a rank is in the group twice", &mut out);
    assert_eq!(out, b"cmd=barrier_out rc=-1 msg=a_rank_is_in_the_group_twice tag=7\n");
    let mut out = Vec::new();
    encode_unknown(Dialect::Pmi2, b"iallgather", Some(b"7"), &mut out);
    assert_eq!(out, b"    61cmd=iallgather-response;thrid=7;rc=-1;errmsg=unknown command;");
}

fn render(title: &str, rows: Vec<Row>, out: &mut String) {
    writeln!(out, "{title}\n").unwrap();
    for row in rows {
        writeln!(out, "{} —{}", row.name, row.doc.join("")).unwrap();
        for field in &row.fields {
            let names = |names: &[&str]| if names.is_empty() { "-".into() } else { names.join(", ") };
            let (pmi1, pmi2) = (names(field.pmi1), names(field.pmi2));
            write!(out, "    {:<14} {pmi1:<18} {pmi2:<18} {}", field.name, field.kind).unwrap();
            match field.default {
                Some(text) => writeln!(out, " or \"{text}\"").unwrap(),
                None => writeln!(out, "{}", if field.optional { ", optional" } else { "" }).unwrap(),
            }
        }
    }
    writeln!(out).unwrap();
}

/// Words of the fuzz targets' dictionary that are no names of the table: framing, and the fields of a spawn.
const OTHER_WORDS: &[&str] = &[
    ";;", "\\x0a", "argv0=", "cmd=", "cmd=init pmi_version=2 pmi_subversion=0\\x0a", "cmd=put_result rc=0\\x0a",
    "endcmd\\x0a", "execname=a", "found=FALSE", "hasNameServ", "infokey0=", "infokeycount=0", "maxlen=",
    "mcmd=spawn\\x0a", "memory=1", "nprocs=1", "ppkey0=", "rc=0", "spawnssofar=1", "subcmd=", "thrid=0x7f",
    "totspawns=2", "value=",
];

/// Compares a file that is made from the table, so that a changed command shows up in review. `BLESS=1` rewrites it.
#[track_caller]
fn expect_file(path: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text, "run with BLESS=1 if the change is intended");
}

#[test]
fn the_fuzzers_dictionary_has_the_words_of_the_command_table() {
    let mut words: BTreeSet<&str> = OTHER_WORDS.iter().copied().collect();
    for command in Command::ALL {
        words.extend([Dialect::Pmi1, Dialect::Pmi2].iter().filter_map(|dialect| command.request_name(*dialect)));
        words.extend(command.pmi1_reply_name().filter(|name| !name.is_empty()));
    }
    for row in command_rows().into_iter().chain(reply_rows()) {
        words.extend(row.fields.iter().flat_map(|field| field.pmi1.iter().chain(field.pmi2)));
    }
    let mut text = String::from("# Words of both dialects, from the command table.\n");
    words.iter().for_each(|word| writeln!(text, "\"{word}\"").unwrap());
    expect_file("../../dev/fuzz/pmi.dict", &text);
}

#[test]
fn the_command_table_matches_its_documentation() {
    let mut text = String::from("Fields: name, its names in PMI-1, in PMI-2, type, default.\n\n");
    for command in Command::ALL {
        let name = |name: Option<&'static str>| name.unwrap_or("-");
        let (pmi1, pmi2) = (command.request_name(Dialect::Pmi1), command.request_name(Dialect::Pmi2));
        let (reply1, kind) = (command.pmi1_reply_name(), command.reply_kind());
        let command = std::format!("{command:?}");
        writeln!(text, "{command:<16} {:<18} {:<18} {:<20} {kind:?}", name(pmi1), name(reply1), name(pmi2)).unwrap();
    }
    text.push('\n');
    render("REQUESTS", command_rows(), &mut text);
    render("REPLIES", reply_rows(), &mut text);
    expect_file("tests/golden/pmi-table.txt", &text);
}

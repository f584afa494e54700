//! A client that hears whole replies, parts of them, and wrong ones.

use super::*;
use std::vec;
use wireup_wire::pmi::{RequestReader, encode_reply};

/// A server that knows one pair and is alone with its rank.
fn serve(reader: &mut RequestReader, dialect: &mut Dialect, bytes: &[u8], kept: &mut Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    reader.push(bytes).unwrap();
    let mut switch = false;
    while let Some(envelope) = reader.next().unwrap() {
        let reply = match envelope.request {
            Request::Init { version, subversion, .. } => {
                switch = version == 2;
                Reply::Init { version, subversion, rc: 0 }
            }
            Request::FullInit { rank, .. } => Reply::FullInit {
                version: 2,
                subversion: 0,
                rank: rank.unwrap(),
                size: 4,
                appnum: 2,
                spawner: None,
                extension: None,
            },
            Request::GetMaxes => Reply::Maxes { kvsname: 256, key: 64, value: 1024 },
            Request::GetAppnum => Reply::Appnum(2),
            Request::GetMyKvsname => Reply::KvsName(b"job.0"),
            Request::JobGetId => Reply::JobId(b"job.0"),
            Request::Put { value, .. } => {
                *kept = value.to_vec();
                Reply::Done
            }
            Request::Get { key: b"k", .. } => Reply::Value(kept),
            Request::Get { .. } => Reply::NotFound,
            Request::Barrier { .. } => Reply::BarrierOut { tag: None },
            Request::Finalize => Reply::Done,
            _ => Reply::Failed { message: "not here" },
        };
        encode_reply(*dialect, envelope.request.command(), envelope.thread, &reply, &mut out);
        if switch {
            *dialect = Dialect::Pmi2;
        }
    }
    if switch {
        reader.switch_to_pmi2();
    }
    out
}

/// Runs one request to its event, as text, with the reply cut into single bytes.
fn converse(dialect: Dialect) -> Vec<alloc::string::String> {
    let mut link = PmiLink::new(dialect, Env { rank: 3, size: 4, spawned: false });
    let (mut reader, mut spoken, mut kept) = (RequestReader::new(), Dialect::Pmi1, Vec::new());
    let mut seen = vec![];
    for step in 0..7 {
        let mut out = Vec::new();
        match step {
            0 => link.start(&mut out),
            1 => link.put(b"k", b"a;b;;c=", &mut out).unwrap(),
            2 => link.fence(&mut out).unwrap(),
            3 => link.get(b"k", Some(3), &mut out).unwrap(),
            4 => link.get(b"-NONEXIST-KEY", None, &mut out).unwrap(),
            5 => link.request(&Request::UnpublishName { name: b"n" }, &mut out).unwrap(),
            _ => link.finalize(&mut out).unwrap(),
        }
        while !out.is_empty() {
            let reply = serve(&mut reader, &mut spoken, &out, &mut kept);
            out.clear();
            for byte in reply {
                if let Some(event) = link.handle(&[byte], &mut out).unwrap() {
                    seen.push(std::format!("{event:?}"));
                }
            }
        }
    }
    assert_eq!((link.rank(), link.size(), link.appnum(), link.kvsname()), (3, 4, 2, &b"job.0"[..]));
    seen
}

#[test]
fn a_conversation_in_both_dialects() {
    let value = std::format!("Value({:?})", b"a;b;;c=");
    for (dialect, message) in [(Dialect::Pmi1, "not_here"), (Dialect::Pmi2, "not here")] {
        let failed = std::format!("Failed {{ message: {message:?} }}");
        let expected = ["Ready", "Done", "Fenced", &value, "NotFound", &failed, "Finalized"];
        assert_eq!(converse(dialect), expected, "{dialect:?}");
    }
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let mut out = Vec::new();
    let link = |dialect| {
        let mut link = PmiLink::new(dialect, Env { rank: 0, size: 1, spawned: false });
        link.state = State::Idle;
        link
    };
    let mut pmi1 = link(Dialect::Pmi1);
    assert_eq!(pmi1.put(b"k", b"a b", &mut out), Err(Unsendable::BadByte { what: "value" }));
    assert!(matches!(pmi1.put(&[b'k'; 65], b"v", &mut out), Err(Unsendable::TooLong { limit: 64, .. })));
    assert!(matches!(
        pmi1.request(&Request::GetNodeAttr { key: b"k", wait: true }, &mut out),
        Err(Unsendable::NotInDialect(_))
    ));
    assert!(pmi1.is_idle() && out.is_empty(), "a refused request leaves the link as it was");
    assert_eq!(link(Dialect::Pmi2).put(b"k", b"a b", &mut out), Ok(()));
}

#[test]
fn a_refusal_at_start_ends_the_link() {
    let mut link = PmiLink::new(Dialect::Pmi2, Env { rank: 0, size: 1, spawned: false });
    let mut out = Vec::new();
    link.start(&mut out);
    let error = link.handle(b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n", &mut out).unwrap_err();
    assert!(matches!(error, LinkError::WrongVersion { version: 1, .. }), "{error}");
    let mut link = PmiLink::new(Dialect::Pmi1, Env { rank: 0, size: 1, spawned: false });
    assert_eq!(link.handle(b"cmd=barrier_out rc=0\n", &mut out), Err(LinkError::Unasked));
}

//! Every command and reply of the table survives a round trip, whatever its fields contain and however its bytes are
//! split.

use super::table::{Row, command_rows, reply_rows};
use super::tests::{reader_of, requests};
use super::*;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

/// Names and values of a message's fields.
type Fields = Vec<(&'static str, Vec<u8>)>;

/// A value of a field's type, as the dialect can represent it.
fn text_of(kind: &'static str, dialect: Dialect) -> BoxedStrategy<Vec<u8>> {
    match kind {
        "u32" => any::<u32>().prop_map(|number| std::format!("{number}").into_bytes()).boxed(),
        "i32" => any::<i32>().prop_map(|number| std::format!("{number}").into_bytes()).boxed(),
        "TRUE/FALSE" => any::<bool>().prop_map(|flag| if flag { b"TRUE".to_vec() } else { b"FALSE".to_vec() }).boxed(),
        "text" => {
            let byte = prop_oneof![8 => 33u8..=126, 1 => 127u8..=255, 1 => Just(b' ')];
            proptest::collection::vec(byte, 1..60)
                .prop_map(move |bytes| match dialect {
                    Dialect::Pmi1 => bytes.into_iter().map(|byte| if byte == b' ' { b'=' } else { byte }).collect(),
                    // libpmi2 doubles the terminator.
                    Dialect::Pmi2 => bytes.into_iter().flat_map(|b| std::vec![b; 1 + usize::from(b == b';')]).collect(),
                })
                .boxed()
        }
        // Fields of this type exist in PMI-2 only.
        "bytes" => proptest::collection::vec(any::<u8>(), 1..60)
            .prop_map(|bytes| bytes.into_iter().flat_map(|b| std::vec![b; 1 + usize::from(b == b';')]).collect())
            .boxed(),
        other => panic!("no strategy for the type {other}"),
    }
}

/// A message called `name` with all fields that the dialect has, in the table's order, under their first names.
fn message_of(dialect: Dialect, name: String, fields: Fields) -> Vec<u8> {
    let mut body = std::format!("cmd={name}").into_bytes();
    for (key, value) in fields {
        body.push(if dialect == Dialect::Pmi1 { b' ' } else { b';' });
        body.extend_from_slice(key.as_bytes());
        body.push(b'=');
        body.extend_from_slice(&value);
    }
    match dialect {
        Dialect::Pmi1 => body.push(b'\n'),
        Dialect::Pmi2 => {
            body.push(b';');
            body.splice(0..0, std::format!("{:6}", body.len()).into_bytes());
        }
    }
    body
}

fn fields_of(dialect: Dialect, row: &Row) -> BoxedStrategy<Fields> {
    let mut fields = Vec::new();
    for field in &row.fields {
        let names = if dialect == Dialect::Pmi1 { field.pmi1 } else { field.pmi2 };
        if let Some(name) = names.first() {
            fields.push((Just(*name), text_of(field.kind, dialect)));
        }
    }
    fields.boxed()
}

/// The bytes of any command of the table with any field values.
fn any_request() -> impl Strategy<Value = (Dialect, Vec<u8>)> {
    let mut all = Vec::new();
    for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
        for (command, row) in Command::ALL.iter().zip(command_rows()) {
            let Some(name) = command.request_name(dialect).filter(|_| *command != Command::Spawn) else { continue };
            let message = fields_of(dialect, &row).prop_map(move |fields| message_of(dialect, name.into(), fields));
            all.push(message.prop_map(move |bytes| (dialect, bytes)).boxed());
        }
    }
    proptest::strategy::Union::new(all)
}

/// Any successful reply of the table, as the answer to a command: its bytes and its fields' values.
fn any_reply() -> impl Strategy<Value = (Dialect, Command, Vec<u8>, Fields)> {
    let mut all = Vec::new();
    for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
        for &command in Command::ALL {
            let kind = std::format!("{:?}", command.reply_kind());
            let row = reply_rows().into_iter().find(|row| row.name == kind).expect("every kind has a row");
            let name = match (dialect, command) {
                (_, Command::InitAck | Command::Abort) => continue,
                (Dialect::Pmi1, _) => command.pmi1_reply_name().map(String::from),
                (Dialect::Pmi2, _) => command.request_name(dialect).map(|name| std::format!("{name}-response")),
            };
            let Some(name) = name else { continue };
            let reply = fields_of(dialect, &row)
                .prop_map(move |fields| (dialect, command, message_of(dialect, name.clone(), fields.clone()), fields));
            all.push(reply.boxed());
        }
    }
    proptest::strategy::Union::new(all)
}

fn any_spawn() -> impl Strategy<Value = (Dialect, SpawnRequest)> {
    let text = || proptest::collection::vec(prop_oneof![Just(b' '), 33u8..=58, 60u8..=126], 1..20);
    let pairs = move || proptest::collection::vec((text(), text()), 0..12);
    let command = (text(), proptest::collection::vec(text(), 0..12), any::<u32>(), pairs())
        .prop_map(|(program, args, ranks, info)| SpawnCommand { program, args, ranks, info, env: Vec::new() });
    let request = (proptest::collection::vec(command, 1..4), pairs())
        .prop_map(|(commands, preput)| SpawnRequest { commands, preput });
    (prop_oneof![Just(Dialect::Pmi1), Just(Dialect::Pmi2)], request)
}

proptest! {
    #[test]
    fn requests_round_trip((dialect, bytes) in any_request()) {
        let mut storage = RequestReader::new();
        let request = reader_of(dialect, &bytes, &mut storage).request;
        prop_assert!(!matches!(request, Request::Malformed { .. } | Request::Unknown { .. }), "{:?}", request);
        let mut again = Vec::new();
        encode_request(dialect, &request, None, &mut again).unwrap();
        prop_assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn replies_round_trip((dialect, command, bytes, fields) in any_reply()) {
        let mut reader = ReplyReader::new();
        if dialect == Dialect::Pmi2 {
            reader.switch_to_pmi2();
        }
        let mut again = reader.clone();
        reader.push(&bytes).unwrap();
        let reply = reader.next().unwrap().unwrap().reply_to(command).unwrap();
        let mut encoded = Vec::new();
        encode_reply(dialect, command, Some(b"0x7f"), &reply, &mut encoded);
        for (key, value) in &fields {
            let pair = [key.as_bytes(), b"=", value].concat();
            prop_assert!(encoded.windows(pair.len()).any(|window| window == pair), "{} lost in {:?}", key, reply);
        }
        again.push(&encoded).unwrap();
        let fields = again.next().unwrap().unwrap();
        prop_assert_eq!(fields.get("thrid"), (dialect == Dialect::Pmi2).then_some(&b"0x7f"[..]));
        prop_assert_eq!(fields.reply_to(command), Ok(reply));
    }

    #[test]
    fn spawns_round_trip((dialect, request) in any_spawn()) {
        let mut bytes = Vec::new();
        encode_request(dialect, &Request::Spawn(request.clone()), None, &mut bytes).unwrap();
        let mut storage = RequestReader::new();
        prop_assert_eq!(reader_of(dialect, &bytes, &mut storage).request, Request::Spawn(request));
        prop_assert_eq!(storage.held_bytes(), 0);
    }

    #[test]
    fn any_split_gives_the_same_requests(
        messages in proptest::collection::vec(any_request(), 1..8),
        spawn in any_spawn(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
            let mut bytes: Vec<u8> = Vec::new();
            for (_, message) in messages.iter().filter(|(of, _)| *of == dialect) {
                bytes.extend_from_slice(message);
            }
            encode_request(dialect, &Request::Spawn(spawn.1.clone()), None, &mut bytes).unwrap();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
            prop_assert_eq!(requests(dialect, &pieces), requests(dialect, &[&bytes]));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_the_request_reader(
        bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(b"cmd= ;\n0mput".to_vec())],
            0..200,
        ),
    ) {
        for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
            let _ = requests(dialect, &[&bytes]);
        }
    }
}

//! The bytes of other implementations decode correctly, and our own encoder writes the same bytes.
//!
//! `golden/decoded.txt` contains every captured message in decoded form; long values are truncated for readability.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use wireup_wire::pmi::{Command, Dialect, Envelope, ReplyReader, Request, RequestReader, encode_request};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The captures with this extension, by name.
fn captures(ending: &str) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(golden())
        .expect("the captures are part of the sources")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|of| of == ending))
        .map(|path| {
            let name = path.file_stem().expect("captures have names").to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("a readable capture"))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no capture *.{ending}");
    found
}

/// Feeds a capture in pieces of `piece` bytes, switching to PMI-2 where the capture does.
fn for_each_request(bytes: &[u8], piece: usize, mut seen: impl FnMut(Dialect, Envelope<'_>)) {
    let mut reader = RequestReader::new();
    for chunk in bytes.chunks(piece) {
        reader.push(chunk).expect("captures are within the limits");
        loop {
            let dialect = reader.dialect();
            let Some(envelope) = reader.next().expect("captures are well framed") else { break };
            let switch = matches!(envelope.request, Request::Init { version: 2, .. });
            seen(dialect, envelope);
            if switch {
                reader.switch_to_pmi2();
            }
        }
    }
    assert_eq!(reader.held_bytes(), 0, "a capture ends with a message");
}

/// The decoded form, with byte strings as text and long ones truncated.
fn show(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let mut shown = String::new();
    let mut rest = text.as_str();
    while let Some((before, list)) = rest.split_once('[') {
        let (list, after) = list.split_once(']').expect("lists are closed");
        let numbers: Option<Vec<u8>> = list.split(", ").map(|number| number.parse().ok()).collect();
        match numbers {
            Some(bytes) if bytes.len() > 100 => {
                let end = bytes.len();
                write!(shown, "{before}\"{}…\" ({end} bytes)", bytes[..40].escape_ascii()).unwrap();
            }
            Some(bytes) => write!(shown, "{before}\"{}\"", bytes.escape_ascii()).unwrap(),
            None => {
                write!(shown, "{before}[").unwrap();
                rest = &rest[before.len() + 1..];
                continue;
            }
        }
        rest = after;
    }
    shown + rest
}

#[test]
fn captures_decode_to_the_expected_messages() {
    let mut text = String::new();
    let replies = captures("server");
    for (name, bytes) in captures("client") {
        writeln!(text, "{name}: requests").unwrap();
        let mut commands = Vec::new();
        for_each_request(&bytes, bytes.len(), |_, envelope| {
            writeln!(text, "    {}", show(&envelope.request)).unwrap();
            commands.push(envelope.request.command());
        });
        if let Some((_, bytes)) = replies.iter().find(|(of, _)| *of == name) {
            writeln!(text, "{name}: replies").unwrap();
            for line in decoded_replies(bytes, &commands) {
                writeln!(text, "    {line}").unwrap();
            }
        }
    }
    let path = golden().join("decoded.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "run with BLESS=1 if the change is intended:\n{text}");
}

fn decoded_replies(bytes: &[u8], commands: &[Command]) -> Vec<String> {
    let mut reader = ReplyReader::new();
    reader.push(bytes).expect("captures are within the limits");
    let mut decoded = Vec::new();
    for &command in commands {
        let fields = reader.next().expect("captures are well framed").expect("a reply to each request");
        let reply = fields.reply_to(command).expect("a reply to this command");
        decoded.push(show(&reply));
        if matches!(reply, wireup_wire::pmi::Reply::Init { version: 2, .. }) {
            reader.switch_to_pmi2();
        }
    }
    assert!(reader.next().expect("captures are well framed").is_none(), "more replies than requests");
    decoded
}

#[test]
fn split_captures_decode_to_the_same_requests() {
    for (name, bytes) in captures("client") {
        let decoded = |piece| {
            let mut seen = Vec::new();
            for_each_request(&bytes, piece, |_, envelope| seen.push(format!("{envelope:?}")));
            seen
        };
        let whole = decoded(bytes.len());
        for piece in [1, 2, 7, 100] {
            assert_eq!(decoded(piece), whole, "{name} in pieces of {piece}");
        }
    }
}

/// The requests of MPICH and Intel MPI are the same byte for byte; those of libpmi2 except for the blanks around the
/// length.
#[test]
fn our_encoded_requests_match_the_captures() {
    for (name, bytes) in captures("client") {
        let mut ours = Vec::new();
        for_each_request(&bytes, bytes.len(), |dialect, envelope| {
            // Other clients also send the lengths of lists, which our client does not.
            let counted = matches!(
                envelope.request,
                Request::PublishName { .. } | Request::LookupName { .. } | Request::UnpublishName { .. }
            );
            if !(dialect == Dialect::Pmi2 && counted) {
                let mut message = Vec::new();
                encode_request(dialect, &envelope.request, envelope.thread, &mut message)
                    .expect("it was decoded in this dialect");
                ours.push(message);
            }
        });
        for message in ours {
            let body = match message.strip_prefix(b"cmd=").or(message.strip_prefix(b"mcmd=")) {
                Some(_) => &message[..],
                None => &message[6..],
            };
            assert!(
                bytes.windows(body.len()).any(|window| window == body),
                "{name}: not in the capture: {}",
                body.escape_ascii()
            );
        }
    }
}

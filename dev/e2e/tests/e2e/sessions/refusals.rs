//! Sockets that do not belong to a usable session: each leads to a clear message that says what to do next.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::thread;
use wireup_e2e::sessions::Session;
use wireup_e2e::tables::fails;

/// Creates a directory that looks like that of a session.
fn place(session: &Session) -> std::path::PathBuf {
    let place = session.place("default");
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    place
}

#[test]
fn a_stale_socket_is_reported_and_up_restarts_the_session() {
    let session = Session::nowhere();
    drop(UnixListener::bind(place(&session).join("socket")).unwrap());
    for words in ["run -n 1 true", "status --session default", "jobs"] {
        let outcome = session.wireup(words).finish().expect_code(125);
        outcome.expect_err_line(&[
            "session default ended unexpectedly and left", "wireup up starts it again", "--no-session",
        ]);
    }
    session.job("--no-session -n 1 true").succeed().expect_quiet();
    let outcome = session.wireup("down").succeed();
    assert_eq!(outcome.err(), "wireup: session default had already ended; its remaining files were removed\n");
    drop(UnixListener::bind(place(&session).join("socket")).unwrap());
    session.again("--virtual-nodes 2").expect_code(0);
    session.job("-n 2 true").succeed();
    for flags in ["--virtual-nodes 2", "--linger", "--plain-links", "--fanout 3", "--start-timeout 5"] {
        session.again(flags).expect_code(125).expect_err_line(&["is already running", "wireup down"]);
    }
    session.again("--verbose").expect_code(0);
    session.down("");
}

#[test]
fn foreign_or_open_session_directories_are_refused() {
    let session = Session::nowhere();
    let place = place(&session);
    let refused = |words: &[&str]| {
        // A run that does not name a session runs without one.
        let outcome = session.job("-n 1 true").succeed();
        let line = outcome.expect_err_line(&[words, &["running this job without a session"]].concat());
        assert_eq!(outcome.err(), format!("{line}\n"));
        session.job("-n 1 --session default true").finish().expect_code(125).expect_err_line(words);
        session.again("").expect_code(125).expect_err_line(words);
    };
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    refused(&["is accessible to other users", "chmod 700"]);
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        for taken in [place.clone(), session.runtime_dir()] {
            chown(&taken, Some(12345), None).unwrap();
            refused(&["belongs to user 12345"]);
            chown(&taken, Some(0), None).unwrap();
        }
    }
    fs::remove_dir(&place).unwrap();
    std::os::unix::fs::symlink("/tmp", &place).unwrap();
    refused(&["is not a directory"]);
}

/// Listens on the session's socket and sends `bytes` to one caller; returns what the caller has sent.
fn answer(session: &Session, bytes: Vec<u8>) -> thread::JoinHandle<Vec<u8>> {
    let listener = UnixListener::bind(place(session).join("socket")).unwrap();
    thread::spawn(move || {
        let (mut caller, _) = listener.accept().unwrap();
        caller.write_all(&bytes).unwrap();
        let mut heard = vec![0; 8];
        caller.read_exact(&mut heard).unwrap();
        heard
    })
}

#[test]
fn a_session_of_another_version_or_a_socket_without_a_session_is_refused() {
    let other = |versions| ["was started by another version of wireup", versions, "wireup down", "--no-session"];
    for (said, words) in [
        (&b"WUA\n\x01\0\x02\0"[..], &other("up to 2")[..]),
        (b"WUA\n\xf0\xff\xff\xff", &other("65520 and later")),
        (b"HTTP/1.1 400 Bad Request\r\n", &["session default"]),
        (b"", &["session default"]),
        (b"WUA", &["session default"]),
    ] {
        let session = Session::nowhere();
        let heard = answer(&session, said.to_vec());
        session.job("-n 1 true").finish().expect_code(125).expect_err_line(words);
        assert_eq!(heard.join().unwrap()[..4], *b"WUA\n");
    }
}

#[test]
fn foreign_callers_do_not_disturb_the_session() {
    let session = Session::up("--virtual-nodes 2");
    let socket = session.place("default").join("socket");
    let call = |said: &[u8]| {
        let mut caller = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        caller.write_all(said).unwrap();
        let mut heard = Vec::new();
        let _ = caller.read_to_end(&mut heard);
        assert_eq!(heard[..4], *b"WUA\n");
        heard
    };
    let greeting = call(b"WUA\n\x01\0\x02\0");
    call(b"GET / HTTP/1.1\r\n\r\n");
    call(&[&greeting[..8], b"garbage garbage garbage garbage"].concat());
    let open: Vec<_> = (0..300).map(|_| std::os::unix::net::UnixStream::connect(&socket).unwrap()).collect();
    session.job("-n 2 true").succeed();
    drop(open);
    session.down("");
}

#[test]
fn invalid_or_unknown_session_names_are_refused() {
    let session = Session::nowhere();
    fails(
        |script| session.shell(script),
        "wireup run -n 1 --session ../x true => 125 is not a valid session name
         wireup run -n 1 --session '' true => 125 is not a valid session name
         wireup run -n 1 --session .hidden true => 125 is not a valid session name
         wireup run -n 1 --session a/b true => 125 is not a valid session name
         wireup run -n 1 --session nobody true => 125 there is no session nobody | wireup up
         WIREUP_SESSION=lab wireup run -n 1 true => 125 there is no session lab | wireup up lab | \
            --no-session runs this job without one
         wireup up --virtual-nodes 2 --instant-on 11 --rank-ports 24200-24209 => 125 --instant-on 11 | \
            fewer ports in 24200-24209",
    );
}

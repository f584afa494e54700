//! Tests of the bounds on an agent's memory if a launcher does not read what the agent sends.

use super::*;
use std::os::unix::net::UnixStream;
use wireup_wire::limits::LAUNCHER_UNREAD_BYTES_MAX;

/// An agent's links with one to a launcher, the id of that link, and the launcher's end of its socket.
fn with_launcher() -> (LinkEnd, LinkId, UnixStream) {
    let mut end = LinkEnd::with_test_secret(AgentId(0), config("lo", false));
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let link = Link::local(ours.into(), Default::default());
    end.links.adopt(link, &end.reactor, &mut end.inputs).unwrap();
    let (id, ..) = end.up().expect("the launcher's link is up");
    (end, id, theirs)
}

fn heard(end: &LinkEnd) -> usize {
    end.inputs.iter().filter(|input| matches!(input, Input::LinkBytes { .. })).count()
}

#[test]
fn requests_are_not_read_while_the_launcher_has_unread_answers() {
    let (mut end, id, mut launcher) = with_launcher();
    launcher.write_all(b"one").unwrap();
    end.pass();
    assert_eq!(heard(&end), 1);
    let answer = frame(Class::Control, 4 << 20);
    end.links.send(id, answer.clone());
    end.pass();
    launcher.write_all(b"two").unwrap();
    end.pass();
    assert_eq!(heard(&end), 1, "the request must not be read while an answer waits");
    let mut taken = vec![0; answer.wire_len()];
    let reader = std::thread::spawn(move || launcher.read_exact(&mut taken).map(|()| launcher));
    while heard(&end) == 1 {
        end.pass();
    }
    reader.join().unwrap().unwrap();
    assert_eq!(end.problem(), None);
}

#[test]
fn a_launcher_link_closes_when_too_many_bytes_are_unread() {
    let (mut end, id, _launcher) = with_launcher();
    let piece = frame(Class::Control, 1 << 20);
    for sent in (0..=LAUNCHER_UNREAD_BYTES_MAX).step_by(1 << 20) {
        assert_eq!(end.problem(), None, "{sent}");
        end.links.send(id, piece.clone());
        end.pass();
    }
    // Sends one frame more, because a frame that is partly sent does not count as unread.
    end.links.send(id, piece);
    end.pass();
    assert!(end.problem().is_some_and(|problem| problem.contains("does not read")), "{:?}", end.problem());
}

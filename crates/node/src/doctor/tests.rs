//! Tests with a node that dials and a doctor that listens, in one process.

use super::back::Dialling;
use super::back::Reached;
use super::guests::Guests;
use super::report::{Ask, Back, HALF, Token};
use crate::transport::listener::Listener;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;

/// Far more than any of these tests needs.
const TURNS_MAX: u32 = 10_000;

fn token(seed: u8) -> Token {
    Token { node: [seed; HALF], doctor: [seed + 1; HALF] }
}

fn ask(token: Token, addresses: Vec<String>) -> Ask {
    Ask { token, addresses, interface: None, by_ssh: false, cwd: Vec::new(), time_ns: 0, onward: None }
}

fn listener() -> Listener {
    Listener::remote(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], true).unwrap()
}

/// The result on a node that was asked this.
fn dial(ask: &Ask, listener: Listener, tokens: Vec<Token>) -> Result<Back, String> {
    let (mut at_doctor, mut at_node) = (Reactor::new().unwrap(), Reactor::new().unwrap());
    let mut guests = Guests::new(listener, tokens, &at_doctor).unwrap();
    let mut dialling = Dialling::new(ask, None, monotonic_ns());
    for _ in 0..TURNS_MAX {
        if let Some(answer) = dialling.step(monotonic_ns(), &at_node) {
            return answer.map(|reached| reached.back);
        }
        for event in at_node.wait(Some(Duration::from_millis(1))).unwrap().to_vec() {
            if let Some(answer) = dialling.on_event(monotonic_ns(), event, &at_node) {
                return answer.map(|Reached { back, .. }| back);
            }
        }
        for event in at_doctor.wait(Some(Duration::from_millis(1))).unwrap().to_vec() {
            guests.on_event(monotonic_ns(), event, &at_doctor);
        }
        guests.expire(monotonic_ns(), &at_doctor);
    }
    Err(dialling.give_up())
}

/// A port on which no process listens.
fn closed() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn the_doctor_is_reached_although_one_address_is_dead() {
    let listener = listener();
    let dead = closed();
    let addresses = [vec![dead.clone()], listener.addresses()].concat();
    let back = dial(&ask(token(3), addresses), listener, vec![token(1), token(3)]).unwrap();
    assert_eq!(back.address, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert!(back.failed.len() == 1 && back.failed[0].starts_with(&dead), "{back:?}");
}

#[test]
fn a_listener_without_the_token_is_not_taken_for_the_doctor() {
    let listener = listener();
    let addresses = listener.addresses();
    let problem = dial(&ask(token(3), addresses), listener, vec![token(1)]).unwrap_err();
    assert!(problem.contains("another program listens there") || problem.contains("reset"), "{problem}");
}

#[test]
fn failed_connections_to_the_doctor_are_reported_by_address() {
    let dead = closed();
    let problem = dial(&ask(token(3), vec![dead.clone()]), listener(), vec![token(3)]).unwrap_err();
    assert!(problem.starts_with(&dead) && problem.contains("refused"), "{problem}");
    let nothing = dial(&ask(token(3), Vec::new()), listener(), vec![token(3)]).unwrap_err();
    assert!(nothing.contains("no address"), "{nothing}");
}

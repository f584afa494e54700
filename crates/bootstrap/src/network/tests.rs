//! Tests of networks of several ranks in one process.

use super::tcp::UNPROVED_MAX;
use super::*;
use std::boxed::Box;
use wireup_group::algorithms::{Allgather, Barrier, Wanted};
use wireup_group::{KEPT_BYTES_MAX, WORLD};

const SECRET: Secret = [9; 32];

/// All transports that work on this machine; libfabric may be missing.
fn transports() -> Vec<Transport> {
    let mut all = those_that_notice();
    match Listener::new(Transport::Fabric) {
        Ok(_) => all.push(Transport::Fabric),
        Err(error) => {
            assert!(std::env::var_os("WIREUP_REQUIRE_PEERS").is_none(), "{error:?}");
            std::eprintln!("without libfabric: {error:?}");
        }
    }
    all
}

/// The transports over which a rank notices, without help from the agents, that the process of another rank has ended.
fn those_that_notice() -> Vec<Transport> {
    vec![Transport::Tcp, Transport::Udp]
}

fn network(me: u32, transport: Transport) -> Network {
    Network::new(me, SECRET, Listener::new(transport).unwrap()).unwrap()
}

/// Creates the networks of all ranks, and forms the group of all.
fn networks(size: u32, transport: Transport) -> Vec<Network> {
    let mut all: Vec<Network> = (0..size).map(|me| network(me, transport)).collect();
    let peers: Vec<Peer> = all.iter().map(|one| one.groups.own().clone()).collect();
    let at = |rank: u32| peers[(rank % size) as usize].clone();
    let form = |one: &mut Network| one.groups.form(WORLD, one.me, size, at(one.me + size - 1), at(one.me + 1));
    check_all(&mut all, form, Ok(Done::Group(Some(WORLD))));
    all
}

/// Runs all networks until `look` finds something.
fn run_until<T>(all: &mut [Network], mut look: impl FnMut(&mut [Network]) -> Option<T>) -> T {
    let until = net::now_ms() + 60_000;
    loop {
        for one in all.iter_mut() {
            one.progress(0);
        }
        if let Some(found) = look(all) {
            return found;
        }
        assert!(net::now_ms() < until, "the ranks wait for ever");
    }
}

/// Runs all networks until a request of rank `me` completes.
fn complete(all: &mut [Network], me: usize, request: Request) -> Result<Done, Failure> {
    run_until(all, |all| all[me].results.take(request))
}

/// Starts a request on each network, runs all networks until these requests complete, and checks their results.
fn check_all(all: &mut [Network], start: impl FnMut(&mut Network) -> Request, expected: Result<Done, Failure>) {
    let requests: Vec<Request> = all.iter_mut().map(start).collect();
    for (me, request) in requests.into_iter().enumerate() {
        assert_eq!(complete(all, me, request), expected, "rank {me}");
    }
}

fn barrier(one: &mut Network) -> Request {
    one.groups.start(WORLD, Box::new(Barrier::default()))
}

/// Runs a network for 200 ms.
fn run_for_a_while(one: &mut Network) {
    let until = net::now_ms() + 200;
    while net::now_ms() < until {
        one.progress(10);
    }
}

fn leave(one: &mut Network) {
    one.groups.is_leaving = true;
    one.pump();
    while one.has_waiting() {
        one.progress(-1);
    }
    one.leave(1_000);
}

fn gather(all: &mut [Network], context: Context, members: &[usize]) {
    let value = |me: usize| vec![me as u8; 100_000 + me];
    let requests: Vec<Request> =
        members.iter().map(|me| all[*me].groups.start(context, Box::new(Allgather::new(value(*me))))).collect();
    let rows: Vec<Vec<u8>> = members.iter().map(|me| value(*me)).collect();
    for (me, request) in members.iter().zip(requests) {
        assert!(complete(all, *me, request) == Ok(Done::Rows(rows.clone())), "rank {me}");
    }
}

#[test]
fn ranks_exchange_long_values_over_few_connections() {
    for transport in transports() {
        let mut all = networks(9, transport);
        gather(&mut all, WORLD, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(all.iter().all(|one| one.counts().connections <= 8));
        let requests: Vec<Request> = all
            .iter_mut()
            .map(|one| one.groups.split(WORLD, Wanted { colour: Some(vec![one.me as u8 % 2]), key: 0 }))
            .collect();
        let contexts: Vec<Context> = requests
            .into_iter()
            .enumerate()
            .map(|(me, request)| match complete(&mut all, me, request) {
                Ok(Done::Group(Some(context))) => context,
                other => panic!("{other:?}"),
            })
            .collect();
        gather(&mut all, contexts[1], &[1, 3, 5, 7]);
    }
}

#[test]
fn two_ranks_that_dial_each_other_keep_one_connection() {
    for transport in transports() {
        for _ in 0..20 {
            let mut all = networks(2, transport);
            check_all(&mut all, barrier, Ok(Done::Nothing));
            assert_eq!([all[0].counts().connections, all[1].counts().connections], [1, 1]);
        }
    }
}

#[test]
fn a_rank_that_is_gone_fails_those_who_wait_for_it_even_if_they_never_reached_it() {
    for (transport, size) in those_that_notice().into_iter().flat_map(|transport| [(transport, 4), (transport, 2)]) {
        let mut all = networks(size, transport);
        if size > 2 {
            gather(&mut all, WORLD, &[0, 1, 2, 3]);
        }
        drop(all.pop());
        check_all(&mut all, barrier, Err(Failure::Lost { rank: size - 1 }));
    }
}

#[test]
fn a_dial_that_was_given_up_says_nothing_about_a_rank_that_has_left() {
    let mut all: Vec<Network> = (0..2).map(|me| network(me, Transport::Tcp)).collect();
    let peers: Vec<Peer> = all.iter().map(|one| one.groups.own().clone()).collect();
    for (me, one) in all.iter_mut().enumerate() {
        one.groups.form_whole(WORLD, (me as u32, 2), true, &|rank| peers[rank as usize].clone());
        one.groups.send_tagged(1 - me as u32, WORLD, 7, b"hello");
        one.progress(100);
    }
    // Both have dialled. The higher rank accepts the lower rank's dial, gives up its own, and leaves.
    let mut leaver = all.pop().unwrap();
    while leaver.has_waiting() {
        leaver.progress(10);
        // The leaver answers the lower rank's handshake; then the lower rank must send its confirmation.
        if leaver.has_waiting() {
            all[0].progress(0);
        }
    }
    leave(&mut leaver);
    drop(leaver);
    let receive = all[0].groups.receive_tagged(1, WORLD, 7);
    assert_eq!(complete(&mut all, 0, receive), Ok(Done::Bytes(b"hello".into())));
    for _ in 0..20 {
        all[0].progress(1);
    }
    let next = all[0].groups.receive_tagged(1, WORLD, 8);
    all[0].pump();
    assert_eq!(all[0].results.take(next), None);
}

/// Runs ranks that form the group of all ranks, each in its own thread.
fn apart<const SIZE: usize>(transport: Transport, ranks: [fn(&mut [Network; 1]); SIZE]) {
    let (tell, told): (Vec<_>, Vec<_>) = (0..SIZE).map(|_| std::sync::mpsc::channel::<Peer>()).unzip();
    let tell = &tell;
    std::thread::scope(|scope| {
        for ((me, work), told) in ranks.into_iter().enumerate().zip(told) {
            scope.spawn(move || {
                let mut one = network(me as u32, transport);
                tell.iter().for_each(|tell| tell.send(one.groups.own().clone()).unwrap());
                let mut peers: Vec<Peer> = told.iter().take(SIZE).collect();
                peers.sort_by_key(|peer| peer.rank);
                one.groups.form_whole(WORLD, (me as u32, SIZE as u32), true, &|rank| peers[rank as usize].clone());
                one.pump();
                work(&mut [one]);
            });
        }
    });
}

#[test]
fn a_rank_that_leaves_first_makes_the_connections_for_its_messages() {
    let leaver = |leaver: &mut [Network; 1]| {
        leaver[0].groups.send_tagged(1, WORLD, 7, b"goodbye");
        leave(&mut leaver[0]);
    };
    let receiver = |receiver: &mut [Network; 1]| {
        let receive = receiver[0].groups.receive_tagged(0, WORLD, 7);
        // The receiver computes while the other rank leaves.
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(complete(receiver, 0, receive), Ok(Done::Bytes(b"goodbye".to_vec())));
    };
    transports().into_iter().for_each(|transport| apart(transport, [leaver, receiver]));
}

/// Rank 0 leaves after a message that is longer than what the kernel takes, while rank 1 computes for longer than
/// rank 0 waits for goodbyes.
#[test]
fn all_that_a_rank_sends_before_it_leaves_arrives() {
    const LEN: usize = 16 << 20;
    let leaver = |leaver: &mut [Network; 1]| {
        leaver[0].groups.send_tagged(1, WORLD, 7, &vec![5; LEN]);
        leave(&mut leaver[0]);
    };
    let receiver = |receiver: &mut [Network; 1]| {
        let receive = receiver[0].groups.receive_tagged(0, WORLD, 7);
        while receiver[0].counts().connections == 0 {
            receiver[0].progress(10);
        }
        std::thread::sleep(std::time::Duration::from_millis(2_000));
        assert!(complete(receiver, 0, receive) == Ok(Done::Bytes(vec![5; LEN])));
    };
    transports().into_iter().for_each(|transport| apart(transport, [leaver, receiver]));
}

/// Each of two ranks sends more than the other one keeps and the kernel takes, reads no more, and leaves.
#[test]
fn two_ranks_that_leave_do_not_wait_for_each_other() {
    const LEN: usize = 1 << 20;
    let leaver = |leaver: &mut [Network; 1]| {
        let one = &mut leaver[0];
        for _ in 0..KEPT_BYTES_MAX / LEN + 16 {
            one.groups.send_tagged(1 - one.me, WORLD, 7, &[0; LEN]);
        }
        while one.paused.is_empty() {
            one.progress(10);
        }
        leave(one);
        assert!(one.carrier.unsent() < Unsent::Messages);
    };
    transports().into_iter().for_each(|transport| apart(transport, [leaver, leaver]));
}

/// Rank 0 leaves and waits for rank 1, which computes until rank 2 has asked rank 0 something over a new connection.
#[test]
fn a_rank_that_waits_until_it_can_leave_says_so_to_those_who_connect() {
    use std::sync::Barrier;
    static LEAVES: Barrier = Barrier::new(2);
    static TOLD: Barrier = Barrier::new(2);
    const LEN: usize = 16 << 20;
    let leaver = |leaver: &mut [Network; 1]| {
        leaver[0].groups.send_tagged(1, WORLD, 7, &vec![5; LEN]);
        leaver[0].pump();
        while leaver[0].has_waiting() {
            leaver[0].progress(-1);
        }
        LEAVES.wait();
        leave(&mut leaver[0]);
    };
    let receiver = |receiver: &mut [Network; 1]| {
        let receive = receiver[0].groups.receive_tagged(0, WORLD, 7);
        while receiver[0].counts().connections == 0 {
            receiver[0].progress(10);
        }
        TOLD.wait();
        assert!(complete(receiver, 0, receive) == Ok(Done::Bytes(vec![5; LEN])));
    };
    let late = |late: &mut [Network; 1]| {
        LEAVES.wait();
        let before = late[0].connections.route(0);
        late[0].groups.send_tagged(0, WORLD, 7, b"late");
        let until = net::now_ms() + 30_000;
        while late[0].connections.route(0) != Route::Nowhere && net::now_ms() < until {
            late[0].progress(10);
        }
        TOLD.wait();
        assert_eq!([before, late[0].connections.route(0)], [Route::Dial, Route::Nowhere]);
    };
    transports().into_iter().for_each(|transport| apart(transport, [leaver, receiver, late]));
}

/// In a group of 8, rank 0 asks rank 2 for rank 3.
#[test]
fn an_address_is_found_although_the_rank_that_was_asked_leaves_without_an_answer() {
    for transport in those_that_notice() {
        let mut all = networks(8, transport);
        let request = all[0].groups.locate(WORLD, 3);
        all[0].pump();
        leave(&mut all.remove(2));
        let found = all[2].groups.own().clone();
        assert_eq!((found.rank, complete(&mut all, 0, request)), (3, Ok(Done::Peer(found))));
    }
}

/// In a group of 8, rank 0 asks rank 2 for rank 3. Rank 0 has no connection by which it could notice that rank 2 has
/// left.
#[test]
fn a_rank_that_was_asked_and_has_left_unnoticed_fails_nobody() {
    for (transport, is_told) in those_that_notice().into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let mut all = networks(8, transport);
        all[0].bound_connections(0);
        run_until(&mut all, |all| (all[0].counts().connections == 0).then_some(()));
        leave(&mut all.remove(2));
        let request = all[0].groups.locate(WORLD, 3);
        if is_told {
            run_until(&mut all, |all| all[0].redials.has(2).then_some(()));
            all[0].on_address(2, None);
        }
        let found = all[2].groups.own().clone();
        assert_eq!((found.rank, complete(&mut all, 0, request)), (3, Ok(Done::Peer(found))));
        // A message for the rank itself shows that it is gone.
        let receive = all[0].groups.receive_tagged(1, WORLD, 0);
        all[0].groups.send_tagged(2, WORLD, 0, &[]);
        assert_eq!(complete(&mut all, 0, receive), Err(Failure::Lost { rank: 2 }));
    }
}

#[test]
fn a_rank_that_has_said_goodbye_is_not_lost() {
    for transport in transports() {
        let mut all = networks(2, transport);
        gather(&mut all, WORLD, &[0, 1]);
        let mut last = all.pop().unwrap();
        last.leave(1000);
        drop(last);
        run_for_a_while(&mut all[0]);
        assert_eq!(all[0].counts().connections, 0);
        let receive = all[0].groups.receive_tagged(1, WORLD, 0);
        all[0].pump();
        assert!(!all[0].results.is_over(receive));
    }
}

/// Rank 1 leaves and waits for rank 2, which computes. Meanwhile rank 0 exits: it has read rank 1's goodbye and owes
/// rank 1 no answer.
#[test]
fn a_rank_that_leaves_tells_nobody_that_another_one_is_lost() {
    for transport in transports() {
        let mut all = networks(3, transport);
        gather(&mut all, WORLD, &[0, 1, 2]);
        let [mut zero, mut one, two]: [Network; 3] = all.try_into().unwrap_or_else(|_| panic!("three ranks"));
        let connections = zero.counts().connections;
        one.leave(0);
        run_until(std::slice::from_mut(&mut zero), |zero| (zero[0].counts().connections != connections).then_some(()));
        zero.leave(0);
        drop(zero);
        let sent = one.counts().messages;
        run_for_a_while(&mut one);
        assert_eq!(one.counts().messages, sent, "{transport:?}");
        drop(two);
    }
}

/// Each rank sends to all others in its own order, and then receives from all.
#[test]
fn connections_stay_within_a_bound_and_messages_keep_their_order() {
    const BOUND: usize = 3;
    let mut all = networks(9, Transport::Tcp);
    all.iter_mut().for_each(|one| one.bound_connections(BOUND));
    for round in 0..30_u32 {
        for me in 0..9 {
            let to = (me + 1 + (round * (me + 1)) % 8) % 9;
            all[me as usize].groups.send_tagged(to, WORLD, me, &round.to_le_bytes());
        }
        // The bound must also hold while connections are being closed.
        for one in all.iter_mut() {
            one.progress(0);
            assert!(one.counts().connections <= BOUND, "round {round}: {} are open", one.counts().connections);
        }
    }
    for me in 0..9 {
        for from in (0..9).filter(|from| *from != me) {
            for round in (0..30).filter(|round| (from + 1 + (round * (from + 1)) % 8) % 9 == me) {
                let receive = all[me as usize].groups.receive_tagged(from, WORLD, from);
                assert_eq!(complete(&mut all, me as usize, receive), Ok(Done::Bytes(round.to_le_bytes().into())));
            }
        }
    }
    settle(&mut all, |all| all.iter().all(|one| one.counts().connections <= BOUND));
    assert!(all.iter().map(|one| one.counts().closed).sum::<u64>() > 50);
}

/// Runs all networks until no connection is being closed and `is_so` returns `true`.
fn settle(all: &mut [Network], is_so: impl Fn(&[Network]) -> bool) {
    run_until(all, |all| (is_so(all) && all.iter().all(|one| one.counts().closing == 0)).then_some(()));
}

#[test]
fn a_connection_over_which_an_end_waits_is_not_closed() {
    let mut all = networks(4, Transport::Tcp);
    gather(&mut all, WORLD, &[0, 1, 2, 3]);
    let receive = all[0].groups.receive_tagged(3, WORLD, 1);
    all.iter_mut().for_each(|one| one.bound_connections(0));
    settle(&mut all, |all| all[1].counts().connections + all[2].counts().connections == 0);
    assert_eq!([all[0].counts().connections, all[3].counts().connections], [1, 1]);
    drop(all.pop());
    assert_eq!(complete(&mut all, 0, receive), Err(Failure::Lost { rank: 3 }));
}

#[test]
fn a_rank_is_missed_by_one_that_waits_without_a_connection() {
    let mut all = networks(9, Transport::Tcp);
    all.iter_mut().for_each(|one| one.bound_connections(0));
    settle(&mut all, |all| all.iter().all(|one| one.counts().connections == 0));
    // Ranks 8 and 5: one of them has to find the address of rank 2 first.
    let receives = [8, 5].map(|me| all[me].groups.receive_tagged(2, WORLD, 1));
    drop(all.remove(2));
    let is_dialled = |all: &[Network]| [7, 4].iter().all(|at| all[*at].connections.route(2) != Route::Dial);
    assert!(!is_dialled(&all));
    assert_eq!(complete(&mut all, 7, receives[0]), Err(Failure::Lost { rank: 2 }));
    assert_eq!(complete(&mut all, 4, receives[1]), Err(Failure::Lost { rank: 2 }));
}

#[test]
fn strangers_do_not_disturb_ranks() {
    let mut all = networks(2, Transport::Tcp);
    let own = all[0].groups.own().address[1..].to_vec();
    let address = rank_address::candidates(&own, net::host_number())[0];
    let mut strangers = Vec::new();
    for at in 0..2 * UNPROVED_MAX {
        let stranger = net::connect(&address, None).unwrap();
        all[0].progress(0);
        if at % 2 == 0 {
            let _ = net::write(&stranger, &[56, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        } else {
            let _ = net::write(&stranger, &[1, 0, 0]);
        }
        strangers.push(stranger);
    }
    gather(&mut all, WORLD, &[0, 1]);
}

/// A stranger's connection to rank `to`, over which it has replayed a recorded first message of rank `from`, and has
/// received the answer.
fn replayed(all: &mut [Network], (from, to): (u32, u32), purpose: proof::Purpose) -> Descriptor {
    let (_, first) = proof::Proof::dial(&SECRET, from, to, purpose).unwrap();
    let address = rank_address::candidates(&all[to as usize].groups.own().address[1..], net::host_number())[0];
    let stranger = net::connect(&address, None).unwrap();
    let unit = [&(first.len() as u16).to_le_bytes()[..], &first].concat();
    let mut is_sent = false;
    run_until(all, |_| {
        is_sent = is_sent || net::write(&stranger, &unit) == Ok(unit.len());
        match net::read(&stranger, &mut [0; 256]) {
            Ok(net::Received::Nothing) => None,
            answer => {
                assert!(matches!(answer, Ok(net::Received::Bytes(_))), "no answer");
                Some(())
            }
        }
    });
    stranger
}

#[test]
fn a_first_message_that_a_stranger_sends_again_replaces_no_connection() {
    let mut all = networks(3, Transport::Tcp);
    gather(&mut all, WORLD, &[0, 1, 2]);
    let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let strangers: Vec<Descriptor> =
        pairs.map(|pair| replayed(&mut all, pair, proof::Purpose::Messages { closed: 0 })).collect();
    gather(&mut all, WORLD, &[0, 1, 2]);
    // A replayed connection also does no harm when it sends something, or ends.
    for stranger in &strangers {
        let _ = net::write(stranger, &[16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    }
    gather(&mut all, WORLD, &[0, 1, 2]);
    drop(strangers);
    gather(&mut all, WORLD, &[0, 1, 2]);
}

#[test]
fn a_first_message_that_a_stranger_sends_again_makes_no_connection_for_the_program() {
    let mut all = networks(2, Transport::Tcp);
    let high = all[1].connect(WORLD, 0).unwrap();
    let stranger = replayed(&mut all, (0, 1), proof::Purpose::Plain { number: 0 });
    assert!(!all[1].plain.made.is_over(high), "the program has a stranger's connection");
    let low = all[0].connect(WORLD, 1).unwrap();
    run_until(&mut all, |all| (all[0].plain.made.is_over(low) && all[1].plain.made.is_over(high)).then_some(()));
    let [low, high] = [(0, low), (1, high)].map(|(me, key)| all[me].plain.made.take(key).unwrap().unwrap());
    // The program's bytes arrive, and nothing before them.
    for (from, to) in [(&low, &high), (&high, &low)] {
        assert_eq!(net::write(from, b"hello"), Ok(5));
        let mut bytes = [0; 64];
        let read = run_until(&mut all, |_| match net::read(to, &mut bytes) {
            Ok(net::Received::Nothing) => None,
            other => Some(other),
        });
        assert!(matches!(read, Ok(net::Received::Bytes(5))) && bytes.starts_with(b"hello"));
    }
    drop(stranger);
}

/// A rank sends more bytes than a receiver keeps for one rank before the receiver wants them: the sender waits, and
/// everything arrives in order.
#[test]
fn a_rank_whose_messages_nobody_wants_yet_is_not_lost() {
    const LEN: usize = 1 << 20;
    const KEPT: u32 = (KEPT_BYTES_MAX / LEN) as u32;
    for transport in transports() {
        let messages = KEPT + 40;
        let mut all = networks(3, transport);
        let context = all[1].groups.duplicate(WORLD).unwrap();
        let content = |nth: u32| vec![nth as u8; LEN];
        for nth in 0..messages {
            // A third of the messages is for a group that the receiver has not made yet.
            let of = if nth % 3 == 0 { context } else { WORLD };
            all[1].groups.send_tagged(0, of, nth % 3, &content(nth));
        }
        // The receiver still receives from other ranks meanwhile.
        run_until(&mut all[..2], |all| (!all[0].paused.is_empty()).then_some(()));
        all[2].groups.send_tagged(0, WORLD, 9, b"of another rank");
        let receive = all[0].groups.receive_tagged(2, WORLD, 9);
        assert_eq!(complete(&mut all, 0, receive), Ok(Done::Bytes(b"of another rank".into())));
        assert_eq!(all[0].groups.duplicate(WORLD), Ok(context));
        for tag in [0, 2, 1] {
            for nth in (0..messages).filter(|nth| nth % 3 == tag) {
                let receive = all[0].groups.receive_tagged(1, if tag == 0 { context } else { WORLD }, tag);
                assert!(
                    complete(&mut all, 0, receive) == Ok(Done::Bytes(content(nth))),
                    "{transport:?}: message {nth}"
                );
            }
        }
        assert!(all[0].paused.is_empty());
    }
}

/// Rank 0 reads no more, because it keeps too much of rank 1, and still writes to rank 1 when that one exits.
#[test]
fn the_exit_of_a_rank_from_which_nothing_is_read_is_noticed_behind_its_messages() {
    const LEN: usize = 1 << 20;
    let mut all = networks(2, Transport::Tcp);
    for _ in 0..KEPT_BYTES_MAX / LEN + 16 {
        all[1].groups.send_tagged(0, WORLD, 7, &vec![5; LEN]);
    }
    run_until(&mut all, |all| (!all[0].paused.is_empty()).then_some(()));
    all[0].groups.send_tagged(1, WORLD, 7, &vec![0; 16 * LEN]);
    all[0].pump();
    drop(all.pop());
    run_for_a_while(&mut all[0]);
    let receive = all[0].groups.receive_tagged(1, WORLD, 7);
    assert!(complete(&mut all, 0, receive) == Ok(Done::Bytes(vec![5; LEN])));
}

#[test]
fn a_rank_that_is_dialled_again_does_not_make_others_wait() {
    let mut all = networks(2, Transport::Tcp);
    for now in [0, net::now_ms() + 100_000] {
        all[0].redials.on_refused(now, 7);
        assert!((0..=5).contains(&all[0].limit(5)) && all[0].limit(-1) >= 0, "{now}");
    }
    all[0].redials.take_due(u64::MAX);
    assert!((0..=5).contains(&all[0].limit(5)), "it is being dialled");
}

#[test]
fn a_flood_of_strangers_datagrams_does_not_keep_ranks_from_their_work() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let mut all = networks(3, Transport::Udp);
    let places: Vec<_> =
        all.iter().map(|one| rank_address::candidates(&one.groups.own().address[1..], net::host_number())[0]).collect();
    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stranger, _) = net::Datagrams::open(0).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                for nth in 0..60_u8 {
                    // Requests and accepts with a wrong code; some are cut off.
                    let mut datagram = vec![nth; 1 + usize::from(nth)];
                    datagram[0] = 4 + nth % 3;
                    if let Some(ranks) = datagram.get_mut(1..9) {
                        ranks.copy_from_slice(&[nth % 3, 0, 0, 0, nth % 2, 0, 0, 0]);
                    }
                    for place in &places {
                        stranger.send(place, &datagram);
                    }
                    sent.fetch_add(places.len(), Ordering::Relaxed);
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for _ in 0..5 {
            gather(&mut all, WORLD, &[0, 1, 2]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(sent.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_rank_with_another_transport_is_seen_to_be_so_and_is_not_waited_for() {
    let all = transports();
    let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
    for (one, other) in pairs.filter(|(one, other)| one.tag() != other.tag()) {
        let mut all = [network(0, one), network(1, other)];
        let peer = all[1].groups.own().clone();
        assert!(all[0].can_reach(&all[0].groups.own().address) && !all[0].can_reach(&peer.address));
        assert!(!all[0].can_reach(&[]));
        // The two ranks know each other's addresses from the beginning.
        let formed = all[0].groups.form(WORLD, 0, 2, peer.clone(), peer);
        assert_eq!(complete(&mut all, 0, formed), Ok(Done::Group(Some(WORLD))));
        let waiting = barrier(&mut all[0]);
        assert_eq!(complete(&mut all, 0, waiting), Err(Failure::Lost { rank: 1 }));
    }
}

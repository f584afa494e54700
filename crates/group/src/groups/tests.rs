use super::*;
use crate::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Prefix, Shift};
use crate::outbox::WORLD;
use crate::reduce::{Number, Op, Reduce};
use crate::shape::powers;
use crate::testing::{Bench, peer};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;

fn value(me: u32) -> Vec<u8> {
    vec![me as u8; me as usize % 5]
}

fn bytes(done: &Result<Done, Failure>) -> &[u8] {
    match done {
        Ok(Done::Bytes(bytes)) => bytes,
        other => panic!("not bytes: {other:?}"),
    }
}

fn rows(done: &Result<Done, Failure>) -> &[Vec<u8>] {
    match done {
        Ok(Done::Rows(rows)) => rows,
        other => panic!("not rows: {other:?}"),
    }
}

fn group(done: &Result<Done, Failure>) -> Option<Context> {
    match done {
        Ok(Done::Group(group)) => *group,
        other => panic!("not a group: {other:?}"),
    }
}

const SUM: Reduce = Reduce { number: Number::U64, op: Op::Sum };

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Checks that these ranks, in the order of their places, can use a group.
fn check_group(bench: &mut Bench, members: &[u32], context: Context) {
    let start = |rank: &u32| (*rank, bench.member(*rank).start(context, Box::new(Allgather::new(value(*rank)))));
    let requests: Vec<(u32, Request)> = members.iter().map(start).collect();
    bench.run_until_idle();
    let all: Vec<Vec<u8>> = members.iter().map(|rank| value(*rank)).collect();
    for (rank, request) in requests {
        assert_eq!(bench.take(rank, request), Some(Ok(Done::Rows(all.clone()))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn collectives_give_what_their_definitions_say(size in 1u32..40, seed: u64, root: u32) {
        let mut bench = Bench::new(size, seed);
        let root = root % size;
        for result in bench.collective(WORLD, |_| Box::new(Barrier::default())) {
            prop_assert_eq!(result, Ok(Done::Nothing));
        }
        for result in bench.collective(WORLD, |me| Box::new(Broadcast::new(root, value(me)))) {
            prop_assert_eq!(bytes(&result), value(root));
        }
        let all: Vec<Vec<u8>> = (0..size).map(value).collect();
        for result in bench.collective(WORLD, |me| Box::new(Allgather::new(value(me)))) {
            prop_assert_eq!(rows(&result), &all[..]);
        }
        for (me, result) in bench.collective(WORLD, |me| Box::new(Shift::new(value(me)))).iter().enumerate() {
            prop_assert_eq!(bytes(result), value((me as u32 + size - 1) % size));
        }
        let row = |from: u32, to: u32| vec![from as u8, to as u8][..(from + to) as usize % 3].to_vec();
        let sent = bench.collective(WORLD, |me| Box::new(Alltoall::new((0..size).map(|to| row(me, to)).collect())));
        for (me, result) in (0..).zip(&sent) {
            let expected: Vec<Vec<u8>> = (0..size).map(|from| row(from, me)).collect();
            prop_assert_eq!(rows(result), &expected[..]);
        }
        let all = numbers(&[u64::from(size) * u64::from(size - 1) / 2, u64::from(size)]);
        let own = |me: u32| numbers(&[u64::from(me), 1]);
        for result in bench.collective(WORLD, |me| Box::new(Allreduce::new(SUM, own(me)))) {
            prop_assert_eq!(bytes(&result), &all[..]);
        }
        for is_exclusive in [false, true] {
            let prefixes = bench.collective(WORLD, |me| Box::new(Prefix::new(SUM, own(me), is_exclusive)));
            for (me, result) in (0u64..).zip(&prefixes) {
                let count = me + u64::from(!is_exclusive);
                let sum = count * count.saturating_sub(1) / 2;
                let expected = if count == 0 { Vec::new() } else { numbers(&[sum, count]) };
                prop_assert_eq!(bytes(result), &expected[..]);
            }
        }
    }

    #[test]
    fn sums_of_floating_point_numbers_have_the_same_bits_everywhere(size in 1u32..40, seed: u64) {
        let mut bench = Bench::new(size, seed);
        let sum = Reduce { number: Number::F64, op: Op::Sum };
        let own = |me: u32| (0.1 * f64::from(me)).to_ne_bytes().to_vec();
        let results = bench.collective(WORLD, |me| Box::new(Allreduce::new(sum, own(me))));
        prop_assert!(results.iter().all(|result| bytes(result) == bytes(&results[0])));
        let total = f64::from_ne_bytes(bytes(&results[0]).try_into().unwrap());
        prop_assert!((total - 0.1 * f64::from(size * (size - 1) / 2)).abs() < 1e-9);
    }

    #[test]
    fn a_split_forms_a_group_for_each_colour_in_the_order_of_keys(
        size in 1u32..33,
        colours in proptest::collection::vec((0u8..5, -3i64..3), 33),
        seed: u64,
    ) {
        let mut bench = Bench::new(size, seed);
        // Colour 4 means no group; the other colours are strings, some of which are prefixes of others.
        let wanted = |me: u32| {
            let (colour, key) = colours[me as usize];
            Wanted { colour: (colour < 4).then(|| vec![1u8; colour as usize]), key }
        };
        let requests = bench.all(|groups, me| groups.split(WORLD, wanted(me)));
        let contexts: Vec<Option<Context>> = bench.take_results(requests).iter().map(group).collect();
        let mut expected: BTreeMap<Vec<u8>, Vec<(i64, u32)>> = BTreeMap::new();
        for me in 0..size {
            let Wanted { colour, key } = wanted(me);
            prop_assert_eq!(colour.is_some(), contexts[me as usize].is_some());
            if let Some(colour) = colour {
                expected.entry(colour).or_default().push((key, me));
            }
        }
        for (colour, members) in &mut expected {
            members.sort_unstable();
            let context = contexts[members[0].1 as usize].unwrap();
            let is_consecutive = members.is_sorted_by(|one, next| one.1 + 1 == next.1);
            for (place, (_, rank)) in (0..).zip(&*members) {
                prop_assert_eq!(contexts[*rank as usize], Some(context), "colour {:?}", colour);
                let shape = bench.ranks.members[*rank as usize].shape(context).unwrap();
                prop_assert_eq!((shape.me, shape.size as usize), (place, members.len()));
                prop_assert_eq!(shape.is_consecutive, is_consecutive);
                for (place, peer) in shape.known() {
                    prop_assert_eq!(peer.rank, members[place as usize].1);
                }
            }
            let ranks: Vec<u32> = members.iter().map(|(_, rank)| *rank).collect();
            check_group(&mut bench, &ranks, context);
        }
    }

    #[test]
    fn collectives_of_several_groups_may_be_in_progress_at_once(size in 2u32..20, seed: u64, count in 1usize..6) {
        let mut bench = Bench::new(size, seed);
        let mut second = 0;
        for member in &mut bench.ranks.members {
            second = member.duplicate(WORLD).unwrap();
        }
        let mut requests: Vec<Vec<(Request, Request)>> = vec![Vec::new(); size as usize];
        for me in 0..size {
            for nth in 0..count {
                let member = bench.member(me);
                // Ranks may use two groups in different orders.
                let (mut one, mut other) = (0, 0);
                for is_world in [me % 2 == 0, me % 2 != 0] {
                    if is_world {
                        one = member.start(WORLD, Box::new(Allgather::new(vec![nth as u8])));
                    } else {
                        other = member.start(second, Box::new(Allreduce::new(SUM, numbers(&[nth as u64]))));
                    }
                }
                requests[me as usize].push((one, other));
            }
        }
        bench.run_until_idle();
        for me in 0..size {
            for (nth, (one, other)) in requests[me as usize].iter().enumerate() {
                let rows = vec![vec![nth as u8]; size as usize];
                prop_assert_eq!(bench.take(me, *one), Some(Ok(Done::Rows(rows))));
                let sum = numbers(&[nth as u64 * u64::from(size)]);
                prop_assert_eq!(bench.take(me, *other), Some(Ok(Done::Bytes(sum))));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    /// Some members make their new groups before they learn that the split has failed.
    #[test]
    fn a_member_that_is_lost_in_any_step_fails_what_waits_for_it_and_nothing_hangs(
        size in prop_oneof![2u32..10, 10u32..24],
        victim: u32,
        takes_part: bool,
        delivered: prop::sample::Index,
        kind in 0u8..7,
        seed: u64,
    ) {
        const MESSAGES_MAX: usize = 40;
        let mut bench = Bench::new(size, seed);
        let victim = victim % size;
        let list: Vec<u32> = (0..size).rev().collect();
        let mut requests = Vec::new();
        for me in (0..size).filter(|me| *me != victim || takes_part) {
            let member = bench.member(me);
            let request = match kind {
                0 | 1 => member.split(WORLD, Wanted { colour: Some(vec![me as u8 % 2]), key: -i64::from(me) }),
                2 => member.start(WORLD, Box::new(Barrier::default())),
                3 => member.start(WORLD, Box::new(Allreduce::new(SUM, numbers(&[1])))),
                4 => member.start(WORLD, Box::new(Alltoall::new(vec![Vec::new(); size as usize]))),
                5 => member.locate(WORLD, (me + size / 3) % size),
                _ => member.create(WORLD, &list, b"some"),
            };
            bench.collect(me);
            requests.push((me, request));
        }
        for _ in 0..delivered.index(size as usize * MESSAGES_MAX) {
            bench.deliver_one();
        }
        bench.kill(victim);
        bench.run_until_idle();
        for (me, request) in requests.into_iter().filter(|(me, _)| *me != victim) {
            match bench.take(me, request).expect("a member waits for ever") {
                Ok(done) => prop_assert!(kind != 6 || matches!(done, Done::Group(Some(_))), "{:?}", done),
                Err(failure) => prop_assert_eq!(failure, Failure::Lost { rank: victim }),
            }
        }
    }
}

/// The loss may have been reported by another group before the search finds the member.
#[test]
fn a_member_that_is_found_after_its_loss_fails_the_search() {
    let (size, target) = (64, 21);
    let mut bench = Bench::new(size, 3);
    let fresh = (0..size).map(|me| bench.member(me).duplicate(WORLD).expect("a group")).max().expect("a member");
    let request = bench.member(0).locate(fresh, target);
    bench.collect(0);
    assert!(questions(&bench) > 0, "it is no neighbour");
    bench.member(0).on_lost(target);
    bench.run_until_idle();
    assert_eq!(bench.take(0, request), Some(Err(Failure::Lost { rank: target })));
}

fn questions(bench: &Bench) -> usize {
    bench.ranks.under_way.iter().filter(|under_way| under_way.message[0] == 2).count()
}

#[test]
fn any_address_is_found_in_half_as_many_questions_as_the_size_has_bits() {
    for size in [2u32, 3, 7, 64, 100, 257] {
        let mut bench = Bench::new(size, 11);
        let most = powers(size).div_ceil(2);
        for target in 0..size {
            let mut fresh = bench.member(0).duplicate(WORLD).unwrap();
            for member in &mut bench.ranks.members[1..] {
                fresh = member.duplicate(WORLD).unwrap();
            }
            let request = bench.member(0).locate(fresh, target);
            let mut asked = 0;
            bench.collect(0);
            while bench.is_busy() {
                asked += questions(&bench);
                bench.deliver_one();
            }
            assert!(asked <= most, "{asked} questions for {target} of {size}");
            assert_eq!(bench.take(0, request), Some(Ok(Done::Peer(peer(target)))));
            let again = bench.member(0).locate(fresh, target);
            bench.collect(0);
            assert!(!bench.is_busy() && bench.ranks.results.contains_key(&(0, again)), "it is cached");
            let group = &bench.member(0).groups[&fresh];
            assert!(group.addresses.known(group.shape()).count() <= 2 * powers(size) + 1);
        }
    }
}

/// The ranks that search for an address in `questions`, and what they find.
fn check_found(bench: &mut Bench, questions: &[(u32, u32, Request)]) {
    for (me, target, request) in questions {
        assert_eq!(bench.take(*me, *request), Some(Ok(Done::Peer(peer(*target)))), "{me} asks for {target}");
    }
}

#[test]
fn searches_use_the_connections_of_the_graph_only() {
    for size in [2u32, 7, 64, 100] {
        let mut bench = Bench::new(size, 13);
        let links: Vec<BTreeSet<u32>> = bench.ranks.learnt.clone();
        let mut questions = Vec::new();
        for (me, step) in (0..size).flat_map(|me| [(me, 1), (me, size / 3), (me, size / 2)]) {
            let target = (me + step) % size;
            questions.push((me, target, bench.member(me).locate(WORLD, target)));
            bench.collect(me);
            bench.deliver_some();
        }
        bench.run_until_idle();
        check_found(&mut bench, &questions);
        for (traffic, links) in bench.ranks.traffic.iter().zip(links) {
            assert!(traffic.peers.keys().all(|peer| links.contains(peer)), "{size}");
        }
    }
}

/// In a group of 64, rank 0 asks rank 16 for rank 21, and rank 16 asks rank 20.
#[test]
fn a_question_that_is_lost_on_its_way_is_asked_again_over_another_link() {
    let mut bench = Bench::new(64, 5);
    let request = bench.member(0).locate(WORLD, 21);
    bench.collect(0);
    let lost = bench.ranks.under_way.pop_front().expect("a question");
    assert_eq!((lost.to, bench.is_busy()), (16, false));
    for look in 1..=8 {
        assert!(!bench.is_busy(), "look {look}");
        bench.member(0).ask_again();
        bench.collect(0);
    }
    let to: Vec<u32> = bench.ranks.under_way.iter().map(|under_way| under_way.to).collect();
    assert_eq!(to, [32]);
    // Both are answered now.
    bench.ranks.under_way.push_back(lost);
    bench.run_until_idle();
    check_found(&mut bench, &[(0, 21, request)]);
}

#[test]
fn a_member_that_has_left_is_passed_by_and_gets_no_answer() {
    let mut bench = Bench::new(64, 5);
    let first = bench.member(0).locate(WORLD, 21);
    bench.collect(0);
    // Its question is not answered: it goes another way.
    bench.ranks.under_way.clear();
    (0..64).for_each(|me| bench.member(me).on_left(16));
    bench.run_until_idle();
    let other = bench.member(1).locate(WORLD, 21);
    bench.run_until_idle();
    check_found(&mut bench, &[(0, 21, first), (1, 21, other)]);
    // Rank 0 leaves while other members pass its question on.
    bench.member(0).locate(WORLD, 42);
    bench.collect(0);
    while bench.ranks.under_way.iter().any(|under_way| under_way.from == 0) {
        bench.deliver_one();
    }
    (1..64).for_each(|me| bench.member(me).on_left(0));
    bench.run_until_idle();
    assert!((1..64).all(|me| bench.member(me).groups[&WORLD].failed.is_none()));
    // Only members that have left are nearer to the member than rank 8: the search fails as if they were lost.
    for left in [9, 10, 12, 16, 20, 24, 40] {
        bench.member(8).on_left(left);
    }
    bench.member(8).locate(WORLD, 21);
    let to: Vec<u32> = core::iter::from_fn(|| bench.member(8).poll())
        .filter_map(|output| match output {
            Output::Send { to, .. } => Some(to),
            _ => None,
        })
        .collect();
    assert_eq!(to, [24]);
}

#[test]
fn answers_that_nobody_has_asked_for_are_refused() {
    let mut bench = Bench::new(64, 5);
    let answer = |member, question, passed: &[u8]| {
        let payload = [&message::encode_peer(&peer(member)), passed].concat();
        Message { context: WORLD, kind: MessageKind::ThereIs { member, question }, payload: &payload }.encode()
    };
    let question = |member, passed: &[u8]| {
        let kind = MessageKind::WhereIs { member, question: 1 };
        Message { context: WORLD, kind, payload: passed }.encode()
    };
    assert_eq!(bench.member(0).on_message(16, &answer(21, 1, &[])), Err(Malformed), "no question was sent");
    let request = bench.member(0).locate(WORLD, 21);
    for wrong in [answer(22, 1, &[]), answer(21, 2, &[]), answer(21, 0, &[]), answer(21, 1, &[7])] {
        assert_eq!(bench.member(0).on_message(16, &wrong), Err(Malformed));
    }
    assert_eq!(bench.member(0).on_message(16, &question(64, &[])), Err(Malformed), "there is no such member");
    assert_eq!(bench.member(0).on_message(16, &question(21, &[1; 7])), Err(Malformed));
    assert_eq!(bench.member(0).on_message(16, &question(21, &[1; 256])), Ok(()), "too long a way: dropped");
    bench.run_until_idle();
    check_found(&mut bench, &[(0, 21, request)]);
    assert_eq!(bench.member(0).on_message(16, &answer(21, 1, &[])), Ok(()), "a second answer");
}

#[test]
fn a_question_that_only_members_that_have_left_could_answer_fails_the_group() {
    let mut bench = Bench::new(16, 5);
    [3, 4, 6].into_iter().for_each(|left| bench.member(2).on_left(left));
    let kind = MessageKind::WhereIs { member: 5, question: 1 };
    let question = Message { context: WORLD, kind, payload: &[] }.encode();
    assert_eq!(bench.member(2).on_message(0, &question), Ok(()));
    assert!(matches!(bench.member(2).poll(), Some(Output::Send { to: 4 | 6, is_needed: true, .. })));
}

#[test]
fn a_rank_that_sends_has_not_left() {
    let mut bench = Bench::new(64, 5);
    let encoded = |kind, payload: &[u8]| Message { context: WORLD, kind, payload }.encode();
    let payload = [&message::encode_peer(&peer(21))[..], &16_u32.to_le_bytes()].concat();
    let answer = encoded(MessageKind::ThereIs { member: 21, question: 1 }, &payload);
    let passes_on = |bench: &mut Bench| {
        assert_eq!(bench.member(0).on_message(4, &answer), Ok(()));
        bench.member(0).poll().is_some()
    };
    bench.member(0).on_left(16);
    assert!(!passes_on(&mut bench));
    assert_eq!(bench.member(0).on_message(16, &encoded(MessageKind::WhereIs { member: 0, question: 1 }, &[])), Ok(()));
    assert!(bench.member(0).poll().is_some() && passes_on(&mut bench));
}

/// A link to a member can be made while the member is searched for, and a repeated question then goes to it.
#[test]
fn a_member_tells_its_own_address() {
    let mut bench = Bench::new(64, 5);
    let kind = MessageKind::WhereIs { member: 21, question: 1 };
    let question = Message { context: WORLD, kind, payload: &[] }.encode();
    assert_eq!(bench.member(21).on_message(0, &question), Ok(()));
    let kind = MessageKind::ThereIs { member: 21, question: 1 };
    let message = Message { context: WORLD, kind, payload: &message::encode_peer(&peer(21)) }.encode();
    assert_eq!(bench.member(21).poll(), Some(Output::Send { to: 0, message, is_needed: false }));
}

proptest! {
    #[test]
    fn tagged_messages_arrive_in_order_wherever_their_receiver_is(
        size in 1u32..30,
        sends in proptest::collection::vec((0u32..30, 0u32..30, 0u32..3), 1..40),
        seed: u64,
    ) {
        let mut bench = Bench::new(size, seed);
        let mut expected: BTreeMap<(u32, u32, u32), Vec<Vec<u8>>> = BTreeMap::new();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (at, (from, to, tag)) in sends.into_iter().enumerate() {
            let (from, to) = (from % size, to % size);
            let text = vec![at as u8; at];
            sent.push((from, bench.member(from).send_tagged(to, WORLD, tag, &text)));
            expected.entry((from, to, tag)).or_default().push(text);
            if at % 3 == 0 {
                bench.collect(from);
                bench.deliver_some();
            }
        }
        for ((from, to, tag), texts) in expected {
            for text in texts {
                received.push((to, bench.member(to).receive_tagged(from, WORLD, tag), text));
            }
        }
        bench.run_until_idle();
        for (from, request) in sent {
            prop_assert_eq!(bench.take(from, request), Some(Ok(Done::Nothing)));
        }
        for (to, request, text) in received {
            prop_assert_eq!(bench.take(to, request), Some(Ok(Done::Bytes(text))));
        }
    }
}

#[test]
fn a_member_that_does_not_exist_is_refused() {
    let mut bench = Bench::new(3, 1);
    let requests = [bench.member(0).locate(WORLD, 3), bench.member(0).receive_tagged(9, WORLD, 0)];
    bench.run_until_idle();
    for request in requests {
        assert_eq!(bench.take(0, request), Some(Err(Failure::NoMember)));
    }
    let request = bench.member(0).locate(77, 0);
    bench.run_until_idle();
    assert_eq!(bench.take(0, request), Some(Err(Failure::NoGroup)));
}

#[test]
fn a_split_tells_its_members_whether_their_ranks_are_consecutive() {
    let size = 40;
    let by = [
        (true, (|me| (me / 7, 0)) as fn(u32) -> (u32, i64)),
        (true, |me| (0, me.into())),
        (false, |me| (me % 2, 0)),
        (false, |me| (0, -i64::from(me))),
        // The last two are in the other order.
        (false, |me| {
            (
                0,
                if me == 39 {
                    38
                } else if me == 38 {
                    39
                } else {
                    me.into()
                },
            )
        }),
        // One in the middle is missing.
        (false, |me| (u32::from(me == 20), 0)),
    ];
    for (is_consecutive, wanted) in by {
        let mut bench = Bench::new(size, 3);
        let requests = bench.all(|groups, me| {
            let (colour, key) = wanted(me);
            groups.split(WORLD, Wanted { colour: Some(vec![colour as u8]), key })
        });
        for (me, result) in (0..).zip(bench.take_results(requests)) {
            let made = group(&result).expect("a group");
            let member = bench.member(me);
            let shape = member.shape(made).expect("its shape");
            assert_eq!(shape.is_consecutive, is_consecutive || shape.size == 1, "{me}");
        }
    }
}

/// Both members of each comparison of the sort make it in the same order: otherwise the split would not end.
#[test]
fn a_group_of_ring_positions_becomes_the_world_by_a_split_with_ranks_as_keys() {
    for size in 1..70 {
        // The order of the ring differs from the order of the ranks; 71 has no divisor in common with any size.
        let at = |place: u32| size - 1 - place * 71 % size;
        let mut bench = Bench::apart(size, 3);
        let ring = 2;
        let formed = bench.all(|groups, me| {
            let place = (0..size).find(|place| at(*place) == me).unwrap();
            groups.form(ring, place, size, peer(at((place + size - 1) % size)), peer(at((place + 1) % size)))
        });
        bench.take_results(formed);
        let split = bench.all(|groups, me| groups.split(ring, Wanted { colour: Some(Vec::new()), key: me.into() }));
        for (me, result) in (0..).zip(bench.take_results(split)) {
            let world = group(&result).unwrap();
            assert_eq!(bench.ranks.members[me as usize].shape(world).unwrap().me, me, "of {size}");
        }
    }
}

#[test]
fn messages_of_a_group_that_was_given_up_are_dropped() {
    let mut bench = Bench::new(2, 1);
    let request = bench.member(0).start(WORLD, Box::new(Barrier::default()));
    bench.member(0).free(WORLD);
    bench.member(1).start(WORLD, Box::new(Barrier::default()));
    bench.run_until_idle();
    assert_eq!(bench.ranks.results[&(0, request)], Err(Failure::Cancelled));
    assert_eq!(bench.member(0).start(WORLD, Box::new(Barrier::default())), request + 1);
}

#[test]
fn a_peer_that_sends_nonsense_is_refused() {
    let mut groups = Groups::new(peer(0));
    groups.form(WORLD, 0, 2, peer(1), peer(1));
    assert_eq!(groups.on_message(1, b"short"), Err(Malformed));
    let step = |epoch, payload: &[u8]| {
        Message { context: WORLD, kind: MessageKind::Step { epoch, step: 1 }, payload }.encode()
    };
    assert_eq!(groups.on_message(1, &step(0, b"")), Err(Malformed), "the graph of two is built without messages");
    assert_eq!(groups.on_message(1, &step(1, b"too much for a barrier")), Ok(()));
    let request = groups.start(WORLD, Box::new(Barrier::default()));
    let ends = core::iter::from_fn(|| groups.poll()).filter(|output| matches!(output, Output::Done { .. }));
    assert_eq!(ends.last(), Some(Output::Done { request, result: Err(Failure::Malformed) }));
    assert_eq!(groups.on_message(1, &step(3, b"")), Ok(()));
    assert_eq!(groups.on_message(1, &step(3, b"")), Err(Malformed), "twice");
}

#[test]
fn the_graph_costs_two_messages_for_each_distance_and_rounds_are_waits_one_behind_the_other() {
    for size in [1u32, 2, 3, 5, 64, 100] {
        let mut bench = Bench::new(size, 7);
        let powers = powers(size);
        let steps = powers.saturating_sub(1);
        for traffic in &bench.ranks.traffic {
            assert!(traffic.peers.len() <= 2 * powers && traffic.messages as usize == 2 * steps, "{size}");
        }
        bench.collective(WORLD, |_| Box::new(Barrier::default()));
        assert!(bench.ranks.traffic.iter().all(|traffic| traffic.messages as usize == 2 * steps + powers), "{size}");
        let counts = Counts { rounds: (steps + powers) as u64, questions: 0 };
        assert!(bench.ranks.members.iter().all(|member| member.counts == counts), "{size}");
    }
    // 85 = 64 + 16 + 4 + 1: rank 0 knows 64, which knows 80, which knows 84, which knows 85.
    let mut bench = Bench::new(256, 5);
    let before = bench.member(0).counts;
    let request = bench.member(0).locate(WORLD, 85);
    bench.run_until_idle();
    assert_eq!(bench.take(0, request), Some(Ok(Done::Peer(peer(85)))));
    let after = bench.member(0).counts;
    assert_eq!((after.questions, after.rounds - before.rounds), (1, 1));
    assert_eq!(bench.ranks.members.iter().map(|member| member.counts.questions).sum::<u64>(), 3);
}

/// Creates a group: each member uses its own list and the same name; a member without a list does nothing.
fn create(bench: &mut Bench, list: impl Fn(u32) -> Option<Vec<u32>>, name: &[u8]) -> BTreeMap<u32, Request> {
    let mut requests = BTreeMap::new();
    for me in 0..bench.ranks.size() {
        if let Some(members) = list(me) {
            requests.insert(me, bench.member(me).create(WORLD, &members, name));
            bench.collect(me);
            bench.deliver_some();
        }
    }
    bench.run_until_idle();
    requests
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn listed_members_make_a_group_in_the_order_of_the_list(size in 1u32..30, seed: u64, step in 1u32..6, turn: u32) {
        let mut bench = Bench::new(size, seed);
        let mut members: Vec<u32> = (0..size).step_by(step as usize).collect();
        let turn = turn as usize % members.len();
        members.rotate_left(turn);
        let list = |me| members.contains(&me).then(|| members.clone());
        let mut contexts = BTreeSet::new();
        for _ in 0..2 {
            let requests = create(&mut bench, list, b"some");
            let ends: Vec<_> = requests.into_iter().map(|(me, request)| bench.take(me, request)).collect();
            let context = group(ends[0].as_ref().unwrap()).unwrap();
            prop_assert!(ends.iter().all(|end| *end == Some(Ok(Done::Group(Some(context))))), "{ends:?}");
            prop_assert!(contexts.insert(context), "a group of its own each time");
            check_group(&mut bench, &members, context);
        }
    }

    #[test]
    fn a_member_with_another_list_is_named_and_nobody_waits(size in 3u32..20, seed: u64, odd: u32, shorter: bool) {
        let mut bench = Bench::new(size, seed);
        let odd = odd % size;
        let mut other: Vec<u32> = (0..size).collect();
        if shorter {
            other.remove((odd as usize + 1) % size as usize);
        } else {
            other.swap(0, 1);
            other.swap(1, size as usize - 1);
        }
        let list = |me| Some(if me == odd { other.clone() } else { (0..size).collect() });
        let mut named = 0;
        for key in create(&mut bench, list, b"some") {
            match bench.take(key.0, key.1) {
                Some(Err(Failure::Disagrees { rank })) => named += u32::from(rank == odd || key.0 == odd),
                end => prop_assert!(false, "{key:?}: {end:?}"),
            }
        }
        prop_assert_eq!(named, size);
    }

    #[test]
    fn rows_and_columns_of_a_grid_may_have_one_name(side in 2u32..6, seed: u64) {
        let mut bench = Bench::new(side * side, seed);
        let row = |me: u32| Some((0..side).map(|at| me / side * side + at).collect());
        let column = |me: u32| Some((0..side).map(|at| at * side + me % side).collect());
        let begun: Vec<(u32, Request)> = (0..side * side).flat_map(|me| {
            let lists: [Option<Vec<u32>>; 2] = [row(me), column(me)];
            lists.map(|list| (me, bench.member(me).create(WORLD, &list.unwrap(), b"line")))
        }).collect();
        bench.run_until_idle();
        for key in begun {
            prop_assert!(group(&bench.take(key.0, key.1).unwrap()).is_some());
        }
    }
}

#[test]
fn a_list_that_makes_no_sense_is_refused() {
    let mut bench = Bench::new(4, 1);
    for members in [&[][..], &[1, 2], &[0, 1, 1], &[0, 4]] {
        let request = bench.member(0).create(WORLD, members, b"some");
        bench.collect(0);
        assert_eq!(bench.take(0, request), Some(Err(Failure::NoMember)), "{members:?}");
    }
    let alone = bench.member(3).create(WORLD, &[3], b"some");
    let wanting = bench.member(0).create(WORLD, &[0, 1], b"some");
    bench.run_until_idle();
    assert!(group(&bench.take(3, alone).unwrap()).is_some());
    bench.member(0).free(WORLD);
    bench.collect(0);
    assert_eq!(bench.take(0, wanting), Some(Err(Failure::Cancelled)));
}

#[test]
fn a_member_that_leaves_keeps_nothing_for_receives_and_still_answers() {
    let mut bench = Bench::new(9, 1);
    bench.member(1).send_tagged(0, WORLD, 7, &vec![1; KEPT_BYTES_MAX + 1]);
    bench.collect(1);
    bench.run_until_idle();
    assert!(bench.member(0).is_behind(1));
    (0..9).for_each(|me| bench.member(me).is_leaving = true);
    assert!(!bench.member(0).is_behind(1));
    bench.member(2).send_tagged(0, WORLD, 7, b"nobody will receive this");
    let unmade = bench.member(2).duplicate(WORLD).unwrap();
    bench.member(2).send_tagged(0, unmade, 7, b"nor this, in a group that rank 0 will not make");
    let located = bench.all(|groups, me| groups.locate(WORLD, (me + 4) % 9));
    for (me, request) in (0..).zip(located) {
        assert_eq!(bench.take(me, request), Some(Ok(Done::Peer(peer((me + 4) % 9)))));
    }
    let dropped = bench.member(0).receive_tagged(2, WORLD, 7);
    bench.collect(0);
    assert_eq!((bench.take(0, dropped), bench.member(0).early.bytes()), (None, 0));
}

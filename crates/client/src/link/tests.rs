use super::*;
use std::string::String;
use std::vec;
use wireup_wire::pmi::Raw;

fn link() -> Link<&'static str> {
    let mut link = Link::new(Dialect::Pmi2);
    link.switch_to_pmi2();
    link
}

fn counted(body: &str) -> String {
    std::format!("{:6}{body}", body.len())
}

fn put() -> Request<'static> {
    Request::Put { kvsname: None, key: b"k", value: b"v" }
}

fn allgather(id: u32) -> Request<'static> {
    Request::Allgather { id, max_len: 8, shared: false, freed: b"", value: Raw(b"v") }
}

/// The commands of the answers that the caller gets.
fn hear(link: &mut Link<&'static str>, body: &str) -> Result<Vec<Command>, Broken> {
    link.push(counted(body).as_bytes())?;
    let mut heard = Vec::new();
    while link.next(&mut |answer| heard.push(answer.command))? {}
    Ok(heard)
}

#[test]
fn each_answer_reaches_the_request_that_waits_for_it() {
    let mut link = link();
    link.post(&put()).unwrap();
    link.begin_fence(None).unwrap();
    link.ask(&allgather(2)).unwrap();
    link.ask(&Request::GetJobAttr { key: b"k" }).unwrap();
    assert_eq!((link.awaited(), link.unanswered_posts(), link.to_send().is_empty()), (1, 1, false));
    link.push_memory(Some("array"));
    assert_eq!(hear(&mut link, "cmd=wireup-allgather-response;rc=0;id=2;"), Ok(vec![]));
    assert_eq!(hear(&mut link, "cmd=kvs-put-response;rc=-1;errmsg=no;"), Ok(vec![]));
    let attribute = "cmd=info-getjobattr-response;rc=0;found=FALSE;";
    assert_eq!(hear(&mut link, attribute), Ok(vec![Command::GetJobAttr]));
    assert!(link.is_in_fence() && link.take_fence_end().is_none());
    assert_eq!(hear(&mut link, "cmd=kvs-fence-response;rc=0;"), Ok(vec![]));
    // The refusal of the put is reported by the fence.
    assert_eq!((link.take_fence_end(), link.take_fence_end()), (Some(Err(Failure::Refused)), None));
    let over = link.next_completion().unwrap();
    assert_eq!((over.id, over.memory, link.next_completion().is_none()), (2, Some("array"), true));
}

#[test]
fn a_refused_post_is_reported_once_at_the_next_fence() {
    let mut posts = Posts { sent: 4, ..Posts::default() };
    for succeeded in [true, false, true, false] {
        posts.on_answered(succeeded);
    }
    assert_eq!(posts.unanswered(), 0);
    assert!(!posts.take_refusal(1));
    assert!(posts.take_refusal(3) && !posts.take_refusal(3));
    assert!(posts.take_refusal(4) && !posts.take_refusal(4));
}

#[test]
fn addresses_arrive_in_any_order() {
    let mut link = link();
    for (id, rank) in [(1, 7), (2, 8)] {
        link.ask(&Request::AddressGet { id, rank, name: b"net" }).unwrap();
    }
    assert_eq!(link.awaited(), 0, "calls do not wait for them");
    assert_eq!(hear(&mut link, "cmd=wireup-address-get-response;rc=0;id=2;value=ab;"), Ok(vec![]));
    assert_eq!(hear(&mut link, "cmd=wireup-address-get-response;rc=0;id=1;"), Ok(vec![]));
    assert_eq!(link.take_addresses(), [(2, Some(b"ab".to_vec())), (1, None)]);
    let unasked = hear(&mut link, "cmd=wireup-address-get-response;rc=0;id=1;");
    assert_eq!((unasked, link.take_addresses()), (Err(Broken::Unasked), vec![]));
}

#[test]
fn collectives_of_groups_end_with_text_or_memory() {
    let mut link = link();
    for id in [1, 2, 3] {
        link.ask(&Request::Gather { id, group: 1, value: Raw(b"v") }).unwrap();
    }
    link.push_memory(Some("array"));
    assert_eq!(hear(&mut link, "cmd=wireup-gather-response;rc=0;id=2;memory=1;"), Ok(vec![]));
    assert_eq!(hear(&mut link, "cmd=wireup-gather-response;rc=0;id=1;value=a;;b;"), Ok(vec![]));
    assert_eq!(hear(&mut link, "cmd=wireup-gather-response;rc=0;id=3;"), Ok(vec![]));
    let all = link.take_gathers();
    assert!(matches!(&all[0], (2, Gathered::Memory(Some("array")))), "{all:?}");
    assert!(matches!(&all[1], (1, Gathered::Bytes(bytes)) if bytes == b"a;b"), "{all:?}");
    assert!(matches!(&all[2], (3, Gathered::Bytes(bytes)) if bytes.is_empty()), "{all:?}");
}

#[test]
fn memory_belongs_to_the_answer_that_names_it() {
    let mut link = link();
    link.ask(&Request::KvsMap { have: b"" }).unwrap();
    link.push_memory(Some("one"));
    link.push_memory(None);
    let map = "cmd=wireup-kvs-map-response;rc=0;keep=0;ends=3,4;";
    assert_eq!(hear(&mut link, map), Ok(vec![Command::KvsMap]));
    assert_eq!(link.take_memory(), [Some("one"), None]);
    // The answer of an allgather without the memory that belongs to it is an error.
    link.ask(&allgather(1)).unwrap();
    assert_eq!(hear(&mut link, "cmd=wireup-allgather-response;rc=0;id=1;"), Err(Broken::Unasked));
    assert_eq!(link.ask(&put()), Err(Failure::Broken));
}

#[test]
fn a_fence_fails_when_the_server_closes() {
    let mut link = link();
    link.begin_fence(None).unwrap();
    link.on_closed();
    assert_eq!(link.take_fence_end(), Some(Err(Failure::Broken)));
    assert!(link.is_broken());
}

/// The answers to these messages, which arrive one by one: each with the number of unanswered requests after its own.
fn hear_bytes(link: &mut Link<&'static str>, bodies: &[&str]) -> Vec<(Command, usize)> {
    let mut heard = vec![];
    for byte in bodies.iter().flat_map(|body| counted(body).into_bytes()) {
        link.push(&[byte]).unwrap();
        while link.next(&mut |answer| heard.push((answer.command, answer.after))).unwrap() {}
    }
    heard
}

#[test]
fn other_answers_may_overtake_a_fences_answer_and_those_to_other_commands() {
    let (put_done, get_done) = ("cmd=kvs-put-response;rc=0;", "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
    let attribute = "cmd=info-getjobattr-response;rc=0;found=FALSE;";
    let mut link = link();
    link.ask(&put()).unwrap();
    link.begin_fence(None).unwrap();
    link.ask(&Request::Get { kvsname: None, key: b"k", source: Some(0) }).unwrap();
    let heard = hear_bytes(&mut link, &[put_done, get_done, "cmd=kvs-fence-response;rc=0;"]);
    assert_eq!((heard, link.take_fence_end()), (vec![(Command::Put, 1), (Command::Get, 0)], Some(Ok(()))));
    for request in [put(), put(), Request::GetJobAttr { key: b"k" }] {
        link.ask(&request).unwrap();
    }
    let heard = hear_bytes(&mut link, &[put_done, attribute, put_done]);
    assert_eq!(heard, [(Command::Put, 2), (Command::GetJobAttr, 0), (Command::Put, 0)]);
}

#[test]
fn numbered_answers_may_arrive_in_any_order() {
    let (fence, map) = (|id| Request::FenceNb { id }, Request::KvsMap { have: b"3" });
    let mut link = link();
    for request in [fence(1), allgather(2), map, fence(3), allgather(4), allgather(5)] {
        link.ask(&request).unwrap();
    }
    assert_eq!((link.awaited(), link.is_in_fence()), (1, false));
    ["array", "old", "new", "arena"].into_iter().for_each(|memory| link.push_memory(Some(memory)));
    let bodies = [
        "cmd=wireup-fence-response;rc=0;id=3;kvs=1;", "cmd=wireup-allgather-response;rc=0;id=2;",
        "cmd=wireup-kvs-map-response;rc=0;keep=1;ends=7,9;", "cmd=wireup-allgather-response;rc=0;id=4;place=5;",
        "cmd=wireup-allgather-response;rc=0;id=5;place=6;new=1;", "cmd=wireup-fence-response;rc=0;id=1;kvs=2;",
    ];
    assert_eq!(hear_bytes(&mut link, &bodies), [(Command::KvsMap, 0)]);
    let over: Vec<_> =
        core::iter::from_fn(|| link.next_completion()).map(|one| (one.id, one.number, one.memory)).collect();
    assert_eq!(over, [(3, 1, None), (2, 0, Some("array")), (4, 5, None), (5, 6, Some("arena")), (1, 2, None)]);
    assert_eq!(link.take_memory(), [Some("old"), Some("new")], "of the map");
}

#[test]
fn an_answer_that_nobody_asked_for_breaks_the_link() {
    let cases = [
        ("cmd=wireup-fence-response;rc=0;id=2;kvs=0;", Broken::Unasked),
        ("cmd=wireup-allgather-response;rc=0;id=1;", Broken::Unasked),
        ("cmd=wireup-fence-response;rc=0;id=x;kvs=0;", Broken::Unasked),
        ("cmd=wireup-fence-response;rc=0;kvs=0;", Broken::Unasked),
        ("cmd=wireup-fence-response;rc=-1;errmsg=too many;", Broken::Refused),
    ];
    for (answer, broken) in cases {
        let mut link = link();
        link.ask(&Request::FenceNb { id: 1 }).unwrap();
        assert_eq!(hear(&mut link, answer), Err(broken), "{answer}");
        assert!(link.is_broken());
    }
    let mut link = Link::<&str>::new(Dialect::Pmi1);
    link.push(b"cmd=barrier_out rc=0\n").unwrap();
    assert_eq!(link.next(&mut |_| {}), Err(Broken::Unasked));
}

#[test]
fn a_four_line_initack_answer_completes_one_request() {
    let mut link = Link::<&str>::new(Dialect::Pmi2);
    link.ask(&Request::InitAck { pmiid: 7 }).unwrap();
    assert_eq!(link.to_send(), b"cmd=initack pmiid=7\n");
    link.push(b"cmd=initack rc=0\ncmd=set size=16\ncmd=set rank=7\ncmd=set debug=0\n").unwrap();
    let mut size = None;
    while link.next(&mut |answer| size = size.take().or(answer.fields.get("size").map(<[u8]>::to_vec))).unwrap() {}
    assert_eq!((size.as_deref(), link.awaited()), (Some(&b"16"[..]), 0));
}

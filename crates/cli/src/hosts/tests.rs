use super::*;
use proptest::prelude::*;
use wireup_node::hosts::HostProblem;

fn hosts_with(text: &str, slots: Option<u32>) -> Result<Hosts, String> {
    let entries = list(text).expect(text);
    let names = Names::new("cn17", Vec::new(), &entries);
    Hosts::new(entries, slots, &names)
}

fn hosts(text: &str) -> Hosts {
    hosts_with(text, None).expect(text)
}

fn shown(hosts: &Hosts) -> Vec<(&str, u32)> {
    hosts.list.iter().map(|host| (host.name.as_str(), host.slots)).collect()
}

#[test]
fn host_lists_are_split_at_commas_outside_brackets() {
    let entries = list("n0,n1:8,n[2-3,5],gpu[01-02]-ib:2").expect("a list");
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n5", "gpu01-ib", "gpu02-ib"]);
    let slots: Vec<Option<u32>> = entries.iter().map(|entry| entry.slots).collect();
    assert_eq!(slots, [None, Some(8), None, None, None, Some(2), Some(2)]);
    assert!(list("n0,,n1").is_err());
    assert!(list("n0,").is_err());
    assert!(list("").is_err());
    assert_eq!(list("n[1-1000000]").expect("at the bound").len(), 1_000_000);
    assert_eq!(list("n[1-1000000],m"), Err(HostProblem::TooMany));
    assert_eq!(list("n[0-9][0-9][0-9][0-9][0-9][0-9][0-9]"), Err(HostProblem::TooMany));
}

#[test]
fn slots_are_a_limit_only_when_stated() {
    assert_eq!((hosts("a,b").stated, hosts("a,b").slots()), (false, 2));
    assert!(hosts("a:1,b").stated);
    assert_eq!(shown(&hosts("a:4,b")), [("a", 4), ("b", 1)]);
    let alike = hosts_with("a,b:2", Some(6)).expect("hosts");
    assert_eq!((shown(&alike), alike.stated), (vec![("a", 6), ("b", 2)], true));
}

#[test]
fn a_host_named_twice_gets_the_slots_of_both() {
    let twice = hosts("a,b,a");
    assert_eq!((shown(&twice), twice.stated), (vec![("a", 2), ("b", 1)], true));
    assert_eq!(shown(&hosts("a:3,b,a:2,a")), [("a", 6), ("b", 1)]);
    assert_eq!(shown(&hosts("a:4294967295,a:2")), [("a", u32::MAX)]);
    // All names of this machine are one node.
    let is_local = hosts("localhost:2,n1,cn17:3,127.0.0.1");
    assert_eq!(shown(&is_local), [("localhost", 6), ("n1", 1)]);
    assert!(is_local.list[0].is_local && !is_local.list[1].is_local);
}

#[test]
fn hosts_with_zero_slots_are_left_out() {
    assert_eq!(shown(&hosts("a:0,b:2")), [("b", 2)]);
    assert_eq!(hosts_with("a:0", None), Err(NO_SLOTS.to_owned()));
}

proptest! {
    /// `kind`: where the text stands, as in the fuzz target.
    #[test]
    fn arbitrary_lists_of_hosts_are_read_or_refused(
        kind in 0..4_u8,
        text in "[a-c0-9,:@%.\\[\\]\\n=()x -]{0,40}|.{0,40}",
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        fuzzing::hosts(&[&[kind], text.as_bytes()].concat());
        fuzzing::hosts(&[&[kind], &noise[..]].concat());
    }
}

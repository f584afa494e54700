//! One rank's conversations, as text.

use super::UNREADABLE;
use super::*;
use crate::io::Output;
use crate::job::cx::Ending;
use crate::job::cx::Sent;
use crate::job::facts::Facts;
use crate::memory::{Content, ShareId};
use crate::time::Instant;
use bytes::Bytes;
use std::sync::Arc;
use wireup_wire::group::{Members, Purpose};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::job::{AppSpec, JobSpec, Spawned};
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::names::{Answer, Ask, Found, Item, Keep, NewJob, Publisher, Range, Refusal, Value};
use wireup_wire::shared::segment::Segment;

/// One rank, its tables, and the text of its conversation.
struct Bench {
    line: Line,
    tables: Tables,
    facts: Facts,
    /// What the requests needed of other parts, since the list was last cleared.
    asked: Vec<Asked>,
    acts: Vec<Sent>,
    endings: Vec<Ending>,
    named: Vec<ShareId>,
}

const CLIENT: Client = Client { local: LocalRank(1), number: 0 };

fn line() -> Line {
    Line::new(CLIENT, Rank(5), 2)
}

/// A message of PMI-2.
fn framed(body: &str) -> String {
    format!("{:>6}{body}", body.len())
}

impl Default for Bench {
    fn default() -> Self {
        let mut facts = Facts::for_test(2, 4, 1);
        let spec: &mut JobSpec = Arc::make_mut(&mut facts.spec);
        let left = (Bytes::from_static(b"left"), Bytes::from_static(b"here"));
        spec.spawned =
            Some(Spawned { family: JobId(0), by: JobId(0), nspace: "job-0".into(), rank: Rank(0), preput: vec![left] });
        spec.nspace = "job-1".into();
        spec.options.pmi.universe_size = Some(16);
        spec.options.pmi.memory_alloc_kinds = Some("mpi:alloc_mem".into());
        let one = AppSpec { ranks: 1, ..spec.apps[0].clone() };
        spec.apps = vec![one.clone(), one.clone(), AppSpec { ranks: 6, ..one }];
        let mut tables = Tables::new(&facts);
        tables.kvs = Default::default();
        let (asked, acts, endings, named) = Default::default();
        Bench { line: line(), tables, facts, asked, acts, endings, named }
    }
}

impl Bench {
    /// After init in PMI-1.
    fn pmi1() -> Bench {
        let mut bench = Bench::default();
        bench.request("cmd=init pmi_version=1 pmi_subversion=1\n");
        bench.asked.clear();
        bench
    }

    /// After both inits of PMI-2; and the answer to the second.
    fn pmi2() -> (Bench, String) {
        let mut bench = Bench::default();
        bench.request("cmd=init pmi_version=2 pmi_subversion=0\n");
        let answer = bench.request(&framed("cmd=fullinit;pmijobid=job-1;pmirank=5;threaded=FALSE;"));
        bench.asked.clear();
        (bench, answer)
    }

    fn request(&mut self, request: &str) -> String {
        let Bench { line, tables, facts, asked, .. } = self;
        let mut bytes = request.as_bytes();
        let read = |cx: &mut Cx<'_>| loop {
            match line.on_bytes(cx, tables, std::mem::take(&mut bytes)) {
                Ok(Some(one)) => asked.push(one),
                Ok(None) => return Ok(()),
                Err(error) => return Err(error),
            }
        };
        let (result, mut acts, mut endings) = Cx::bench(facts, Instant(1), read);
        self.acts.append(&mut acts);
        self.endings.append(&mut endings);
        self.named.append(&mut self.tables.handed);
        match result {
            Ok(()) => String::from_utf8(std::mem::take(&mut self.tables.reply)).unwrap(),
            Err(error) => format!("broken: {error}"),
        }
    }

    /// The root's answer about a name.
    fn named(&mut self, answer: Answer) -> String {
        String::from_utf8(self.line.link.answer_name(answer)).unwrap()
    }

    fn fence(&mut self) -> String {
        let blob = self.tables.kvs.take_pending();
        self.tables.kvs.commit(vec![blob]).unwrap();
        let mut reply = Vec::new();
        for asked in std::mem::take(&mut self.asked) {
            if let Asked::Enter { reply_to, .. } = asked {
                self.line.link.answer_collective(&reply_to, &Completion::Fence { version: 1 }, &mut reply);
            }
        }
        String::from_utf8(reply).unwrap()
    }

    /// The only request about a name since the last call.
    fn asked_name(&mut self) -> Ask {
        match &std::mem::take(&mut self.asked)[..] {
            [Asked::Name { client: CLIENT, ask }] => ask.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// MPICH sends init again for each session of MPI-4.
#[test]
fn pmi1_may_be_initialised_again() {
    let mut bench = Bench::default();
    let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
    let answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    assert_eq!(bench.request(init), answer);
    bench.request("cmd=put kvsname=job-1 key=k value=v\n");
    assert_eq!(bench.request(init), answer);
    assert!(bench.request("cmd=init pmi_version=7 pmi_subversion=1\n").contains("rc=-1"));
    assert_eq!(bench.request("cmd=barrier_in\n"), "");
    assert!(bench.fence().starts_with("cmd=barrier_out"));
    assert!(bench.request("cmd=get kvsname=job-1 key=k\n").contains("value=v"));
    assert!(bench.request("cmd=finalize\n").starts_with("cmd=finalize_ack"));
    assert!(bench.request(init).contains("already_finalized"));
}

#[test]
fn pmi1_from_init_to_finalize() {
    let mut bench = Bench::default();
    let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
    assert_eq!(bench.request(init), "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    assert_eq!(bench.request("cmd=get_maxes\n"), "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    assert_eq!(bench.request("cmd=get_appnum\n"), "cmd=appnum rc=0 appnum=2\n");
    assert_eq!(bench.request("cmd=get_my_kvsname\n"), "cmd=my_kvsname rc=0 kvsname=job-1\n");
    assert_eq!(bench.request("cmd=get_universe_size\n"), "cmd=universe_size rc=0 size=16\n");
    let kinds = bench.request("cmd=get kvsname=job-1 key=PMI_mpi_memory_alloc_kinds\n");
    assert_eq!(kinds, "cmd=get_result rc=0 value=mpi:alloc_mem\n");
    let mapping = bench.request("cmd=get kvsname=job-1 key=PMI_process_mapping\n");
    assert!(mapping.contains(" rc=0") && mapping.contains("value=(vector,(0,2,4))"), "{mapping}");
    assert!(bench.request("cmd=put kvsname=job-1 key=k value=v=1;\n").starts_with("cmd=put_result rc=0"));
    assert!(bench.request("cmd=get kvsname=job-1 key=k\n").contains("rc=-1"), "not published before the barrier");
    assert_eq!(bench.request("cmd=barrier_in\n"), "");
    assert!(bench.fence().starts_with("cmd=barrier_out"));
    assert!(bench.request("cmd=get kvsname=job-1 key=k\n").contains("value=v=1;"));
    assert!(bench.request("cmd=finalize\n").starts_with("cmd=finalize_ack"));
    assert_eq!(bench.asked, [Asked::Finalized]);
}

/// The ranks of one job may have libraries of either dialect.
#[test]
fn each_dialect_reads_what_the_other_has_written() {
    let mut bench = Bench::pmi1();
    bench.request("cmd=put kvsname=job-1 key=one value=a;b=c\n");
    bench.request("cmd=barrier_in\n");
    bench.fence();
    let first = std::mem::replace(&mut bench.line, line());
    bench.request("cmd=init pmi_version=2 pmi_subversion=0\n");
    bench.request(&framed("cmd=fullinit;pmijobid=job-1;pmirank=5;threaded=FALSE;"));
    let got = bench.request(&framed("cmd=kvs-get;jobid=job-1;srcid=-1;key=one;"));
    assert!(got.contains("value=a;;b=c;"), "{got}");
    for (key, value) in [("two", "d;;e"), ("three", "line\nline")] {
        bench.request(&framed(&format!("cmd=kvs-put;key={key};value={value};")));
    }
    bench.request(&framed("cmd=kvs-fence;"));
    bench.fence();
    let got = bench.request(&framed("cmd=kvs-get;jobid=job-1;srcid=-1;key=three;"));
    assert!(got.contains("value=line\nline;"), "{got}");
    bench.line = first;
    for (key, part) in [("one", "value=a;b=c"), ("two", "value=d;e"), ("three", "a_line_break")] {
        let got = bench.request(&format!("cmd=get kvsname=job-1 key={key}\n"));
        assert!(got.contains(part) && got.matches('\n').count() == 1, "{got}");
    }
}

#[test]
fn pmi2_with_node_attributes() {
    let mut bench = Bench::default();
    let greeting = bench.request("cmd=init pmi_version=2 pmi_subversion=0\n");
    assert_eq!(greeting, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    let full = bench.request(&framed("cmd=fullinit;pmijobid=job-1;pmirank=5;threaded=FALSE;"));
    for part in ["cmd=fullinit-response;", "rc=0;", "rank=5;", "size=8;", "appnum=2;"] {
        assert!(full.contains(part), "{full} lacks {part}");
    }
    assert_eq!(bench.request(&framed("cmd=info-getnodeattr;key=a;wait=TRUE;thrid=0x7;")), "", "parked");
    let put = bench.request(&framed("cmd=info-putnodeattr;key=a;value=b;"));
    let [_, put, woken] = put.split("cmd=").collect::<Vec<_>>()[..] else { panic!("two answers: {put}") };
    assert!(put.starts_with("info-putnodeattr-response;") && put.contains("rc=0;"), "{put}");
    assert!(woken.contains("value=b;") && woken.contains("thrid=0x7;") && woken.contains("found=TRUE;"), "{woken}");
    let job = bench.request(&framed("cmd=info-getjobattr;key=PMI_process_mapping;"));
    assert!(job.contains("value=(vector,(0,2,4));"), "{job}");
    let none = bench.request(&framed("cmd=kvs-get;jobid=job-1;srcid=-1;key=-NONEXIST-KEY;"));
    assert!(none.contains("found=FALSE;") && none.contains("rc=0;"), "{none}");
}

#[test]
fn invalid_requests_are_refused_and_the_link_continues() {
    let mut bench = Bench::default();
    assert!(bench.request("cmd=get kvsname=job-1 key=k\n").contains("not_initialised"));
    bench.request("cmd=init pmi_version=1 pmi_subversion=1\n");
    let long = "x".repeat(VALUE_LEN_MAX + 1);
    for (request, word) in [
        (format!("cmd=put kvsname=job-1 key=k value={long}\n"), "longer"),
        (format!("cmd=put kvsname=job-1 key={} value=v\n", "k".repeat(65)), "longer"),
        ("cmd=put kvsname=other key=k value=v\n".into(), "kvsname"),
        ("cmd=put kvsname=job-1 key=PMI_x value=v\n".into(), "reserved"),
        ("cmd=put kvsname=job-1 key=k\n".into(), "missing"),
        ("cmd=make_tea\n".into(), "not_supported"),
        ("cmd=barrier_in group=WORLD:0\n".into(), "group"),
    ] {
        let reply = bench.request(&request);
        assert!(reply.contains(word) && !reply.contains("rc=0"), "{request} gave {reply}");
    }
    assert!(bench.request("cmd=put kvsname=job-1 key=k value=v\n").contains("rc=0"));
}

#[test]
fn our_own_clients_map_only_new_segments() {
    let (mut bench, full) = Bench::pmi2();
    assert!(full.contains("wireup=1;"), "{full}");
    let none = bench.request(&framed("cmd=wireup-kvs-map;have=;"));
    assert!(none.ends_with("rc=0;keep=0;") && bench.named.is_empty(), "{none}");
    for (round, have, answer) in [(1, "", "keep=0;ends=1;"), (2, "1", "keep=1;ends=2;"), (3, "1,2", "keep=1;ends=3;")] {
        let value = "x".repeat(if round == 1 { 100 } else { 10 });
        bench.request(&framed(&format!("cmd=kvs-put;key=k{round};value={value};")));
        bench.fence();
        let mapped = bench.request(&framed(&format!("cmd=wireup-kvs-map;have={have};")));
        assert!(mapped.contains("rc=0;") && mapped.contains(answer), "{mapped}");
        let share = bench.named.pop().expect("the reply has a segment");
        let Content::Bytes(bytes) = bench.tables.shares.content(share) else { panic!("a segment is bytes") };
        assert!(bench.named.is_empty());
        let segment = Segment::read(bytes).unwrap();
        assert_eq!(segment.get(format!("k{round}").as_bytes()), Some(value.as_bytes()));
    }
    assert!(bench.request(&framed("cmd=wireup-kvs-map;have=1,x;")).contains("not_a_list"));
    assert!(bench.named.is_empty());
}

#[test]
fn unreadable_pairs_end_the_job() {
    let mut bench = Bench::pmi1();
    bench.tables.kvs.commit(vec![bytes::Bytes::from_static(b"\x09cut")]).unwrap();
    assert!(bench.request("cmd=get kvsname=job-1 key=k\n").contains(UNREADABLE));
    assert!(matches!(bench.endings[..], [Ending::Fail(_)]), "{:?}", bench.endings);
}

#[test]
fn invalid_framing_ends_the_link() {
    let mut bench = Bench::default();
    bench.request("cmd=init pmi_version=2 pmi_subversion=0\n");
    assert!(bench.request("abcdefcmd=fullinit;").starts_with("broken: "));
    let mut bench = Bench::default();
    assert!(bench.request(&"x".repeat(600_000)).starts_with("broken: "));
}

#[test]
fn requests_about_names_go_to_the_root_and_later_requests_wait() {
    let mut bench = Bench::pmi1();
    let name = |name: &'static str| Bytes::from_static(name.as_bytes());
    let item = |text: &'static str| Item { name: name("svc"), value: Value::Text(name(text)) };
    let found = |item| Answer::Found(vec![Found { nspace: "job-2".into(), rank: Rank(0), item }]);
    let publish = Ask::Publish { items: vec![item("tag#0$x;y")], range: Range::Session, keep: Keep::Job };
    let withdraw = Ask::Withdraw { names: vec![name("svc")], range: Range::Session, by: Publisher::Job };
    let look_up = Ask::LookUp { names: vec![name("svc")], range: Range::Session, wait: 0, timeout_s: None };
    let refused = Answer::Refused;
    let packed = Item { name: name("svc"), value: Value::Packed(name("7")) };
    let lookup = "cmd=lookup_name service=svc\n";
    let asked = [
        ("cmd=publish_name service=svc port=tag#0$x;y\n", &publish, Answer::Done, "cmd=publish_result rc=0 info=ok\n"),
        (
            "cmd=publish_name service=svc port=tag#0$x;y\n",
            &publish,
            refused(Refusal::Taken),
            "cmd=publish_result rc=-1 msg=key_already_present info=fail\n",
        ),
        (
            "cmd=publish_name service=svc port=tag#0$x;y\n",
            &publish,
            refused(Refusal::Full),
            "cmd=publish_result rc=-1 msg=too_much_is_published info=fail\n",
        ),
        (lookup, &look_up, found(item("tag#0$x;y")), "cmd=lookup_result rc=0 info=ok port=tag#0$x;y\n"),
        (lookup, &look_up, refused(Refusal::NotFound), "cmd=lookup_result rc=-1 msg=service_not_found info=fail\n"),
        (lookup, &look_up, found(item("two words")), "cmd=lookup_result rc=-1 msg=value_cannot_be_sent info=fail\n"),
        (lookup, &look_up, found(packed), "cmd=lookup_result rc=-1 msg=value_is_no_text info=fail\n"),
        ("cmd=unpublish_name service=svc\n", &withdraw, Answer::Done, "cmd=unpublish_result rc=0 info=ok\n"),
        (
            "cmd=unpublish_name service=svc\n",
            &withdraw,
            refused(Refusal::NotFound),
            "cmd=unpublish_result rc=-1 msg=service_not_found info=fail\n",
        ),
    ];
    for (request, ask, answer, reply) in asked {
        assert_eq!(bench.request(request), "");
        assert_eq!(bench.request("cmd=get_appnum\n"), "", "it waits");
        assert_eq!(bench.asked_name(), *ask);
        assert_eq!(bench.named(answer), reply);
        assert_eq!(bench.request(""), "cmd=appnum rc=0 appnum=2\n");
        assert_eq!(bench.named(Answer::Done), "", "nothing waits for it");
    }
    for (long, problem) in [
        (format!("cmd=publish_name service=svc port={}\n", "x".repeat(1024)), "port_is_longer_than_1023"),
        (format!("cmd=lookup_name service={}\n", "x".repeat(1024)), "name_is_empty_or_longer_than_1023"),
        ("cmd=lookup_name service=\n".into(), "name_is_empty_or_longer_than_1023"),
    ] {
        assert!(bench.request(&long).contains(problem), "{long}");
    }
    assert!(bench.asked.is_empty());
}

#[test]
fn addresses_and_questions_are_checked() {
    let (mut bench, _) = Bench::pmi2();
    let set = "cmd=wireup-address-set;name=net;value=a;;b;";
    assert_eq!(bench.request(&framed(set)), framed("cmd=wireup-address-set-response;rc=0;"));
    let long = format!("cmd=wireup-address-set;name=net;value={};", "x".repeat(VALUE_LEN_MAX + 1));
    for (request, problem) in [
        (set, "the_rank_has_told_an_address_of_this_name"),
        (&long, "name_or_value_is_empty_or_too_long"),
        ("cmd=wireup-address-get;id=1;rank=8;name=net;", "rank_is_not_in_the_job"),
        ("cmd=wireup-address-get;id=1;rank=7;name=;", "name_is_empty_or_longer_than_64"),
    ] {
        assert!(bench.request(&framed(request)).contains(problem), "{request}");
    }
    assert_eq!(bench.request(&framed("cmd=wireup-address-get;id=1;rank=7;name=net;")), "");
    assert_eq!(bench.line.link.questions, 1);
    let mut reply = Vec::new();
    bench.line.link.answer_address(1, Some(b"a;;b"), &mut reply);
    assert_eq!(String::from_utf8(reply).unwrap(), framed("cmd=wireup-address-get-response;rc=0;id=1;value=a;;b;"));
}

#[test]
fn names_in_pmi2_are_escaped() {
    let (mut bench, _) = Bench::pmi2();
    assert_eq!(bench.request(&framed("cmd=name-publish;name=a b;;c;port=x;;y;thrid=0x7;infokeycount=0;")), "");
    let item = Item { name: "a b;c".into(), value: Value::Text("x;y".into()) };
    let publish = Ask::Publish { items: vec![item.clone()], range: Range::Session, keep: Keep::Job };
    assert_eq!(bench.asked_name(), publish);
    assert_eq!(bench.named(Answer::Done), framed("cmd=name-publish-response;thrid=0x7;rc=0;"));
    bench.request(&framed("cmd=name-lookup;name=a b;;c;infokeycount=0;"));
    let found = Found { nspace: "job-1".into(), rank: Rank(0), item };
    let told = bench.named(Answer::Found(vec![found]));
    assert_eq!(told, framed("cmd=name-lookup-response;rc=0;value=x;;y;port=x;;y;"));
    bench.request(&framed("cmd=name-lookup;name=none;infokeycount=0;"));
    let told = bench.named(Answer::Refused(Refusal::NotFound));
    assert_eq!(told, framed("cmd=name-lookup-response;rc=-1;errmsg=service_not_found;"));
    bench.request(&framed("cmd=name-unpublish;name=a;infokeycount=0;"));
    bench.line.close();
    assert_eq!(bench.named(Answer::Done), "");
}

#[test]
fn a_request_for_processes_waits_for_the_root_in_both_dialects() {
    let asked = |bench: &mut Bench| match bench.asked_name() {
        Ask::Spawn(request) => (request.commands[0].args.clone(), request.preput),
        other => panic!("{other:?}"),
    };
    let job = NewJob { nspace: "job-2".into(), ranks: 2 };
    let mut bench = Bench::pmi1();
    let block = "mcmd=spawn\nnprocs=2\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=1\narg1=x;y\npreput_num=1\n\
                 preput_key_0=k\npreput_val_0=v;w\ninfo_num=0\nendcmd\n";
    assert_eq!(bench.request(block), "");
    assert_eq!(asked(&mut bench), (vec![b"x;y".to_vec()], vec![(b"k".to_vec(), b"v;;w".to_vec())]));
    assert_eq!(bench.request("cmd=get_maxes\n"), "", "it waits too");
    assert_eq!(bench.named(Answer::Spawned(job.clone())), "cmd=spawn_result rc=0 errcodes=0,0\n");

    let (mut bench, full) = Bench::pmi2();
    assert!(full.contains("spawner-jobid=job-0;"), "{full}");
    let body = "cmd=spawn;thrid=1;ncmds=1;preputcount=1;ppkey0=k;ppval0=v;;w;subcmd=a;maxprocs=2;argc=1;argv0=x;;y;";
    assert_eq!(bench.request(&framed(body)), "");
    assert_eq!(asked(&mut bench), (vec![b"x;y".to_vec()], vec![(b"k".to_vec(), b"v;;w".to_vec())]));
    let told = bench.named(Answer::Spawned(job));
    assert!(told.ends_with("cmd=spawn-response;thrid=1;rc=0;jobid=job-2;errcodes=0,0;"), "{told}");
}

#[test]
fn a_rank_that_reads_what_was_left_for_it_is_about_to_meet_its_family() {
    let mut bench = Bench::pmi1();
    bench.request("cmd=get kvsname=job-1 key=other\n");
    assert_eq!(bench.acts, []);
    bench.request("cmd=get kvsname=job-1 key=left\n");
    assert_eq!(bench.acts, [Sent::Output(Output::MeetsFamily { job: JobId(1) })]);
}

#[test]
fn a_request_for_processes_that_cannot_be_fulfilled_is_refused() {
    let mut bench = Bench::pmi1();
    let block = |ranks| {
        format!(
            "mcmd=spawn\nnprocs={ranks}\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\n\
             endcmd\n"
        )
    };
    assert!(bench.request(&block(0)).starts_with("cmd=spawn_result rc=-1"));
    assert!(bench.asked.is_empty());
    bench.request(&block(1));
    let told = bench.named(Answer::NotSpawned { problem: "no such node".into() });
    assert_eq!(told, "cmd=spawn_result rc=-1 msg=no_such_node\n");
}

#[test]
fn a_rank_has_left_when_the_last_of_its_libraries_has() {
    let local = LocalRank(1);
    let secondary = |number| Client { local, number };
    let mut clients = Clients::new(&Facts::for_test(1, 2, 0));
    clients.join(secondary(1));
    clients.join(secondary(2));
    clients.departed.insert(local);
    clients.secondary.remove(&secondary(2));
    assert!(!clients.has_left(local) && !clients.has_left(LocalRank(0)));
    clients.secondary.remove(&secondary(1));
    assert!(clients.has_left(local));
    assert!(clients.open(secondary(1)).is_none() && clients.open(local.into()).is_some());
}

#[test]
fn collectives_end_in_the_order_of_their_start() {
    let group = Group { members: Members::World, tag: 7, purpose: Purpose::Gather };
    let mut own = OwnGroups::default();
    assert_eq!(own.define(1, group.clone()), Ok(()));
    assert_eq!(
        (own.start_collective(1, 10), own.start_collective(1, 11), own.start_collective(2, 12)),
        (Some(group.clone()), Some(group.clone()), None)
    );
    assert!(own.free(1).is_ok() && own.free(1).is_err());
    assert_eq!([own.end(&group), own.end(&group), own.end(&group)], [Some(10), Some(11), None]);
    assert!(own.under_way.is_empty());
}

#[test]
fn groups_are_limited() {
    let mut own = OwnGroups::default();
    let group = |tag| Group { members: Members::World, tag, purpose: Purpose::Gather };
    for number in 0..GROUPS_PER_RANK_MAX as u32 {
        assert_eq!(own.define(number, group(number.into())), Ok(()));
    }
    assert!(own.define(u32::MAX, group(-1)).is_err());
}

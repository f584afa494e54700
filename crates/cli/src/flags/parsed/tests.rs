use super::*;
use crate::flags::mapping::{Bind, Map, MapBy};
use crate::flags::table::RUN;
use crate::flags::values::Contain;
use proptest::prelude::*;
use std::os::unix::ffi::OsStringExt;
use wireup_flags::{Help, JsonTo, Takes};
use wireup_node::launcher::Output;
use wireup_wire::ids::Rank;
use wireup_wire::job::{
    BindTo, JobOptions, Object, PmiFlavour, PortRange, ProcessOptions, RankPorts, StdinTarget, StdioOptions,
};
use wireup_wire::session::SeatOrder;

fn try_parse(line: &str) -> Result<Result<Parsed, Help>, String> {
    parse(line.split_whitespace().map(OsString::from))
}

fn parsed(line: &str) -> Parsed {
    try_parse(line).expect(line).expect(line)
}

fn refused(line: &str) -> String {
    try_parse(line).expect_err(line)
}

fn set(text: &str) -> Variable {
    Variable::Set(text.as_bytes().to_vec())
}

#[test]
fn alternative_spellings_of_flags_mean_the_same() {
    for line in ["-n 4 ./a", "-np 4 ./a", "--np 4 ./a", "-n4 ./a", "-n=4 ./a", "--np=4 ./a", "--n 4 ./a"] {
        assert_eq!(parsed(line).programs[0].flags.ranks, Some(4), "{line}");
    }
    for line in ["-wdir /t ./a", "--wdir /t ./a", "--wdir=/t ./a", "-wd /t ./a"] {
        assert_eq!(parsed(line).programs[0].flags.wdir, Some("/t".into()), "{line}");
    }
    for line in ["--env A=1 ./a", "-env A=1 ./a", "-x A=1 ./a", "--env=A=1 ./a"] {
        assert_eq!(parsed(line).programs[0].flags.env, [set("A=1")], "{line}");
    }
    assert_eq!(parsed("--env A ./a").programs[0].flags.env, [Variable::Export("A".into())]);
    assert_eq!(parsed("--genv A=1 ./a").genv, [b"A=1".to_vec()]);
    for line in ["-ppn 2 ./a", "--ppn 2 ./a", "-perhost 2 ./a"] {
        assert_eq!(parsed(line).ppn, Some(2), "{line}");
    }
    for line in ["-l ./a", "--label ./a", "-prepend-rank ./a", "-label ./a"] {
        assert!(parsed(line).options.stdio.label, "{line}");
    }
    let ignored = parsed("-genvall -envall --oversubscribe --allow-run-as-root ./a -n 3 --help");
    assert_eq!(ignored.programs[0].argv, ["./a", "-n", "3", "--help"]);
    assert_eq!(try_parse("-n 4 --help"), Ok(Err(Help::Usual)));
}

#[test]
fn programs_have_their_own_flags_and_share_the_common_ones() {
    let line =
        parsed("-n 8 --ppn 4 --virtual-nodes 2 --label ./a x y : -n 2 -env K=V -wdir /w --fanout 3 ./b : -np 1 ./c");
    let ranks: Vec<Option<u32>> = line.programs.iter().map(|program| program.flags.ranks).collect();
    assert_eq!(ranks, [Some(8), Some(2), Some(1)]);
    assert_eq!(line.programs[0].argv, ["./a", "x", "y"]);
    assert_eq!(line.programs[1].flags.env, [set("K=V")]);
    assert_eq!(line.programs[1].flags.wdir, Some("/w".into()));
    assert!(line.programs[0].flags.env.is_empty() && line.programs[2].flags.env.is_empty());
    let expected = (Some(4), Some(2), Some(3), true);
    assert_eq!((line.ppn, line.virtual_nodes, line.fanout, line.options.stdio.label), expected);
}

#[test]
fn every_global_flag_sets_its_field() {
    let line = parsed(
        "--map-by ppr:3:node --slots 5 --fanout 2 --remote-shell ssh --rank-env --pmi none --bind-to core --stdin all \
         --output-dir out --line-buffered --pty --timeout 1.5 --kill-grace 0 --stall-report 3 --profile t.json \
         --json=r.json \
         --overwrite --place pack --record rec --contain none --dry-run --display-map -v ./a",
    );
    let expected = Parsed {
        programs: line.programs.clone(),
        map: Map { by: Some(MapBy::Ppr(3)), ..Map::default() },
        slots: Some(5),
        fanout: Some(2),
        remote_shell: Some("ssh".into()),
        options: JobOptions {
            process: ProcessOptions { rank_env: true, ..ProcessOptions::default() },
            stdio: StdioOptions { line_buffered: true, ..StdioOptions::default() },
            kill_grace_ns: 0,
            stall_report_ns: 3_000_000_000,
            ..JobOptions::default()
        },
        output: Output { directory: Some("out".into()), overwrite: true, ..Output::default() },
        pmi: Some(PmiFlavour::None),
        bind: Bind { to: Some(BindTo::To { object: Object::Core, count: 1 }), overload: false },
        stdin: Some(StdinTarget::All),
        place: Some(SeatOrder::Pack),
        pty: Some(0),
        timeout_ns: Some(1_500_000_000),
        profile: Some("t.json".into()),
        json: Some(JsonTo::File("r.json".into())),
        record: Some("rec".into()),
        contain: Some(Contain::None),
        dry_run: true,
        display_map: true,
        verbose: true,
        ..Parsed::default()
    };
    assert_eq!(line, expected);
}

#[test]
fn the_pty_flag_may_name_a_rank() {
    assert_eq!(parsed("--pty ./a").pty, Some(0));
    assert_eq!(parsed("--pty 3 ./a").pty, Some(3));
    assert_eq!(parsed("--pty=3 ./a").pty, Some(3));
    assert_eq!(parsed("--timeout 0 ./a").timeout_ns, None);
    let few = PortRange { low: 1, high: 2 };
    let usual = PortRange { low: 10_240, high: 32_767 };
    let rank_ports = |range, listen| Some(RankPorts { range, listen });
    assert_eq!(parsed("--rank-ports 1-2 ./a").rank_ports(), rank_ports(few, true));
    assert_eq!(parsed("--instant-on ./a").rank_ports(), rank_ports(usual, true));
    assert_eq!(parsed("--rank-ports 1-2 --for torch ./a").rank_ports(), None, "they are for MASTER_PORT");
    assert_eq!(parsed("--reserve-ports ./a").rank_ports(), rank_ports(usual, false));
    assert_eq!(parsed("--rank-ports 1-2 --reserve-ports ./a").rank_ports(), rank_ports(few, false));
    assert_eq!(parsed("--stdin 2 ./a").stdin, Some(StdinTarget::One(Rank(2))));
    assert_eq!(parsed("-x PATH ./a").programs[0].flags.env, [Variable::Export("PATH".into())]);
}

#[test]
fn mistakes_give_one_line_with_the_next_step() {
    assert_eq!(refused("--virtual-node 2 ./a"), "unknown flag --virtual-node; did you mean --virtual-nodes?");
    assert_eq!(refused("-virtualnodes=2 ./a"), "unknown flag -virtualnodes; did you mean --virtual-nodes?");
    let expected = "unknown flag --encrypt; links are encrypted by default; --plain-links turns that off";
    assert_eq!(refused("--encrypt ./a"), expected);
    assert_eq!(refused("--ntasks 4 ./a"), "unknown flag --ntasks; the number of ranks is -n N");
    assert_eq!(refused("--frobnicate ./a"), "unknown flag --frobnicate; see wireup help run for the flags");
    assert_eq!(refused("-n"), "-n needs a value: -n N");
    assert_eq!(refused("-n : ./a"), "-n needs a value: -n N");
    assert_eq!(refused("-env"), "-env needs a value: -env NAME[=VALUE]");
    assert!(refused("-N 2 ./a").contains("for N ranks per node use --ppn N, for N nodes name them with --hosts"));
    assert_eq!(refused("--label=3 ./a"), "--label takes no value, remove \"=3\"");
    assert_eq!(refused("-np x ./a"), "-np x: give a whole number from 1 to 4194304");
    assert_eq!(refused("--fanout 0 ./a"), "--fanout 0: give a whole number from 1 to 4294967295");
    assert_eq!(refused("--bind-to cores ./a"), "--bind-to cores: did you mean core?");
    assert!(refused("--map-by planet ./a").starts_with("--map-by planet: choose slot, node, ppr:N:node"));
    assert_eq!(refused("--env =1 ./a"), "--env =1: write NAME=VALUE, with a name that is not empty");
    assert_eq!(refused("--rank-ports 9-8 ./a"), "--rank-ports 9-8: give two port numbers, such as 20000-20999");
    assert_eq!(refused("--stage-out a ./a"), "--stage-out a: write 'PATTERN=>FOLDER', in quotes");
    assert_eq!(refused("--stage-library=x ./a"), "--stage-library takes no value, remove \"=x\"");
    assert_eq!(refused("--stage=here ./a"), "--stage here: give an absolute folder, require, auto or prefetch");
    assert_eq!(refused("-n 4"), "no program to run; try: wireup run -n 4 ./app");
    assert_eq!(refused(""), "no program to run; try: wireup run -n 4 ./app");
    assert!(refused("-n 1 ./a : -n 2").starts_with("program 2 of the command line is missing"));
    assert!(refused("-n 1 ./a : : ./b").starts_with("program 2 of the command line is missing"));
    assert!(refused(": ./b").starts_with("program 1 of the command line is missing"));
    assert!(refused("-n 1 -- : ./b").starts_with("program 1 of the command line is missing"));
}

#[test]
fn program_words_need_not_be_utf8() {
    let odd = OsString::from_vec(b"./\xff".to_vec());
    let line = parsed_words([OsString::from("-wdir"), odd.clone(), odd.clone()]);
    assert_eq!(line.programs[0].argv, [odd]);
    assert!(parse([OsString::from_vec(b"--\xff".to_vec())]).is_err());
}

#[test]
fn every_flag_changes_the_parsed_result() {
    let values = [
        "1", "x", "A=1", "node", "ssh-flat", "even", "simple", "full", "ring", "yes", "tcp", "lazy", "1.1", "1-2",
        "auto", "a=>b", "pack", "pty", "torch",
    ];
    let without = parsed("./a");
    for flag in RUN.flags().filter(|flag| !flag.is_hidden()) {
        let lines = values.map(|value| match flag.takes {
            Takes::Nothing => format!("{} ./a", flag.name()),
            _ => format!("{} {value} ./a", flag.name()),
        });
        let is_read = |line: &String| matches!(try_parse(line), Ok(Ok(parsed)) if parsed != without);
        assert!(lines.iter().any(is_read), "{}", flag.name());
    }
}

/// Words that are valid one by one, though not necessarily in this order.
fn any_word() -> impl Strategy<Value = OsString> {
    let known = prop::sample::select(RUN.flags().flat_map(|flag| flag.names).copied().collect::<Vec<_>>());
    prop_oneof![
        known.clone().prop_map(OsString::from),
        (known, "[0-9a-z=:.]{0,4}").prop_map(|(name, value)| format!("{name}={value}").into()),
        prop::sample::select(vec![":", "--", "-", "--=", "-=1", "4", "A=1", "./a", ""]).prop_map(OsString::from),
        proptest::collection::vec(any::<u8>(), 0..6).prop_map(OsString::from_vec),
    ]
}

proptest! {
    #[test]
    fn arbitrary_words_are_parsed_or_refused_with_a_message(words in proptest::collection::vec(any_word(), 0..12)) {
        match parse(words) {
            Ok(Ok(parsed)) => prop_assert!(parsed.programs.iter().all(|program| !program.argv.is_empty())),
            Ok(Err(_)) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn ray_is_one_rank_on_each_node_that_starts_it() {
    let ray = |line: &str| parsed(line).programs;
    let module = "-m wireup_launcher.ray";
    let expected = format!("--ppn 1 --bind-to none --rank-env env/bin/python3 {module} env/bin/python3 a.py -x");
    assert_eq!(ray("--for ray env/bin/python3 a.py -x"), ray(&expected));
    let expected = format!("--ppn 1 --bind-to none --rank-env --ppn 2 python3 {module} ./driver");
    assert_eq!(ray("--ppn 2 --for=ray ./driver"), ray(&expected));
    assert!(parse(["--for", "rye", "./a"].map(OsString::from)).is_err_and(|why| why.contains("deepspeed or ray")));
}

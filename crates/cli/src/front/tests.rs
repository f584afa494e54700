//! Tests every row of every table of options, and whole command lines.

use super::row::{Effect, Make, Row, Rule, Takes};
use super::tables::{PARAMETERS, TABLES, VARIABLES};
use super::*;
use crate::flags::parsed::parsed_words;
use std::fs;

/// A command line, split as a shell does.
fn words(line: &str) -> Vec<OsString> {
    files::words(line.as_bytes()).expect(line)
}

/// What a command line of another launcher asks for. Nothing depends on the environment of the tests.
fn front(line: &str) -> Result<Translation, String> {
    let mut words = words(line);
    let name = words.remove(0).into_string().expect("ASCII");
    let vendor = Vendor::of_name(&name).or_else(|| Vendor::of_options(&words)).unwrap_or_default();
    let mut translation = Translation::new(vendor);
    translation.read(words)?;
    translation.finish();
    Ok(translation)
}

fn parsed(line: &str) -> Result<Parsed, String> {
    Parsed::of_lines(front(line)?.programs, &[], "mpiexec")
}

/// What a command line of `wireup run` asks for.
fn parsed_run(line: &str) -> Parsed {
    parsed_words(words(line))
}

fn refused(line: &str) -> String {
    parsed(line).expect_err(line)
}

/// The name of a launcher that uses the table with this title.
fn launcher(title: &str) -> &'static str {
    if title.starts_with("Open MPI") { "orterun" } else { "mpiexec.hydra" }
}

fn value_for(flag: &Flag) -> &'static str {
    let values: &[(Flag, &str)] = &[
        (flag::MAP_BY, "node"),
        (flag::BIND_TO, "core"),
        (flag::RANK_BY, "fill"),
        (flag::CPU_SET, "0-1"),
        (flag::HOSTS, "n0,n1"),
        (flag::HOST_FILE, "hosts"),
        (flag::WDIR, "/tmp"),
        (flag::RANKFILE, "ranks"),
        (flag::INTERFACE, "eth0"),
        (flag::GENV_LIST, "A,B"),
        (flag::ENV_LIST, "A,B"),
        (flag::REMOTE_SHELL, "rsh"),
    ];
    values.iter().find(|(known, _)| known == flag).map_or("2", |(_, value)| value)
}

/// The use of an option with words for what it takes.
fn usage(row: &Row, name: &str, value: &str) -> String {
    match row.takes {
        Takes::Nothing => format!("-{name}"),
        Takes::One(_) => format!("-{name} {value}"),
        Takes::Two(..) => format!("--{name} A {value}"),
        Takes::Attached(_) => format!("-{name}={value}"),
    }
}

fn rows() -> impl Iterator<Item = (&'static str, &'static Row)> {
    TABLES.into_iter().flat_map(|(title, rows)| rows.iter().map(move |row| (launcher(title), row)))
}

/// A value that the row accepts, and the value that the flag gets for it.
fn value_and_word(flag: &Flag, make: Make, takes: Takes) -> (String, String) {
    let value = value_for(flag);
    match make {
        Make::Word(word) => ("1".into(), word.into()),
        Make::IfTrue(word) => ("1".into(), word.into()),
        Make::IfFalse(word) => ("0".into(), word.into()),
        Make::Number(before, after) => ("2".into(), format!("{before}2{after}")),
        Make::Behind("ppr:") => ("2:core".into(), "ppr:2:core".into()),
        Make::Behind(before) if matches!(takes, Takes::Two(..)) => (value.into(), format!("{before}A={value}")),
        Make::Behind(before) => (value.into(), format!("{before}{value}")),
        _ if matches!(takes, Takes::Two(..)) => (value.into(), format!("A={value}")),
        _ if takes == Takes::Nothing => (value.into(), String::new()),
        _ => (value.into(), value.into()),
    }
}

#[test]
fn rows_with_a_flag_do_what_the_flag_does() {
    for (launcher, row) in rows() {
        let (Effect::Gives(flag, make), None) = (row.effect, row.rule) else { continue };
        let (value, word) = value_and_word(flag, make, row.takes);
        let line = if word.is_empty() { flag.name().to_owned() } else { format!("{}={word}", flag.name()) };
        for name in row.names {
            let typed = format!("{launcher} {} ./a b", usage(row, name, &value));
            assert_eq!(parsed(&typed), Ok(parsed_run(&format!("{line} ./a b"))), "{typed}");
        }
    }
}

#[test]
fn rows_with_a_rule_do_what_their_example_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    fs::write(&config, "# two\n-n 1 ./a\n\n-n 2 ./b x\n").expect("a file");
    let parameters = folder.path().join("parameters");
    fs::write(&parameters, "# of a cluster\nbtl = self\n-x A=1\n").expect("a file");
    let with_rules: Vec<(&Row, Rule)> = rows().filter_map(|(_, row)| Some((row, row.rule?))).collect();
    for (_, rule) in &with_rules {
        let (example, means) = rule.example;
        assert!(!rule.says.is_empty() && !rule.says.ends_with('.'), "{example}");
        let line = example
            .replace("CONFIG", &config.display().to_string())
            .replace("PARAMETERS", &parameters.display().to_string());
        match means {
            "VERSION" => assert_eq!(front(&line).expect("version").shows, Some(Shows::Version), "{line}"),
            _ => assert_eq!(parsed(&line), Ok(parsed_run(means)), "{line}"),
        }
        let option = example.split(' ').find(|word| word.starts_with('-')).expect("an option").trim_start_matches('-');
        let used = example.split([' ', '=']).map(|word| word.trim_start_matches('-'));
        let rows_of_rule = with_rules.iter().filter(|(_, of)| of == rule);
        let names: Vec<&str> = rows_of_rule.flat_map(|(row, _)| row.names).copied().collect();
        assert!(used.into_iter().any(|word| names.contains(&word)), "{example} does not use {names:?} but {option}");
    }
    assert!(with_rules.len() > 30, "{}", with_rules.len());
}

#[test]
fn rows_without_effect_change_nothing_and_say_so() {
    for (launcher, row) in rows() {
        let noted = match row.effect {
            Effect::Nothing(_) => true,
            Effect::Always(_) => false,
            _ => continue,
        };
        for name in row.names {
            let line = format!("{launcher} {} ./a b", usage(row, name, "1"));
            let translation = front(&line).expect(&line);
            assert_eq!(translation.notes.len(), usize::from(noted), "{line}: {:?}", translation.notes);
            assert_eq!(parsed(&line), Ok(parsed_run("./a b")), "{line}");
        }
    }
}

#[test]
fn rows_that_are_refused_name_what_to_use() {
    for (launcher, row) in rows() {
        let Effect::Refused(instead) = row.effect else { continue };
        for name in row.names {
            let line = format!("{launcher} {} ./a", usage(row, name, "1"));
            let error = refused(&line);
            assert!(error.contains(&format!("-{name} is not offered: {instead}")), "{line}: {error}");
        }
    }
}

#[test]
fn every_name_belongs_to_one_row_of_a_table() {
    for (title, rows) in TABLES {
        let mut names: Vec<&str> = rows.iter().flat_map(|row| row.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{title}");
        assert!(names.iter().all(|name| !name.starts_with('-') && !["help", "h"].contains(name)), "{title}");
    }
}

#[test]
fn parameters_and_variables_do_what_their_flag_does() {
    for row in PARAMETERS {
        let Effect::Gives(flag, make) = row.effect else { panic!("{:?} has no flag", row.names) };
        let (value, word) = value_and_word(flag, make, row.takes);
        for name in row.names {
            assert!(variables::is_of_launcher(name), "{name}");
            let line = format!("prterun --prtemca {name} {value} ./a");
            let own = if word.is_empty() { flag.name().to_owned() } else { format!("{}={word}", flag.name()) };
            assert_eq!(parsed(&line), Ok(parsed_run(&format!("{own} ./a"))), "{line}");
        }
    }
    for row in VARIABLES {
        let Effect::Gives(flag, make) = row.effect else { continue };
        let (value, _) = value_and_word(flag, make, row.takes);
        for name in row.names {
            let mut translation = front("mpiexec ./a").expect("valid");
            variables::apply(&mut translation, &[(name.into(), value.clone().into())]).expect(name);
            assert!(translation.gives_job(flag), "{name}");
            Parsed::of_lines(translation.programs, &[], "mpiexec").expect(name);
        }
    }
}

#[test]
fn lines_from_scripts_are_understood() {
    let same = [
        (
            "mpirun -np 4 --allow-run-as-root --oversubscribe --mca btl ^openib ./a",
            "-n 4 --oversubscribe --env OMPI_MCA_btl=^openib ./a",
        ),
        (
            "mpirun --hostfile h -npernode 2 --bind-to none -x PATH -x A=1 ./a",
            "--hostfile h --ppn 2 --bind-to none -x PATH -x A=1 ./a",
        ),
        (
            "mpirun -np 8 --map-by ppr:2:socket:PE=2 --report-bindings ./a",
            "-n 8 --map-by ppr:2:socket:pe=2 --report-bindings ./a",
        ),
        ("mpirun --map-by :OVERSUBSCRIBE -n 2 ./a", "--map-by :oversubscribe -n 2 ./a"),
        ("mpirun --map-by node:PE=1 -n 2 ./a", "--map-by node:pe=1 -n 2 ./a"),
        ("mpirun --bind-to core:overload-allowed -n 2 ./a", "--bind-to core:overload-allowed -n 2 ./a"),
        ("mpiexec.hydra -f h -ppn 2 -genv I_MPI_DEBUG 5 -n 4 ./a x", "-f h --ppn 2 --genv I_MPI_DEBUG=5 -n 4 ./a x"),
        (
            "mpiexec -genvnone -genv A 1 -n 1 ./a : -envlist B -n 2 ./b",
            "--genvlist none --genv A=1 -n 1 ./a : --envlist B -n 2 ./b",
        ),
        ("mpiexec -n 2 --virtual-nodes 2 --pmi simple ./a -n 3", "-n 2 --virtual-nodes 2 --pmi simple ./a -n 3"),
        (
            "mpirun -n 4 --tag-output --timestamp-output --merge-stderr-to-stdout ./a",
            "-n 4 --label --timestamp --merge-output ./a",
        ),
        ("mpiexec --ntasks 4 --cpus-per-task=2 -u --mpi=pmi2 ./a", "-n 4 --map-by :pe=2 --pmi simple ./a"),
        ("mpiexec -n4 ./a", "-n 4 ./a"),
        ("mpirun -np=4 ./a", "-n 4 ./a"),
        ("mpirun -np 2 -- ./a -x", "-n 2 ./a -x"),
    ];
    for (typed, means) in same {
        assert_eq!(parsed(typed), Ok(parsed_run(means)), "{typed}");
    }
}

#[test]
fn the_vendor_decides_options_that_have_two_meanings() {
    assert_eq!(parsed("mpiexec.hydra -s all ./a"), Ok(parsed_run("--stdin all ./a")));
    assert_eq!(parsed("orterun -s ./a"), Ok(parsed_run("--stage ./a")));
    assert_eq!(parsed("mpirun -s 1 -genv A 1 ./a"), Ok(parsed_run("--stdin 1 --genv A=1 ./a")));
}

#[test]
fn contradictions_and_mistakes_are_refused_with_the_next_step() {
    let expected = "--bind-to core and --bind-to none contradict each other; leave one of them out";
    assert_eq!(refused("mpirun --bind-to core --bind-to none ./a"), expected);
    let expected = "-genvnone and -genvlist A contradict each other; leave one of them out";
    assert_eq!(refused("mpiexec -genvnone -genvlist A ./a"), expected);
    assert!(refused("mpirun --map-by node --byslot ./a").contains("contradict"));
    assert!(refused("mpiexec.hydra -launcher ssh -launcher rsh ./a").contains("contradict"));
    assert_eq!(refused("mpiexec -n 2 -prepend-rnak ./a"), "unknown option -prepend-rnak; did you mean -prepend-rank?");
    assert_eq!(refused("mpiexec --xyzzy ./a"), "unknown option --xyzzy; see mpiexec --help for the options");
    assert_eq!(refused("mpiexec -n"), "-n needs a value: N");
    assert_eq!(refused("mpiexec -genv A"), "-genv needs two words: NAME VALUE");
    assert_eq!(refused("mpiexec -l=3 ./a"), "-l takes no value, remove \"=3\"");
    assert!(refused("mpiexec -n x ./a").starts_with("-n x: give a whole number"));
    assert!(refused("mpiexec -n 2").starts_with("no program to run"));
    assert!(refused("mpiexec.hydra -s 1,2 ./a").contains("one rank, all ranks or none"));
    assert!(refused("mpirun --output tga ./a").contains("choose tag"));
    assert!(refused("mpirun --mca btl").contains("two words: NAME VALUE"));
    // An option that is repeated with the same value is no contradiction.
    let expected = Ok(parsed_run("-n 2 -l --bind-to core ./a"));
    assert_eq!(parsed("mpirun -n 2 -l -l --bind-to core --bind-to core ./a"), expected);
}

#[test]
fn an_error_in_a_file_names_its_line() {
    let path = std::env::temp_dir().join(format!("wireup-front-lines-{}", std::process::id()));
    let with = |seventh: &str| {
        fs::write(&path, format!("# one\n-n 1 ./a\n\n# four\n-n 1 ./b\n-n 1 ./c\n{seventh}\n-n 1 ./d\n"))
            .expect("a file");
        let shown = path.display().to_string();
        refused(&format!("mpiexec -configfile {shown}")).replace(&shown, "FILE")
    };
    assert_eq!(with("-n 1 -no-such ./e"), "FILE, line 7: unknown option -no-such; see mpiexec --help for the options");
    assert!(with("-n x ./e").starts_with("FILE, line 7: -n x: give a whole number"));
    assert!(with("-n 1").starts_with("FILE, line 7: no program to run"));
    assert!(with("-n 1 'a").starts_with("FILE, line 7: a quote"));
    assert!(with("-configfile FILE").contains("line 7"));
    fs::write(&path, format!("-configfile {} ./a\n", path.display())).expect("a file");
    assert!(refused(&format!("mpiexec -configfile {}", path.display())).contains("name each other"));
    fs::write(&path, "# nothing\n").expect("a file");
    assert!(refused(&format!("mpiexec -configfile {}", path.display())).contains("no line with a program"));
    fs::remove_file(&path).expect("removed");
    assert!(refused("mpiexec -configfile /no/such").starts_with("/no/such: "));
}

#[test]
fn options_beside_a_file_belong_to_each_of_its_programs() {
    let path = std::env::temp_dir().join(format!("wireup-front-beside-{}", std::process::id()));
    fs::write(&path, "-n 1 -env A 2 ./a\n-wdir /var ./b\n").expect("a file");
    let found = parsed(&format!("mpiexec -l -n 3 -env A 1 -wdir /tmp -configfile {}", path.display()));
    fs::remove_file(&path).expect("removed");
    assert_eq!(found, Ok(parsed_run("-l -n 1 --env A=1 --wdir /tmp --env A=2 ./a : -n 3 --env A=1 --wdir /var ./b")));
}

#[test]
fn links_of_other_launchers_are_recognised() {
    assert_eq!(name("/opt/wireup/bin/mpiexec.hydra".as_ref()), Some("mpiexec.hydra"));
    assert_eq!(name("mpirun".as_ref()), Some("mpirun"));
    for other in ["wireup", "./mpiexec2", "", "/"] {
        assert_eq!(name(other.as_ref()), None, "{other}");
    }
}

#[test]
fn help_and_version_are_shown_before_anything_is_checked() {
    for line in ["mpiexec --help", "mpirun -h", "mpirun --help all", "mpiexec -n 4 -help", "orterun -h ./a"] {
        assert!(matches!(front(line).expect(line).shows, Some(Shows::Help(_))), "{line}");
    }
    for line in ["mpiexec --version", "mpirun -V", "mpiexec.hydra -info", "mpiexec -version"] {
        assert_eq!(front(line).expect(line).shows, Some(Shows::Version), "{line}");
    }
    assert!(help::version("mpirun").starts_with("mpirun (wireup) "));
    let on = |topic: &str| help::on(topic, Vendor::OpenMpi);
    assert_eq!(on("--bynode"), Some("-bynode\n  as --map-by node\n".into()));
    assert!(on("HYDRA_IFACE").is_some_and(|text| text.contains("--interface")));
    assert!(on("--output").is_some_and(|text| text.contains("example: mpirun --output tag")) && on("all").is_none());
    let long = help::text("mpiexec");
    assert!(long.lines().all(|line| line.len() <= 120 && line == line.trim_end()), "{long}");
}

fn singleton(line: &str) -> Result<Option<Singleton>, String> {
    Singleton::requested(&words(line))
}

#[test]
fn the_words_of_the_library_are_read() {
    let found = singleton("-pmi_args 4711 default_interface default_key 12").expect("as it writes them");
    assert_eq!(found, Some(Singleton { port: 4711, pid: 12 }));
    assert_eq!(singleton("-n 1 ./a -pmi_args"), Ok(None));
    for wrong in ["-pmi_args", "-pmi_args 70000 a b 12", "-pmi_args 4711 a b", "-pmi_args 4711 a b -1"] {
        assert!(singleton(wrong).expect_err(wrong).contains("PORT INTERFACE KEY PID"), "{wrong}");
    }
}

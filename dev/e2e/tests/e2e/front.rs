//! Tests of wireup in place of `mpiexec`: symbolic links to wireup that have the names of other launchers, the options
//! and variables of these launchers, and build systems that call them.

use std::fs;
use std::os::unix::fs::symlink;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines;
use wireup_e2e::peers::{program, tool};
use wireup_e2e::tables::{fails, prints, reports};
use wireup_e2e::{Outcome, Run, wireup};
use xtask::layout;
use xtask::programs::{Flavour, environment};

/// A folder with one link to the product for each launcher's name.
struct Links(Folder);

impl Links {
    fn new(test: &str) -> Links {
        let folder = Folder::new(&format!("front-{test}"));
        for name in ["mpiexec", "mpirun", "mpiexec.hydra", "orterun", "prterun"] {
            symlink(wireup(), folder.at(name)).expect("a link");
        }
        Links(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.0.join(name).display().to_string()
    }

    /// The command `NAME WORDS`, where the first word is the name of a link.
    fn run(&self, line: &str) -> Run {
        let (name, words) = line.split_once(' ').expect("a launcher and words");
        Run::tool(&self.path(name), words.split_whitespace())
    }

    /// A shell script whose PATH begins with the folder of links.
    fn shell(&self, script: &str) -> Run {
        self.found(Run::shell(script))
    }

    /// A run whose PATH begins with the folder of links, so that it finds them before other launchers.
    fn found(&self, run: Run) -> Run {
        run.env("PATH", format!("{}:{}", self.0.0.display(), std::env::var("PATH").expect("a PATH")))
    }

    /// Runs the launcher with `sh -c SCRIPT` as the program; the first word of `line` names the launcher.
    fn script(&self, line: &str, script: &str) -> Outcome {
        self.run(line).args(["--pmi", "simple", "sh", "-c", script]).succeed()
    }
}

/// Unit tests (`front/tests.rs`) test the meaning of each option.
#[test]
fn each_name_starts_jobs_and_shows_help() {
    let links = Links::new("names");
    let shell = |script: &str| {
        let run = links.shell(script).env("OF_OPEN_MPI", "echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_LOCAL_RANK");
        let run = run.env("OF_HYDRA", "echo $PMI_RANK $PMI_SIZE $MPI_LOCALRANKID $MPI_LOCALNRANKS");
        run.env("LIST", "echo ${FRONT_A-no} ${FRONT_B-no} ${FRONT_C-no}").env("FRONT_A", "a").env("FRONT_B", "b")
    };
    prints(
        shell,
        "mpiexec -n 2 --pmi simple sh -c 'echo $WIREUP_RANK' => 0, 1
         mpirun -np 2 --pmi simple sh -c 'echo $WIREUP_RANK' => 0, 1
         mpiexec.hydra -np 2 --pmi simple sh -c 'echo $WIREUP_RANK' => 0, 1
         orterun -c 2 --pmi simple sh -c 'echo $WIREUP_RANK' => 0, 1
         prterun --np 2 --pmi simple sh -c 'echo $WIREUP_RANK' => 0, 1
         wireup mpiexec -n 2 echo x => x, x
         mpirun --version | grep -o -e '^mpirun (wireup) ' -e 'Open MPI' -e HYDRA -e 'Intel(R) MPI' | sort -u | \
            wc -l => 4
         mpiexec --help | grep -o -e '-configfile' -e '-report-bindings' | sort -u | wc -l => 2
         mpiexec --help iface | grep -o -e --interface | sort -u => --interface
         mpiexec.hydra -l --pmi simple echo x => [0] x
         mpiexec.hydra -ppn 3 --pmi simple echo x => x, x, x
         test $(mpirun -tag-output --pmi simple echo x | wc -l) = $(nproc) && echo all => all
         test $(I_MPI_ROOT=/opt mpiexec.hydra --pmi simple echo x | wc -l) = $(nproc) && echo all => all
         mpirun -np 4 --virtual-nodes 2 --pmi simple sh -c \"$OF_OPEN_MPI\" => 0 0, 1 1, 2 0, 3 1
         mpirun -np 4 --virtual-nodes 2 --pmi simple sh -c \"$OF_HYDRA\" => 0 4 0 2, 1 4 1 2, 2 4 0 2, 3 4 1 2
         mpiexec.hydra -n 4 --virtual-nodes 2 --pmi simple sh -c \"$OF_OPEN_MPI\" => 0 0, 1 1, 2 0, 3 1
         mpiexec -n 2 --pmi simple sh -c 'echo $OMPI_COMM_WORLD_SIZE $MV2_COMM_WORLD_LOCAL_RANK' => 2 0, 2 1
         mpirun --pmi simple -n 1 printenv OMPI_FIRST_RANKS : -n 2 printenv OMPI_APP_CTX_NUM_PROCS => 0 1, 1 2, 1 2
         mpiexec.hydra --pmi simple -n 1 sh -c \"$LIST\" => a b no
         mpiexec.hydra --pmi simple -genvnone -genv FRONT_C c -n 1 /bin/sh -c \"$LIST\" => no no c
         mpiexec.hydra --pmi simple -genvlist FRONT_B -n 1 /bin/sh -c \"$LIST\" => no b no
         mpiexec.hydra --pmi simple -genv FRONT_C c -n 1 -envlist FRONT_A /bin/sh -c \"$LIST\" : -n 1 -envnone \
            -env FRONT_B x /bin/sh -c \"$LIST\" : -n 1 /bin/sh -c \"$LIST\" => a b c, a no c, no x c
         mpirun -q -np 1 --prefix /opt/openmpi true =>
         printf '# two\\n-n 1 echo a\\n-n 2 echo \"b  c\"\\n' >c; mpiexec --pmi simple -configfile c; rm c => \
            a, b  c, b  c",
    );
    reports(
        shell,
        "mpirun -np 1 --prefix /opt/openmpi true => 0 --prefix /opt/openmpi has no effect here:  | (-quiet hides this)
         HYDRA_TOPO_DEBUG=1 mpiexec -n 1 true => 0 HYDRA_TOPO_DEBUG has no effect here",
    );
    fails(
        shell,
        "mpirun --rport-bindings true => 125 did you mean -report-bindings?
         mpirun -np 2 --oversubscribe --nooversubscribe true => 125 contradict each other
         mpiexec -n 2 -rankfile /no/such true => 125 /no/such
         mpiexec -n 2 --map-by seq true => 125 needs a list of hosts
         mpiexec -n 4 -rankmap 0,1 true => 125 names node 1, but the job has nodes 0 to 0
         mpiexec -nolocal true => 125 no host but this machine
         mpiexec -outfile-pattern %x true => 125 after % write
         mpiexec -cpu-set 4000 -n 1 true => 125 none of cpus 4000",
    );
}

#[test]
fn ranks_are_numbered_and_placed_as_asked() {
    let links = Links::new("placement");
    let show = r#"nodes() { mpirun --pmi simple --virtual-nodes 3 "$@" sh -c 'echo $WIREUP_RANK $WIREUP_NODE' | sort |
        cut -d ' ' -f 2 | tr -d '\n'; }; "#;
    prints(
        |script| links.shell(&format!("{show}{script}")),
        "nodes -np 5 --map-by node => 01201
         nodes -np 5 --map-by node --rank-by fill => 00112
         nodes -np 6 --map-by ppr:2:node --rank-by node => 012012
         nodes -np 6 -rankmap 2,0,1 => 201201
         nodes -np 3 -rankmap '(vector,(1,1,2),(0,1,1))' => 110
         nodes -np 6 -npernode 2 => 001122",
    );
}

#[test]
fn a_copy_under_the_name_of_a_launcher_says_that_it_must_be_a_link() {
    // The folder is on the product's file system, where a hard link needs no copy.
    let links = Links(Folder(wireup().with_file_name(format!("front-copy-{}", std::process::id()))));
    fs::create_dir_all(&links.0.0).expect("a folder");
    fs::hard_link(wireup(), links.0.at("mpiexec")).expect("another name");
    links.run("mpiexec -n 1 true").finish().expect_code(125).expect_err_line(&["make it a link: ln -s wireup mpiexec"]);
}

#[test]
fn output_goes_to_files_labels_and_streams_as_asked() {
    let links = Links::new("output");
    let both = "echo out$WIREUP_RANK; echo err$WIREUP_RANK >&2";
    let folder = links.0.at("files");
    let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let outcome = links.script(&format!("mpirun -np 2 --output-filename {}:nocopy", folder.display()), both);
    assert_eq!((outcome.out(), outcome.err()), (String::new(), String::new()));
    assert_eq!((read("1/rank.1/stdout"), read("1/rank.0/stderr")), ("out1\n".to_owned(), "err0\n".to_owned()));
    let outcome = links.script(&format!("mpirun -np 2 --output-filename {}", folder.display()), both);
    assert_eq!(outcome.sorted_lines(), ["out0", "out1"]);
    assert_eq!(read("1/rank.1/stdout"), "out1\n", "files of an earlier run are replaced");
    let outcome = links.script(&format!("mpiexec.hydra -n 2 -outfile-pattern {}/o.%r.%p", folder.display()), both);
    assert_eq!(outcome.out(), "");
    assert_eq!((read("o.0.0"), read("o.1.0")), ("out0\n".to_owned(), "out1\n".to_owned()));
    assert!(outcome.err().contains("err0\n") && outcome.err().contains("err1\n"), "{outcome}");
    let outcome = links.script("mpirun -np 2 --merge-stderr-to-stdout", both);
    assert_eq!(outcome.sorted_lines(), ["err0", "err1", "out0", "out1"]);
    let outcome = links.script("mpirun -np 2 -tag-output -timestamp-output", "echo x; printf y");
    for line in outcome.sorted_lines() {
        assert!(line.starts_with("20") && (line.ends_with("] x") || line.ends_with("] y")), "{line}");
    }
    let outcome = links.run("mpiexec.hydra -n 2 -prepend-pattern").args(["%r of %s: ", "echo", "hi"]).succeed();
    assert_eq!(outcome.sorted_lines(), ["0 of 2: hi", "1 of 2: hi"]);
}

#[test]
fn bindings_are_applied_and_reported() {
    let links = Links::new("bindings");
    let cpus: usize = Run::shell("nproc").succeed().out().trim().parse().expect("a number");
    let outcome =
        links.script("mpirun -np 2 --bind-to hwthread --report-bindings", "grep Cpus_allowed_list /proc/self/status");
    for rank in 0..2 {
        outcome.expect_err_line(&[&format!("rank {rank}  ["), "B", "cpus "]);
    }
    let lists = outcome.sorted_lines();
    assert!(cpus < 2 || lists[0] != lists[1], "{outcome}");
    let first = Run::shell("taskset -cp $$ | sed 's/.*: //; s/[-,].*//'").succeed().out().trim().to_owned();
    let outcome = links.script(&format!("mpirun -np 1 --cpu-set {first}"), "grep Cpus_allowed_list /proc/self/status");
    assert_eq!(outcome.out().split_whitespace().last(), Some(&*first), "{outcome}");
    links.run("mpirun -np 1 --bind-to none --report-bindings true").succeed().expect_err_line(&["rank 0  not bound"]);
}

#[test]
fn rankfiles_place_ranks_on_hosts_and_cores() {
    let links = Links::new("rankfile");
    let file = links.0.write("ranks", "rank 1=localhost slot=0\nrank 0=localhost slot=*\n");
    let line = format!("mpirun --rankfile {} --report-bindings", file.display());
    let outcome = links.script(&line, "echo $WIREUP_RANK");
    assert_eq!(outcome.sorted_lines(), ["0", "1"]);
    outcome.expect_err_line(&["rank 1  [B"]);
    fs::write(&file, "rank 0=localhost slot=0\nrank 2=localhost slot=0\n").expect("a file");
    links.run(&format!("{line} true")).finish().expect_code(125).expect_err_line(&["rank 1 is missing"]);
    fs::write(&file, "rank 0=localhost slot=99999\n").expect("a file");
    links.run(&format!("{line} true")).finish().expect_code(125).expect_err_line(&["slot 99999"]);
}

#[test]
fn rankfiles_and_sequences_name_other_hosts() {
    let Some(machines) = machines::sixteen() else { return };
    let shell = |script: &str| machines.shell(script).env("FOLDER", "/").env("NAME", "echo $WIREUP_RANK $(hostname)");
    prints(
        shell,
        "for row in '0=+n1' '1=+n0' '2=+n1'; do echo rank $row slot=0; done >$TMPDIR/r; \
            job --hosts n2,n3 --rankfile $TMPDIR/r sh -c \"$NAME\"; rm $TMPDIR/r => 0 n3, 1 n2, 2 n3
         job --hosts n1,n0,n1 --map-by seq sh -c \"$NAME\" => 0 n1, 1 n0, 2 n1
         job -n 2 --host n1 sh -c \"$NAME\" : -n 2 --host n0,n2 sh -c \"$NAME\" => 0 n1, 1 n1, 2 n0, 3 n2
         job --hosts hub,n1 --nolocal -n 2 hostname => n1, n1",
    );
    let outcome = machines.job("--hosts n0,n1 --report-bindings --bind-to core").args(["true"]).succeed();
    outcome.expect_err_line(&["n0: rank 0  ["]);
    outcome.expect_err_line(&["n1: rank 1  ["]);
}

/// Slurm sets variables with which launchers such as Hydra start their agents; wireup must not be confused by them.
#[test]
fn in_an_allocation_hosts_and_ranks_come_from_it() {
    let Some(machines) = machines::with_slurm() else { return };
    for (options, expected) in [
        ("", ["n0 0", "n0 1", "n1 2", "n1 3"].as_slice()),
        ("--ntasks 2 --ntasks-per-node=1 -u", ["n0 0", "n1 1"].as_slice()),
    ] {
        let run = machines
            .salloc("-N 2 -n 4")
            .env("HYDRA_BOOTSTRAP", "slurm")
            .env("PRTE_MCA_plm_slurm_args", "--external-launcher");
        let run = run.arg(wireup()).args(["mpiexec", "--pmi", "simple"]).args(options.split_whitespace());
        let outcome = run.args(["/bin/sh", "-c", "echo $(hostname) $WIREUP_RANK"]).succeed().expect_quiet();
        assert_eq!(outcome.sorted_lines(), expected, "{options}");
    }
}

#[test]
fn programs_of_each_library_run_under_each_name() {
    let links = Links::new("programs");
    for (flavour, launcher) in [
        (Flavour::Mpich4, "mpiexec -n 3"),
        (Flavour::Mpich5, "mpiexec.hydra -n 3"),
        (Flavour::Mpich5, "mpirun -np 3"),
        (Flavour::OpenMpi4, "mpirun -np 3 --oversubscribe --mca btl self,vader"),
        (Flavour::OpenMpi5, "mpiexec -n 3 --mca btl self,sm"),
        (Flavour::Intel, "mpiexec.hydra -n 3 -genv I_MPI_FABRICS shm"),
    ] {
        let Some(hello) = program(flavour, "hello") else { continue };
        let outcome = links.run(launcher).arg(&hello).envs(environment(flavour)).succeed();
        assert_eq!(outcome.out().lines().filter(|line| line.contains("of 3 on")).count(), 3, "{launcher}: {outcome}");
    }
}

const CMAKE: &str = "
cmake_minimum_required(VERSION 3.18)
project(front C)
find_package(MPI REQUIRED COMPONENTS C)
enable_testing()
add_executable(hello hello.c)
target_link_libraries(hello MPI::MPI_C)
add_test(NAME hello COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 ${MPIEXEC_PREFLAGS} $<TARGET_FILE:hello> \
${MPIEXEC_POSTFLAGS})
";

/// CMake finds `mpiexec` by its name and runs it with the options that CMake's `FindMPI` knows.
#[test]
fn a_project_with_findmpi_and_ctest_uses_it() {
    let (Some(cmake), Some(mpicc)) = (tool("/usr/bin/cmake"), tool("/usr/bin/mpicc.mpich")) else { return };
    let links = Links::new("cmake");
    links.0.write("source/CMakeLists.txt", CMAKE);
    fs::copy(layout::root().join("dev/programs/mpi/hello.c"), links.0.at("source/hello.c")).expect("the program");
    let script = format!(
        "cd {} && {cmake} -S source -B build -DMPI_C_COMPILER={} >&2 && cd build && {cmake} --build . >&2 && ctest \
         --output-on-failure",
        links.0.0.display(),
        mpicc.display(),
        cmake = cmake.display(),
    );
    let outcome = links.shell(&script).succeed();
    assert!(outcome.out().contains("100% tests passed"), "{outcome}");
    let cache = fs::read_to_string(links.0.at("build/CMakeCache.txt")).expect("the cache");
    assert!(cache.contains(&format!("MPIEXEC_EXECUTABLE:FILEPATH={}", links.path("mpiexec"))), "{cache}");
}

const SNAKEFILE: &str = r#"
rule all:
    input: "greetings"

rule hello:
    output: "greetings"
    resources: mpi="mpiexec"
    threads: 2
    shell: "{resources.mpi} -n {threads} $HELLO > {output}"
"#;

/// A step of a Snakemake workflow starts an MPI program as Snakemake's documentation shows it.
#[test]
fn a_step_of_a_workflow_uses_it() {
    let snakemake = layout::peer("snakemake").join("bin/snakemake").display().to_string();
    let (Some(hello), Some(snakemake)) = (program(Flavour::Mpich5, "hello"), tool(&snakemake)) else { return };
    let links = Links::new("workflow");
    fs::write(links.0.at("Snakefile"), SNAKEFILE).expect("a file");
    let run = Run::tool(&snakemake.display().to_string(), ["--cores", "2"]).cwd(&links.0.0);
    let run = links.found(run).env("HELLO", hello).env("XDG_CACHE_HOME", links.path("cache"));
    run.succeed();
    let greetings = fs::read_to_string(links.0.at("greetings")).expect("the output");
    assert_eq!(greetings.lines().filter(|line| line.contains("of 2 on")).count(), 2, "{greetings}");
}

/// MPICH's own runner builds and runs the programs of a folder of its suite, and compares what they print.
#[test]
fn mpichs_own_runner_is_content_with_it() {
    let suite = layout::target().join("suites/mpich");
    let (Some(perl), Some(_)) = (tool("/usr/bin/perl"), tool(&suite.join("complete").display().to_string())) else {
        return;
    };
    let links = Links::new("runner");
    let folder = links.0.0.display();
    let script = format!(
        "cp -r {suite}/build {folder}/build && ln -s {suite}/mpich-4.0.2 {folder}/mpich-4.0.2 && cd \
         {folder}/build/group && \
         {perl} ../runtests -srcdir={folder}/mpich-4.0.2/test/mpi/group -tests=testlist -mpiexec={folder}/mpiexec",
        suite = suite.display(),
        perl = perl.display(),
    );
    let outcome = Run::shell(&script).succeed();
    assert!(outcome.out().contains("tests passed!"), "{outcome}");
}

/// A process that was started without a launcher (a singleton) becomes the first rank of a job: its MPI library starts
/// `mpiexec`.
#[test]
fn a_singleton_starts_children() {
    let links = Links::new("singleton");
    for flavour in [Flavour::Mpich5, Flavour::Intel] {
        let Some(program) = program(flavour, "children") else { continue };
        let singleton = |words: &str| {
            let run = Run::tool(&program.display().to_string(), words.split(' ')).envs(environment(flavour));
            links.found(run).env("I_MPI_FABRICS", "shm:ofi").finish()
        };
        let outcome = singleton("spawn 3").expect_code(0);
        let counts = outcome.out().lines().filter(|line| line.contains(" counts 4")).count();
        assert_eq!(counts, 4, "{outcome}");
        let outcome = singleton("chain 2").expect_code(0);
        assert_eq!(outcome.out().lines().filter(|line| line.ends_with(" to come")).count(), 3, "{outcome}");
        let outcome = singleton("missing /no/such").expect_code(0);
        outcome.expect_err_line(&["cannot start", "/no/such: not found"]);
        // The singleton waits for the processes that it has spawned; they fail, and the singleton is ended with them.
        let outcome = singleton("fail");
        outcome.expect_err_line(&["job 1", "exited with code 9"]);
        assert_eq!(outcome.code(), 128 + 15, "{outcome}");
    }
    let outcome =
        Run::tool(&links.path("mpiexec"), ["-pmi_args", "1", "default_interface", "default_key", "1"]).finish();
    outcome.expect_err_line(&["no process waits at port 1"]);
}

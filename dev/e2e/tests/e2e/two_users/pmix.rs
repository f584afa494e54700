//! Another user of the machine cannot harm a job through the TCP port of its PMIx server, to which every process of the
//! machine can connect.

use rustix::process::Signal;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use wireup_e2e::peers::program;
use wireup_e2e::strangers::{Public, STRANGER, can_be_stranger, stranger};
use wireup_e2e::{Run, Running};
use xtask::programs::Flavour;

/// Test programs that use the two libraries that the server can open.
const SERVERS: [Flavour; 2] = [Flavour::Pmix, Flavour::Pmix5];

/// Starts a job of two ranks that print their variables, wait for a line and then run `program`.
fn held(program: &Path) -> Running {
    let script = format!("env | grep '^PMIX_'; echo ready; read go; exec {}", program.display());
    let run = Run::job("-n 2 --pmi pmix --stdin all --pmix-library").arg(library_of(program));
    run.sh(&script).stdin_open().start_until("ready\n", 2)
}

/// Path of the libpmix that a program is linked to.
fn library_of(program: &Path) -> String {
    let said = Command::new("ldd").arg(program).output().expect("ldd, of the C library").stdout;
    let said = String::from_utf8(said).expect("text");
    let line = said.lines().find(|line| line.contains("libpmix.so")).expect("a program of libpmix");
    line.split_whitespace().nth(2).expect("NAME => PATH").to_owned()
}

/// The environment variables of the ranks; both ranks print the same names.
fn variables(job: &Running) -> Vec<(String, String)> {
    let text = job.out_text();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// The port on which the job's server listens.
fn port(job: &Running) -> String {
    let (_, uri) = variables(job).into_iter().find(|(name, _)| name.starts_with("PMIX_SERVER_URI")).expect("a URI");
    let address = uri.rsplit_once("tcp4://").expect("over IPv4").1;
    address.rsplit_once(':').expect("a port").1.to_owned()
}

/// Sends the line for which the ranks wait, so that they run their program.
fn go_on(job: &mut Running) {
    job.write(b"go\n");
}

/// Starts a program of the stranger that connects, sends nothing and keeps the connection.
fn idle(port: &str) -> Child {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected && read");
    let mut command = stranger(Path::new("/bin/bash"));
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("start a shell")
}

#[test]
fn a_stranger_who_forges_the_owners_user_number_cannot_use_the_job() {
    let Some(takeover) = program(Flavour::Pmix, "takeover") else { return };
    if !can_be_stranger() {
        return;
    }
    let public = Public::new("takeover");
    let takeover = public.program(&takeover);
    for flavour in SERVERS {
        let Some(brief) = program(flavour, "brief") else { return };
        let mut job = held(&brief);
        let proof = std::env::temp_dir().join(format!("taken-over-{}-{flavour:?}", std::process::id()));
        let owner = rustix::process::geteuid().as_raw().to_string();
        let mut attack = stranger(&takeover);
        // The attacker has the whole environment of a rank.
        attack.envs(variables(&job)).args([&owner, "/usr/bin/touch"]).arg(&proof);
        let said = attack.output().expect("run the attack");
        let said = String::from_utf8_lossy(&said.stdout);
        let was_taken = std::fs::remove_file(&proof).is_ok();
        assert!(!was_taken && !said.contains("connected"), "{flavour:?}: a stranger used the job: {said}");
        go_on(&mut job);
        let outcome = job.succeed();
        outcome.expect_err_line(&["refused a connection", &format!("user {STRANGER}")]);
    }
}

#[test]
fn idle_connections_of_strangers_do_not_stop_a_fence() {
    if !can_be_stranger() {
        return;
    }
    for flavour in SERVERS {
        let Some(fences) = program(flavour, "fences") else { return };
        let mut job = held(&fences);
        let port = port(&job);
        let mut strangers: Vec<Child> = (0..8).map(|_| idle(&port)).collect();
        for stranger in &mut strangers {
            // The kernel completes a connection before the server accepts it.
            let mut said = [0; 10];
            let stdout = stranger.stdout.as_mut().expect("a pipe");
            std::io::Read::read_exact(stdout, &mut said).expect("the stranger has connected");
        }
        go_on(&mut job);
        job.succeed();
        for mut stranger in strangers {
            stranger.kill().expect("end the stranger");
            stranger.wait().expect("reap the stranger");
        }
    }
}

/// Names that other users can list contain neither the namespace of the job nor that of the server.
#[test]
fn no_public_name_contains_the_namespace() {
    let Some(brief) = program(Flavour::Pmix, "brief") else { return };
    let job = held(&brief);
    let variables = variables(&job);
    let value = |wanted: &str| &variables.iter().find(|(name, _)| name == wanted).expect("a variable of PMIx").1;
    let nspace = value("PMIX_NAMESPACE");
    assert!(nspace.len() >= 32, "{nspace} has 128 random bits");
    let server = variables.iter().find(|(name, _)| name.starts_with("PMIX_SERVER_URI")).expect("a URI").1.clone();
    let server = server.split(".0;").next().expect("a name").to_owned();
    let own = Path::new(value("PMIX_SERVER_TMPDIR")).parent().expect("a folder in another");
    let root = format!("/proc/{}/root", job.pid());
    for folder in [own, &Path::new(&root).join("dev/shm"), Path::new("/tmp")] {
        for entry in std::fs::read_dir(folder).expect("list a folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let tells = |secret: &str| name.contains(secret) || (name.len() > 20 && secret.contains(&name));
            assert!(!tells(nspace) && !tells(&server), "{}/{name} tells {nspace} or {server}", folder.display());
        }
    }
    job.signal(Signal::TERM);
    job.finish();
}

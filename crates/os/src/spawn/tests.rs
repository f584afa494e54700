//! Tests of the spawner with real programs. The signal mask and dispositions are those of the test harness.

use super::*;
use crate::files::{null, pipe};
use crate::process::{Ended, wait_for};
use rustix::process::{Resource, getrlimit};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

fn strings(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|string| string.as_bytes().to_vec()).collect()
}

fn program(path: &str, arguments: &[&str], directory: Option<&str>) -> Rc<Program> {
    let directory = directory.map(str::as_bytes);
    Rc::new(Program::new(path.as_bytes(), &strings(arguments), directory, &strings(&["LC_ALL=C"])).unwrap())
}

fn high(fd: OwnedFd) -> OwnedFd {
    crate::files::duplicate_from(fd, 100).unwrap()
}

fn finish(spawner: &mut Spawner) -> Executed {
    loop {
        if let Some(executed) = spawner.poll() {
            return executed;
        }
        spawner.wait_oldest(Duration::from_millis(10));
    }
}

/// Runs one program to its end; returns its output, the result of its start, and how it ended.
fn run_program(program: &Rc<Program>, change: impl FnOnce(&mut Command<'_>)) -> (String, Executed, Ended) {
    let null = high(null().unwrap());
    let (reader, writer) = pipe().unwrap();
    let (reader, writer) = (high(reader), high(writer));
    let mut spawner = Spawner::new(1).unwrap();
    let mut command = Command {
        program,
        environment: &strings(&["OWN=1"]),
        stdio: [null.as_fd(), writer.as_fd(), null.as_fd()],
        extra: [None, None],
        session: Session::Own,
        cpus: None,
        umask: 0o22,
        limits: &Limits::default(),
        more_follow: false,
    };
    change(&mut command);
    let pid = spawner.start(&command, 5).unwrap();
    drop(writer);
    let mut output = String::new();
    std::fs::File::from(reader).read_to_string(&mut output).unwrap();
    let executed = finish(&mut spawner);
    assert_eq!((executed.token, executed.pid), (5, pid));
    (output, executed, wait_for(pid).unwrap())
}

fn shell(script: &str, change: impl FnOnce(&mut Command<'_>)) -> String {
    let (output, executed, ended) = run_program(&program("/bin/sh", &["sh", "-c", script], None), change);
    assert_eq!((executed.result, ended), (Ok(()), Ended::Exited(0)));
    output.trim().to_owned()
}

#[test]
fn environment_umask_and_group_are_as_requested() {
    assert_eq!(shell("echo $LC_ALL $OWN", |_| {}), "C 1");
    assert_eq!(shell("umask", |command| command.umask = 0o27), "0027");
    let ids = shell("echo $$; cut -d' ' -f5 /proc/$$/stat", |_| {});
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_child_shares_the_session_or_leads_its_own() {
    let script = "cut -d' ' -f5,6 /proc/$$/stat; echo $$";
    let ids = |session| {
        let told = shell(script, |command| command.session = session);
        told.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
    };
    // SAFETY: touches no memory.
    let own_session = unsafe { libc::getsid(0) } as u32;
    let [group, session, pid] = ids(Session::Shared)[..] else { panic!() };
    assert_eq!((group, session), (pid, own_session));
    let [group, session, pid] = ids(Session::Own)[..] else { panic!() };
    assert_eq!((group, session), (pid, pid));
}

/// The limits of a child must not apply to this process.
#[test]
fn limits_apply_only_to_the_child() {
    let before = [Resource::Nofile, Resource::Fsize, Resource::Core].map(getrlimit);
    let limits: &Limits = Box::leak(Box::new(Limits::new([
        (Resource::Nofile, 99),
        (Resource::Fsize, 0),
        (Resource::Core, u64::MAX),
        (Resource::Stack, getrlimit(Resource::Stack).current.unwrap_or(u64::MAX)),
    ])));
    assert_eq!(shell("ulimit -n; ulimit -f", |command| command.limits = limits), "99\n0");
    assert!(limits.list().iter().all(|limit| limit.resource != Resource::Stack as u32), "already at that limit");
    assert_eq!([Resource::Nofile, Resource::Fsize, Resource::Core].map(getrlimit), before);
}

#[test]
fn affinity_and_directory_are_as_requested() {
    let cpu = crate::bind::allowed().unwrap().iter().last().unwrap();
    let one: &CpuSet = Box::leak(Box::new([cpu].into_iter().collect()));
    let list = shell("grep Cpus_allowed_list /proc/self/status | cut -f2", |command| command.cpus = Some(one));
    assert_eq!(list, cpu.to_string());
    assert_eq!(run_program(&program("/bin/pwd", &["pwd", "-P"], Some("/proc")), |_| {}).0, "/proc\n");
}

#[test]
fn many_concurrent_starts_are_each_reported_once() {
    let null = high(null().unwrap());
    let mut spawner = Spawner::new(8).unwrap();
    let yes = program("/bin/true", &["true"], None);
    let mut told = [0; 300];
    let mut pids = Vec::new();
    for token in 0..300 {
        while !spawner.has_room() {
            spawner.pause();
            spawner.wait_oldest(Duration::from_millis(10));
            while let Some(executed) = spawner.poll() {
                assert_eq!(executed.result, Ok(()));
                told[executed.token as usize] += 1;
            }
        }
        let command = Command {
            program: &yes,
            environment: &[],
            stdio: [null.as_fd(); 3],
            extra: [None, None],
            session: Session::Own,
            cpus: None,
            umask: 0,
            limits: &Limits::default(),
            more_follow: token < 299,
        };
        pids.push(spawner.start(&command, token).unwrap());
    }
    while spawner.under_way() > 0 {
        told[finish(&mut spawner).token as usize] += 1;
    }
    assert_eq!(told, [1; 300]);
    assert!(pids.into_iter().all(|pid| wait_for(pid).unwrap() == Ended::Exited(0)));
}

#[test]
fn spawn_failures_name_their_step() {
    let folder = tempfile::tempdir().unwrap();
    // Another process writes the files: children of other tests may inherit this process's descriptors, and a file that
    // is open for writing cannot be executed (ETXTBSY).
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let written = std::process::Command::new("/bin/sh").args(["-c", write, "sh", text, &path]).status().unwrap();
        assert!(written.success());
        path
    };
    let failure = |path: &str, directory: Option<&str>| {
        let (_, executed, ended) = run_program(&program(path, &["x"], directory), |_| {});
        assert_eq!(ended, Ended::Exited(127));
        executed.result.unwrap_err()
    };
    assert_eq!(failure("/nowhere/x", None), Failure { step: Step::Execute, errno: libc::ENOENT });
    let script = file("interpreted", "#!/nowhere/interpreter\n");
    assert_eq!(failure(&script, None), Failure { step: Step::Interpreter, errno: libc::ENOENT });
    assert_eq!(failure("/bin/true", Some("/nowhere")), Failure { step: Step::Directory, errno: libc::ENOENT });
    let plain = file("plain", "echo plain $0 $1\n");
    let (output, executed, _) = run_program(&program(&plain, &["ignored", "argument"], None), |_| {});
    assert_eq!((executed.result, output), (Ok(()), format!("plain {plain} argument\n")));
}

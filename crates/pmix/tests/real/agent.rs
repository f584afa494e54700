//! The test's side: acts as an agent with one server process, and starts the clients.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::job::Block;
use wireup_wire::pmix::{Answer, App, Ask, Begin, FromServer, Open, ToServer, Unpacker, pieces};

/// Environment variable of a process that should run as the server process.
pub const SERVER: &str = "WIREUP_TEST_PMIX_SERVER";
/// Time limit for a message: a loaded machine needs seconds to start a process.
const PATIENCE: Duration = Duration::from_secs(20);

/// A job of four ranks on two nodes, as the first node's agent describes it: ranks 0 and 1 are here, and 0 is bound.
pub fn begin(nspace: &str) -> Begin {
    let directory = std::env::temp_dir().join(format!("wireup-test-{}-{nspace}-0", std::process::id()));
    Begin {
        nspace: nspace.into(),
        nodes: vec!["n0".into(), "n1".into()],
        node: NodeId(0),
        blocks: vec![Block { first_node: 0, nodes: 2, ppn: 2 }],
        apps: vec![App { ranks: 4, argv: vec!["app".into(), "-x".into()], cwd: "/".into() }],
        cpus: vec![Some("0".into()), None],
        dir: directory.to_string_lossy().into_owned(),
        library: None,
        shared: false,
        oversubscribed: false,
        has_endpoints: false,
        agent: AgentId(0),
        universe: None,
        parent: None,
    }
}

/// The job as the agent of the second node describes it.
pub fn second(nspace: &str) -> Begin {
    let first = begin(nspace);
    Begin { node: NodeId(1), dir: first.dir.replace("-0", "-1"), ..first }
}

pub struct Agent {
    socket: OwnedFd,
    process: Child,
    unpacker: Unpacker,
    directory: PathBuf,
}

impl Agent {
    pub fn start(begin: Begin) -> Agent {
        let agent = Agent::with_directory(&begin);
        agent.send(&ToServer::Begin(begin));
        agent
    }

    /// Starts a process before its job is known, and waits until it has opened the library.
    pub fn ahead(begin: &Begin) -> Agent {
        let mut agent = Agent::with_directory(begin);
        let host = begin.nodes[begin.node.index()].clone();
        agent.send(&ToServer::Open(Open { dir: begin.dir.clone(), library: begin.library.clone(), host }));
        assert_eq!(agent.next(), FromServer::Opened);
        agent
    }

    fn with_directory(begin: &Begin) -> Agent {
        let mut agent = Agent::raw();
        agent.directory = begin.dir.clone().into();
        let _ = std::fs::remove_dir_all(&agent.directory);
        std::fs::create_dir(&agent.directory).unwrap();
        agent
    }

    /// Starts a process without sending it anything.
    pub fn raw() -> Agent {
        let (ours, theirs) = wireup_os::socket::pair().unwrap();
        wireup_os::files::set_nonblocking(&theirs, false).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server_process", "--nocapture", "--test-threads=1"])
            .env(SERVER, "1")
            // A variable that an enclosing job would leave.
            .env("PMIX_NAMESPACE", "outer")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Agent { socket: ours, process, unpacker: Unpacker::default(), directory: PathBuf::new() }
    }

    pub fn send(&self, message: &ToServer) {
        pieces(message).iter().for_each(|piece| self.send_bytes(piece));
    }

    pub fn send_bytes(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            wireup_os::socket::wait(&self.socket, false, true, Some(PATIENCE)).unwrap();
            match rustix::io::write(&self.socket, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => panic!("the server process has ended: {error}"),
            }
        }
    }

    pub fn answer(&self, id: u64, answer: Answer) {
        self.send(&ToServer::Answer { id, answer });
    }

    pub fn next(&mut self) -> FromServer {
        self.next_within(PATIENCE).unwrap_or_else(|| panic!("no message: {}", self.words()))
    }

    fn next_within(&mut self, patience: Duration) -> Option<FromServer> {
        let end = Instant::now() + patience;
        loop {
            if let Some(message) = self.unpacker.next().unwrap() {
                return Some(message);
            }
            let left = end.saturating_duration_since(Instant::now());
            if !wireup_os::socket::wait(&self.socket, true, false, Some(left)).unwrap() {
                return None;
            }
            let mut buffer = vec![0; 1 << 16];
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.unpacker.push(&buffer[..count]),
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn next_but_comings(&mut self) -> FromServer {
        loop {
            match self.next() {
                FromServer::Connected { .. } | FromServer::Finalized { .. } | FromServer::Watch => {}
                other => return other,
            }
        }
    }

    /// Expects `Ready`; returns the variables of each rank.
    pub fn ready(&mut self) -> Vec<Vec<Vec<u8>>> {
        match self.next() {
            FromServer::Ready { env, .. } => env,
            other => panic!("{other:?}"),
        }
    }

    /// Expects that all ranks of this node enter a fence of the whole job next.
    pub fn fence(&mut self, collects: bool) -> (u64, bytes::Bytes) {
        match self.next_but_comings() {
            FromServer::Ask { id, ask: Ask::Fence { collect, data, .. } } => {
                assert_eq!(collect, collects);
                assert_eq!(data.is_empty(), !collects);
                (id, data)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the server's directory accessible to other users.
    pub fn open_directory(&self) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&self.directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    }

    /// Tells the process to end, and checks that it leaves nothing behind.
    pub fn end(mut self) {
        self.send(&ToServer::End);
        while let Some(message) = self.next_within(PATIENCE) {
            assert!(matches!(message, FromServer::Finalized { .. }), "{message:?}");
        }
        let directory = self.directory.clone();
        let (code, words) = wait_for(self.process);
        assert_eq!(code, Some(0), "{words}");
        assert!(!directory.exists(), "{}", directory.display());
    }

    /// Closes the socket, as an agent does that dies; returns the exit code and the error output of the process.
    pub fn abandon(self) -> (Option<i32>, String) {
        let directory = self.directory.clone();
        drop(self.socket);
        let outcome = wait_for(self.process);
        assert!(!directory.exists(), "{}", directory.display());
        outcome
    }

    /// Waits for the process to exit. Its directory is removed if it is empty, as the keeper would do.
    pub fn wait(self) -> (Option<i32>, String) {
        let outcome = wait_for(self.process);
        let _ = std::fs::remove_dir(&self.directory);
        outcome
    }

    fn words(&mut self) -> String {
        let _ = self.process.kill();
        let mut words = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        words
    }
}

fn wait_for(mut process: Child) -> (Option<i32>, String) {
    let mut words = String::new();
    process.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    (process.wait().unwrap().code(), words)
}

/// The directory of the PMIx headers, and the directory of the library that they belong to.
pub fn headers() -> Option<(PathBuf, PathBuf)> {
    std::fs::read_dir("/usr/lib").ok()?.flatten().find_map(|entry| {
        let base = entry.path().join("pmix2");
        base.join("include/pmix.h").exists().then(|| (base.join("include"), base.join("lib")))
    })
}

/// A client process, killed at the end of its test.
pub struct Client {
    process: Child,
}

impl Drop for Client {
    fn drop(&mut self) {
        // The client has already ended, or the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a client with these environment variables and actions.
pub fn client(env: &[Vec<u8>], actions: &[&str]) -> Client {
    start_client(program(), env, actions, None)
}

/// Runs a client as another user and returns its output.
pub fn said_by(user: u32, env: &[Vec<u8>], actions: &[&str]) -> String {
    // The temporary directory, because every user can read programs there.
    let copy = std::env::temp_dir().join(format!("wireup-test-client-{}", std::process::id()));
    // Copied by another process: a child that another test forks meanwhile would keep the file open for writing, and
    // the copy could not be started.
    assert!(Command::new("cp").arg("--").arg(program()).arg(&copy).status().unwrap().success());
    let said = said(start_client(&copy, env, actions, Some(user)));
    std::fs::remove_file(copy).unwrap();
    said
}

fn start_client(program: &Path, env: &[Vec<u8>], actions: &[&str], user: Option<u32>) -> Client {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new(program);
    for variable in env {
        let equals = variable.iter().position(|&byte| byte == b'=').unwrap();
        let (name, value) = (&variable[..equals], &variable[equals + 1..]);
        command.env(std::ffi::OsStr::from_bytes(name), std::ffi::OsStr::from_bytes(value));
    }
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Client { process: command.args(actions).stdout(Stdio::piped()).spawn().unwrap() }
}

/// Waits for a client to end and returns its output; its exit code is the number of its failures.
pub fn said(mut client: Client) -> String {
    let mut said = String::new();
    client.process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = client.process.wait().unwrap();
    assert!(status.success() || said.starts_with("init "), "{status}: {said}");
    said
}

/// The path of the client program, which is compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let (include, library) = headers().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/client.c");
        let library = library.display();
        let flags = [format!("-I{}", include.display()), format!("-L{library}"), format!("-Wl,-rpath,{library}")];
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wall"]).arg(source).args(flags).arg("-lpmix");
        built("client", command, "").expect("the headers are installed, so a C compiler should be")
    })
}

/// Builds a library that reports this version and has no other function.
pub fn library_saying(version: &str) -> Option<PathBuf> {
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-x", "c", "-"]).stdin(Stdio::piped());
    built("libold.so", command, &format!("const char *PMIx_Get_version(void) {{ return \"{version}\"; }}\n"))
}

/// Compiles a program, and moves it into place atomically, because tests of two processes may build the same program.
/// `source`: standard input of the compiler, if the command pipes it.
fn built(name: &str, mut command: Command, source: &str) -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let made = place.with_extension(std::process::id().to_string());
    let mut compiler = command.arg("-o").arg(&made).spawn().ok()?;
    if let Some(mut input) = compiler.stdin.take() {
        input.write_all(source.as_bytes()).unwrap();
    }
    assert!(compiler.wait().unwrap().success());
    std::fs::rename(made, &place).unwrap();
    Some(place)
}

//! Starts and ends the server: opens the library, registers the job and each rank of this node, and finalizes the
//! library.

use super::clients::{self, done};
use super::guard;
use super::job_data::{Locality, job_infos};
use super::state::{Job, SERVER, Server, ranks_directory};
use super::upcalls;
use crate::infos::{Infos, c_text};
use crate::library::{self, Library};
use crate::outbox::Outbox;
use crate::sys::constants::key;
use bytes::Bytes;
use rustix::fs::Mode;
use std::ffi::CString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;
use wireup_os::process::{Confinement, confine};
use wireup_wire::ids::Rank;
use wireup_wire::peer::{PmixFault, PmixProblem};
use wireup_wire::pmix::{Begin, FromServer, Open};

/// Opens the library as a server.
pub fn open(open: &Open) -> Result<Library, PmixProblem> {
    set_environment(&open.dir);
    confine_to(&open.dir)?;
    guard::arm()?;
    let library = library::open(open.library.as_deref()).map_err(|problem| PmixFault::Library.with(problem))?;
    let ranks = ranks_directory(&open.dir);
    rustix::fs::mkdir(&ranks, Mode::RWXU).map_err(|error| format!("{ranks}: {error}"))?;
    begin_library(&library, open).and_then(|()| guard::prove()).map_err(|problem| of_version(&library, &problem))?;
    guard::watch_handshakes().map_err(|error| format!("cannot make a thread: {error}; raise ulimit -u"))?;
    Ok(library)
}

/// Confines this process, because the library parses what ranks send: where the kernel has Landlock, the process can
/// write no file outside of the server's directory, and no program that it might run gets more rights. It can read
/// libraries and the machine's description anywhere, and remove files: ranks register files to be removed when they
/// have ended (`PMIX_REGISTER_CLEANUP`), such as Open MPI's shared memory in `/dev/shm`.
fn confine_to(directory: &str) -> Result<(), String> {
    let [directory, null] = [directory, "/dev/null"].map(Path::new);
    let writable = [directory, null];
    // Some containers have no /dev/null.
    let read_write = if null.exists() { &writable[..] } else { &writable[..1] };
    let everywhere = [Path::new("/")];
    let confinement = Confinement { read_only: &everywhere, read_write, remove: &everywhere, network: true };
    match confine(&confinement) {
        Err(error) if error.kind() != ErrorKind::Unsupported => {
            Err(format!("the server process cannot be confined to {}: {error}", directory.display()))
        }
        // A kernel without Landlock refuses nothing.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Starts the server of this job. From now on the library may make upcalls.
pub fn serve(library: Library, begin: Begin, socket: &OwnedFd) -> Result<&'static Server, String> {
    let job = Job::new(begin)?;
    let copy = socket.try_clone().map_err(|error| error.to_string())?;
    let outbox = Outbox::new(copy).map_err(|error| error.to_string())?;
    Ok(SERVER.get_or_init(|| Server::new(library, outbox, job)))
}

/// Registers the job and sends `Ready`. `rows`: the addresses at which the ranks listen; empty: the ranks have no
/// sockets.
pub fn register(server: &'static Server, rows: &[Bytes]) -> Result<(), String> {
    let env = register_job(server, rows).map_err(|problem| of_version(&server.library, &problem))?;
    let (version, defaults) = (server.library.version.clone(), open_mpi_variables(&server.job.begin));
    server.outbox.send(&FromServer::Ready { version, env, defaults });
    Ok(())
}

fn of_version(library: &Library, problem: &str) -> String {
    format!("PMIx {}: {problem}", library.version)
}

/// Prepares the environment for the library: removes variables of an enclosing job, and sets our parameters where the
/// user has set none.
fn set_environment(directory: &str) {
    let foreign = |name: &str| name.starts_with("PMIX_") && !name.starts_with("PMIX_MCA_") || name == "PMIX_MCA_ptl";
    let names: Vec<_> =
        std::env::vars_os().map(|(name, _)| name).filter(|name| foreign(&name.to_string_lossy())).collect();
    // SAFETY: the process has only one thread so far; the library has not been opened.
    unsafe {
        for name in names {
            std::env::remove_var(name);
        }
        if !std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("HWLOC_")) {
            std::env::set_var("HWLOC_COMPONENTS", HWLOC_COMPONENTS);
            std::env::set_var("HWLOC_PLUGINS_PATH", directory);
        }
    }
}

/// The components of hwloc, which the library uses: CPUs and caches as reported by Linux. Excluded: probing by running
/// on each CPU (`x86`); PCI and other devices (phases 0x18; reading a configuration space takes milliseconds in a
/// virtual machine, and seconds on a big node); plug-ins, one of which contacts X servers. Measured until a server is
/// ready: 9 ms, with devices 24 ms, with plug-ins 37 ms. If the user sets any variable of hwloc, we set none.
const HWLOC_COMPONENTS: &str = "-x86,-linux:0x18";

fn begin_library(library: &Library, open: &Open) -> Result<(), String> {
    let mut module = upcalls::module();
    let mut infos = server_infos(open)?;
    // SAFETY: the module's functions have the types of the header; the library copies module and infos.
    let code = unsafe { (library.functions.server_init)(&mut module, infos.as_mut_ptr(), infos.len()) };
    done(library, "PMIx_server_init", code)
}

/// Registers the job; returns the environment variables for each rank of this node.
fn register_job(server: &'static Server, rows: &[Bytes]) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let locality = Locality::find(server, &server.job.begin.cpus);
    let mut infos = job_infos(&server.job, &locality, rows);
    let locals: Vec<Rank> = server.job.locals().collect();
    let code = server.library.register(&server.job.begin.nspace, locals.len() as i32, &mut infos);
    done(&server.library, "PMIx_server_register_nspace", code)?;
    drop(infos);

    clients::register(server, &locals)?;
    locals.iter().map(|&rank| clients::environment_of(server, rank)).collect()
}

/// Directories in which components of Open MPI create files shared by the ranks of a node. The file names contain job
/// and local rank but not the node, so two nodes on one machine would use each other's files.
const SHARED_FILES: [&str; 4] = [
    "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
];
/// The variable that makes Open MPI 4 yield while it polls, which its launcher sets when ranks outnumber the CPUs; Open
/// MPI 5 reads this setting from PMIx.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// Settings that Open MPI reads from the environment instead of PMIx: variables `NAME=VALUE` that each rank gets unless
/// the job sets them.
fn open_mpi_variables(begin: &Begin) -> Vec<Vec<u8>> {
    let mut defaults = Vec::new();
    if begin.shared {
        defaults.extend(SHARED_FILES.map(|name| format!("{name}={}", begin.dir).into_bytes()));
    }
    if begin.oversubscribed {
        defaults.push(format!("{YIELD}=1").into_bytes());
    }
    defaults
}

/// The infos for the library's server. The topology, discovered once per node, is shared: a rank of Open MPI 5 then
/// opens 50 files below `/sys` instead of 348, and reads no PCI device (measured). The server's name is random, so no
/// other server on this machine has it.
fn server_infos(open: &Open) -> Result<Infos, String> {
    // Clients get the name from their environment variables. Nobody else can guess it.
    let bytes =
        wireup_os::random::bytes().map_err(|error| format!("no random number for the server's name: {error}"))?;
    let mut infos = Infos::new();
    infos
        .text(key::SERVER_NSPACE, &format!("wireup-server-{:032x}", u128::from_le_bytes(bytes)))
        .rank(key::SERVER_RANK, 0)
        .text(key::SERVER_TMPDIR, &open.dir)
        .text(key::SYSTEM_TMPDIR, &open.dir)
        .text(key::HOSTNAME, &open.host)
        .flag(key::SERVER_SHARE_TOPOLOGY, true)
        .flag(key::SERVER_TOOL_SUPPORT, false)
        .flag(key::SERVER_SESSION_SUPPORT, false)
        .flag(key::SERVER_SYSTEM_SUPPORT, false)
        .flag(key::SERVER_REMOTE_CONNECTIONS, false);
    Ok(infos)
}

/// Time limit for finalizing the library: the agent waits two seconds for this process.
const END_WAIT: Duration = Duration::from_secs(1);

/// Finalizes the library, which removes its files and disconnects remaining clients. If the library hangs, it is
/// abandoned, since the process exits anyway.
pub fn end(server: &'static Server) {
    let (done, wait) = std::sync::mpsc::channel();
    // Errors are ignored: the receiver may have stopped waiting. If no thread can be started, the library is not
    // finalized.
    let spawned = std::thread::Builder::new().spawn(move || {
        take_down(server);
        let _ = done.send(());
    });
    if spawned.is_ok() {
        let _ = wait.recv_timeout(END_WAIT);
    }
}

fn take_down(server: &Server) {
    let functions = &server.library.functions;
    let nspace: CString = c_text(&server.job.begin.nspace);
    for rank in server.job.locals() {
        let name = server.name_of(rank);
        // SAFETY: without a callback these calls block until they are done.
        unsafe { (functions.deregister_client)(&name, None, null_mut()) };
    }
    // SAFETY: without a callback the call blocks until it is done; nothing calls the library afterwards.
    unsafe {
        (functions.deregister_nspace)(nspace.as_ptr(), None, null_mut());
        (functions.server_finalize)();
    }
}

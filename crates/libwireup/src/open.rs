//! `wu_open`, `wu_close`, and the functions that query or drive a whole context.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, handle, on_fork};
use crate::pairs::required;
use crate::status::{Result, Status, returned, status, words};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use wireup_bootstrap::{Context, Engine, Error, Failure, Start, Transport};
use wireup_capi::job::{Job, JobSlot};
use wireup_capi::secondary_client;
use wireup_capi::start::has_launcher;
use wireup_capi::thread::{Lock, on_forked_child};

const API: u32 = 1;

#[repr(C)]
pub struct OpenParams {
    struct_size: usize,
    field_mask: u64,
    engine: c_int,
    start: c_int,
    transport: c_int,
    connections_max: u32,
    name: *const c_char,
    split_gather_max: u32,
}

const OPEN_ENGINE: u64 = 1;
const OPEN_START: u64 = 2;
const OPEN_TRANSPORT: u64 = 4;
const OPEN_CONNECTIONS_MAX: u64 = 8;
/// A flag without a field in `OpenParams`.
const OPEN_THREAD: u64 = 16;
const OPEN_NAME: u64 = 32;
const OPEN_SPLIT_GATHER_MAX: u64 = 64;

/// The properties of a new context.
struct Choices {
    engine: Option<Engine>,
    start: Start,
    transport: Transport,
    /// Maximum number of open connections; 0: no limit.
    connections_max: u32,
    /// Maximum size of a group whose split collects all keys and colours in each rank; `None`: the default.
    split_gather_max: Option<u32>,
    has_thread: bool,
    /// The name of a secondary library; empty: this context uses the inherited PMI socket.
    name: Vec<u8>,
}

/// The process's one inherited PMI conversation (`PMI_FD`).
static SLOT: JobSlot<()> = JobSlot::new();
/// Whether a context exists that uses the inherited PMI conversation.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
static HEARS_OF_FORKS: AtomicBool = AtomicBool::new(false);
/// The text of the latest failure of `wu_open`, with a terminating zero.
static OPEN_ERROR: Lock<Vec<u8>> = Lock::new(Vec::new());
/// The rank whose loss made the latest failed `wu_open` fail; -1: none.
static LOST: AtomicI64 = AtomicI64::new(-1);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_open(api: u32, params: *const OpenParams, ctx: *mut *mut Ctx) -> c_int {
    if ctx.is_null() {
        return refused(Status::ARG, "the place for the context is null");
    }
    if api == 0 || api > API {
        return refused(Status::API, "this library is older than the header that the program was compiled with");
    }
    // SAFETY: see the top of the file.
    let Ok(choices) = (unsafe { choices(params) }) else {
        return refused(
            Status::ARG,
            "a parameter is not valid: an unknown number, \
             or a name with other characters than letters, digits, - _ .",
        );
    };
    // SAFETY: see the top of the file.
    returned(|| open(choices).map(|opened| unsafe { ctx.write(Box::into_raw(Box::new(opened))) }))
}

/// Keeps a text for `wu_error` about a failure for which there is no [`Error`].
fn refused(status: Status, text: &str) -> c_int {
    keep(text.as_bytes());
    status.0
}

fn keep(text: &[u8]) {
    OPEN_ERROR.with(|kept| *kept = [text, &[0]].concat());
}

/// Reads the caller's parameters; fields that are not set are 0.
///
/// # Safety
/// `params` is null, or `struct_size` bytes may be read.
unsafe fn choices(params: *const OpenParams) -> Result<Choices> {
    let (size, mask) = match params.is_null() {
        true => (0, 0),
        // SAFETY: guaranteed by the caller; no reference is made, since the caller's struct may be shorter.
        false => unsafe { ((*params).struct_size, (*params).field_mask) },
    };
    let has = |bit, at: usize, len: usize| mask & bit != 0 && size >= at + len;
    let number = |bit, at: usize| match has(bit, at, size_of::<c_int>()) {
        // SAFETY: guaranteed by the caller: this number lies within the caller's struct.
        true => unsafe { params.byte_add(at).cast::<c_int>().read() },
        false => 0,
    };
    let split_at = offset_of!(OpenParams, split_gather_max);
    let mut name = Vec::new();
    if mask & OPEN_NAME != 0 {
        let is_there = has(OPEN_NAME, offset_of!(OpenParams, name), size_of::<*const c_char>());
        // SAFETY: guaranteed by the caller: the name lies within the caller's struct.
        let given = if is_there { unsafe { required((*params).name)? } } else { &[] };
        name = if secondary_client::is_name(given) { given.to_vec() } else { return Err(Status::ARG) };
    }
    Ok(Choices {
        engine: match number(OPEN_ENGINE, offset_of!(OpenParams, engine)) {
            0 => None,
            1 => Some(Engine::Agents),
            2 => Some(Engine::Peers),
            _ => return Err(Status::ARG),
        },
        start: match number(OPEN_START, offset_of!(OpenParams, start)) {
            0 => Start::Auto,
            1 => Start::Allgather,
            2 => Start::Ring,
            _ => return Err(Status::ARG),
        },
        transport: match number(OPEN_TRANSPORT, offset_of!(OpenParams, transport)) {
            0 | 1 => Transport::Tcp,
            2 => Transport::Udp,
            3 => Transport::Fabric,
            _ => return Err(Status::ARG),
        },
        connections_max: number(OPEN_CONNECTIONS_MAX, offset_of!(OpenParams, connections_max)) as u32,
        split_gather_max: has(OPEN_SPLIT_GATHER_MAX, split_at, size_of::<u32>())
            .then(|| number(OPEN_SPLIT_GATHER_MAX, split_at) as u32),
        has_thread: mask & OPEN_THREAD != 0,
        name,
    })
}

fn open(choices: Choices) -> Result<Ctx> {
    let Choices { engine, start, transport, connections_max, split_gather_max, has_thread, name } = choices;
    // A process has one inherited PMI conversation, which the context without a name uses. A context with a name uses
    // it too if the launcher offers no further conversations. Without a launcher there is no conversation.
    let has_inherited = name.is_empty() || (!secondary_client::is_offered() && has_launcher());
    if has_inherited && IS_OPEN.swap(true, Ordering::AcqRel) {
        keep(b"this process has a context without a name: give this one a name (WU_OPEN_NAME), which needs wireup run");
        return Err(Status::STATE);
    }
    if !HEARS_OF_FORKS.swap(true, Ordering::AcqRel) {
        on_forked_child(on_fork);
    }
    let job = match has_inherited {
        true => Job::join(&SLOT).map_err(Error::Server),
        false if secondary_client::is_offered() => Job::join_named(&name).map_err(Error::Join),
        false => Ok(Job::alone(&name)),
    };
    let context = job.and_then(|job| Context::new(job, engine, start, transport));
    let ctx = context.map_err(unopened).and_then(|mut context| {
        if connections_max > 0 {
            context.worker.lazy_network.bound_connections(connections_max as usize);
        }
        split_gather_max.into_iter().for_each(|max| context.split_gather_max = max);
        Ctx::new(context, has_thread).map_err(|error| status(Error::System(error.0)))
    });
    if ctx.is_err() && has_inherited {
        IS_OPEN.store(false, Ordering::Release);
    }
    ctx
}

/// Keeps the failure of `wu_open` in statics, because there is no context that could keep it.
fn unopened(error: Error) -> Status {
    let lost = match error {
        Error::Group(Failure::Lost { rank }) => rank.into(),
        _ => -1,
    };
    LOST.store(lost, Ordering::Relaxed);
    keep(&words(error));
    status(error)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_close(ctx: *mut Ctx) -> c_int {
    if ctx.is_null() {
        return Status::ARG.0;
    }
    // SAFETY: the context came from `wu_open`, and the program does not use it afterwards.
    let ctx = *unsafe { Box::from_raw(ctx) };
    if !ctx.is_of_this_process() {
        return Status::STATE.0;
    }
    let Some(context) = ctx.into_context() else { return Status::STATE.0 };
    let is_secondary = context.worker.is_secondary();
    let left = SLOT.leave(context.worker.leave().with);
    if !is_secondary {
        IS_OPEN.store(false, Ordering::Release);
    }
    returned(|| left.map_err(|_| Status::SERVER))
}

#[unsafe(no_mangle)]
pub extern "C" fn wu_version() -> u32 {
    API
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_error(ctx: *mut Ctx) -> *const c_char {
    let of_open =
        || OPEN_ERROR.with(|text| if text.is_empty() { c"no context".as_ptr() } else { text.as_ptr().cast() });
    // SAFETY: see the top of the file.
    unsafe { handle(ctx) }.map_or_else(|_| of_open(), |ctx| ctx.error().cast())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_lost_rank(ctx: *mut Ctx) -> i64 {
    // SAFETY: see the top of the file.
    match unsafe { handle(ctx) } {
        Ok(ctx) => ctx.lost().map_or(-1, i64::from),
        Err(_) => LOST.load(Ordering::Relaxed),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_fd(ctx: *mut Ctx) -> c_int {
    // SAFETY: see the top of the file.
    let ctx = unsafe { handle(ctx) }.ok().filter(|ctx| !ctx.has_thread());
    ctx.and_then(|ctx| ctx.look(|context| context.worker.fd()).ok()).flatten().unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_progress(ctx: *mut Ctx) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { handle(ctx)? }.look(|context| context.worker.progress()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_flush(ctx: *mut Ctx, ms: c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { handle(ctx)? }.with(|context| context.worker.flush(ms)))
}

/// Counters of what a process has done in the network of ranks.
#[repr(C)]
pub struct Counts {
    struct_size: usize,
    messages: u64,
    bytes: u64,
    rounds: u64,
    questions: u64,
    connections: u64,
    addresses: u64,
    address_len: u64,
    closing: u64,
    closed: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_counts(ctx: *mut Ctx, counts: *mut Counts) -> c_int {
    // SAFETY: see the top of the file; only fields that lie within the caller's struct are written.
    returned(|| unsafe {
        let now = handle(ctx)?.look(|context| context.worker.counts())?;
        if counts.is_null() {
            return Err(Status::ARG);
        }
        let size = (*counts).struct_size;
        let fields: [(usize, u64); 9] = [
            (offset_of!(Counts, messages), now.messages),
            (offset_of!(Counts, bytes), now.bytes),
            (offset_of!(Counts, rounds), now.groups.rounds),
            (offset_of!(Counts, questions), now.groups.questions),
            (offset_of!(Counts, connections), now.connections as u64),
            (offset_of!(Counts, addresses), now.addresses as u64),
            (offset_of!(Counts, address_len), now.address_len as u64),
            (offset_of!(Counts, closing), now.closing as u64),
            (offset_of!(Counts, closed), now.closed),
        ];
        for (at, value) in fields.into_iter().filter(|(at, _)| at + size_of::<u64>() <= size) {
            counts.cast::<u8>().add(at).cast::<u64>().write(value);
        }
        Ok(())
    })
}

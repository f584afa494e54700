//! The objects to which C programs hold pointers: contexts, groups, requests, rows.

use crate::helper::Helper;
use crate::status::{Result, Status, status, words};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use wireup_bootstrap::{Context, Done, Error, Failure, Group, Request, View};
use wireup_capi::net::Errno;

/// Length of an `ncclUniqueId`, in bytes.
pub const UNIQUE_ID_LEN: usize = 128;

/// Number of forks between the process that loaded this library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

pub extern "C" fn on_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

pub struct Ctx {
    holder: ContextHolder,
    forks: u32,
    /// Text of the last error, with its terminating zero.
    error: Vec<u8>,
    lost: Option<u32>,
}

/// The owner of the context.
#[allow(clippy::large_enum_variant)] // There are few in a process.
enum ContextHolder {
    Alone(Context),
    /// A context that is shared with a helper thread, which makes progress on it.
    Shared(Helper),
}

pub struct GroupHandle {
    pub ctx: *mut Ctx,
    pub group: Group,
}

pub struct Req {
    pub ctx: *mut Ctx,
    /// `None`: the request was cancelled.
    pub request: Option<Request>,
    pub sink: Sink,
}

/// Where to write a request's result.
#[derive(Clone, Copy, Debug)]
pub enum Sink {
    Nothing,
    Bytes {
        to: *mut u8,
        len: usize,
    },
    /// Like `Bytes`, but nothing is written if the result is empty.
    SomeBytes {
        to: *mut u8,
        len: usize,
    },
    Rows {
        to: *mut u8,
        len: usize,
    },
    NewRows(*mut *mut Rows),
    /// The members' values that are not empty, which must be `count` unique ids.
    UniqueIds {
        to: *mut *mut Rows,
        count: u32,
    },
    /// The address of all rows, which have `len` bytes in total.
    View {
        rows: *mut *const u8,
        view: *mut *mut View,
        len: usize,
    },
    Message {
        to: *mut u8,
        room: usize,
        len: *mut usize,
    },
    Group(*mut *mut GroupHandle),
}

/// `wu_rows` of `wireup.h`: values of different lengths, followed by the memory to which its pointers lead.
#[repr(C)]
pub struct Rows {
    count: usize,
    bytes: *const u8,
    offsets: *const u64,
    own: (Vec<u8>, Vec<u64>),
}

impl Rows {
    pub fn new(rows: &[Vec<u8>]) -> *mut Rows {
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        });
        let own: (Vec<u8>, Vec<u64>) = (rows.concat(), core::iter::once(0).chain(ends).collect());
        Box::into_raw(Box::new(Rows { count: rows.len(), bytes: own.0.as_ptr(), offsets: own.1.as_ptr(), own }))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_rows_release(rows: *mut Rows) {
    if !rows.is_null() {
        // SAFETY: the rows came from `Rows::new`, and the program does not use them afterwards.
        let Rows { own, .. } = *unsafe { Box::from_raw(rows) };
        drop(own);
    }
}

impl Ctx {
    /// # Errors
    /// A helper thread is wanted, and cannot be started.
    pub fn new(context: Context, has_thread: bool) -> core::result::Result<Ctx, Errno> {
        let holder =
            if has_thread { ContextHolder::Shared(Helper::start(context)?) } else { ContextHolder::Alone(context) };
        Ok(Ctx { holder, forks: FORKS.load(Ordering::Relaxed), error: [0].into(), lost: None })
    }

    pub fn has_thread(&self) -> bool {
        matches!(self.holder, ContextHolder::Shared(_))
    }

    pub fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Runs `work` on the context, unless this process was forked from the one that opened it.
    pub fn look<T>(&mut self, work: impl FnOnce(&mut Context) -> T) -> Result<T> {
        if !self.is_of_this_process() {
            return Err(Status::STATE);
        }
        Ok(match &mut self.holder {
            ContextHolder::Alone(context) => work(context),
            ContextHolder::Shared(helper) => helper.with(work),
        })
    }

    /// The context, after its helper thread, if any, has ended.
    pub fn into_context(self) -> Option<Context> {
        match self.holder {
            ContextHolder::Alone(context) => Some(context),
            ContextHolder::Shared(helper) => helper.stop(),
        }
    }

    /// Runs `work` on the context. If it fails, keeps the error for [`Self::error`] and [`Self::lost`].
    pub fn with<T>(&mut self, work: impl FnOnce(&mut Context) -> core::result::Result<T, Error>) -> Result<T> {
        self.look(work)?.map_err(|error| self.fail(error))
    }

    pub fn fail(&mut self, error: Error) -> Status {
        self.error = words(error);
        self.error.push(0);
        if let Error::Group(Failure::Lost { rank }) = error {
            self.lost = Some(rank);
        }
        status(error)
    }

    pub fn error(&self) -> *const u8 {
        self.error.as_ptr()
    }

    pub fn lost(&self) -> Option<u32> {
        self.lost
    }
}

/// The value behind a handle.
///
/// # Safety
/// The handle is null, or is valid and not used elsewhere during the call.
pub unsafe fn handle<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_mut() }.ok_or(Status::ARG)
}

/// The bytes that a C program passes.
///
/// # Safety
/// `len` bytes may be read at `pointer`, and do not change during the call.
pub unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8]> {
    match pointer.is_null() {
        true if len > 0 => Err(Status::ARG),
        true => Ok(&[]),
        // SAFETY: guaranteed by the caller.
        false => Ok(unsafe { core::slice::from_raw_parts(pointer, len) }),
    }
}

/// Checks the place for a result: it must not be null if `len` is above 0.
pub fn room(pointer: *mut u8, len: usize) -> Result<*mut u8> {
    if pointer.is_null() && len > 0 { Err(Status::ARG) } else { Ok(pointer) }
}

/// Waits for a request if `req` is null; otherwise hands the request to the program.
///
/// # Safety
/// The pointers in `sink` and `req` may be written, those in `sink` until the request has completed.
pub unsafe fn go_on(ctx: *mut Ctx, request: Request, sink: Sink, req: *mut *mut Req) -> Result {
    let one = Req { ctx, request: Some(request), sink };
    if req.is_null() {
        // SAFETY: guaranteed by the caller.
        return unsafe { finish(&one, -1) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { req.write(Box::into_raw(Box::new(one))) };
    Ok(())
}

/// Waits for a request and writes its result.
///
/// # Safety
/// As [`go_on`].
pub unsafe fn finish(one: &Req, ms: c_int) -> Result {
    // SAFETY: the program keeps the context until its requests have completed.
    let ctx = unsafe { handle(one.ctx)? };
    let request = one.request.as_ref().ok_or(Status::CANCELLED)?;
    if let Sink::View { rows, view, len } = one.sink {
        let found = ctx.with(|context| context.view(request, ms))?;
        let bytes = if len == 0 { Some(&[][..]) } else { found.rows().filter(|rows| rows.len() == len) };
        let Some(bytes) = bytes else {
            return Err(ctx.fail(Error::Mismatch));
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            rows.write(bytes.as_ptr());
            view.write(Box::into_raw(Box::new(found)));
        }
        return Ok(());
    }
    let done = ctx.with(|context| context.wait(request, ms))?;
    // SAFETY: guaranteed by the caller.
    unsafe { deliver(ctx, one.ctx, one.sink, done) }
}

/// # Safety
/// The pointers in `sink` may be written.
unsafe fn deliver(ctx: &mut Ctx, pointer: *mut Ctx, sink: Sink, done: Done) -> Result {
    let mismatch = |ctx: &mut Ctx| Err(ctx.fail(Error::Mismatch));
    // SAFETY: guaranteed by the caller; lengths are checked before bytes are written.
    unsafe {
        match (sink, done) {
            (Sink::Nothing, _) => {}
            (Sink::SomeBytes { .. }, Done::Bytes(bytes)) if bytes.is_empty() => {}
            (Sink::Bytes { to, len } | Sink::SomeBytes { to, len }, Done::Bytes(bytes)) => {
                if bytes.len() != len {
                    return mismatch(ctx);
                }
                to.copy_from_nonoverlapping(bytes.as_ptr(), len);
            }
            (Sink::Rows { to, len }, Done::Rows(rows)) => {
                if rows.iter().any(|row| row.len() != len) {
                    return mismatch(ctx);
                }
                for (at, row) in rows.iter().enumerate() {
                    to.add(at * len).copy_from_nonoverlapping(row.as_ptr(), len);
                }
            }
            (Sink::NewRows(to), Done::Rows(rows)) => to.write(Rows::new(&rows)),
            (Sink::UniqueIds { to, count }, Done::Rows(mut ids)) => {
                ids.retain(|id| !id.is_empty());
                if ids.iter().any(|id| id.len() != UNIQUE_ID_LEN) || ids.len() > count as usize {
                    return mismatch(ctx);
                }
                if ids.len() < count as usize {
                    return Err(ctx.fail(Error::NoUniqueId));
                }
                to.write(Rows::new(&ids));
            }
            (Sink::Message { to, room, len }, Done::Bytes(bytes)) => {
                if !len.is_null() {
                    len.write(bytes.len());
                }
                if bytes.len() > room {
                    return Err(Status::TRUNCATED);
                }
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            (Sink::Group(to), done) => {
                let group = ctx.look(|context| context.group(&done))?.map(|group| GroupHandle { ctx: pointer, group });
                to.write(group.map_or(core::ptr::null_mut(), |group| Box::into_raw(Box::new(group))));
            }
            _ => return mismatch(ctx),
        }
    }
    Ok(())
}

//! The groups of `wireup.h`: created, divided, described and freed.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, GroupHandle, Req, Sink, bytes, go_on, handle};
use crate::pairs::required;
use crate::status::{Result, Status, returned};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use core::mem::offset_of;
use wireup_bootstrap::{Context, Engine, Error, Group, Wanted};

/// Maximum length of a colour, in bytes.
const COLOUR_LEN_MAX: usize = 255;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_world(ctx: *mut Ctx, group: *mut *mut GroupHandle) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { made(ctx, group, |context| Ok(context.world())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_node(ctx: *mut Ctx, group: *mut *mut GroupHandle) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { made(ctx, group, Context::node) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_leaders(ctx: *mut Ctx, group: *mut *mut GroupHandle) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { made(ctx, group, Context::leaders) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_dup(of: *mut GroupHandle, group: *mut *mut GroupHandle) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let of = handle(of)?;
        made(of.ctx, group, |context| context.duplicate(of.group))
    })
}

/// # Safety
/// The pointers and handles follow the rules of `wireup.h`.
unsafe fn made(
    ctx: *mut Ctx,
    group: *mut *mut GroupHandle,
    make: impl FnOnce(&mut Context) -> core::result::Result<Group, Error>,
) -> Result {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (opened, to) = (handle(ctx)?, handle(group)?);
        let group = opened.with(make)?;
        *to = Box::into_raw(Box::new(GroupHandle { ctx, group }));
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_split(
    of: *mut GroupHandle,
    colour: c_int,
    key: i64,
    group: *mut *mut GroupHandle,
    req: *mut *mut Req,
) -> c_int {
    let colour = (colour >= 0).then(|| colour.to_be_bytes().to_vec());
    // SAFETY: see the top of the file.
    returned(|| unsafe { split(of, Wanted { colour, key }, group, req) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_split_str(
    of: *mut GroupHandle,
    colour: *const u8,
    len: usize,
    key: i64,
    group: *mut *mut GroupHandle,
    req: *mut *mut Req,
) -> c_int {
    if len > COLOUR_LEN_MAX {
        return Status::ARG.0;
    }
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let colour = Some(Vec::from(bytes(colour, len)?));
        split(of, Wanted { colour, key }, group, req)
    })
}

/// # Safety
/// The pointers and handles follow the rules of `wireup.h`.
unsafe fn split(of: *mut GroupHandle, wanted: Wanted, group: *mut *mut GroupHandle, req: *mut *mut Req) -> Result {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (of, group) = (handle(of)?, handle(group)?);
        let request = handle(of.ctx)?.with(|context| context.split(of.group, wanted))?;
        go_on(of.ctx, request, Sink::Group(group), req)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_create(
    of: *mut GroupHandle,
    members: *const u32,
    count: u32,
    name: *const c_char,
    group: *mut *mut GroupHandle,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (name, of, group) = (required(name)?, handle(of)?, handle(group)?);
        if members.is_null() || count > of.group.size {
            return Err(Status::ARG);
        }
        let members = core::slice::from_raw_parts(members, count as usize);
        let request = handle(of.ctx)?.with(|context| context.create(of.group, members, name))?;
        go_on(of.ctx, request, Sink::Group(group), req)
    })
}

#[repr(C)]
pub struct GroupInfo {
    struct_size: usize,
    rank: u32,
    size: u32,
    engine: c_int,
    connections: u32,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_info(group: *mut GroupHandle, info: *mut GroupInfo) -> c_int {
    // SAFETY: see the top of the file; only fields that lie within the caller's struct are written.
    returned(|| unsafe {
        let group = handle(group)?;
        if info.is_null() {
            return Err(Status::ARG);
        }
        let look = |context: &mut Context| (context.engine(group.group), context.worker.counts().connections);
        let (engine, connections) = handle(group.ctx)?.look(look)?;
        let engine = match engine {
            Engine::Agents => 1,
            Engine::Peers => 2,
        };
        let size = (*info).struct_size;
        let fields: [(usize, u32); 4] = [
            (offset_of!(GroupInfo, rank), group.group.rank),
            (offset_of!(GroupInfo, size), group.group.size),
            (offset_of!(GroupInfo, engine), engine),
            (offset_of!(GroupInfo, connections), connections as u32),
        ];
        for (at, value) in fields.into_iter().filter(|(at, _)| at + 4 <= size) {
            info.cast::<u8>().add(at).cast::<u32>().write(value);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_group_free(group: *mut GroupHandle) -> c_int {
    if group.is_null() {
        return Status::ARG.0;
    }
    // SAFETY: the group came from this library, and the program does not use it afterwards.
    let GroupHandle { ctx, group } = *unsafe { Box::from_raw(group) };
    // SAFETY: see the top of the file.
    returned(|| unsafe { handle(ctx)? }.look(|context| context.free(group)))
}

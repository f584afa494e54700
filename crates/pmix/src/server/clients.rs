//! Registers ranks with the library, and makes the environment variables by which their clients find this server.

use super::state::Server;
use crate::library::Library;
use crate::sys::constants::status;
use crate::sys::types::Status;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, PoisonError};
use wireup_wire::ids::Rank;

/// Registers all local ranks at once, which takes one wait instead of two thread switches for each rank.
pub fn register(server: &Server, locals: &[Rank]) -> Result<(), String> {
    let outcomes = Outcomes::default();
    let data = std::ptr::from_ref(&outcomes).cast_mut().cast();
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut waiting = 0;
    let mut refused = status::SUCCESS;
    for &rank in locals {
        let name = server.name_of(rank);
        // SAFETY: the library copies the name; `outcomes` lives until all callbacks have run, which is waited for
        // below. Ranks run as the user of this process: the library refuses connections of any other user.
        let code =
            unsafe { (server.library.functions.register_client)(&name, user, group, null_mut(), Some(outcome), data) };
        match code {
            status::SUCCESS => waiting += 1,
            status::OPERATION_SUCCEEDED => {}
            code => refused = code,
        }
    }
    let code = outcomes.wait(waiting);
    done(&server.library, "PMIx_server_register_client", if refused == status::SUCCESS { code } else { refused })
}

/// Number of callbacks that have run, and the last error among them.
#[derive(Default)]
struct Outcomes {
    seen: Mutex<(usize, Status)>,
    changed: Condvar,
}

impl Outcomes {
    /// Waits for `count` callbacks; returns the last error, if any.
    fn wait(&self, count: usize) -> Status {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.changed.wait_while(seen, |seen| seen.0 < count).unwrap_or_else(PoisonError::into_inner);
        seen.1
    }
}

/// # Safety
/// `data` points to an `Outcomes` that waits for this call.
unsafe extern "C" fn outcome(code: Status, data: *mut c_void) {
    // SAFETY: the caller guarantees it.
    let outcomes = unsafe { &*data.cast_const().cast::<Outcomes>() };
    // Notified while the lock is held: the waiter cannot return and free `outcomes` before the lock is released.
    let mut seen = outcomes.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.0 += 1;
    if code != status::SUCCESS && code != status::OPERATION_SUCCEEDED {
        seen.1 = code;
    }
    outcomes.changed.notify_all();
}

/// The environment variables by which a rank's client finds this server.
pub fn environment_of(server: &Server, rank: Rank) -> Result<Vec<Vec<u8>>, String> {
    let name = server.name_of(rank);
    let mut variables: *mut *mut c_char = null_mut();
    // SAFETY: the library appends to the array, which ends with a null pointer; array and strings are allocated with
    // `malloc`.
    let code = unsafe { (server.library.functions.setup_fork)(&name, &mut variables) };
    done(&server.library, "PMIx_server_setup_fork", code)?;
    // SAFETY: the library has filled `variables` with an array that ends with a null pointer.
    let texts = unsafe { crate::read::c_strs(variables) };
    let texts: Vec<(Vec<u8>, *const c_char)> =
        texts.iter().map(|text| (text.to_bytes().to_vec(), text.as_ptr())).collect();
    let env = texts.into_iter().map(|(text, memory)| {
        // SAFETY: each string was allocated with `malloc` and belongs to us; it is not read after this.
        unsafe { libc::free(memory.cast_mut().cast()) };
        text
    });
    let env = env.collect();
    // SAFETY: the array was allocated with `malloc` and belongs to us; it is not read after this.
    unsafe { libc::free(variables.cast()) };
    Ok(env)
}

/// Checks the code of a blocking call, which returns "operation succeeded" when the operation is done.
pub fn done(library: &Library, call: &str, code: Status) -> Result<(), String> {
    if code == status::SUCCESS || code == status::OPERATION_SUCCEEDED {
        return Ok(());
    }
    // SAFETY: the library returns a string that lives as long as the library.
    let words = unsafe { CStr::from_ptr((library.functions.error_string)(code)) };
    Err(format!("{call}: {}", words.to_string_lossy()))
}

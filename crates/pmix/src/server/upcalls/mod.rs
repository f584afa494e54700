//! Functions that the library calls on behalf of its clients, on its own thread.
//!
//! For an upcall that returns "success" we call back later, always from a separate work item on the library's thread.
//! For an upcall that returns "operation succeeded" or any error we never call back. No upcall waits.

mod control;
mod events;
mod exchange;
mod lifecycle;
mod names;
pub mod query;
mod spawn;

use crate::sys::types::ServerModule;

/// The function table given to the library. The library itself refuses operations that are missing here.
pub fn module() -> ServerModule {
    ServerModule {
        client_connected2: Some(lifecycle::connected),
        client_finalized: Some(lifecycle::finalized),
        abort: Some(lifecycle::abort),
        fence_nb: Some(exchange::fence),
        direct_modex: Some(exchange::direct_modex),
        group: Some(exchange::group),
        publish: Some(names::publish),
        lookup: Some(names::lookup),
        unpublish: Some(names::unpublish),
        spawn: Some(spawn::spawn),
        connect: Some(exchange::connect),
        disconnect: Some(exchange::disconnect),
        register_events: Some(events::register),
        deregister_events: Some(events::deregister),
        notify_event: Some(events::raised),
        query: Some(query::query),
        log: Some(control::log),
        job_control: Some(control::job_control),
        ..ServerModule::default()
    }
}

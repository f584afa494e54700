//! Functions that the library calls on behalf of its clients, on its own thread.
//!
//! For an upcall that returns "success" we call back later, always from a separate work item on the library's thread.
//! For an upcall that returns "operation succeeded" or any error we never call back. No upcall waits.

mod exchange;
mod names;
pub mod query;
mod rank;
mod spawn;

use crate::sys::types::ServerModule;

/// The function table given to the library. The library itself refuses operations that are missing here.
pub fn module() -> ServerModule {
    ServerModule {
        client_connected2: Some(rank::connected),
        client_finalized: Some(rank::finalized),
        abort: Some(rank::abort),
        fence_nb: Some(exchange::fence),
        direct_modex: Some(exchange::direct_modex),
        group: Some(exchange::group),
        publish: Some(names::publish),
        lookup: Some(names::lookup),
        unpublish: Some(names::unpublish),
        spawn: Some(spawn::spawn),
        connect: Some(exchange::connect),
        disconnect: Some(exchange::disconnect),
        register_events: Some(rank::register_events),
        deregister_events: Some(rank::deregister_events),
        notify_event: Some(rank::notify_event),
        query: Some(query::query),
        log: Some(rank::log),
        job_control: Some(rank::job_control),
        ..ServerModule::default()
    }
}

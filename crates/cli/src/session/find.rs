//! Finds the session that a run goes to, if any.

use crate::flags::parsed::Parsed;
use crate::flags::session_nodes::{NotThere, SessionNodes, StatedToUp};
use crate::flags::table::DECIDED_BY_SESSION;
use crate::out;
use crate::surroundings::Surroundings;
use wireup_node::session::{Attached, CallError, Calling, DEFAULT_NAME, Facts, SessionDirectoryError, unended};

/// Contacts the session that a run is meant for; `None`: the run does not use a session.
pub fn find(parsed: &Parsed) -> Result<Option<Calling>, String> {
    if parsed.no_session {
        let twice = "--session and --no-session contradict each other; leave one of them out";
        return if parsed.session.is_some() { Err(twice.to_owned()) } else { Ok(None) };
    }
    if let Some(flag) = parsed.first_given(DECIDED_BY_SESSION).map(|flag| flag.name()) {
        return if parsed.session.is_some() {
            Err(format!(
                "{flag} cannot be changed in a running session; give it to wireup up when you start the session, or \
                 run with --no-session"
            ))
        } else {
            Ok(None)
        };
    }
    let name = parsed.session.as_deref().unwrap_or(DEFAULT_NAME);
    match Calling::call(name) {
        Ok(Some(calling)) => Ok(Some(calling)),
        Ok(None) if parsed.session.is_some() => {
            Err(format!("{}; --no-session runs this job without one", super::nobody(name)))
        }
        Ok(None) => {
            if let Some(story) = unended::story(name) {
                out::tell(&format!("{story}; this job runs without it; wireup up restarts it, wireup down forgets it"));
            }
            Ok(None)
        }
        Err(error) if parsed.session.is_none() && is_as_good_as_none(&error) => {
            out::tell(&format!("{error}; running this job without a session"));
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Used if the user did not name a session: whether this error counts as "no session".
fn is_as_good_as_none(error: &CallError) -> bool {
    match error {
        CallError::Crashed { .. } => true,
        CallError::SessionDirectory(error) => !matches!(error, SessionDirectoryError::Name { .. }),
        _ => false,
    }
}

/// The nodes that the job gets in the session; the inner error is the reason why it is to run on its own instead.
pub fn session_nodes(
    parsed: &Parsed,
    surroundings: &Surroundings,
    session: &Attached,
) -> Result<Result<SessionNodes, String>, String> {
    // If the facts cannot be read, the session is treated as one without stated slots.
    let facts = Facts::read(session.place()).unwrap_or_default();
    let told = StatedToUp { slots_stated: facts.slots_stated, slots_max: facts.slots_max, preload: facts.preload };
    match SessionNodes::new(parsed, surroundings, &session.welcome, &told) {
        Ok(session_nodes) => Ok(Ok(session_nodes)),
        Err(NotThere::Elsewhere(why)) if parsed.session.is_none() => Ok(Err(why)),
        Err(NotThere::Elsewhere(why)) => Err(format!(
            "{why}; leave out --session (or WIREUP_SESSION), or start a session that has them with wireup up"
        )),
        Err(NotThere::Refused(problem)) => Err(problem),
    }
}

//! A rank's PMI conversation, as a script asks for it.

use bytes::Bytes;
use wireup_client::env::Contact;
use wireup_client::pmi_link::{Event, LinkError, PmiLink};
use wireup_proto::io::{RankPlan, SpawnPlan};
use wireup_wire::pmi::Dialect;

/// What a script asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Init,
    Put { key: &'a str, value: &'a str },
    Fence,
    Get { key: &'a str },
    Finalize,
    Abort { code: i32 },
}

/// What it came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Init,
    Put,
    Fence,
    /// `None`: nobody put such a key.
    Get(Option<Vec<u8>>),
    Finalize,
    /// The agent refused, or said what no script asks for.
    Strange(String),
}

/// What the agent's bytes mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    Nothing,
    /// The operation goes on: this is to be sent.
    Send(Bytes),
    Answer(Answer),
    /// No reply to anything that was asked.
    Broken(LinkError),
}

/// The client of a rank that finds itself in the environment of its plan.
pub fn client_of(plan: &SpawnPlan, rank_plan: &RankPlan, dialect: Dialect) -> Result<PmiLink, String> {
    let program = plan.programs.get(usize::from(rank_plan.program)).ok_or("has no program")?;
    let find = |name: &str| {
        let mut found = rank_plan
            .env
            .iter()
            .chain(&program.env)
            .filter_map(|variable| variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
        // The driver adds the number of the socket.
        let given = found.next().map(|value| String::from_utf8_lossy(value).into_owned());
        if name == "PMI_FD" { Some("3".into()) } else { given }
    };
    let contact = Contact::read(find).map_err(|error| error.to_string())?;
    let Contact::Fd { env, .. } = contact else { return Err(format!("finds {contact:?}")) };
    let named = (find("WIREUP_RANK"), find("WIREUP_SIZE"));
    if named != (Some(env.rank.to_string()), Some(env.size.to_string())) {
        return Err(format!("is {env:?} for PMI and {named:?} for wireup"));
    }
    Ok(PmiLink::new(dialect, env))
}

/// The first bytes of an operation.
///
/// # Panics
/// If the script asks for what its dialect cannot carry, or out of turn.
pub fn ask(link: &mut PmiLink, op: Op<'_>) -> Bytes {
    let mut out = Vec::new();
    let sent = match op {
        Op::Init => {
            link.start(&mut out);
            Ok(())
        }
        Op::Put { key, value } => link.put(key.as_bytes(), value.as_bytes(), &mut out),
        Op::Fence => link.fence(&mut out),
        Op::Get { key } => link.get(key.as_bytes(), None, &mut out),
        Op::Finalize => link.finalize(&mut out),
        Op::Abort { code } => link.abort(code, "the script says so", &mut out),
    };
    sent.expect("scripts ask for what both dialects can carry");
    out.into()
}

/// Reads what the agent sent.
pub fn hear(link: &mut PmiLink, bytes: &[u8]) -> Heard {
    let mut out = Vec::new();
    let answer = match link.handle(bytes, &mut out) {
        Err(error) => return Heard::Broken(error),
        Ok(None) if out.is_empty() => return Heard::Nothing,
        Ok(None) => return Heard::Send(out.into()),
        Ok(Some(event)) => answer(event),
    };
    // A second reply to one request is one too many.
    match link.handle(&[], &mut out) {
        Ok(None) => Heard::Answer(answer),
        Ok(Some(event)) => Heard::Answer(Answer::Strange(format!("{answer:?}, then {event:?}"))),
        Err(error) => Heard::Broken(error),
    }
}

fn answer(event: Event<'_>) -> Answer {
    match event {
        Event::Ready => Answer::Init,
        Event::Done => Answer::Put,
        Event::Fenced => Answer::Fence,
        Event::Value(value) => Answer::Get(Some(value.to_vec())),
        Event::NotFound => Answer::Get(None),
        Event::Finalized => Answer::Finalize,
        Event::UniverseSize(_) | Event::Other(_) | Event::Failed { .. } => Answer::Strange(format!("{event:?}")),
    }
}

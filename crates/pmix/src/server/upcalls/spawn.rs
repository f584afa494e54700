//! Upcalls for spawn requests.
//!
//! The launcher expects info keys by their names in MPI, so the library's keys are translated into their names in MPI.
//! Keys that the launcher refuses keep their names; keys that are only advice are left out, unless the rank requires
//! them.

use crate::read::{Read, View, c_str, c_strs, slice};
use crate::server::state::{Callback, Waiting, server};
use crate::sys::constants::{key, status};
use crate::sys::types::{PmixApp, PmixInfo, PmixProc, SpawnCallback, Status};
use std::ffi::{CStr, c_void};
use wireup_wire::ids::Rank;
use wireup_wire::names;
use wireup_wire::pmi::{SpawnCommand, SpawnRequest};
use wireup_wire::pmix::Ask;

/// The flag of an info that must be honoured (`PMIX_INFO_REQD`).
const REQUIRED: u32 = 1;

pub unsafe extern "C" fn spawn(
    client: *const PmixProc,
    infos: *const PmixInfo,
    info_count: usize,
    apps: *const PmixApp,
    app_count: usize,
    callback: Option<SpawnCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us all of it for the call.
    let (client, infos, apps) = unsafe { (&*client, View::new(infos, info_count), slice(apps, app_count)) };
    let server = server();
    let Some(from) = server.rank_of(client) else { return status::BAD_PARAM };
    let Some(callback) = Callback::new(callback, data) else { return status::BAD_PARAM };
    // SAFETY: the library lends us the texts and infos of the programs for the call.
    let (is_of_4, request) = unsafe { (is_of_open_mpi_4(infos, apps), request(from, infos, apps)) };
    let others_hang = (server.job.size > 1 && is_of_4).then_some(from);
    let asked = request.map(|request| {
        server.ask(Ask::Names { from, ask: names::Ask::Spawn(request) }, Waiting::Spawn { callback, others_hang })
    });
    let code = asked.unwrap_or_else(|code| code);
    if code != status::SUCCESS {
        others_hang.into_iter().for_each(|rank| server.abort_for_others(rank));
    }
    code
}

/// # Safety
/// The data to which the programs point is valid for the call.
unsafe fn request(from: Rank, infos: View<'_>, apps: &[PmixApp]) -> Result<SpawnRequest, Status> {
    // SAFETY: the caller guarantees it.
    let commands = apps.iter().map(|app| unsafe { command(app, infos) }).collect::<Result<Vec<_>, Status>>()?;
    let request = SpawnRequest { commands, preput: Vec::new() };
    match request.check() {
        Ok(()) => Ok(request),
        Err(unfit) => {
            eprintln!("rank {from}: PMIx_Spawn failed: {unfit}");
            Err(status::BAD_PARAM)
        }
    }
}

/// Whether Open MPI 4 makes this request. In that version, if the requesting rank gets an error, the ranks that have
/// called `MPI_Comm_spawn` together with the requesting rank wait for that rank forever in a broadcast. Version 5 sets
/// the personality to `ompi5`, version 4 to `ompi`.
///
/// # Safety
/// The data to which the programs point is valid for the call.
unsafe fn is_of_open_mpi_4(infos: View<'_>, apps: &[PmixApp]) -> bool {
    // SAFETY: the caller guarantees it.
    let env = |app: &PmixApp| unsafe { c_strs(app.env) };
    let has_port =
        |app: &PmixApp| env(app).iter().any(|variable| variable.to_bytes().starts_with(b"OMPI_PARENT_PORT="));
    let is_newer = infos.find(key::PERSONALITY).and_then(Read::text).is_some_and(|name| name.starts_with("ompi5"));
    !is_newer && apps.iter().any(has_port)
}

/// Translates one program. `of_job`: infos that apply to all programs.
///
/// # Safety
/// The data to which the program points is valid for the call.
unsafe fn command(app: &PmixApp, of_job: View<'_>) -> Result<SpawnCommand, Status> {
    // SAFETY: the caller guarantees it.
    let (program, argv, env, cwd, own) = unsafe {
        (c_str(app.cmd), c_strs(app.argv), c_strs(app.env), c_str(app.cwd), View::new(app.info, app.info_count))
    };
    let program = program.or_else(|| argv.first().copied()).ok_or(status::BAD_PARAM)?;
    let bytes = |text: &CStr| text.to_bytes().to_vec();
    let mut command = SpawnCommand {
        program: bytes(program),
        args: argv.iter().skip(1).map(|arg| bytes(arg)).collect(),
        ranks: u32::try_from(app.maxprocs).map_err(|_| status::BAD_PARAM)?,
        info: Vec::new(),
        env: env.iter().map(|variable| bytes(variable)).collect(),
    };
    if let Some(cwd) = cwd {
        command.info.push((b"wdir".to_vec(), bytes(cwd)));
    }
    for infos in [of_job, own] {
        for (info, (name, value)) in infos.as_slice().iter().zip(infos.iter()) {
            add(&mut command, name, value, info.flags & REQUIRED != 0)?;
        }
    }
    Ok(command)
}

/// Keys of the library that the launcher supports or refuses itself, with their names in MPI.
const NAMES: [(&CStr, &str); 7] = [
    (key::HOST, "host"),
    (key::ADD_HOST, "add-host"),
    (key::HOSTFILE, "hostfile"),
    (key::ADD_HOSTFILE, "add-hostfile"),
    (key::WDIR, "wdir"),
    (key::PPR, "ppr"),
    (key::MAPBY, "map_by"),
];
const REFUSED: [(&CStr, &str); 9] = [
    (key::PREFIX, "PMIX_PREFIX"),
    (key::PRELOAD_BIN, "PMIX_PRELOAD_BIN"),
    (key::PRELOAD_FILES, "PMIX_PRELOAD_FILES"),
    (key::UNSET_ENVAR, "PMIX_UNSET_ENVAR"),
    (key::PREPEND_ENVAR, "PMIX_PREPEND_ENVAR"),
    (key::APPEND_ENVAR, "PMIX_APPEND_ENVAR"),
    (key::FIRST_ENVAR, "PMIX_FIRST_ENVAR"),
    (key::JOB_TIMEOUT, "PMIX_JOB_TIMEOUT"),
    (key::SPAWN_TOOL, "PMIX_SPAWN_TOOL"),
];

fn add(command: &mut SpawnCommand, name: &CStr, value: Read<'_>, is_required: bool) -> Result<(), Status> {
    let named = |table: &[(&CStr, &'static str)]| table.iter().find(|(key, _)| *key == name).map(|(_, name)| *name);
    let mut push = |name: &str, value: &[u8]| command.info.push((name.as_bytes().to_vec(), value.to_vec()));
    if let Some(translated) = named(&NAMES) {
        push(translated, value.text_bytes().ok_or(status::BAD_PARAM)?);
    } else if name == key::SET_ENVAR || name == key::ADD_ENVAR {
        let (variable, value) = value.variable().ok_or(status::BAD_PARAM)?;
        command.env.push([variable, b"=", value].concat());
    } else if let Some(refused) = named(&REFUSED) {
        // A flag may be false, which means that the property is not wanted.
        if !value.is_flag() || value.is_true() {
            push(refused, b"");
        }
    } else if !name.to_bytes().starts_with(b"pmix.") {
        if let Some(text) = value.text_bytes() {
            push(&name.to_string_lossy(), text);
        }
    } else if is_required {
        push("PMIX_REQUIRED", name.to_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infos::Infos;

    fn added(fill: impl FnOnce(&mut Infos) -> &mut Infos) -> Vec<(String, String)> {
        let (mut infos, mut command) = (Infos::new(), SpawnCommand::default());
        fill(&mut infos);
        // SAFETY: the list lives as long as the view.
        for (name, value) in unsafe { View::new(infos.as_mut_ptr(), infos.len()) }.iter() {
            add(&mut command, name, value, false).unwrap();
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        command.info.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn keys_have_the_names_of_mpi() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let told = added(|infos| {
            infos
                .text(key::HOST, "n1,n2")
                .text(key::ADD_HOSTFILE, "f")
                .text(key::WDIR, "/w")
                .text(key::MAPBY, "PPR:2:NODE")
        });
        assert_eq!(told, pairs(&[("host", "n1,n2"), ("add-hostfile", "f"), ("wdir", "/w"), ("map_by", "PPR:2:NODE")]));
        let told =
            added(|infos| infos.text(key::PREFIX, "/p").flag(key::PRELOAD_BIN, false).flag(key::SPAWN_TOOL, true));
        assert_eq!(told, pairs(&[("PMIX_PREFIX", ""), ("PMIX_SPAWN_TOOL", "")]));
        assert_eq!(added(|infos| infos.text(c"soft", "1:4").text(c"pmix.pers", "ompi")), pairs(&[("soft", "1:4")]));
    }
}

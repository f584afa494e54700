//! Passes requests of ranks for new processes to the root.
//!
//! The root passes them on to the job's launcher. The answer says that the processes run, or why not.

use super::connection::PmiLink;
use super::dialects::stored;
use super::tables::{Asked, Tables};
use wireup_wire::names::{Ask, NewJob};
use wireup_wire::pmi::{Envelope, Reply, SpawnCommand, SpawnRequest};

/// Error codes are listed for at most this many ranks: older clients of PMI-1 read lines of 1,024 bytes, and take it
/// that there was no error if there is no list.
const ERROR_CODES_MAX: u32 = 256;

impl PmiLink {
    pub(super) fn on_spawn(
        &mut self,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        request: &SpawnRequest,
    ) -> Option<Asked> {
        if let Err(unfit) = request.check() {
            self.refuse(t, envelope, &unfit.to_string());
            return None;
        }
        let request = self.plain_request(request);
        self.ask_root(t, envelope, Ask::Spawn(request))
    }

    /// The request with the texts as the rank means them: arguments unescaped, pairs as a kvs stores them.
    fn plain_request(&self, request: &SpawnRequest) -> SpawnRequest {
        let plain = |text: &[u8]| self.plain(text).to_vec();
        let in_kvs = |text: &[u8]| stored(self.dialect, text, &mut Vec::new()).to_vec();
        let command = |command: &SpawnCommand| SpawnCommand {
            program: plain(&command.program),
            args: command.args.iter().map(|arg| plain(arg)).collect(),
            ranks: command.ranks,
            info: command.info.iter().map(|(key, value)| (plain(key), plain(value))).collect(),
            env: command.env.clone(),
        };
        SpawnRequest {
            commands: request.commands.iter().map(command).collect(),
            preput: request.preput.iter().map(|(key, value)| (in_kvs(key), in_kvs(value))).collect(),
        }
    }
}

/// The reply to the rank: the processes run.
pub fn reply<'a>(job: &'a NewJob, codes: &'a mut String) -> Reply<'a> {
    *codes = vec!["0"; job.ranks.min(ERROR_CODES_MAX) as usize].join(",");
    let are_all = job.ranks <= ERROR_CODES_MAX;
    Reply::Spawned { job_id: Some(job.nspace.as_bytes()), errcodes: are_all.then_some(codes.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_listed_for_small_jobs() {
        let mut codes = String::new();
        let job = |ranks| NewJob { nspace: "job-2".into(), ranks };
        let small = Reply::Spawned { job_id: Some(b"job-2"), errcodes: Some(b"0,0,0") };
        assert_eq!(reply(&job(3), &mut codes), small);
        let large = Reply::Spawned { job_id: Some(b"job-2"), errcodes: None };
        assert_eq!(reply(&job(ERROR_CODES_MAX + 1), &mut codes), large);
    }
}

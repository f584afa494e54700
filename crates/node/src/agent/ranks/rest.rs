//! Pauses the reading of PMI requests after a fence has released many ranks, where ranks outnumber the CPUs.
//!
//! The ranks that are already awake ask for values at once, and would be served while others still wait to leave the
//! fence. Half of the ranks need a little longer to wake than the agent has needed for its replies to all. For that
//! time the agent does not read the PMI sockets of this job, which leaves the CPUs to the ranks; the kernel keeps their
//! requests. Everything else is served meanwhile: other jobs, links, output, exits of ranks.

use super::JobRanks;
use super::pmi::interest;
use crate::agent::token::Token;
use wireup_os::reactor::Reactor;
use wireup_wire::ids::{Client, LocalRank};

/// Number of released ranks per CPU above which requests rest.
const RELEASED_PER_CPU: usize = 4;
/// Longest rest (ns): beyond it the ranks would wait for the agent, not for a CPU.
const REST_NS_MAX: u64 = 2_000_000;

/// Time for which requests rest (ns) after `released` ranks were released, which took the agent `took_ns`; `None`: no
/// rest.
pub fn rest_ns(released: usize, cpus: usize, took_ns: u64) -> Option<u64> {
    (released > RELEASED_PER_CPU * cpus).then(|| (took_ns.saturating_mul(3) / 2).min(REST_NS_MAX))
}

impl JobRanks {
    /// Reads no requests of this job's ranks until `until_ns`.
    pub fn rest(&mut self, until_ns: u64, reactor: &Reactor) {
        self.rest_until_ns = Some(until_ns);
        self.watch_requests(reactor);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.rest_until_ns.is_some()
    }

    pub(super) fn end_rest_if_due(&mut self, now_ns: u64, reactor: &Reactor) {
        if self.rest_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.rest_until_ns = None;
            self.watch_requests(reactor);
        }
    }

    /// Updates which PMI sockets the reactor watches for requests.
    fn watch_requests(&self, reactor: &Reactor) {
        for (index, rank) in self.ranks.iter().enumerate() {
            for (number, socket) in rank.pmi.iter().enumerate() {
                // A rank that does not read its replies is not read in either case.
                if let Some(fd) = socket.out.fd.as_ref().filter(|_| !socket.is_blocked) {
                    let client = Client { local: LocalRank(index as u16), number: number as u16 };
                    let _ =
                        reactor.modify(fd, Token::Pmi(self.slot, client).pack(), interest(false, self.is_resting()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RankIo;
    use super::super::pmi::PmiSocket;
    use super::*;
    use crate::agent::keepers::Keepers;
    use crate::agent::token::JobSlot;
    use crate::agent::turn::Turn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use wireup_proto::io::Input;
    use wireup_proto::io::KernelSession;
    use wireup_wire::ids::JobId;

    /// A job with ranks here, and the ranks' ends of the PMI sockets.
    fn job(number: u32, ranks: usize, reactor: &Reactor) -> (JobRanks, Vec<UnixStream>) {
        let mut job =
            JobRanks::begin(JobId(number), JobSlot(number), KernelSession::Own, &mut Keepers::default(), reactor)
                .unwrap();
        let clients = (0..ranks).map(|index| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let client = LocalRank(index as u16).into();
            let socket = PmiSocket::watched(Some(ours.into()), JobSlot(number), client, reactor).unwrap();
            job.ranks.push(RankIo { pmi: vec![socket], ..RankIo::default() });
            theirs
        });
        let clients = clients.collect();
        (job, clients)
    }

    /// One turn of the reactor; returns the inputs for the state machine.
    fn turn(jobs: &mut [JobRanks], reactor: &mut Reactor, now_ns: u64) -> Vec<Input> {
        let events = reactor.wait(Some(Duration::ZERO)).unwrap().to_vec();
        let (mut buffer, mut inputs) = (vec![0; 64 << 10], Vec::new());
        let turn = &mut Turn { now_ns, reactor, buffer: &mut buffer, inputs: &mut inputs };
        for event in events {
            if let Some(Token::Pmi(slot, client)) = Token::unpack(event.token) {
                let job = jobs.iter_mut().find(|job| job.slot == slot).unwrap();
                job.on_pmi_event(client, event, turn);
            }
        }
        for job in jobs {
            job.on_tick(turn);
        }
        inputs
    }

    fn heard(inputs: &[Input]) -> Vec<(u32, u16)> {
        let of = |input: &Input| match input {
            Input::ClientBytes { job, client, .. } => (job.0, client.local.0),
            other => panic!("{other:?}"),
        };
        let mut heard: Vec<(u32, u16)> = inputs.iter().map(of).collect();
        heard.sort_unstable();
        heard
    }

    fn end(jobs: Vec<JobRanks>, reactor: &Reactor) {
        for job in jobs {
            let _ = job.into_keeper().into_keeper(reactor).close();
        }
    }

    #[test]
    fn a_rest_needs_many_ranks_per_cpu_and_is_short() {
        assert_eq!(rest_ns(8, 2, 1_000), None);
        assert_eq!(rest_ns(9, 2, 1_000), Some(1_500));
        assert_eq!(rest_ns(64, 2, u64::MAX), Some(REST_NS_MAX));
    }

    #[test]
    fn a_resting_job_does_not_delay_another_job() {
        let mut reactor = Reactor::new().unwrap();
        let ((resting, mut its), (other, mut others)) = (job(1, 3, &reactor), job(2, 2, &reactor));
        let mut jobs = vec![resting, other];
        jobs[0].rest(50, &reactor);
        assert_eq!(jobs[0].deadline_ns(), Some(50));
        for client in its.iter_mut().chain(&mut others) {
            client.write_all(b"cmd=get\n").unwrap();
        }
        assert_eq!(heard(&turn(&mut jobs, &mut reactor, 10)), [(2, 0), (2, 1)]);
        assert!(turn(&mut jobs, &mut reactor, 49).is_empty(), "the reactor must not report them");
        assert!(turn(&mut jobs, &mut reactor, 50).is_empty(), "this turn only ends the rest");
        assert_eq!(jobs[0].deadline_ns(), None);
        assert_eq!(heard(&turn(&mut jobs, &mut reactor, 50)), [(1, 0), (1, 1), (1, 2)]);
        end(jobs, &reactor);
    }

    #[test]
    fn ready_requests_wait_for_the_rest_but_a_leaving_rank_does_not() {
        let mut reactor = Reactor::new().unwrap();
        let (resting, mut clients) = job(1, 2, &reactor);
        let mut jobs = vec![resting];
        clients[0].write_all(b"cmd=get\n").unwrap();
        let ready = reactor.wait(None).unwrap().to_vec();
        jobs[0].rest(50, &reactor);
        let (mut buffer, mut inputs) = (vec![0; 64 << 10], Vec::new());
        let of_turn = &mut Turn { now_ns: 0, reactor: &reactor, buffer: &mut buffer, inputs: &mut inputs };
        jobs[0].on_pmi_event(LocalRank(0).into(), ready[0], of_turn);
        assert!(inputs.is_empty());
        clients[1].write_all(b"cmd=abort\n").unwrap();
        drop(clients.pop());
        assert_eq!(heard(&turn(&mut jobs, &mut reactor, 10)), [(1, 1)]);
        let gone = turn(&mut jobs, &mut reactor, 10);
        assert!(
            matches!(gone[..], [Input::ClientGone { client: Client { local: LocalRank(1), number: 0 }, .. }]),
            "{gone:?}"
        );
        turn(&mut jobs, &mut reactor, 50);
        assert_eq!(heard(&turn(&mut jobs, &mut reactor, 50)), [(1, 0)]);
        end(jobs, &reactor);
    }

    #[test]
    fn a_rank_with_unread_replies_is_not_read_after_the_rest() {
        let mut reactor = Reactor::new().unwrap();
        let (resting, mut clients) = job(1, 1, &reactor);
        let mut jobs = vec![resting];
        jobs[0].rest(50, &reactor);
        clients[0].write_all(b"cmd=get\n").unwrap();
        jobs[0].reply(LocalRank(0).into(), vec![7; 4 << 20].into(), Vec::new(), &reactor);
        assert!(jobs[0].ranks[0].pmi[0].is_blocked);
        turn(&mut jobs, &mut reactor, 50);
        assert!(turn(&mut jobs, &mut reactor, 50).is_empty());
        let reader = std::thread::spawn(move || {
            std::io::Read::read_exact(&mut clients[0], &mut vec![0; 4 << 20]).map(|()| clients)
        });
        let heard_at_last = (0..).map(|_| turn(&mut jobs, &mut reactor, 60)).find(|inputs| !inputs.is_empty());
        assert_eq!(heard(&heard_at_last.unwrap()), [(1, 0)]);
        drop(reader.join().unwrap().unwrap());
        end(jobs, &reactor);
    }
}

//! Who is timed: the floors, wireup, the peers; how each is told to start a job.
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::cases::{Place, Work};
use crate::peers::PeerKind;
use crate::programs::Scratch;
use crate::{echo, floor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Floor { spawners: u32 },
    Echo,
    Wireup,
    Peer(PeerKind),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contestant {
    /// Unique in a benchmark, such as `hydra-5.0.2`.
    pub name: String,
    pub kind: Kind,
    pub version: String,
    /// The launcher's program; empty for the floors, which are embedded.
    pub path: PathBuf,
    /// Further arguments before the program.
    pub extra: Vec<String>,
}

impl Contestant {
    pub fn floor(spawners: u32) -> Contestant {
        Contestant::embedded(format!("floor-{spawners}"), Kind::Floor { spawners })
    }

    pub fn echo() -> Contestant {
        Contestant::embedded("echo".into(), Kind::Echo)
    }

    fn embedded(name: String, kind: Kind) -> Contestant {
        Contestant { name, kind, version: String::new(), path: PathBuf::new(), extra: Vec::new() }
    }

    /// Whether it can run this case at all.
    pub fn takes_part(&self, place: Place, work: Work) -> bool {
        let one_node = place.node_count == 1;
        match self.kind {
            // Of an MPI program the floor starts singletons: one spawner says enough.
            Kind::Floor { spawners } => one_node && (work == Work::True || work == Work::MpiInit && spawners == 1),
            Kind::Echo => one_node && matches!(work, Work::PmiInit | Work::PmiBare | Work::Exchange),
            Kind::Wireup => true,
            Kind::Peer(peer) => one_node && work != Work::Memory && (work == Work::True || peer.speaks_pmi1()),
        }
    }

    /// The command line that runs `program` (with its arguments) on every rank.
    pub fn argv(&self, scratch: &Scratch, place: Place, work: Work, program: Vec<OsString>) -> Vec<OsString> {
        let job_size = place.job_size();
        let options: Vec<String> = match self.kind {
            Kind::Floor { spawners } => return floor::argv(scratch, spawners, job_size, program),
            Kind::Echo => return echo::argv(scratch, job_size, program),
            Kind::Wireup if place.node_count == 1 => vec!["run".into(), "-n".into(), job_size.to_string()],
            Kind::Wireup => {
                let words = ["run", "-n", &job_size.to_string(), "--virtual-nodes", &place.node_count.to_string()];
                words.map(String::from).to_vec()
            }
            Kind::Peer(peer) => peer.options(job_size, work != Work::True),
        };
        let mut argv = vec![self.path.clone().into_os_string()];
        argv.extend(options.into_iter().chain(self.extra.iter().cloned()).map(OsString::from));
        argv.extend(program);
        argv
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Kind::Floor { .. } => "floor",
            Kind::Echo => "echo",
            Kind::Wireup => "wireup",
            Kind::Peer(peer) => peer.name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(argv: Vec<OsString>) -> String {
        argv[1..].iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_is_told_in_its_own_words() {
        let scratch = Scratch::create().unwrap();
        let of = |kind| Contestant { path: "/bin/x".into(), ..Contestant::embedded("x".into(), kind) };
        let tell = |kind, nodes, ppn, work| {
            words(of(kind).argv(&scratch, Place { node_count: nodes, ppn }, work, vec!["a".into(), "b".into()]))
        };
        assert_eq!(tell(Kind::Floor { spawners: 2 }, 1, 8, Work::True), "8 2 a b");
        assert_eq!(tell(Kind::Echo, 1, 8, Work::Exchange), "8 a b");
        assert_eq!(tell(Kind::Wireup, 1, 8, Work::True), "run -n 8 a b");
        assert_eq!(tell(Kind::Wireup, 4, 8, Work::True), "run -n 32 --virtual-nodes 4 a b");
        assert_eq!(tell(Kind::Peer(PeerKind::Hydra), 1, 8, Work::Exchange), "-n 8 a b");
    }

    #[test]
    fn nobody_is_asked_for_what_it_cannot_do() {
        let one = Place { node_count: 1, ppn: 4 };
        let open_mpi = Contestant::embedded("o".into(), Kind::Peer(PeerKind::OpenMpi));
        assert!(open_mpi.takes_part(one, Work::True) && !open_mpi.takes_part(one, Work::PmiInit));
        assert!(Contestant::floor(1).takes_part(one, Work::MpiInit));
        assert!(!Contestant::floor(2).takes_part(one, Work::MpiInit));
        assert!(!Contestant::echo().takes_part(one, Work::True));
        assert!(!Contestant::floor(1).takes_part(Place { node_count: 2, ppn: 4 }, Work::True));
    }
}

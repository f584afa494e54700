//! The jobs that are run, which differ in one property each.
use super::flags::Flags;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The collecting fence after two fences without data, and the skew of the start.
    Fence,
    /// The first get by direct modex.
    Direct,
    /// The cost of PMIx and UCX on their own.
    Init,
    /// `shmem_init` against the ranks per node.
    Shmem,
}

impl Part {
    pub const ALL: [Part; 4] = [Part::Fence, Part::Direct, Part::Init, Part::Shmem];

    pub fn name(self) -> &'static str {
        match self {
            Part::Fence => "fence",
            Part::Direct => "direct",
            Part::Init => "init",
            Part::Shmem => "shmem",
        }
    }
}

/// One job, run once per round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub part: Part,
    /// What distinguishes it.
    pub variant: &'static str,
    pub nodes: u32,
    pub ppn: u32,
    pub program: Client,
    /// Arguments of `wireup run`.
    pub arguments: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Collect,
    Direct {
        spin: bool,
    },
    /// Without a launcher.
    Ucx,
    Oshmem,
}

impl Task {
    pub fn name(&self) -> String {
        format!("{} {}, {}x{}", self.part.name(), self.variant, self.nodes, self.ppn)
    }
}

pub fn all(flags: &Flags) -> Vec<Task> {
    flags.parts.iter().flat_map(|part| of_part(*part, flags)).collect()
}

fn of_part(part: Part, flags: &Flags) -> Vec<Task> {
    let ppn = flags.ppn;
    let task = |variant, nodes, ppn, program, arguments: &[&'static str]| Task {
        part,
        variant,
        nodes,
        ppn,
        program,
        arguments: arguments.to_vec(),
    };
    let by_nodes =
        |variants: &dyn Fn(u32) -> Vec<Task>| flags.nodes.iter().flat_map(|nodes| variants(*nodes)).collect();
    match part {
        Part::Fence => by_nodes(&|nodes| {
            let collect = |variant, arguments: &[&'static str]| task(variant, nodes, ppn, Client::Collect, arguments);
            vec![
                collect("early wireup", &["--modex=full", "--exchange=log", "--early-wireup=yes"]),
                collect("links when needed", &["--modex=full", "--exchange=log", "--early-wireup=no"]),
                collect("through the tree", &["--modex=full", "--exchange=tree"]),
            ]
        }),
        Part::Direct => by_nodes(&|nodes| {
            let direct = |variant, spin| task(variant, nodes, ppn, Client::Direct { spin }, &["--modex=direct"]);
            vec![direct("at rest", false), direct("all cores busy", true)]
        }),
        Part::Init => vec![
            task("PMIx_Init", 1, 1, Client::Collect, &[]),
            task("PMIx_Init", 1, ppn, Client::Collect, &[]),
            task("UCX", 1, 1, Client::Ucx, &[]),
        ],
        Part::Shmem => flags.ppns.iter().map(|&ppn| task("shmem_init", 1, ppn, Client::Oshmem, &[])).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_its_jobs() {
        let flags = Flags { nodes: vec![2, 4], ppns: vec![1, 8], ..Flags::default() };
        let names: Vec<String> = all(&flags).iter().map(Task::name).collect();
        assert_eq!(names.len(), 2 * 3 + 2 * 2 + 3 + 2);
        assert!(names.contains(&"fence early wireup, 4x4".to_owned()));
        assert!(names.contains(&"shmem shmem_init, 1x8".to_owned()));
        assert_eq!(all(&Flags { parts: vec![Part::Shmem], ..flags }).len(), 2);
    }
}

//! The flags of `wireup bench steps`.
use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use super::column::Column;
use crate::common_flags::{self, CommonFlags, RESULTS, WIREUP, WIREUP_ARG};

const COLUMNS: Flag =
    Flag::value(&["--column"], "A,B,..", "Only these.").or("baseline,staged,groups,pmix-ring,on-demand");
const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Numbers of ranks.").or("16,64,256,1024");
const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a virtual node.").or("16");
const CONNECT_MAX: Flag = Flag::value(
    &["--connect-max"],
    "N",
    "Connect all to all up to this many ranks; N ranks have N x N sockets in all.",
)
.or("1024");
const PARTNERS: Flag =
    Flag::value(&["--partners"], "N", "on-demand: how many other ranks each rank sends a message to.").or("2");
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up.").or("3");
const LIMIT: Flag = common_flags::LIMIT.or("300");

pub const COMMAND: Command = Command {
    name: "bench steps",
    purpose: "time the phases of a start, by the steps that made it faster",
    intro: "
The last table of the source S2 with its phases (launch, PMI ring, group, address exchange, connect), on virtual nodes of this
machine. Each column has what the one before it has, with one thing replaced:

  baseline    put, fence and a get for each other rank, then a connection to each; the program is read from the disk
  staged      the program was copied into memory before
  groups      the ranks exchange among themselves (Bruck's alltoall); their ring comes from an allgather
  pmix-ring   their ring comes from PMIX_Ring
  on-demand   no addresses are exchanged; a connection is made with the first message
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[COLUMNS, RANKS, PPN, CONNECT_MAX, PARTNERS, ROUNDS, WIREUP, WIREUP_ARG, LIMIT] },
        RESULTS,
    ],
    end: "",
};

/// More ranks were not measured; each has an address of its own below 127.1.0.0/16.
const RANKS_MAX: u32 = 4096;
/// Fewer have no others across the job.
const RANKS_MIN: u32 = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub columns: Vec<Column>,
    pub ranks: Vec<u32>,
    pub ppn: u32,
    pub connect_max: u32,
    pub partners: u32,
    pub rounds: u32,
    pub common_flags: CommonFlags,
}

pub fn read(line: &Line) -> Result<Flags, Error> {
    let columns = Column::ALL.map(|column| (column.name(), column));
    let ranks = line.one(RANKS, |value| value.list(|ranks| ranks.number_in(RANKS_MIN, RANKS_MAX)))?;
    // The last partner of a rank is size / 2 + 2 N - 1 further on, and must not be the rank itself.
    let fewest = ranks.iter().min().copied().unwrap_or(RANKS_MIN);
    Ok(Flags {
        columns: line.one(COLUMNS, |value| value.list(|column| column.choice(&columns)))?,
        ppn: line.one(PPN, Value::at_least_one)?,
        connect_max: line.one(CONNECT_MAX, Value::number)?,
        partners: line.one(PARTNERS, |value| value.number_in(1, (fewest / 2).max(2)))?,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        common_flags: CommonFlags::read(line, LIMIT)?,
        ranks,
    })
}

impl Flags {
    /// In the order of a round.
    pub fn cases(&self) -> Vec<(Column, u32)> {
        let all = self.ranks.iter().flat_map(|ranks| self.columns.iter().map(|column| (*column, *ranks)));
        all.filter(|(column, ranks)| !column.connects_all() || *ranks <= self.connect_max).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Flags, Error> {
        read(&common_flags::line(&COMMAND, words)?)
    }

    #[test]
    fn flags_are_parsed() {
        let flags = parsed("--ranks 8,64 --connect-max 8 --column staged,on-demand").unwrap();
        let cases = [(Column::Staged, 8), (Column::OnDemand, 8), (Column::OnDemand, 64)];
        assert_eq!(flags.cases(), cases);
        assert_eq!(parsed("").unwrap().cases().len(), 4 * 5);
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in
            ["--ranks 3", "--ranks 5000", "--column x", "--ppn 0", "--partners 0", "--ranks 8 --partners 5", "x"]
        {
            assert!(parsed(words).is_err(), "{words}");
        }
    }
}

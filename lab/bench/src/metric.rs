//! The metrics: their names, their units, a sample of values.
use std::fmt;

use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// From before the command is spawned until it has been waited for (seconds).
    Wall,
    /// The same without the time of the ranks themselves: the slowest `MPI_Init`, or their sleep (seconds).
    Overhead,
    /// The first get of a value of another node: the median rank (seconds).
    FirstGet,
    /// From the first rank's start of `main` to the last rank's (seconds).
    Skew,
    /// The slowest rank's own time in the fence (seconds).
    FenceMax,
    /// User and system time of everything that the command started and waited for (seconds, 10 ms steps).
    Cpu,
    /// From the last rank's entry into the fence until the last rank's return (seconds).
    Fence,
    /// All gets of the slowest rank (seconds).
    GetAll,
    /// From the last rank's first get until the last rank's last reply (seconds).
    GetSpan,
    /// `Pss_Anon` + `Pss_Shmem` of the largest agent (bytes).
    AgentMemory,
    /// The same of the largest agent including its keepers (bytes).
    NodeMemory,
    /// Keys and values put by the whole job (bytes).
    PairBytes,
    /// Everything sent over the network until shortly after the command's end (bytes of whole frames).
    NetBytes,
    /// For one step: from the last rank's start until the last rank's end (seconds).
    Time,
    /// From the opening of the gate until the last rank's end (seconds).
    Whole,
    /// From a rank's own start until its end: the median rank, the slowest rank (seconds).
    RankMedian,
    RankMax,
    /// The same until the rank begins to wait; for a blocking scheme until its end (seconds).
    ReadyMedian,
    ReadyMax,
    /// CPU time of the call that starts the exchange: the median rank, the slowest rank (seconds).
    StartCpu,
    StartCpuMax,
    /// `PMI2_Init`: the median rank, the slowest rank (seconds).
    JoinMedian,
    JoinMax,
    /// `MPI_Init`, and the time in it that is spent with the PMI server: the median rank (seconds).
    MpiInit,
    MpiExchange,
    /// The part of the exchange that was hidden behind other work: 1 is all of it.
    Overlap,
    /// CPU time of all agents together (seconds).
    AgentCpu,
    /// `Pss_Anon` of a client: the median of those examined (bytes).
    ClientMemory,
    /// Shared memory that an agent has created and a client has mapped (bytes).
    SharedMemory,
    /// Payload that the frames of an exchange carried into a node, per value of the job. Over all links: the worst node
    /// and the mean; then the worst node for each kind of link: from children, from the parent, direct (bytes).
    InPerValue,
    InPerValueMean,
    UpInPerValue,
    DownInPerValue,
    DirectInPerValue,
    /// Frames of an exchange into a node: the worst node.
    FramesIn,
    /// Jobs that were started and waited for, per second.
    JobRate,
    /// Jobs that did not end.
    Hung,
    /// From rank 0's exec to the end of its first use of the job (seconds).
    FromExec,
    /// From the first rank's `main` to the end of the last rank's first use of the job (seconds).
    FromMain,
    /// From the farthest rank's `main` to the end of rank 0's first use of the job (seconds).
    AfterMain,
    /// Waits for messages of others, one behind the other: the rank with the most.
    Rounds,
    /// Messages that a rank has sent to others: the rank with the most.
    Messages,
    /// The same of all ranks together.
    MessagesAll,
    /// The bytes of these messages: the rank with the most, all ranks.
    Sent,
    SentAll,
    /// Messages that asked for an address: the rank with the most.
    Questions,
    /// Open connections to other ranks: the rank with the most, all ranks.
    Connections,
    ConnectionsAll,
    /// Ranks whose address a rank holds: the rank with the most.
    Addresses,
    /// Addresses on a node: held by its ranks, and different ones among them.
    NodeAddresses,
    NodeDifferent,
    /// Ranks whose counts are not those of the simulator.
    Disagreeing,
}

impl Metric {
    pub fn name(self) -> &'static str {
        match self {
            Metric::Wall => "wall",
            Metric::Overhead => "overhead",
            Metric::FirstGet => "first-get",
            Metric::Skew => "skew",
            Metric::FenceMax => "fence-max",
            Metric::Cpu => "cpu",
            Metric::Fence => "fence",
            Metric::GetAll => "get-all",
            Metric::GetSpan => "get-span",
            Metric::AgentMemory => "agent-memory",
            Metric::NodeMemory => "node-memory",
            Metric::PairBytes => "pair-bytes",
            Metric::NetBytes => "net-bytes",
            Metric::Time => "time",
            Metric::Whole => "whole",
            Metric::RankMedian => "rank-median",
            Metric::RankMax => "rank-max",
            Metric::ReadyMedian => "ready-median",
            Metric::ReadyMax => "ready-max",
            Metric::StartCpu => "start-cpu",
            Metric::StartCpuMax => "start-cpu-max",
            Metric::JoinMedian => "join-median",
            Metric::JoinMax => "join-max",
            Metric::MpiInit => "mpi-init",
            Metric::MpiExchange => "mpi-exchange",
            Metric::Overlap => "overlap",
            Metric::AgentCpu => "agent-cpu",
            Metric::ClientMemory => "client-memory",
            Metric::SharedMemory => "shared-memory",
            Metric::InPerValue => "in-per-value",
            Metric::InPerValueMean => "in-per-value-mean",
            Metric::UpInPerValue => "up-in-per-value",
            Metric::DownInPerValue => "down-in-per-value",
            Metric::DirectInPerValue => "direct-in-per-value",
            Metric::FramesIn => "frames-in",
            Metric::JobRate => "job-rate",
            Metric::Hung => "hung",
            Metric::FromExec => "from-exec",
            Metric::FromMain => "from-main",
            Metric::AfterMain => "after-main",
            Metric::Rounds => "rounds",
            Metric::Messages => "messages",
            Metric::MessagesAll => "messages-all",
            Metric::Sent => "sent",
            Metric::SentAll => "sent-all",
            Metric::Questions => "questions",
            Metric::Connections => "connections",
            Metric::ConnectionsAll => "connections-all",
            Metric::Addresses => "addresses",
            Metric::NodeAddresses => "node-addresses",
            Metric::NodeDifferent => "node-different",
            Metric::Disagreeing => "disagreeing",
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Metric::AgentMemory | Metric::NodeMemory | Metric::PairBytes | Metric::NetBytes => Unit::Bytes,
            Metric::ClientMemory | Metric::SharedMemory | Metric::InPerValue | Metric::InPerValueMean => Unit::Bytes,
            Metric::UpInPerValue | Metric::DownInPerValue | Metric::DirectInPerValue => Unit::Bytes,
            Metric::FramesIn | Metric::Hung => Unit::Count,
            Metric::Sent | Metric::SentAll => Unit::Bytes,
            Metric::Rounds | Metric::Messages | Metric::MessagesAll | Metric::Questions => Unit::Count,
            Metric::Connections | Metric::ConnectionsAll | Metric::Addresses => Unit::Count,
            Metric::NodeAddresses | Metric::NodeDifferent | Metric::Disagreeing => Unit::Count,
            Metric::JobRate => Unit::PerSecond,
            Metric::Overlap => Unit::Share,
            _ => Unit::Seconds,
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Bytes,
    /// A fraction of the whole.
    Share,
    Count,
    PerSecond,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::Share | Unit::Count => "1",
            Unit::PerSecond => "1/s",
        }
    }

    /// `value` with three significant digits, for display.
    pub fn show(self, value: f64) -> String {
        let (scaled, unit) = match (self, value.abs()) {
            (Unit::Count, _) => return format!("{value:.0}"),
            (Unit::Share, _) => return format!("{:.1} %", 100.0 * value),
            (_, 0.0) => return "0".into(),
            (Unit::Seconds, v) if v >= 1.0 => (value, "s"),
            (Unit::Seconds, v) if v >= 1e-3 => (value * 1e3, "ms"),
            (Unit::Seconds, _) => (value * 1e6, "us"),
            (Unit::Bytes, v) if v >= 1048576.0 => (value / 1048576.0, "MiB"),
            (Unit::Bytes, v) if v >= 1024.0 => (value / 1024.0, "KiB"),
            (Unit::Bytes, _) => (value, "B"),
            (Unit::PerSecond, _) => (value, "/s"),
        };
        let decimals = match scaled.abs() {
            v if v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        format!("{scaled:.decimals$} {unit}")
    }
}

/// The values of one run of one command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(pub Vec<(Metric, f64)>);

impl Sample {
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0.iter().find(|(m, _)| *m == metric).map(|(_, value)| *value)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_three_digits() {
        assert_eq!(Unit::Seconds.show(7.7), "7.70 s");
        assert_eq!(Unit::Seconds.show(0.1234), "123 ms");
        assert_eq!(Unit::Seconds.show(0.00234), "2.34 ms");
        assert_eq!(Unit::Seconds.show(0.0000123), "12.3 us");
        assert_eq!(Unit::Seconds.show(0.0), "0");
        assert_eq!(Unit::Bytes.show(3.25 * 1048576.0), "3.25 MiB");
        assert_eq!(Unit::Bytes.show(176128.0), "172 KiB");
    }
}

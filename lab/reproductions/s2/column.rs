//! The columns of S2's closing table, and the phases that its slides name.

/// Each column has what the one before it has, with one thing replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// Put, fence, and a get for each other rank; the program is read from the disk.
    Baseline,
    /// The program was copied into memory before.
    Staged,
    /// The ranks exchange among themselves (S2: spawnnet); their ring comes from an allgather.
    Groups,
    /// Their ring comes from `PMIX_Ring`.
    Ring,
    /// No addresses are exchanged; a connection is made when it is first needed.
    OnDemand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From before the launcher is started until the rank has joined its job.
    Launch,
    /// The secret and both neighbours, by the server.
    PmiRing,
    /// From the ring to the binomial graph.
    Group,
    /// Until the rank has what it needs to connect to all.
    AddressExchange,
    /// Until it is connected: to all, or to those that it has a message for.
    Connect,
}

impl Column {
    pub const ALL: [Column; 5] = [Column::Baseline, Column::Staged, Column::Groups, Column::Ring, Column::OnDemand];

    pub fn name(self) -> &'static str {
        match self {
            Column::Baseline => "baseline",
            Column::Staged => "staged",
            Column::Groups => "groups",
            Column::Ring => "pmix-ring",
            Column::OnDemand => "on-demand",
        }
    }

    pub fn of(name: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Whether each rank is connected to every other in the end.
    pub fn connects_all(self) -> bool {
        self != Column::OnDemand
    }

    /// The phases that it has.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Column::Baseline | Column::Staged => &[Phase::Launch, Phase::AddressExchange, Phase::Connect],
            Column::Groups | Column::Ring => &Phase::ALL,
            Column::OnDemand => &[Phase::Launch, Phase::PmiRing, Phase::Group, Phase::Connect],
        }
    }
}

impl Phase {
    pub const ALL: [Phase; 5] = [Phase::Launch, Phase::PmiRing, Phase::Group, Phase::AddressExchange, Phase::Connect];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Launch => "launch",
            Phase::PmiRing => "pmi-ring",
            Phase::Group => "group",
            Phase::AddressExchange => "address-exchange",
            Phase::Connect => "connect",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names() {
        assert!(Column::ALL.into_iter().all(|column| Column::of(column.name()) == Some(column)));
        assert!(Column::ALL.into_iter().all(|column| column.phases().is_sorted()));
    }
}

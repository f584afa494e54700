//! The settings of an agent's links: taken from the session's options, and from how the agent was started.

use crate::transport::addresses::SshConnection;
use std::net::{IpAddr, SocketAddr};
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Caller, SessionSpec};

#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Whether all agents are on this machine.
    pub local: bool,
    /// Number of the agent that this one dials; not used at the root.
    pub parent: AgentId,
    /// The incarnation of this agent.
    pub incarnation: u32,
    /// What was left of the start timeout when this agent was started (ns): it limits the dialling of the parent.
    pub start_timeout_ns: u64,
    /// Time for which bytes may stay unacknowledged before their link counts as lost (ns); 0: unlimited.
    pub node_timeout_ns: u64,
    pub encrypt: bool,
    /// The value of `--interface`, as the user wrote it.
    pub interface: Option<String>,
    /// `SSH_CONNECTION` of the remote shell that started this agent; `None`: there is none, or this agent is the root,
    /// whose environment may contain the variable of another shell.
    pub ssh: Option<SshConnection>,
    /// Whether the session's remote shell is ssh, so that `SSH_CONNECTION` is current. Other remote shells may have
    /// passed on an older value.
    pub by_ssh: bool,
}

impl LinkConfig {
    /// `ssh_connection`: the value of `SSH_CONNECTION` in the environment.
    pub fn new(session: &SessionSpec, me: AgentId, ssh_connection: Option<&str>) -> LinkConfig {
        let starter = session.remote_shell.start_method();
        let parent = Tree::new(session.agents.len() as u32, session.fanout).parent(me);
        LinkConfig {
            local: starter.same_machine,
            parent: parent.unwrap_or_default(),
            incarnation: 0,
            start_timeout_ns: session.start_timeout_ns,
            node_timeout_ns: session.links.node_timeout_ns,
            encrypt: session.links.encrypt,
            interface: session.links.interface.clone(),
            ssh: parent
                .and(ssh_connection)
                .filter(|_| starter.caller != Caller::Unknown)
                .and_then(SshConnection::parse),
            by_ssh: starter.caller == Caller::Stated,
        }
    }

    /// This agent's address, as used by the remote shell that started it.
    pub fn reached_at(&self) -> Option<IpAddr> {
        self.ssh.map(|ssh| ssh.server)
    }

    /// Addresses of the parent that started this agent through a remote shell: first, if it is known, the address from
    /// which the shell's connection came, at which other agents below the parent can reach the parent too; then the
    /// other addresses in `parent`.
    pub fn with_caller(&self, parent: &[String]) -> Vec<String> {
        let offered: Vec<SocketAddr> = parent.iter().filter_map(|text| text.parse().ok()).collect();
        let caller = self.called_from(&offered).zip(offered.first());
        let caller = caller.map(|(ip, offered)| SocketAddr::new(ip, offered.port()).to_string());
        let others = parent.iter().filter(|text| Some(*text) != caller.as_ref());
        caller.iter().chain(others).cloned().collect()
    }

    /// The address of the machine that started this agent through a remote shell, if the address can be trusted: ssh
    /// reports it, or the parent offers it too.
    pub fn called_from(&self, offered: &[SocketAddr]) -> Option<IpAddr> {
        let client = self.ssh?.client;
        (self.by_ssh || offered.iter().any(|address| address.ip() == client)).then_some(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::peer::{AgentSpec, LinkOptions, RemoteShell};

    fn config(shell: RemoteShell, me: u32) -> LinkConfig {
        let session = SessionSpec {
            name: "s".into(),
            fanout: 2,
            remote_shell: shell,
            shells_max: 1,
            start_timeout_ns: 1,
            links: LinkOptions { node_timeout_ns: 1, ..LinkOptions::default() },
            agents: vec![AgentSpec { host: "h".into() }; 6].into(),
            ..SessionSpec::default()
        };
        LinkConfig::new(&session, AgentId(me), Some("10.0.0.1 5 10.0.0.2 22"))
    }

    #[test]
    fn a_custom_shells_ssh_client_counts_only_if_the_parent_offers_it() {
        let client: IpAddr = "10.0.0.1".parse().unwrap();
        let (same, other) = (SocketAddr::new(client, 7), "10.0.0.9:7".parse().unwrap());
        let by_ssh = config(RemoteShell::Ssh(Vec::new()), 5);
        assert_eq!((by_ssh.parent, by_ssh.reached_at()), (AgentId(2), "10.0.0.2".parse().ok()));
        assert_eq!(by_ssh.called_from(&[other]), Some(client));
        let by_command = config(RemoteShell::Command(Vec::new()), 5);
        assert_eq!(by_command.called_from(&[other]), None);
        assert_eq!(by_command.called_from(&[other, same]), Some(client));
        assert_eq!(config(RemoteShell::Srun(Vec::new()), 5).reached_at(), None);
        assert!(!by_command.local && config(RemoteShell::Local, 1).local);
    }

    #[test]
    fn the_ssh_client_comes_first_among_the_parents_addresses() {
        let by_ssh = config(RemoteShell::Ssh(Vec::new()), 5);
        let parent = ["10.0.0.9:7".to_owned(), "10.0.0.1:7".to_owned()];
        assert_eq!(by_ssh.with_caller(&parent), ["10.0.0.1:7", "10.0.0.9:7"]);
        assert_eq!(by_ssh.with_caller(&parent[..1]), ["10.0.0.1:7", "10.0.0.9:7"]);
        assert_eq!(config(RemoteShell::Command(Vec::new()), 5).with_caller(&parent[..1]), ["10.0.0.9:7"]);
        assert!(by_ssh.with_caller(&[]).is_empty());
    }

    #[test]
    fn the_root_has_no_address_from_a_remote_shell() {
        assert_eq!(config(RemoteShell::Ssh(Vec::new()), 0).reached_at(), None);
    }
}

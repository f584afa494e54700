//! The transports that an agent has open.

use super::tcp::Tcp;
use super::ucx::Ucx;
use super::{Begin, ListenError, Transport, Which};
use crate::agent::link_config::LinkConfig;
use std::net::IpAddr;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::Point;

macro_rules! table {
    ($($name:ident $slot:ident: $transport:ty,)*) => {
        /// An agent's end of each transport that is open.
        pub struct Transports { $($slot: Option<$transport>,)* }

        impl Transports {
            /// Opens the transports that need no agreement with other agents.
            pub fn new(config: &LinkConfig) -> Transports {
                Transports { $($slot: <$transport>::open_at_start(config),)* }
            }

            /// Opens the transport that all agents must have; returns the `Point` at which other agents reach this one
            /// by it.
            ///
            /// # Errors
            /// The transport cannot be used; the text says why.
            pub fn open_agreed(&mut self, transport: AgentTransport, reactor: &Reactor) -> Result<Point, String> {
                $(if <$transport>::AGREED == Some(transport) {
                    let (opened, point) = <$transport>::open(reactor)?;
                    self.$slot = Some(opened);
                    return Ok(point);
                })*
                Err("no transport that all agents must have was asked for".into())
            }

            /// An open transport; `None`: it is not open.
            pub fn get(&mut self, which: Which) -> Option<&mut dyn Transport> {
                match which {
                    $(Which::$name => self.$slot.as_mut().map(|transport| transport as &mut dyn Transport),)*
                }
            }

            /// All open transports.
            pub fn each(&self) -> impl Iterator<Item = &dyn Transport> {
                let all = [$(self.$slot.as_ref().map(|transport| transport as &dyn Transport),)*];
                all.into_iter().flatten()
            }
        }
    };
}

table! {
    Ucx ucx: Ucx,
    Tcp tcp: Tcp,
}

impl Transports {
    /// The addresses at which other agents can dial this one, best first. The first call makes each transport with
    /// addresses listen.
    pub fn listen(&mut self, reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        let mut addresses = Vec::new();
        for which in Which::ALL {
            if let Some(transport) = self.get(*which) {
                addresses.extend(transport.listen(reactor)?);
            }
        }
        Ok(addresses)
    }

    /// An address of this machine with the name of its interface: `10.0.0.1 (eth0)`.
    pub fn describe(&mut self, ip: IpAddr) -> String {
        self.tcp.as_mut().map(|tcp| tcp.describe(ip)).unwrap_or_default()
    }
}

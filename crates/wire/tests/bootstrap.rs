//! A bootstrap message survives compression and a round trip.
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{
    AgentSpec, BOOTSTRAP_HEADER_LEN, BOOTSTRAP_LEN_MAX, Bootstrap, BootstrapLengths, LinkOptions, PeerError,
    RemoteShell, Secret, SessionSpec, bootstrap_message, encode,
};

fn bootstrap(agents: u32) -> Bootstrap {
    let session = SessionSpec {
        name: "s".into(),
        fanout: 8,
        agents: (0..agents).map(|i| AgentSpec { host: format!("cn{i:04}.cluster.example") }).collect(),
        remote_shell: RemoteShell::Command(vec!["rsh".into()]),
        shells_max: 16,
        program: "/opt/wireup/bin/wireup".into(),
        start_timeout_ns: 1,
        links: LinkOptions { node_timeout_ns: 2, ..LinkOptions::default() },
        ..SessionSpec::default()
    };
    let secret = Secret(core::array::from_fn(|i| (i * 37) as u8));
    Bootstrap {
        secret,
        agent: AgentId(3),
        parent: vec!["10.0.0.1:99".into()],
        by_parent: true,
        session,
        jobs: Vec::new(),
        snapshot: Default::default(),
    }
}

#[test]
fn a_bootstrap_shrinks_to_less_than_half_and_round_trips() {
    for agents in [64, 5000] {
        let before = bootstrap(agents);
        let bytes = before.encode();
        assert!(bytes.len() < encode(&before).len() / 2, "{} bytes for {agents} agents", bytes.len());
        let (header, body) = bytes.split_first_chunk::<BOOTSTRAP_HEADER_LEN>().unwrap();
        assert_eq!(Bootstrap::decode_header(header), Ok(BootstrapLengths { credential: 0, body: body.len() }));
        assert_eq!(Bootstrap::decode_body(body), Ok(before));
    }
}

#[test]
fn too_long_or_cut_off_bootstrap_bodies_are_refused() {
    let bomb = wireup_wire::packed::compress(&vec![0; BOOTSTRAP_LEN_MAX + 1]);
    assert!(bomb.len() < BOOTSTRAP_LEN_MAX / 100);
    assert_eq!(Bootstrap::decode_body(&bomb), Err(PeerError::Malformed));
    let bytes = bootstrap(64).encode();
    assert_eq!(Bootstrap::decode_body(&bytes[BOOTSTRAP_HEADER_LEN..bytes.len() - 1]), Err(PeerError::Malformed));
}

#[test]
fn a_header_tells_the_lengths_of_credential_and_body() {
    let message = bootstrap_message(b"MUNGE:key:", b"sealed");
    let (header, rest) = message.split_first_chunk::<BOOTSTRAP_HEADER_LEN>().unwrap();
    assert_eq!(Bootstrap::decode_header(header), Ok(BootstrapLengths { credential: 10, body: 6 }));
    assert_eq!(rest, b"MUNGE:key:sealed");
    let mut longer_than_all = *header;
    longer_than_all[6] = 17;
    assert_eq!(Bootstrap::decode_header(&longer_than_all), Err(PeerError::Malformed));
}

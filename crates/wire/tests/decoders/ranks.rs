//! What ranks and their libraries tell of themselves: where they listen, and who joins an agent.

use wireup_wire::rank_address::{LEN_MAX, candidates, encode, for_all, host, port, shift_port, sockaddr};
use wireup_wire::secondary_client::{Answer, Hello, agent, is_name};
use wireup_wire::torch_store::{RequestReader, TorchStoreError};

/// The address of a rank: there are at most eight socket addresses to dial, and encoding these gives an address with
/// the same ones. The first byte is a distance between ports.
pub fn rank_address(input: &[u8]) {
    let Some((&distance, bytes)) = input.split_first() else { return };
    let own = host(bytes).unwrap_or_default();
    let (far, near) = (candidates(bytes, !own), candidates(bytes, own));
    assert!(far.len() <= 8 && near.len() <= 1 && for_all(bytes).len() <= 8);
    assert!(far.iter().chain(&near).all(|place| port(bytes) == Some(place.port())), "the port of another address");
    assert!(far.iter().all(|place| sockaddr(place).len() == if place.is_ipv4() { 16 } else { 28 }));
    if !far.is_empty() && far.iter().all(|place| !place.ip().is_loopback()) {
        let ips: Vec<_> = far.iter().map(|place| place.ip()).collect();
        let again = encode(own, far[0].port(), &ips);
        assert!(again.len() <= LEN_MAX && bytes.starts_with(&again) && candidates(&again, !own) == far);
    }
    let Some(other) = shift_port(bytes, distance.into()) else { return };
    assert!(other.len() <= bytes.len() && host(&other) == Some(own));
    assert_eq!(port(&other), port(bytes).map(|port| port + u16::from(distance)));
    let ips = |places: Vec<std::net::SocketAddr>| places.iter().map(|place| place.ip()).collect::<Vec<_>>();
    assert_eq!(ips(candidates(&other, !own)), ips(far), "the rank at another port has other addresses");
}

/// A library that joins, the agent's answer, and the variable that leads to the agent.
pub fn secondary_client(input: &[u8]) {
    if let Some(hello) = Hello::decode(input) {
        assert!(is_name(hello.name) && hello.encode() == input);
    }
    if let Some(answer) = Answer::decode(input) {
        assert_eq!(input, [answer.encode()]);
    }
    if let Some((job, name)) = agent(input) {
        assert_eq!(agent(&[job.0.to_string().as_bytes(), b":", name].concat()), Some((job, name)));
    }
}

/// Requests to PyTorch's store: any split gives the same requests.
pub fn torch_store(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let read = |piece: usize| {
        let (mut reader, mut seen) = (RequestReader::default(), Vec::new());
        for chunk in bytes.chunks(piece) {
            reader.push(chunk)?;
            while let Some(request) = reader.next()? {
                seen.push(request);
            }
        }
        Ok::<_, TorchStoreError>(seen)
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(read(usize::from(first).max(1)), whole, "the requests depend on the split");
}

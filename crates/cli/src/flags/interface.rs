//! The value of `--interface`: an interface, an address, or a network. It is checked only as text, since the machines
//! differ.

use std::net::IpAddr;
use wireup_flags::{Error, Value};

/// Longest name of an interface on Linux.
const NAME_LEN_MAX: usize = 15;

/// The value as typed, without surrounding white space, if it may be an interface, an address or a network. Refuses
/// whatever agents would refuse.
pub fn checked(value: &Value) -> Result<String, Error> {
    let text = value.text()?;
    let advice = "give an interface (eth0), an address of one, or a network (10.1.0.0/16)";
    match problem(text.trim()) {
        None => Ok(text.trim().to_owned()),
        Some(problem) => Err(value.refused(format!("{problem}; {advice}"))),
    }
}

fn problem(value: &str) -> Option<&'static str> {
    if let Some((address, bits)) = value.split_once('/') {
        let Ok(address) = address.parse::<IpAddr>() else {
            return Some("the address before \"/\" is missing or invalid");
        };
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let fits = bits.parse::<u8>().is_ok_and(|bits| bits <= bits_max);
        return (!fits).then_some("the network length after \"/\" is invalid");
    }
    // An address may be written in brackets, as in a list of hosts.
    let bare = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(value);
    if bare.parse::<IpAddr>().is_ok() {
        return None;
    }
    let like_address = value.contains(':') || value.split('.').all(|part| part.parse::<u32>().is_ok());
    let odd = |letter: char| letter.is_whitespace() || letter.is_control();
    match () {
        () if value.is_empty() => Some("is empty"),
        () if like_address => Some("not a valid address"),
        () if value.len() > NAME_LEN_MAX || value.contains(odd) => Some("not a valid name of an interface"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(word: &str) -> Result<String, Error> {
        super::checked(&Value { flag: "--interface".into(), word: word.into() })
    }

    #[test]
    fn interface_names_addresses_and_networks_are_accepted() {
        for good in [
            "eth0", "ib0", "enp3s0f0", "eth0.100", "10.1.2.3", "fd00::1", "[fd00::1]", "10.1.0.0/16", "10.1.0.0/+8",
            "fd00::/64", "0.0.0.0/0",
        ] {
            assert_eq!(checked(good).as_deref(), Ok(good));
        }
        assert_eq!(checked(" 10.1.2.3 ").as_deref(), Ok("10.1.2.3"));
    }

    #[test]
    fn malformed_interfaces_are_refused() {
        let refused = |value: &str| checked(value).expect_err(value).to_string();
        assert_eq!(
            refused("10.1.0.0/33"),
            "--interface 10.1.0.0/33: the network length after \"/\" is invalid; give an interface (eth0), an address \
             of one, or a network (10.1.0.0/16)"
        );
        for bad in [
            "10.1/16", "10.1.0.0/", "10.1.0.0/256", "[fd00::]/64", "[fd00::1", "10.1.0", "10.1.0.300", "fd00::zz", "",
            " ", "a b", "0123456789abcdef",
        ] {
            refused(bad);
        }
    }
}

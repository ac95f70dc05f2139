//! Networks in the notation of RFC 4632 and RFC 4291.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use thiserror::Error;

/// A network: its first address, and the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NetworkError(String);

const INVALID_FORM: &str = "not an address (10.1.0.5) or a network (10.1.0.0/16)";
const TOO_MANY_BITS: &str = "more bits than such an address has";
/// Number of bits that all mapped addresses share.
const MAPPED_BITS: u8 = 96;

impl Network {
    /// Makes the network of `bits` bits that contains the address.
    fn containing(address: IpAddr, bits: u8) -> Self {
        let number = mask_bits(address, bits);
        // An IPv4 address is in the highest 32 bits of the number.
        let address = match address {
            IpAddr::V4(_) => Ipv4Addr::from_bits((number >> 96) as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        };
        Self { address, bits }
    }

    /// Converts to the IPv4 network that this network maps into IPv6; `None` if it maps none.
    fn to_unmapped(self) -> Option<Self> {
        let bits = self.bits.checked_sub(MAPPED_BITS)?;
        let IpAddr::V6(address) = self.address else {
            return None;
        };
        Some(Self::containing(address.to_ipv4_mapped()?.into(), bits))
    }

    /// Tells whether the network contains an address, which must not be a mapped one.
    pub fn contains(&self, address: IpAddr) -> bool {
        let has_same_family = self.address.is_ipv4() == address.is_ipv4();
        has_same_family && mask_bits(address, self.bits) == mask_bits(self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Parses an address, which is a network of one host, or `ADDRESS/BITS`. An error for other texts, for an address
    /// with further bits than `BITS`, and for a network of mapped addresses, which would contain no address that is
    /// looked up.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let invalid_form = || NetworkError(INVALID_FORM.to_owned());
        let (address_text, bits_text) = match text.split_once('/') {
            Some((front, back)) => (front, Some(back)),
            None => (text, None),
        };
        let address: IpAddr = address_text.parse().map_err(|_| invalid_form())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let number = match bits_text {
            None => bits_max,
            Some(digits) => protocol::parse_decimal(digits).ok_or_else(invalid_form)?,
        };
        let bits = match u8::try_from(number) {
            Ok(bits) if number <= bits_max => bits,
            _ => return Err(NetworkError(TOO_MANY_BITS.to_owned())),
        };
        let network = Self::containing(address, bits);
        // Addresses that are looked up are never mapped ones (RFC 4291 section 2.5.5.2).
        if let Some(unmapped) = network.to_unmapped() {
            return Err(NetworkError(format!(
                "IPv4 mapped into IPv6, which matches nothing; write {unmapped}"
            )));
        }
        if network.address != address {
            return Err(NetworkError(format!(
                "an address in a network, not the network; write {network} for that"
            )));
        }
        Ok(network)
    }
}

/// Converts the address to a number whose highest bit is the first bit of the address.
fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The first `bits` bits of an address as a number, whose other bits are 0.
fn mask_bits(address: IpAddr, bits: u8) -> u128 {
    // A shift by all 128 bits is `None`.
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    address_bits(address) & mask
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn contains(network: &str, address: &str) -> bool {
        network
            .parse::<Network>()
            .unwrap()
            .contains(address.parse().unwrap())
    }

    #[test]
    fn network_contains_the_addresses_from_its_first_to_its_last() {
        for (network, first, last, before, behind) in [
            (
                "10.1.0.0/16",
                "10.1.0.0",
                "10.1.255.255",
                "10.0.255.255",
                "10.2.0.0",
            ),
            (
                "10.1.2.64/26",
                "10.1.2.64",
                "10.1.2.127",
                "10.1.2.63",
                "10.1.2.128",
            ),
            ("10.1.0.5", "10.1.0.5", "10.1.0.5", "10.1.0.4", "10.1.0.6"),
            (
                "10.1.0.5/32",
                "10.1.0.5",
                "10.1.0.5",
                "10.1.0.4",
                "10.1.0.6",
            ),
            (
                "128.0.0.0/1",
                "128.0.0.0",
                "255.255.255.255",
                "127.255.255.255",
                "0.0.0.0",
            ),
            (
                "fd77::/64",
                "fd77::",
                "fd77::ffff:ffff:ffff:ffff",
                "fd76:f::",
                "fd77:0:0:1::",
            ),
            ("fd77::8/125", "fd77::8", "fd77::f", "fd77::7", "fd77::10"),
            ("fd77::5", "fd77::5", "fd77::5", "fd77::4", "fd77::6"),
            ("fe80::/10", "fe80::", "febf::1", "fe7f::", "fec0::"),
        ] {
            assert!(
                contains(network, first) && contains(network, last),
                "{network}"
            );
            assert!(
                !contains(network, before) && !contains(network, behind),
                "{network}"
            );
        }
    }

    #[test]
    fn network_contains_no_address_of_the_other_family() {
        assert!(contains("0.0.0.0/0", "0.0.0.0") && contains("0.0.0.0/0", "255.255.255.255"));
        assert!(contains("::/0", "::") && contains("::/0", "ffff::1"));
        assert!(!contains("0.0.0.0/0", "::") && !contains("::/0", "10.1.0.5"));
        // Callers unmap addresses first, and a mapped address never matches an IPv4 network.
        assert!(!contains("10.1.0.0/16", "::ffff:10.1.0.5"));
    }

    #[test]
    fn error_of_an_invalid_network_gives_the_reason() {
        let why = |text: &str| text.parse::<Network>().unwrap_err();
        for text in [
            "",
            "/",
            "/16",
            "10.1.0.0/",
            "10.1.0.0/016",
            "10.1.0.0/+16",
            "10.1.0.0/-1",
            "10.1.0.0/16/",
            "10.1.0.0/255.255.0.0",
            "10.1/16",
            "10.1.0.0 /16",
            "10.1.0.0/ 16",
            "fe80::%7/64",
            "[fd77::]/64",
            "cluster",
        ] {
            assert_eq!(why(text).0, INVALID_FORM, "{text:?}");
        }
        for text in [
            "10.1.0.0/33",
            "fd77::/129",
            "10.1.0.0/256",
            "10.1.0.0/4294967295",
        ] {
            assert_eq!(why(text).0, TOO_MANY_BITS, "{text}");
        }
        for text in [
            "10.1.0.5/16",
            "10.1.0.1/31",
            "0.0.0.1/0",
            "fd77::1/64",
            "8000::/0",
        ] {
            assert!(
                why(text).0.starts_with("an address in a network, not"),
                "{text}"
            );
        }
    }

    #[test]
    fn error_suggests_the_correct_network() {
        let assert_suggests = |text: &str, network: &str| {
            let why = text.parse::<Network>().unwrap_err().to_string();
            assert!(why.ends_with(network), "{text}: {why}");
        };
        for (text, network) in [
            ("10.1.0.5/16", "10.1.0.0/16"),
            ("0.0.0.1/0", "0.0.0.0/0"),
            ("8000::/0", "::/0"),
        ] {
            assert_suggests(text, &format!("; write {network} for that"));
        }
        for (text, network) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.0.5", "10.1.0.5/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:10.1.0.5/112", "10.1.0.0/16"),
        ] {
            assert!(
                text.parse::<Network>()
                    .unwrap_err()
                    .0
                    .starts_with("IPv4 mapped"),
                "{text}"
            );
            assert_suggests(text, &format!("; write {network}"));
        }
        // A network that contains other addresses too is valid.
        for text in ["::/0", "::/80", "::ffff:0:0:0/96", "::10.1.0.5"] {
            assert!(text.parse::<Network>().is_ok(), "{text}");
        }
    }

    /// Compares with a comparison bit by bit.
    #[test]
    fn only_the_leading_bits_decide() {
        let mut random = Random::new(4632);
        for _ in 0..20_000 {
            let bits = random.below(33) as u8;
            let first = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            let network = (random.below(u32::MAX) & first).to_be_bytes();
            // Mostly near the network, where it matters.
            let flipped = 1_u32.checked_shl(random.below(33)).unwrap_or(0);
            let address = (u32::from_be_bytes(network) ^ flipped).to_be_bytes();
            let equal = (0..bits).all(|at| {
                let bit = |bytes: [u8; 4]| bytes[usize::from(at / 8)] >> (7 - at % 8) & 1;
                bit(network) == bit(address)
            });
            let network = format!("{}/{bits}", IpAddr::from(network));
            let address = IpAddr::from(address).to_string();
            assert_eq!(
                contains(&network, &address),
                equal,
                "{address} in {network}"
            );
        }
    }
}

//! Networks in the notation of RFC 4632 and RFC 4291.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One network: an address and the number of its bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// It is not `ADDRESS` or `ADDRESS/BITS`.
    Form,
    /// The address has fewer bits.
    Bits,
    /// The address has bits that do not count.
    Host,
}

/// The networks of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address, which is no mapped one, is in one of them.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<T: IntoIterator<Item = Network>>(networks: T) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        let same = self.address.is_ipv4() == address.is_ipv4();
        same && masked(address, self.bits) == masked(self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Form)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => crate::plan::decimal(bits).ok_or(NetworkError::Form)?,
        };
        let bits = u8::try_from(bits).ok().filter(|&bits| u32::from(bits) <= most);
        let bits = bits.ok_or(NetworkError::Bits)?;
        match masked(address, bits) == number(address) {
            true => Ok(Self { address, bits }),
            false => Err(NetworkError::Host),
        }
    }
}

/// The address as a number, its first bit the highest of 128.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn masked(address: IpAddr, bits: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    number(address) & mask
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "not an address, or an address, / and its number of bits",
            Self::Bits => "more bits than such an address has",
            Self::Host => "the address has bits behind those of the network",
        })
    }
}

impl std::error::Error for NetworkError {}

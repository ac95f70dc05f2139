//! The ids of Flux jobs, in the notations of RFC 19.

use protocol::JobId;
use std::fmt;

/// The digits of Flux's notation F58 (RFC 19), by value.
const F58_DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The id of a Flux job. `Display` writes the canonical form: F58 after an ASCII `f`, as in names of
/// units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FluxId(pub u64);

impl FluxId {
    /// Parses the canonical form only; `None` for any other text.
    pub fn parse_canonical(text: &str) -> Option<Self> {
        let number = text
            .strip_prefix('f')?
            .bytes()
            .try_fold(0_u64, |number, digit| {
                let value = F58_DIGITS.iter().position(|known| *known == digit)?;
                number
                    .checked_mul(58)?
                    .checked_add(u64::try_from(value).ok()?)
            });
        // Each id has one canonical text: this refuses leading zeros and a text without digits.
        number.map(Self).filter(|id| id.to_string() == text)
    }

    /// Parses an id in the notations that Flux prints and accepts (RFC 19): F58 with either prefix, decimal,
    /// hexadecimal, dotted hexadecimal, and the KVS key with the latter. `None` for any other text, also for Flux's
    /// words and emoji.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = if text.contains('.') {
            let groups: Vec<&str> = text
                .strip_prefix("job.")
                .unwrap_or(text)
                .split('.')
                .collect();
            if groups.len() != 4 || groups.iter().any(|group| group.len() != 4) {
                return None;
            }
            parse_hexadecimal(&groups.concat())
        } else if let Some(digits) = text.strip_prefix("0x") {
            parse_hexadecimal(digits)
        } else if text.starts_with(|first: char| first.is_ascii_digit()) {
            // A decimal id has no leading zeros.
            text.parse()
                .ok()
                .filter(|number: &u64| number.to_string() == text)
        } else {
            // U+0192 is the florin sign that Flux prints before F58.
            let digits = text.strip_prefix(['\u{192}', 'f'])?;
            return Self::parse_canonical(&format!("f{digits}"));
        };
        number.map(Self)
    }

    /// Parses an id in any notation into the canonical form, which records, choices, units and the log have; `None`
    /// for a text that is no id.
    #[must_use]
    pub fn parse_job_id(text: &str) -> Option<JobId> {
        Self::parse(text)?.to_string().parse().ok()
    }
}

impl fmt::Display for FluxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The largest power of 58 that is not above the number, for its first digit.
        let mut place = 1_u64;
        while self.0 / place >= 58 {
            place = place.saturating_mul(58);
        }
        f.write_str("f")?;
        while place > 0 {
            // The value is below 58, so each conversion succeeds.
            let value = usize::try_from(self.0 / place % 58).unwrap_or_default();
            let digit = F58_DIGITS.get(value).copied().unwrap_or_default();
            fmt::Write::write_char(f, char::from(digit))?;
            place /= 58;
        }
        Ok(())
    }
}

/// Parses at most 16 hexadecimal digits, without a sign; `None` for any other text.
fn parse_hexadecimal(digits: &str) -> Option<u64> {
    if digits.len() > 16 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// RFC 19 and the tests of flux-core.
    const VECTORS: [(u64, &str); 14] = [
        (0, "f1"),
        (1, "f2"),
        (57, "fz"),
        (1234, "fNH"),
        (1888, "fZZ"),
        (3363, "fzz"),
        (3364, "f211"),
        (4369, "f2JL"),
        (65535, "fLUv"),
        (4_294_967_295, "f7YXq9G"),
        (633_528_662, "fxyzzy"),
        (6_731_191_091_817_518, "fuZZybuNNy"),
        (u64::MAX - 1, "fjpXCZedGfVP"),
        (u64::MAX, "fjpXCZedGfVQ"),
    ];

    #[test]
    fn ids_of_rfc_19_are_parsed() {
        for (number, text) in VECTORS {
            assert_eq!(FluxId(number).to_string(), text);
            assert_eq!(
                FluxId::parse_canonical(text),
                Some(FluxId(number)),
                "{text}"
            );
            assert_eq!(FluxId::parse(text), Some(FluxId(number)), "{text}");
            let signed = text.replacen('f', "\u{192}", 1);
            assert_eq!(FluxId::parse(&signed), Some(FluxId(number)), "{signed}");
            assert_eq!(FluxId::parse(&number.to_string()), Some(FluxId(number)));
            assert_eq!(FluxId::parse_canonical(&signed), None, "{signed}");
        }
        for text in [
            "6731191091817518",
            "\u{192}uZZybuNNy",
            "fuZZybuNNy",
            "0x17e9fb8df16c2e",
            "0x0017E9FB8DF16C2E",
            "0017.e9fb.8df1.6c2e",
            "job.0017.e9fb.8df1.6c2e",
        ] {
            assert_eq!(
                FluxId::parse(text),
                Some(FluxId(6_731_191_091_817_518)),
                "{text}"
            );
            assert_eq!(FluxId::parse_job_id(text).unwrap().as_str(), "fuZZybuNNy");
        }
        for text in ["000e.daf9.7d00.0000", "0xedaf97d000000", "\u{192}ZemgA8Bzf"] {
            assert_eq!(
                FluxId::parse(text),
                Some(FluxId(0x000e_daf9_7d00_0000)),
                "{text}"
            );
        }
    }

    #[test]
    fn each_notation_parses_to_its_number() {
        let mut random = Random::new(1958);
        for _ in 0..20_000 {
            let wide = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
            let number = wide >> random.below(64);
            let [a, b, c, d] = [48, 32, 16, 0].map(|shift| number >> shift & 0xffff);
            let f58 = FluxId(number).to_string();
            for text in [
                f58.replacen('f', "\u{192}", 1),
                number.to_string(),
                format!("{number:#x}"),
                format!("{a:04x}.{b:04x}.{c:04x}.{d:04x}"),
                format!("job.{a:04x}.{b:04x}.{c:04x}.{d:04x}"),
                f58.clone(),
            ] {
                assert_eq!(FluxId::parse_job_id(&text).unwrap().as_str(), f58, "{text}");
            }
        }
    }

    #[test]
    fn malformed_ids_are_refused() {
        for text in [
            "",
            "f",
            "\u{192}",
            "ff1 ",
            "aaa",
            "flux",
            "f1230",
            "x1",
            "f-1",
            "f 1",
            "F1",
            "f1\0",
            "f\u{e4}",
            "f\u{192}1",
            "f0",
            "fO",
            "fI",
            "fl",
            "f111",
            "f11",
            "f12",
            // One more than 64 bits hold, more digits than they take, and many more.
            "fjpXCZedGfVR",
            "fzzzzzzzzzzz",
            "f211111111111",
            "fjpXCZedGfVQ1",
        ] {
            assert_eq!(FluxId::parse_canonical(text), None, "{text:?}");
            assert_eq!(FluxId::parse(text), None, "{text:?}");
        }
        for text in [
            "-1",
            "+1",
            "007",
            "1 ",
            "1.2",
            "18446744073709551616",
            "\u{661}",
            "0x",
            "0X10",
            "0x+1",
            "0x10000000000000000",
            "0x0g",
            "0017.e9fb.8df1",
            "0017.e9fb.8df1.6c2e.0000",
            "17.e9fb.8df1.6c2e",
            "+017.e9fb.8df1.6c2e",
            "job.f1",
            "job.1",
            "0017.e9fb.8df1.6c2",
            "reform-remote-galileo--heart-package-academy",
        ] {
            assert_eq!(FluxId::parse(text), None, "{text:?}");
        }
        assert_eq!(FluxId::parse_canonical("1234"), None);
        assert_eq!(
            FluxId::parse_canonical(&format!("f{}", "z".repeat(5000))),
            None
        );
    }

    #[test]
    fn each_number_has_one_canonical_form() {
        let mut random = Random::new(19);
        let mut previous: Option<(u64, String)> = None;
        for _ in 0..20_000 {
            let wide = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
            let number = wide >> random.below(64);
            let text = FluxId(number).to_string();
            assert_eq!(
                FluxId::parse_canonical(&text),
                Some(FluxId(number)),
                "{text}"
            );
            if let Some((other, shown)) = previous {
                assert_eq!(other == number, shown == text);
            }
            previous = Some((number, text));
        }
    }

    #[test]
    fn canonical_form_is_displayed_unchanged() {
        let mut random = Random::new(58);
        let signs: Vec<char> = "f12zQOl0 \u{192}\u{e4}".chars().collect();
        for _ in 0..20_000 {
            let length = random.index(14);
            let text: String = (0..length).map(|_| random.one_of(&signs)).collect();
            if let Some(id) = FluxId::parse_canonical(&text) {
                assert_eq!(id.to_string(), text);
            }
        }
    }
}

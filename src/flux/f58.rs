//! Ids of jobs in Flux's notation F58 (RFC 19).

use std::fmt;

/// The digits: those of base 58, by value.
const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Number of digits.
const BASE: u64 = 58;
/// Most digits of a 64-bit number.
const DIGITS_MAX: usize = 11;

/// A job's id. It is shown in F58 with an ASCII `f` in front, as names of units have it, which is
/// its canonical form here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FluxId(pub u64);

impl FluxId {
    /// Reads the canonical form alone.
    pub fn canonical(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('f')?.as_bytes();
        (1..=DIGITS_MAX).contains(&digits.len()).then_some(())?;
        // A digit of value 0 in front adds nothing: only the number 0 is written with one.
        (digits.len() == 1 || digits.first() != Some(&b'1')).then_some(())?;
        number(digits).map(Self)
    }
}

/// The number of these digits; `None` with another among them, or past 64 bits.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| {
        let value = DIGITS.iter().position(|known| known == digit)?;
        number.checked_mul(BASE)?.checked_add(u64::try_from(value).ok()?)
    })
}

impl fmt::Display for FluxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = 1_u64;
        while self.0 / place >= BASE {
            place = place.saturating_mul(BASE);
        }
        f.write_str("f")?;
        while place > 0 {
            let value = usize::try_from(self.0 / place % BASE).unwrap_or_default();
            let digit = DIGITS.get(value).copied().unwrap_or_default();
            fmt::Write::write_char(f, char::from(digit))?;
            place /= BASE;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

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
    fn known_ids() {
        for (number, text) in VECTORS {
            assert_eq!(FluxId(number).to_string(), text);
            assert_eq!(FluxId::canonical(text), Some(FluxId(number)), "{text}");
            assert_eq!(FluxId::read(text), Some(FluxId(number)), "{text}");
            let signed = text.replacen('f', "\u{192}", 1);
            assert_eq!(FluxId::read(&signed), Some(FluxId(number)), "{signed}");
            assert_eq!(FluxId::read(&number.to_string()), Some(FluxId(number)));
            assert_eq!(FluxId::canonical(&signed), None, "{signed}");
        }
    }

    #[test]
    fn what_is_no_id() {
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
            assert_eq!(FluxId::canonical(text), None, "{text:?}");
            assert_eq!(FluxId::read(text), None, "{text:?}");
        }
        for text in ["-1", "+1", "007", "1 ", "0x10", "1.2", "18446744073709551616", "\u{661}"] {
            assert_eq!(FluxId::read(text), None, "{text:?}");
        }
        assert_eq!(FluxId::canonical("1234"), None);
        assert_eq!(FluxId::canonical(&format!("f{}", "z".repeat(5000))), None);
    }

    #[test]
    fn every_number_has_one_text() {
        let mut random = Random::new(19);
        let mut previous: Option<(u64, String)> = None;
        for _ in 0..20_000 {
            let wide = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
            let number = wide >> random.below(64);
            let text = FluxId(number).to_string();
            assert_eq!(FluxId::canonical(&text), Some(FluxId(number)), "{text}");
            if let Some((other, shown)) = previous {
                assert_eq!(other == number, shown == text);
            }
            previous = Some((number, text));
        }
    }

    #[test]
    fn whatever_is_read_is_shown_as_it_was() {
        let mut random = Random::new(58);
        let signs: Vec<char> = "f12zQOl0 \u{192}\u{e4}".chars().collect();
        for _ in 0..20_000 {
            let length = random.index(14);
            let text: String = (0..length).map(|_| random.one_of(&signs)).collect();
            if let Some(id) = FluxId::canonical(&text) {
                assert_eq!(id.to_string(), text);
            }
        }
    }
}

//! A generator for property tests: the same sequence from the same seed.

/// The generator of Marsaglia's "Xorshift RNGs" with the shifts 13, 7 and 17.
pub(crate) struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % bound
    }

    /// A place among so many.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.below(u32::try_from(count).unwrap()) as usize
    }

    /// One of several.
    pub(crate) fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.index(several.len())]
    }
}

//! Instructions whose jumps go to labels until all places are known.

use crate::kernel::bpf::insn::{Insn, Register};

/// A place in the program, perhaps not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

#[derive(Default)]
pub(super) struct Assembler {
    program: Vec<Insn>,
    /// Index of the instruction that each label stands before.
    places: Vec<Option<usize>>,
    /// Indexes of the jumps, and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label without a place.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Puts the label before the next instruction. A jump that would go there from right before
    /// it is left out: the verifier would drop it.
    pub(super) fn place(&mut self, label: Label) {
        let last = self.program.len().wrapping_sub(1);
        if self.jumps.last() == Some(&(last, label)) && self.program.last() == Some(&Insn::jump(0))
        {
            self.jumps.pop();
            self.program.pop();
        }
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(self.program.len());
        }
    }

    pub(super) fn extend(&mut self, insns: &[Insn]) {
        self.program.extend_from_slice(insns);
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.program.push(Insn::jump(0));
    }

    /// Jumps if `register condition imm` holds for 32 unsigned bits.
    pub(super) fn jump_if(&mut self, condition: u8, register: Register, imm: u32, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.program.push(Insn::jump32_imm(condition, register, imm, 0));
    }

    /// The program; `None` where a jump is too far for 16 bits or goes nowhere.
    pub(super) fn finish(mut self) -> Option<Vec<Insn>> {
        for (at, label) in &self.jumps {
            let place = self.places.get(label.0).copied().flatten()?;
            let distance = place.checked_sub(at + 1)?;
            self.program.get_mut(*at)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.program)
    }
}

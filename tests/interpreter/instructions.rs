//! Tests of single instructions, of blinded programs, and of programs that are not understood.

use super::*;
use kernel::bpf::generate::code::{BPF_EXIT, BPF_JA, BPF_K, BPF_MOV};

const REQUEST: Request = Request {
    kind: DeviceType::Char,
    major: 195,
    minor: 255,
    access: Access::RW,
};

fn run_program(program: &[Insn]) -> Option<bool> {
    run(program, REQUEST)
}

/// Runs `body`; returns whether register 2 then has `value`.
fn sets_register_2(body: &[Insn], value: i32) -> Option<bool> {
    let mut program = body.to_vec();
    program.extend([
        Insn::mov64_imm(0, 0),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 1, value),
        Insn::mov64_imm(0, 1),
        Insn::exit(),
    ]);
    run_program(&program)
}

fn load(size: u8, offset: i16) -> Insn {
    Insn::new(BPF_LDX | BPF_MEM | size, 2, 1, offset, 0)
}

#[test]
fn context_has_layout_of_kernel() {
    assert_eq!(sets_register_2(&[load(BPF_W, 0)], 6 << 16 | 2), Some(true));
    assert_eq!(sets_register_2(&[load(BPF_W, 4)], 195), Some(true));
    assert_eq!(sets_register_2(&[load(BPF_W, 8)], 255), Some(true));
    let (low, high) = if cfg!(target_endian = "little") {
        (2, 6)
    } else {
        (6, 2)
    };
    assert_eq!(sets_register_2(&[load(BPF_H, 0)], low), Some(true));
    assert_eq!(sets_register_2(&[load(BPF_H, 2)], high), Some(true));
}

#[test]
fn copy_of_context_pointer_can_be_read() {
    let copy = Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
    let load = Insn::load_word(2, 6, CTX_MAJOR);
    assert_eq!(sets_register_2(&[copy, load], 195), Some(true));
}

#[test]
fn arithmetic_gives_results_of_kernel() {
    for class in [BPF_ALU, BPF_ALU64] {
        for (operation, right, result) in [
            (BPF_MOV, 5, 5),
            (BPF_ADD, 3, 15),
            (BPF_AND, 10, 8),
            (BPF_OR, 3, 15),
            (BPF_XOR, 10, 6),
            (BPF_LSH, 2, 48),
            (BPF_RSH, 2, 3),
        ] {
            let start = Insn::mov64_imm(2, 12);
            let by_imm = Insn::new(class | operation | BPF_K, 2, 0, 0, right);
            assert_eq!(
                sets_register_2(&[start, by_imm], result),
                Some(true),
                "{operation:#x}"
            );
            let other = Insn::mov64_imm(3, right);
            let by_reg = Insn::new(class | operation | BPF_X, 2, 3, 0, 0);
            let body = [start, other, by_reg];
            assert_eq!(sets_register_2(&body, result), Some(true), "{operation:#x}");
        }
    }
}

#[test]
fn narrow_arithmetic_clears_upper_half() {
    let minus_one = Insn::mov64_imm(2, -1);
    let shift = Insn::new(BPF_ALU64 | BPF_RSH | BPF_K, 2, 0, 0, 32);
    assert_eq!(sets_register_2(&[minus_one, shift], -1), Some(false));
    let narrow = Insn::alu32_imm(BPF_OR, 2, 0);
    assert_eq!(sets_register_2(&[minus_one, narrow, shift], 0), Some(true));
    let narrow_move = Insn::alu32_reg(BPF_MOV, 2, 2);
    assert_eq!(
        sets_register_2(&[minus_one, narrow_move, shift], 0),
        Some(true)
    );
}

#[test]
fn jumps_are_taken_if_condition_holds() {
    for (condition, expected) in [
        (BPF_JEQ, [false, true, false]),
        (BPF_JNE, [true, false, true]),
        (BPF_JGT, [false, false, true]),
        (BPF_JGE, [false, true, true]),
        (BPF_JLT, [true, false, false]),
        (BPF_JLE, [true, true, false]),
        (BPF_JSET, [false, true, true]),
    ] {
        for class in [BPF_JMP, BPF_JMP32] {
            for (left, taken) in [8, 10, 11].into_iter().zip(expected) {
                let right = if condition == BPF_JSET { 2 } else { 10 };
                for (kind, src, imm) in [(BPF_K, 0, right), (BPF_X, 3, 0)] {
                    let program = [
                        Insn::mov64_imm(0, 1),
                        Insn::mov64_imm(2, left),
                        Insn::mov64_imm(3, right),
                        Insn::new(class | condition | kind, 2, src, 1, imm),
                        Insn::mov64_imm(0, 0),
                        Insn::exit(),
                    ];
                    assert_eq!(run_program(&program), Some(taken), "{condition:#x} {left}");
                }
            }
        }
    }
}

#[test]
fn only_wide_jumps_compare_upper_half() {
    let wide = |register| Insn::mov64_imm(register, -1);
    let narrow = |register| Insn::new(BPF_ALU | BPF_MOV | BPF_K, register, 0, 0, -1);
    for (class, taken) in [(BPF_JMP, false), (BPF_JMP32, true)] {
        for (left, right) in [(wide(2), narrow(3)), (narrow(2), wide(3))] {
            let program = [
                Insn::mov64_imm(0, 1),
                left,
                right,
                Insn::new(class | BPF_JEQ | BPF_X, 2, 3, 1, 0),
                Insn::mov64_imm(0, 0),
                Insn::exit(),
            ];
            assert_eq!(run_program(&program), Some(taken));
        }
    }
}

/// Blinds `program` as the kernel does, with the auxiliary register 11 for each constant.
fn blind(program: &[Insn]) -> Vec<Insn> {
    const AX: u8 = 11;
    let random = 0x5bad_cafe;
    let mut out = Vec::new();
    let mut starts = Vec::new();
    for insn in program {
        starts.push(out.len());
        let class = insn.code & CLASS_MASK;
        let constant = matches!(class, BPF_ALU | BPF_ALU64 | BPF_JMP | BPF_JMP32)
            && insn.code & BPF_X == 0
            && !matches!(*insn, jump if jump == Insn::exit() || jump == Insn::jump(jump.offset));
        if !constant {
            out.push(*insn);
        } else if *insn == Insn::mov64_imm(dst_register(*insn), 0) {
            out.push(Insn::new(
                BPF_ALU64 | BPF_XOR | BPF_X,
                dst_register(*insn),
                dst_register(*insn),
                0,
                0,
            ));
        } else {
            let class = if matches!(class, BPF_ALU | BPF_JMP32) {
                BPF_ALU
            } else {
                BPF_ALU64
            };
            out.push(Insn::new(
                class | BPF_MOV | BPF_K,
                AX,
                0,
                0,
                random ^ insn.imm,
            ));
            out.push(Insn::new(class | BPF_XOR | BPF_K, AX, 0, 0, random));
            out.push(Insn::new(
                insn.code | BPF_X,
                dst_register(*insn),
                AX,
                insn.offset,
                0,
            ));
        }
    }
    starts.push(out.len());
    for (index, insn) in program.iter().enumerate() {
        let jumps = matches!(insn.code & CLASS_MASK, BPF_JMP | BPF_JMP32) && *insn != Insn::exit();
        if jumps {
            let target = starts[(index + 1).checked_add_signed(insn.offset.into()).unwrap()];
            let last = starts[index + 1] - 1;
            out[last].offset = i16::try_from(target - last - 1).unwrap();
        }
    }
    out
}

#[test]
fn blinded_constants_change_no_answer() {
    let mut list = protocol::Allowlist::new();
    for rule in [
        "c:195:0:rw",
        "c:195:255:r",
        "b:7:-1:rwm",
        "c:1:3:rwm",
        "c:4095:0:m",
    ] {
        list.push(rule.parse().unwrap()).unwrap();
    }
    let plain = kernel::bpf::allow_rules(list.rules());
    let blinded = blind(&plain);
    assert!(blinded.len() > plain.len() * 2);
    for kind in [DeviceType::Char, DeviceType::Block] {
        for (major, minor) in [
            (195, 0),
            (195, 255),
            (195, 1),
            (7, 9),
            (1, 3),
            (4095, 0),
            (0, 0),
        ] {
            for bits in 0..8 {
                let access = Access::from_bits(bits).unwrap();
                let request = Request {
                    kind,
                    major,
                    minor,
                    access,
                };
                assert_eq!(run(&blinded, request), run(&plain, request), "{request:?}");
                assert!(run(&blinded, request).is_some());
            }
        }
    }
}

#[test]
fn zero_extension_of_kernel_clears_upper_half() {
    let shift = Insn::new(BPF_ALU64 | BPF_RSH | BPF_K, 2, 0, 0, 32);
    let clears = Insn::new(BPF_ALU | BPF_MOV | BPF_X, 2, 2, 0, 1);
    assert_eq!(
        sets_register_2(&[Insn::mov64_imm(2, -1), clears, shift], 0),
        Some(true)
    );
    let other = Insn::new(BPF_ALU | BPF_MOV | BPF_X, 2, 3, 0, 1);
    let body = [Insn::mov64_imm(2, 0), Insn::mov64_imm(3, 0), other];
    assert_eq!(sets_register_2(&body, 0), None);
}

#[test]
fn unknown_instruction_gives_no_decision() {
    let allow = Insn::mov64_imm(0, 1);
    let programs: [&[Insn]; 20] = [
        &[],
        &[allow],
        &[Insn::exit()],
        &[Insn::mov64_imm(0, 2), Insn::exit()],
        &[allow, Insn::jump(-1), Insn::exit()],
        &[allow, Insn::jump(-9), Insn::exit()],
        &[allow, Insn::jump(1), Insn::exit()],
        // A call, a store, a wide immediate, an atomic add, a far jump.
        &[allow, Insn::new(0x85, 0, 0, 0, 1), Insn::exit()],
        &[allow, Insn::new(0x62, 10, 0, -4, 0), Insn::exit()],
        &[
            allow,
            Insn::new(0x18, 1, 1, 0, 3),
            Insn::new(0, 0, 0, 0, 0),
            Insn::exit(),
        ],
        &[allow, Insn::new(0xdb, 10, 0, -8, 0), Insn::exit()],
        &[
            allow,
            Insn::new(BPF_JMP32 | BPF_JA, 0, 0, 0, 1),
            Insn::exit(),
            Insn::exit(),
        ],
        // A load beyond the context, of half of the major, and through a number.
        &[allow, load(BPF_W, 12), Insn::exit()],
        &[allow, load(BPF_H, 4), Insn::exit()],
        &[allow, Insn::load_word(2, 0, 0), Insn::exit()],
        // An unset register, the frame pointer, the context as a number.
        &[allow, Insn::alu32_reg(BPF_OR, 0, 4), Insn::exit()],
        &[allow, Insn::alu32_reg(BPF_XOR, 4, 0), Insn::exit()],
        &[allow, Insn::mov64_imm(10, 0), Insn::exit()],
        &[
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 0, 0),
            Insn::exit(),
        ],
        // A signed comparison.
        &[allow, Insn::new(BPF_JMP | 0x60, 0, 0, 0, 0), Insn::exit()],
    ];
    for program in programs {
        assert_eq!(run_program(program), None, "{program:?}");
    }
}

#[test]
fn unused_field_that_is_not_zero_gives_no_decision() {
    for (code, dst, src, offset, imm) in [
        (BPF_JMP | BPF_EXIT, 1, 0, 0, 0),
        (BPF_JMP | BPF_EXIT, 0, 0, 0, 1),
        (BPF_JMP | BPF_JA, 0, 0, 0, 1),
        (BPF_ALU64 | BPF_MOV | BPF_X, 0, 0, 8, 0),
        (BPF_ALU64 | BPF_MOV | BPF_X, 0, 0, 0, 1),
        (BPF_ALU64 | BPF_MOV | BPF_K, 0, 3, 0, 1),
        (BPF_ALU64 | BPF_LSH | BPF_K, 0, 0, 0, 64),
        (BPF_ALU | BPF_LSH | BPF_K, 0, 0, 0, 32),
        (BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 1),
    ] {
        let program = [
            Insn::mov64_imm(0, 1),
            Insn::new(code, dst, src, offset, imm),
            Insn::exit(),
        ];
        assert_eq!(run_program(&program), None, "{code:#x}");
    }
}

#[test]
fn decoded_instruction_equals_encoded_one() {
    let jump = Insn::new(BPF_JMP32 | BPF_JSET, 2, 5, -2, 0x0102_0304);
    assert_eq!(decode(jump.to_bytes()), jump);
    assert_eq!((dst_register(jump), src_register(jump)), (2, 5));
}

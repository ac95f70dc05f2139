//! Foreign device programs: eight bytes of request, then instructions.
#![no_main]

use interpreter::{decode, run};
use job_adopt_fuzz::Bytes;
use kernel::bpf::{INSN_BYTES, Insn};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let Some(request) = bytes.request() else {
        return;
    };
    let mut program = Vec::new();
    while let Some(insn) = bytes.take::<INSN_BYTES>() {
        program.push(decode(insn));
        assert_eq!(decode(insn).to_bytes(), insn);
    }
    let answer = run(&program, request);
    if let Some(answer) = answer {
        program.push(Insn::exit());
        assert_eq!(
            run(&program, request),
            Some(answer),
            "what follows the end was run"
        );
    }
});

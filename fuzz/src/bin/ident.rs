//! The two lines of the Identification Protocol: a question from any host, an answer from any host.
#![no_main]

use helper::callerid::{Answer, LINE_MAX, Query};
use job_adopt_fuzz::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(query) = Query::parse(bytes) {
        assert!(query.local > 0 && query.foreign > 0);
        assert_eq!(Query::parse(query.to_line().as_bytes()), Some(query));
    }
    let mut rest = Bytes(bytes);
    let Some([a, b, c, d]) = rest.take() else {
        return;
    };
    let query = Query {
        local: u16::from_be_bytes([a, b]),
        foreign: u16::from_be_bytes([c, d]),
    };
    let pair = query.to_line();
    // Once after the ports of the question, and once with its own ports.
    let echoed = [pair.trim_end().as_bytes(), rest.0].concat();
    for line in [&echoed[..], rest.0] {
        if let Some(answer) = Answer::parse(line, query) {
            let written = answer.to_line(query);
            assert!(line.len() <= LINE_MAX && written.len() <= LINE_MAX);
            assert_eq!(Answer::parse(written.as_bytes(), query), Some(answer));
            let other = Query {
                local: query.local ^ 1,
                ..query
            };
            assert!(
                Answer::parse(line, other).is_none(),
                "an answer to two questions"
            );
        }
    }
});

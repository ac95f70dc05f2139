//! The two lines of the Identification Protocol (RFC 1413 sections 3 to 6).
//!
//! Lines are written in the form of the protocol's own examples. Lines that are read may have blanks
//! wherever the protocol allows them, and no other variation that it leaves open.

use protocol::JobId;

/// Maximum bytes of either line, with its end. Lines of this crate are much shorter.
pub const LINE_MAX: usize = 256;
/// Maximum digits of a port, with leading zeros.
const PORT_DIGITS_MAX: usize = 5;
const ERROR_TOKEN_MAX: usize = 64;

/// A query about a connection between the two hosts that talk, by its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The port on the queried host, which is the ssh client's.
    pub local: u16,
    /// The port on the querying host, which is sshd's.
    pub foreign: u16,
}

/// An answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The connection belongs to this job: `USERID : OTHER : 4242`. The operating system `OTHER`
    /// means that the id is no user name.
    Job(JobId),
    /// There is no such connection, or no job owns it: `ERROR : NO-USER`.
    NoUser,
    /// The querying host may not know: `ERROR : HIDDEN-USER`.
    Hidden,
    /// The query had no two ports: `ERROR : INVALID-PORT`.
    InvalidPort,
    /// The look-up failed: `ERROR : UNKNOWN-ERROR`.
    Unknown,
}

impl Query {
    /// The ports in an answer to a query that had no two ports.
    pub const NONE: Self = Self {
        local: 0,
        foreign: 0,
    };

    /// The line of the query.
    pub fn to_line(self) -> String {
        format!("{self}\r\n")
    }

    /// Parses the line of a query, with or without its end: two ports, neither of them 0. `None` for any other line;
    /// the answer to it is [`Answer::InvalidPort`].
    pub fn parse(line: &[u8]) -> Option<Self> {
        Self::parse_pair(decode_line(line)?).filter(|query| query.local > 0 && query.foreign > 0)
    }

    /// Parses two ports, which may be 0, with a comma between them.
    fn parse_pair(pair: &str) -> Option<Self> {
        let (local, foreign) = pair.split_once(',')?;
        Some(Self {
            local: parse_port(local)?,
            foreign: parse_port(foreign)?,
        })
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} , {}", self.local, self.foreign)
    }
}

impl Answer {
    /// The line of the answer to `query`.
    pub fn to_line(&self, query: Query) -> String {
        match self {
            Self::Job(id) => format!("{query} : USERID : OTHER : {id}\r\n"),
            Self::NoUser => format!("{query} : ERROR : NO-USER\r\n"),
            Self::Hidden => format!("{query} : ERROR : HIDDEN-USER\r\n"),
            Self::InvalidPort => format!("{query} : ERROR : INVALID-PORT\r\n"),
            Self::Unknown => format!("{query} : ERROR : UNKNOWN-ERROR\r\n"),
        }
    }

    /// Parses the line of an answer to `query`, with or without its end. An error token of the
    /// sender's own, which begins with `X`, is [`Answer::Unknown`]. `None` for any other line, for
    /// an answer about other ports, for the user of a real system, and for an id that no job can
    /// have.
    pub fn parse(line: &[u8], query: Query) -> Option<Self> {
        let (pair, rest) = decode_line(line)?.split_once(':')?;
        let (kind, rest) = rest.split_once(':')?;
        if Query::parse_pair(pair)? != query {
            return None;
        }
        match trim_blanks(kind) {
            "ERROR" => Self::parse_error(trim_blanks(rest)),
            "USERID" => {
                let (system, id) = rest.split_once(':')?;
                // All text after the colon is the id, so blanks at its end would be part of it.
                let id = id.trim_start_matches(BLANKS).parse().ok()?;
                is_other(system).then_some(Self::Job(id))
            }
            _ => None,
        }
    }

    /// Parses the token of an error; `None` for a token that the protocol does not have and that does not begin with
    /// `X`.
    fn parse_error(token: &str) -> Option<Self> {
        match token {
            "NO-USER" => Some(Self::NoUser),
            "HIDDEN-USER" => Some(Self::Hidden),
            "INVALID-PORT" => Some(Self::InvalidPort),
            "UNKNOWN-ERROR" => Some(Self::Unknown),
            _ => {
                let has_prefix =
                    token.starts_with('X') && (2..=ERROR_TOKEN_MAX).contains(&token.len());
                let is_plain = token
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b':');
                (has_prefix && is_plain).then_some(Self::Unknown)
            }
        }
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

/// Removes blanks and tabs around a text.
fn trim_blanks(text: &str) -> &str {
    text.trim_matches(BLANKS)
}

/// Decodes the text of one line without its end, which may lack the carriage return. `None` for a line that is too
/// long or not UTF-8.
fn decode_line(line: &[u8]) -> Option<&str> {
    if line.len() > LINE_MAX {
        return None;
    }
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    std::str::from_utf8(text).ok()
}

/// Parses a port of one to five digits, which may begin with zeros; `None` for any other text or a larger number.
fn parse_port(text: &str) -> Option<u16> {
    let digits = trim_blanks(text);
    let is_decimal = (1..=PORT_DIGITS_MAX).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal {
        return None;
    }
    digits.parse().ok()
}

/// Tells whether the system is `OTHER`, with or without the name of the default character set.
fn is_other(system: &str) -> bool {
    let (system, charset) = system.split_once(',').unwrap_or((system, "US-ASCII"));
    trim_blanks(system) == "OTHER" && trim_blanks(charset) == "US-ASCII"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    const QUERY: Query = Query {
        local: 6193,
        foreign: 22,
    };

    fn job(id: &str) -> Option<Answer> {
        Some(Answer::Job(id.parse().unwrap()))
    }

    fn answer(text: &str) -> Option<Answer> {
        Answer::parse(text.as_bytes(), QUERY)
    }

    #[test]
    fn query_has_two_ports() {
        for text in [
            "6193 , 22\r\n",
            "6193, 22\r\n",
            "6193,22\n",
            "6193,22",
            " \t6193 \t,\t 22  \r\n",
            "06193,00022\r\n",
        ] {
            assert_eq!(Query::parse(text.as_bytes()), Some(QUERY), "{text:?}");
        }
        let longest = Query {
            local: 65535,
            foreign: 1,
        };
        assert_eq!(Query::parse(b"65535,1\r\n"), Some(longest));
    }

    #[test]
    fn other_lines_are_no_query() {
        let long = format!("6193,{}22\r\n", " ".repeat(LINE_MAX));
        for text in [
            "",
            "\r\n",
            ",",
            "6193",
            "6193,",
            ",22",
            "0,22",
            "6193,0",
            "65536,22",
            "6193,65536",
            "-1,22",
            "+6193,22",
            "6193.0,22",
            "0x10,22",
            "61 93,22",
            "006193,22",
            "6193,22,1",
            "6193,22 : USERID : OTHER : 4242",
            "6193;22",
            "6193,22\r\r\n",
            "6193,22\n\n",
            "6193\n,22",
            "6193,22\0",
            "6193\u{a0},22",
            "٦,22",
            "GET / HTTP/1.0\r\n",
            &long,
        ] {
            assert_eq!(Query::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Query::parse(b"6193,\xff22\r\n"), None);
    }

    #[test]
    fn lines_have_the_form_of_the_protocol() {
        assert_eq!(QUERY.to_line(), "6193 , 22\r\n");
        let line = |answer: Answer| answer.to_line(QUERY);
        assert_eq!(
            line(job("4242").unwrap()),
            "6193 , 22 : USERID : OTHER : 4242\r\n"
        );
        assert_eq!(line(Answer::NoUser), "6193 , 22 : ERROR : NO-USER\r\n");
        assert_eq!(line(Answer::Hidden), "6193 , 22 : ERROR : HIDDEN-USER\r\n");
        assert_eq!(
            line(Answer::Unknown),
            "6193 , 22 : ERROR : UNKNOWN-ERROR\r\n"
        );
        assert_eq!(
            Answer::InvalidPort.to_line(Query::NONE),
            "0 , 0 : ERROR : INVALID-PORT\r\n"
        );
    }

    #[test]
    fn answer_may_have_blanks_and_a_character_set() {
        for text in [
            "6193 , 22 : USERID : OTHER : 4242\r\n",
            "6193,22:USERID:OTHER:4242\r\n",
            "6193,22:USERID:OTHER:4242",
            "\t6193 ,22\t:USERID :OTHER , US-ASCII: \t4242\n",
            "6193,22:USERID:OTHER,US-ASCII:4242\r\n",
        ] {
            assert_eq!(answer(text), job("4242"), "{text:?}");
        }
        assert_eq!(
            answer("6193,22:USERID:OTHER:a.b+c-d_e\r\n"),
            job("a.b+c-d_e")
        );
        for (text, expected) in [
            ("6193 , 22 : ERROR : NO-USER\r\n", Answer::NoUser),
            ("6193,22:ERROR:HIDDEN-USER\r\n", Answer::Hidden),
            ("6193,22 :ERROR: INVALID-PORT \t\r\n", Answer::InvalidPort),
            ("6193,22:ERROR:UNKNOWN-ERROR", Answer::Unknown),
            ("6193,22:ERROR:X-BUSY\r\n", Answer::Unknown),
        ] {
            assert_eq!(answer(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn other_lines_are_no_answer() {
        let long = "a".repeat(65);
        let token = "X".repeat(65);
        for text in [
            "",
            "\r\n",
            "4242\r\n",
            "6193,22\r\n",
            "6193,22:\r\n",
            "6193,22:USERID\r\n",
            "6193,22:USERID:\r\n",
            "6193,22:USERID:4242\r\n",
            "6193,22:USERID:OTHER\r\n",
            "6193,22:USERID:OTHER:\r\n",
            "6193,22:USERID:UNIX:alice\r\n",
            "6193,22:USERID:UNIX:4242\r\n",
            "6193,22:USERID:other:4242\r\n",
            "6193,22:USERID:OTHER,UTF-8:4242\r\n",
            "6193,22:USERID:OTHER,:4242\r\n",
            "6193,22:USERID:OTHER,US-ASCII,US-ASCII:4242\r\n",
            "6193,22:userid:OTHER:4242\r\n",
            "6193,22:USERID:OTHER:4242 \r\n",
            "6193,22:USERID:OTHER:42 42\r\n",
            "6193,22:USERID:OTHER:4242:1\r\n",
            "6193,22:USERID:OTHER:../4242\r\n",
            "6193,22:USERID:OTHER:-4242\r\n",
            "6193,22:USERID:OTHER:4242\0\r\n",
            "6193,22:USERID:OTHER:4242\r\n6193,22:USERID:OTHER:4243\r\n",
            &format!("6193,22:USERID:OTHER:{long}\r\n"),
            &format!("6193,22:USERID:OTHER:{}4242\r\n", " ".repeat(LINE_MAX)),
            "6193,22:ERROR\r\n",
            "6193,22:ERROR:\r\n",
            "6193,22:ERROR:X\r\n",
            "6193,22:ERROR:SOMETHING\r\n",
            "6193,22:ERROR:X A\r\n",
            "6193,22:ERROR:XA:B\r\n",
            &format!("6193,22:ERROR:{token}\r\n"),
            "6193,22:JOB:OTHER:4242\r\n",
        ] {
            assert_eq!(answer(text), None, "{text:?}");
        }
    }

    /// A host may mix up queries.
    #[test]
    fn answer_about_other_ports_is_refused() {
        for pair in [
            "6194,22",
            "6193,23",
            "22,6193",
            "0,0",
            "6193",
            "6193,22,1",
            "",
        ] {
            for rest in ["USERID:OTHER:4242", "ERROR:NO-USER"] {
                assert_eq!(answer(&format!("{pair}:{rest}\r\n")), None, "{pair} {rest}");
            }
        }
    }

    fn any_query(random: &mut Random) -> Query {
        let mut port = || u16::try_from(1 + random.below(65535)).unwrap();
        Query {
            local: port(),
            foreign: port(),
        }
    }

    fn any_answer(random: &mut Random) -> Answer {
        const LETTERS: &[u8] = b"abcXYZ0189._+-";
        let length = random.index(64);
        let id: String = (0..length)
            .map(|_| char::from(random.one_of(LETTERS)))
            .collect();
        match random.below(5) {
            0 => Answer::NoUser,
            1 => Answer::Hidden,
            2 => Answer::InvalidPort,
            3 => Answer::Unknown,
            _ => Answer::Job(format!("7{id}").parse().unwrap()),
        }
    }

    /// Inserts blanks wherever the protocol allows them: around every separator, not after an id.
    fn with_blanks(line: &str, random: &mut Random) -> String {
        let text = line.trim_end().replace(' ', "");
        let mut blank = || " \t  "[..random.index(4)].to_owned();
        let mut loose = blank();
        for character in text.chars() {
            match character {
                ',' | ':' => loose.extend([blank(), character.to_string(), blank()]),
                _ => loose.push(character),
            }
        }
        loose + "\r\n"
    }

    #[test]
    fn written_lines_parse_back() {
        let mut random = Random::new(1413);
        for _ in 0..5_000 {
            let query = any_query(&mut random);
            let answer = any_answer(&mut random);
            let asked = query.to_line();
            let answered = answer.to_line(query);
            assert!(
                answered.len() <= LINE_MAX && answered.is_ascii(),
                "{answered:?}"
            );
            for (each_asked, each_answered) in [
                (asked.clone(), answered.clone()),
                (
                    with_blanks(&asked, &mut random),
                    with_blanks(&answered, &mut random),
                ),
            ] {
                assert_eq!(
                    Query::parse(each_asked.as_bytes()),
                    Some(query),
                    "{asked:?}"
                );
                assert_eq!(
                    Answer::parse(each_answered.as_bytes(), query),
                    Some(answer.clone()),
                    "{answered:?}"
                );
                let other = Query {
                    foreign: query.foreign ^ 1,
                    ..query
                };
                assert_eq!(Answer::parse(each_answered.as_bytes(), other), None);
            }
        }
    }

    /// One wrong byte changes at most the id, or makes an error token of the sender's own.
    #[test]
    fn damaged_answer_is_refused_or_names_another_job() {
        let mut random = Random::new(512);
        for _ in 0..20_000 {
            let query = any_query(&mut random);
            let answer = any_answer(&mut random);
            let mut line = answer.to_line(query).into_bytes();
            let at = random.index(line.len());
            line[at] = random.below(256) as u8;
            if let Some(read) = Answer::parse(&line, query) {
                let jobs = matches!((&read, &answer), (Answer::Job(_), Answer::Job(_)));
                let error = read == Answer::Unknown && !matches!(answer, Answer::Job(_));
                assert!(
                    jobs || error || read == answer,
                    "{answer:?}: {}",
                    line.escape_ascii()
                );
            }
        }
    }
}

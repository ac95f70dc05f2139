use std::time::Duration;

use super::value::VALUES_MAX;
use super::*;

fn yaml(text: &str) -> Result<Value, DocumentError> {
    parse_document(text.as_bytes(), Format::Yaml).map(|document| document.value)
}

fn json(text: &str) -> Result<Value, DocumentError> {
    parse_document(text.as_bytes(), Format::Json).map(|document| document.value)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn plain(text: &str) -> Value {
    Value::Plain(text.to_owned())
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Object(
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}

/// Returns line and text of an error.
fn refusal(result: Result<Value, DocumentError>) -> (usize, String) {
    let error = result.unwrap_err();
    (error.line, error.why)
}

#[test]
fn yaml_parses_into_a_tree() {
    let read = yaml(
        "# made by hand\n---\na: [x, 'y', \"z\\t\"]\nb:\n- c: 1\n  d: ~\n-\n\"e f\": |\n  one\n  two\ng: {}\n...\n",
    );
    let inner = object([("c", plain("1")), ("d", Value::Null)]);
    let expected = object([
        ("a", Value::List(vec![plain("x"), text("y"), text("z\t")])),
        ("b", Value::List(vec![inner, Value::Null])),
        ("e f", text("one\ntwo\n")),
        ("g", object([])),
    ]);
    assert_eq!(read, Ok(expected));
}

/// A blank between a key and its value may be a tab (YAML 1.2.2, section 6.2).
#[test]
fn tab_separates_a_key_from_its_value() {
    let read = yaml("a:\tb\nc: \t'd:\tx'\ne:\n- f:\tg\t# x\n  h:\t1\ni:\t\n- k\n");
    let inner = object([("f", plain("g")), ("h", plain("1"))]);
    let expected = object([
        ("a", plain("b")),
        ("c", text("d:\tx")),
        ("e", Value::List(vec![inner])),
        ("i", Value::List(vec![plain("k")])),
    ]);
    assert_eq!(read, Ok(expected));
    for text in ["a:\tb: c\n", "a:\t- b\n", "a\t:\tb\n\tc:\td\n"] {
        assert!(yaml(text).is_err(), "{text:?}");
    }
}

#[test]
fn json_parses_into_a_tree() {
    let read = json(r#"{"a": [true, null, -1, 1.0, 1e3, 9223372036854775808, "x"], "b": {}}"#);
    let number = |number| Value::Number(number);
    let numbers = [Some(-1), None, None, None].map(number);
    let list = [Value::Bool(true), Value::Null]
        .into_iter()
        .chain(numbers)
        .chain([text("x")]);
    let expected = object([("a", Value::List(list.collect())), ("b", object([]))]);
    assert_eq!(read, Ok(expected));
}

#[test]
fn unneeded_yaml_features_are_refused_with_their_line() {
    let odd = [
        ("a: &x b\n", 1, "an anchor (&) is not taken"),
        ("a:\n- &x [b]\n", 2, "an anchor (&) is not taken"),
        ("a: b\nc: &x {d: e}\n", 2, "an anchor (&) is not taken"),
        ("&x a: b\n", 1, "an anchor (&) is not taken"),
        ("a: !!str b\n", 1, "a tag (!) is not taken"),
        ("a: ! b\n", 1, "a tag (!) is not taken"),
        ("a:\n  !t [b]\n", 2, "a tag (!) is not taken"),
        ("a: !!map {b: c}\n", 1, "a tag (!) is not taken"),
        ("!!str a: b\n", 1, "a tag (!) is not taken"),
        ("a: b\n<<: {c: d}\n", 2, "a merge key (<<) is not taken"),
        (
            "? [a]\n: b\n",
            1,
            "a key that is a list or an object is not taken",
        ),
        (
            "? {a: b}\n: c\n",
            1,
            "a key that is a list or an object is not taken",
        ),
        ("", 1, "no document"),
        ("# nothing\n\n", 3, "no document"),
    ];
    for (text, line, why) in odd {
        assert_eq!(refusal(yaml(text)), (line, why.to_owned()), "{text:?}");
    }
}

#[test]
fn alias_is_refused_with_and_without_its_anchor() {
    assert_eq!(refusal(yaml("a: b\nc: *x\n")).0, 2);
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    assert_eq!(
        refusal(yaml(bomb)),
        (1, "an anchor (&) is not taken".to_owned())
    );
}

#[test]
fn repeated_key_is_refused_at_any_depth() {
    for text in [
        "a: 1\nb: 2\n\"a\": 3\n",
        "x:\n- a: 1\n  a: 1\n",
        "{x: {y: {a: 1, 'a': 2}}}",
    ] {
        let (_, why) = refusal(yaml(text));
        assert_eq!(why, "key \"a\" stands twice", "{text:?}");
    }
    let texts = [
        r#"{"a": 1, "b": 2, "a": 3}"#,
        r#"{"x": [{"a": 1, "a": 1}]}"#,
        r#"{"x": {"y": {"a": 1, "\u0061": 2}}}"#,
    ];
    for text in texts {
        assert_eq!(
            refusal(json(text)),
            (1, "key \"a\" stands twice".to_owned()),
            "{text:?}"
        );
    }
    assert!(yaml("a: {b: 1}\nc: {b: 2}\n").is_ok());
}

#[test]
fn trailing_text_and_yaml_are_no_json() {
    for text in [
        "{} {}",
        "{}\n---",
        "# x\n{}",
        "{a: 1}",
        "{'a': 1}",
        "[1,]",
        "",
        "\u{feff}\u{feff}{}",
        "01",
    ] {
        assert!(json(text).is_err(), "{text:?}");
    }
    assert_eq!(refusal(json("{\n\"a\": x}")).0, 2);
}

#[test]
fn byte_order_mark_is_skipped() {
    assert_eq!(json("\u{feff}{}"), Ok(object([])));
    assert_eq!(yaml("\u{feff}a: b\n"), Ok(object([("a", plain("b"))])));
}

/// Container runtimes never reach the text after the first document.
#[test]
fn second_document_is_not_read_and_its_line_is_kept() {
    for (text, line) in [
        ("a: b\n---\nc: d\n", 2),
        ("a: b\n...\n---\n", 3),
        ("a: b\n---\n&x [*x, \"\n", 2),
    ] {
        let read = parse_document(text.as_bytes(), Format::Yaml).unwrap();
        assert_eq!(read.value, object([("a", plain("b"))]), "{text:?}");
        assert_eq!(read.second_document, Some(line), "{text:?}");
    }
    assert_eq!(
        parse_document(b"---\na: b\n...\n", Format::Yaml)
            .unwrap()
            .second_document,
        None
    );
    assert_eq!(yaml("---\n---\na: b\n"), Ok(Value::Null));
}

#[test]
fn yaml_in_a_json_file_has_an_error_of_its_own() {
    let why = "this is YAML: name the file .yaml";
    assert_eq!(refusal(json("---\na: b\n")), (1, why.to_owned()));
    for text in [
        "a",
        "- a\n",
        "a: [\n",
        "{\"a\": }",
        "a: &x b\n",
        "{\"a\": 1} x",
    ] {
        assert_ne!(refusal(json(text)).1, why, "{text:?}");
    }
}

#[test]
fn broken_yaml_is_refused_with_its_line() {
    let odd = [
        ("a: b\n c: d\n", 2),
        ("a: b\nc: \"d\n", 2),
        ("a: [b\nc: d\n", 2),
        ("a:\n\t- b\n", 2),
        ("a: b\n- c\n", 2),
        ("a: b\n}\n", 2),
        ("a: b: c\n", 1),
        ("a\u{0}b: c\n", 1),
    ];
    for (text, line) in odd {
        assert_eq!(refusal(yaml(text)).0, line, "{text:?}: {:?}", yaml(text));
    }
}

#[test]
fn invalid_utf_8_is_refused_with_its_line() {
    for format in [Format::Json, Format::Yaml] {
        let error = parse_document(b"{}\n\xff", format).unwrap_err();
        assert_eq!(
            error,
            DocumentError {
                line: 2,
                why: "not UTF-8".to_owned()
            }
        );
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth| format!("{}0{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let why = "more than 32 lists and objects inside each other".to_owned();
    for read in [json, yaml] {
        assert!(read(&nested(33)).is_ok());
        assert_eq!(refusal(read(&nested(34))), (1, why.clone()));
        assert!(read(&objects(32)).is_ok());
        assert_eq!(refusal(read(&objects(33))), (1, why.clone()));
    }
    assert!(yaml(&format!("{}a", "- ".repeat(32))).is_ok());
    assert_eq!(refusal(yaml(&format!("{}a", "- ".repeat(33)))), (1, why));
}

#[test]
fn values_are_bounded() {
    let max = VALUES_MAX - 1;
    let flow = |count| format!("[{}1]", "1,".repeat(count - 1));
    let block = |count| "- 1\n".repeat(count);
    assert!(json(&flow(max)).is_ok());
    assert_eq!(
        refusal(json(&flow(max + 1))),
        (1, "more than 200000 values".to_owned())
    );
    assert!(yaml(&block(max)).is_ok());
    assert_eq!(refusal(yaml(&block(max + 1))).0, max + 1);
}

/// Reads the processor time of this thread (Documentation/scheduler/sched-stats.rst). Time in which other
/// programs run does not count.
fn read_thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let time = Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap());
    assert!(time > Duration::ZERO, "this kernel does not count it");
    time
}

/// The texts have the maximum length and consist of tokens that open and never close.
#[test]
fn worst_files_parse_in_time() {
    let full = |format: Format, unit: &str| {
        let mut text = unit.repeat(format.bytes_max() / unit.len());
        text.truncate(format.bytes_max());
        text
    };
    for unit in ["[", "{\"a\":", "[[],", "\"", "1", " "] {
        assert!(json(&full(Format::Json, unit)).is_err(), "{unit:?}");
    }
    let units = [
        "[", "{", "{a: ", "- ", "? ", "a: a: ", "&a [*a, ", "\"", "&a ", "!a ",
    ];
    let started = read_thread_time();
    for unit in units {
        assert!(yaml(&full(Format::Yaml, unit)).is_err(), "{unit:?}");
    }
    let brackets = format!(
        "{}{}",
        "[".repeat(250),
        "a,".repeat(Format::Yaml.bytes_max() / 2 - 125)
    );
    assert_eq!(
        refusal(yaml(&brackets)).1,
        "more than 32 lists and objects inside each other"
    );
    let stairs: String = (0..1400)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    assert_eq!(refusal(yaml(&stairs)).0, 34);
    assert!(yaml(&full(Format::Yaml, "a")).is_ok());
    let took = read_thread_time() - started;
    // An emulated processor is slower.
    let factor = std::env::var("JOB_ADOPT_PATIENCE").map_or(1, |times| times.parse().unwrap());
    assert!(took < Duration::from_secs(60) * factor, "{took:?}");
}

#[test]
fn error_has_one_short_line() {
    let key = "x\\n".repeat(1000);
    let texts = [
        format!("{{\"{key}\": 1, \"{key}\": 2}}"),
        "@\u{9b}".to_owned(),
    ];
    for (text, read) in texts.iter().zip([json, yaml]) {
        let (_, why) = refusal(read(text));
        assert!(
            why.len() < 200 && !why.contains(char::is_control),
            "{why:?}"
        );
    }
}

#[test]
fn value_converts_to_the_expected_type_or_fails() {
    assert_eq!(plain("0").into_text(), Ok("0".to_owned()));
    assert_eq!(
        plain("010").into_text().unwrap_err().to_string(),
        "not text: put it in quotes"
    );
    assert_eq!(text("010").into_text(), Ok("010".to_owned()));
    assert_eq!(
        Value::Number(Some(0)).into_text().unwrap_err().to_string(),
        "not text"
    );
    assert_eq!(plain("0666").into_number(), Ok(438));
    assert!(text("1").into_number().is_err() && Value::Number(None).into_number().is_err());
    assert_eq!(plain("true").into_bool(), Ok(true));
    assert!(plain("yes").into_bool().is_err() && text("true").into_bool().is_err());
    assert!(Value::Null.into_list().is_err() && Value::List(Vec::new()).into_object().is_err());
}

//! Properties of random specifications: both formats parse the same, and misspelt keys are refused.

use serde_json::{Map, Value as Json, json};

use super::*;
use crate::testing::Random;

/// A key, and a function that makes a value for it.
type Key = (&'static str, fn(&mut Random) -> Json);

impl Random {
    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u32) as usize]
    }

    /// A list of up to three values of `make`.
    fn list(&mut self, make: fn(&mut Self) -> Json) -> Json {
        (0..self.below(4)).map(|_| make(self)).collect()
    }

    /// An object with some of these keys.
    fn some(&mut self, keys: &[Key]) -> Map<String, Json> {
        let mut object = Map::new();
        for (key, make) in keys {
            if self.below(2) == 0 {
                object.insert((*key).to_owned(), make(self));
            }
        }
        object
    }

    fn word(&mut self) -> Json {
        let words = [
            "", "a", "0", "010", "yes", "~", "null", "a b", "- a", "k: v", "#", "\"", "'", "\\",
        ];
        let odd = [
            "\u{e9}", "*a", "&a", "!a", "<<", "|", "{", "[", "a: ", " a", "a ", "1.5", "%", "a #b",
            ":",
        ];
        json!(self.pick(&[words.as_slice(), &odd].concat()))
    }

    fn path(&mut self) -> Json {
        json!(self.pick(&[
            "/dev/a",
            "/dev/b c",
            "/dev/d:e",
            "/dev/\u{e9}",
            "/dev/f #g",
            "/dev/'h'"
        ]))
    }

    fn number(&mut self) -> Json {
        json!(self.below(4096))
    }

    fn variable(&mut self) -> Json {
        let value = self.word();
        json!(format!("A{}={}", self.below(9), value.as_str().unwrap()))
    }

    fn node(&mut self) -> Json {
        let mut node = self.some(&[
            ("hostPath", Self::path),
            ("type", |random| {
                json!(random.pick(&["", "b", "c", "u", "p"]))
            }),
            ("major", Self::number),
            ("minor", Self::number),
            ("fileMode", Self::number),
            ("permissions", |random| {
                json!(random.pick(&["", "r", "rw", "rwm", "none"]))
            }),
            ("uid", |_| Json::Null),
            ("gid", Self::number),
        ]);
        node.insert("path".to_owned(), self.path());
        Json::Object(node)
    }

    fn hook(&mut self) -> Json {
        let mut hook = self.some(&[
            ("args", |random| random.list(Self::word)),
            ("env", |random| random.list(Self::variable)),
            ("timeout", |random| json!(random.below(9) + 1)),
        ]);
        hook.insert(
            "hookName".to_owned(),
            json!(self.pick(&["prestart", "poststop"])),
        );
        hook.insert("path".to_owned(), self.path());
        Json::Object(hook)
    }

    fn mount(&mut self) -> Json {
        let mut mount = self.some(&[("type", Self::word), ("options", |r| r.list(Self::word))]);
        mount.insert("hostPath".to_owned(), self.path());
        mount.insert("containerPath".to_owned(), self.path());
        Json::Object(mount)
    }

    fn rdt(&mut self) -> Json {
        Json::Object(self.some(&[
            ("closID", |_| json!("a")),
            ("l3CacheSchema", Self::word),
            ("memBwSchema", Self::word),
            ("schemata", |random| random.list(Self::word)),
            ("enableMonitoring", |random| json!(random.below(2) == 0)),
        ]))
    }

    fn edits(&mut self) -> Json {
        let mut edits = self.some(&[
            ("deviceNodes", |random| random.list(Self::node)),
            ("additionalGids", |random| random.list(Self::number)),
            ("hooks", |random| random.list(Self::hook)),
            ("mounts", |random| random.list(Self::mount)),
            ("intelRdt", Self::rdt),
            (
                "netDevices",
                |_| json!([{"hostInterfaceName": "a", "name": "b"}]),
            ),
        ]);
        let variables: Vec<Json> = (0..=self.below(3)).map(|_| self.variable()).collect();
        edits.insert("env".to_owned(), Json::Array(variables));
        Json::Object(edits)
    }

    fn annotations(&mut self) -> Json {
        let key = self.word();
        json!({ key.as_str().unwrap(): self.word() })
    }

    fn spec(&mut self) -> Json {
        let top: [Key; 2] = [
            ("annotations", Self::annotations),
            ("containerEdits", Self::edits),
        ];
        let mut spec = self.some(&top);
        let devices = (0..=self.below(3)).map(|at| {
            let mut device = self.some(&top[..1]);
            let name = [format!("{at}"), format!("0:{at}"), format!("GPU-{at}")];
            device.insert("name".to_owned(), json!(name[self.below(3) as usize]));
            device.insert("containerEdits".to_owned(), self.edits());
            Json::Object(device)
        });
        let devices = devices.collect();
        spec.insert("cdiVersion".to_owned(), json!("1.1.0"));
        spec.insert("kind".to_owned(), json!("v.example/c.d"));
        spec.insert("devices".to_owned(), devices);
        Json::Object(spec)
    }

    /// A text as YAML: sometimes without quotes, if that means the same, else in one of two
    /// kinds of quotes.
    fn scalar(&mut self, text: &str) -> String {
        let simple = |c: char| c.is_ascii_alphanumeric() || "/=_.-".contains(c);
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
        let words = ["yes", "null"];
        match self.below(3) {
            0 if starts && text.chars().all(simple) && !words.contains(&text) => text.to_owned(),
            1 => format!("'{}'", text.replace('\'', "''")),
            _ => Json::from(text).to_string(),
        }
    }

    /// The document as a YAML block, or sometimes as JSON, which is YAML too.
    fn yaml(&mut self, value: &Json, indent: usize) -> String {
        let pad = " ".repeat(indent);
        match value {
            Json::Object(object) if !object.is_empty() && self.below(9) != 0 => {
                let entry = |(key, below): (&String, &Json)| {
                    let key = self.scalar(key);
                    format!("\n{pad}{key}: {}", self.yaml(below, indent + 2))
                };
                object.iter().map(entry).collect()
            }
            Json::Array(list) if !list.is_empty() && self.below(9) != 0 => {
                let item = |below| format!("\n{pad}- {}", self.yaml(below, indent + 2));
                list.iter().map(item).collect()
            }
            Json::String(text) => self.scalar(text),
            Json::Null => self.pick(&["", "~", "null"]).to_owned(),
            other => other.to_string(),
        }
    }
}

fn specs() -> impl Iterator<Item = (Random, Json)> {
    (1..=300).map(|seed| {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let spec = random.spec();
        (random, spec)
    })
}

#[test]
fn json_and_yaml_parse_to_the_same_specification() {
    for (mut random, spec) in specs() {
        let json = spec.to_string();
        let yaml = random.yaml(&spec, 0);
        let read = Spec::parse(json.as_bytes(), Format::Json);
        assert!(read.is_ok(), "{read:?}: {json}");
        assert_eq!(Spec::parse(yaml.as_bytes(), Format::Yaml), read, "{yaml}");
        assert_eq!(Spec::parse(json.as_bytes(), Format::Yaml), read, "{json}");
    }
}

#[test]
fn parsed_specification_has_the_values_of_the_file() {
    for (_, spec) in specs() {
        let read = Spec::parse(spec.to_string().as_bytes(), Format::Json).unwrap();
        let devices = spec["devices"].as_array().unwrap();
        assert_eq!(read.devices.len(), devices.len());
        for (device, json) in read.devices.iter().zip(devices) {
            assert_eq!(json["name"], device.name.as_str());
            let json = &json["containerEdits"]["deviceNodes"];
            let nodes = json.as_array().cloned().unwrap_or_default();
            assert_eq!(device.edits.nodes.len(), nodes.len());
            for (node, each_json) in device.edits.nodes.iter().zip(&nodes) {
                assert_eq!(each_json["path"], node.path.as_str());
                assert_eq!(each_json["hostPath"].as_str(), node.host_path.as_deref());
                assert_eq!(each_json["major"].as_u64(), node.major.map(u64::from));
                assert_eq!(each_json["minor"].as_u64(), node.minor.map(u64::from));
            }
        }
    }
}

/// Every document with one misspelt key outside of annotations.
fn misspelt(value: &Json, spell: fn(&str) -> String) -> Vec<Json> {
    let mut all = Vec::new();
    let parts: Vec<(String, &Json)> = match value {
        Json::Object(object) => object.iter().map(|(key, v)| (key.clone(), v)).collect(),
        Json::Array(list) => list
            .iter()
            .enumerate()
            .map(|(at, v)| (at.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (key, part) in parts {
        let mut put = |change: &dyn Fn(&mut Json)| {
            let mut copy = value.clone();
            change(&mut copy);
            all.push(copy);
        };
        if value.is_object() {
            put(&|copy| {
                let object = copy.as_object_mut().unwrap();
                let other_part = object.remove(&key).unwrap();
                object.insert(spell(&key), other_part);
            });
        }
        if key != "annotations" {
            for changed in misspelt(part, spell) {
                put(&|copy| match copy {
                    Json::Object(object) => object[&key] = changed.clone(),
                    other => other[key.parse::<usize>().unwrap()] = changed.clone(),
                });
            }
        }
    }
    all
}

#[test]
fn misspelt_keys_are_refused() {
    let spellings: [fn(&str) -> String; 3] = [
        |key| format!("{key}s"),
        |key| key[..1].to_uppercase() + &key[1..],
        |key| key[..key.len() - 1].to_owned(),
    ];
    for (_, spec) in specs().step_by(40) {
        for document in spellings.iter().flat_map(|spell| misspelt(&spec, *spell)) {
            let text = document.to_string();
            assert!(
                Spec::parse(text.as_bytes(), Format::Json).is_err(),
                "{text}"
            );
            assert!(
                Spec::parse(text.as_bytes(), Format::Yaml).is_err(),
                "{text}"
            );
        }
    }
}

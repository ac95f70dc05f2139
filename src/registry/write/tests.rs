use super::*;
use crate::trust::tests::Scratch;

fn record(id: &str, uid: u32) -> Record {
    let text = format!(r#"{{"version":1,"id":"{id}","uid":{uid},"cgroup":"/a","cdi":[]}}"#);
    Record::parse(text.as_bytes()).unwrap()
}

fn registry(scratch: &Scratch) -> Registry {
    Registry::new(&scratch.path().join("jobs"))
}

fn lay(scratch: &Scratch, name: &str, record: &Record) {
    scratch.file(name, &record.to_json().unwrap());
}

#[test]
fn an_id_is_found_whoever_has_it() {
    let scratch = Scratch::new();
    lay(&scratch, "jobs/5/7.json", &record("7", 5));
    lay(&scratch, "jobs/6/.7.ending", &record("7", 6));
    scratch.file("jobs/8/7.json", "{");
    lay(&scratch, "jobs/9/77.json", &record("77", 9));
    scratch.dir("jobs/not-a-number");
    let found = registry(&scratch).find(&scratch.trust(), &"7".parse().unwrap()).unwrap();
    let found: Vec<_> =
        found.iter().map(|known| (known.uid, known.record.is_ok(), known.ending)).collect();
    assert_eq!(found, [(5, true, false), (6, true, true), (8, false, false)]);
}

#[test]
fn a_job_goes_out_of_sight_before_it_is_forgotten() {
    let scratch = Scratch::new();
    let (registry, id) = (registry(&scratch), "7".parse().unwrap());
    lay(&scratch, "jobs/5/7.json", &record("7", 5));
    assert!(registry.withdraw(5, &id).unwrap());
    registry.note_end(5, &id, 1000).unwrap();
    let seen = registry.read_user(&scratch.trust(), 5).unwrap();
    assert!(seen.records.is_empty() && seen.broken.is_empty(), "{seen:?}");
    assert_eq!(seen.ended, [(id.clone(), Note::new(1000))]);
    assert!(registry.find(&scratch.trust(), &id).unwrap()[0].ending);
    assert!(!registry.withdraw(5, &id).unwrap(), "it ended twice");
    registry.forget(5, &id).unwrap();
    assert!(registry.find(&scratch.trust(), &id).unwrap().is_empty());
}

#[test]
fn old_notes_go_and_others_stay() {
    let scratch = Scratch::new();
    scratch.file("jobs/5/7.ended", &Note::new(1000).to_json());
    scratch.file("jobs/6/8.ended", &Note::new(1500).to_json());
    registry(&scratch).purge(&scratch.trust(), 1700).unwrap();
    assert!(!scratch.path().join("jobs/5").exists());
    assert!(scratch.path().join("jobs/6/8.ended").exists());
}

#[test]
fn old_notes_go_however_many_there_are() {
    let scratch = Scratch::new();
    for number in 0..=Registry::USER_MAX {
        scratch.file(&format!("jobs/5/{number}.ended"), &Note::new(1000).to_json());
    }
    registry(&scratch).purge(&scratch.trust(), 1700).unwrap();
    assert!(!scratch.path().join("jobs/5").exists());
}

#[test]
fn a_number_is_spelt_in_one_way() {
    let scratch = Scratch::new();
    for name in ["5", "+5", "05", "-5", "6x"] {
        scratch.dir(&format!("jobs/{name}"));
    }
    assert_eq!(registry(&scratch).users().unwrap(), [5]);
}

#[test]
fn what_is_put_is_read_back_and_replaces() {
    let scratch = Scratch::new();
    let (registry, trust) = (registry(&scratch), scratch.trust());
    scratch.file("jobs/5/7.ended", &Note::new(1000).to_json());
    registry.put(&trust, &record("7", 5)).unwrap();
    let later = Record { started: Some(9), ..record("7", 5) };
    registry.put(&trust, &later).unwrap();
    let seen = registry.read_user(&trust, 5).unwrap();
    assert_eq!(seen.records, [later]);
    assert!(seen.ended.is_empty() && seen.broken.is_empty(), "{seen:?}");
}

#[test]
fn nothing_is_put_where_it_would_not_be_believed() {
    let scratch = Scratch::new();
    scratch.dir("jobs/5");
    scratch.mode("jobs/5", 0o777);
    assert!(registry(&scratch).put(&scratch.trust(), &record("7", 5)).is_err());
    assert!(!scratch.path().join("jobs/5/7.json").exists());
}

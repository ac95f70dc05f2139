use super::*;
use crate::device::slurm::LineFault;
use crate::random::Random;

fn named(text: &str, name: &str, node: &str) -> Result<Resources, (usize, GresFault)> {
    GresConf::parse(text, node)?.resources(name).map_err(|(at, fault)| (at.line, fault))
}

fn conf(text: &str, node: &str) -> Resources {
    named(text, "gpu", node).unwrap()
}

/// The files of each index.
fn files(conf: &Resources) -> Vec<Vec<&str>> {
    let resources = (0..conf.count()).map(|index| conf.resource(index).unwrap());
    resources.map(|(_, files)| files.iter().map(String::as_str).collect()).collect()
}

#[test]
fn each_file_is_an_index_and_lines_go_on_counting() {
    let text = "NAME=gpu type=a100 FILE=/dev/nvidia[0,2-3] Cores=0-7\n\
                Name=nic File=/dev/nic0 Strange=1\n\
                Name=GPU Type=h100 Files=/dev/nvidia1 Count=1 Flags=nvidia_gpu_env\n";
    let conf = conf(text, "n1");
    let expected = ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia1"];
    assert_eq!(files(&conf), expected.map(|file| vec![file]));
    let kinds: Vec<_> = (0..4).map(|index| conf.resource(index).unwrap().0.kind.as_str()).collect();
    assert_eq!(kinds, ["a100", "a100", "a100", "h100"]);
    assert_eq!(conf.resource(3).unwrap().0.at.line, 3);
    assert_eq!(conf.resource(4), None);
}

#[test]
fn a_record_of_multiple_files_is_one_index() {
    let text = "Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21-22]\n\
                Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[30-31]\n\
                Name=gpu Type=a100 File=/dev/nvidia1\n";
    let expected = [
        vec!["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"],
        vec!["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"],
        vec!["/dev/nvidia1"],
    ];
    assert_eq!(files(&conf(text, "n1")), expected);
}

#[test]
fn records_of_other_nodes_do_not_count() {
    let text = "NodeName=gpu[001-002],x Name=gpu File=/dev/nvidia0\n\
                NodeName=gpu003 Name=gpu File=/dev/nvidia1\n\
                NodeName=gpu004 Name=gpu Strange=1 File=/etc/passwd\n\
                Name=gpu File=/dev/nvidia2\n";
    for (node, expected) in [
        ("gpu001", vec!["/dev/nvidia2", "/dev/nvidia0"]),
        ("gpu002.site.example", vec!["/dev/nvidia2", "/dev/nvidia0"]),
        ("gpu003", vec!["/dev/nvidia2", "/dev/nvidia1"]),
        ("gpu1", vec!["/dev/nvidia2"]),
        ("GPU001", vec!["/dev/nvidia2"]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|file| vec![file]).collect();
        assert_eq!(files(&conf(text, node)), expected, "{node}");
    }
    assert!(named(text, "gpu", "gpu004").is_err());
}

/// Else index 0 here would be another job's GPU there.
#[test]
fn records_for_every_node_come_first_as_in_slurm() {
    let text = "NodeName=tux3 Name=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia[0-1]\n\
                NodeName=tux3 Name=gpu File=/dev/nvidia4\nName=gpu File=/dev/nvidia3\n";
    let order = [0, 1, 3, 2, 4].map(|index| vec![format!("/dev/nvidia{index}")]);
    assert_eq!(files(&conf(text, "tux3")), order);
}

#[test]
fn a_name_of_a_node_behind_another_key_is_refused() {
    for text in ["Name=gpu NodeName=n2 File=/dev/nvidia0", "Name=gpu File=/dev/x nodename=n1"] {
        assert_eq!(named(text, "gpu", "n1"), Err((1, GresFault::NodeName)), "{text}");
        assert_eq!(named(text, "nic", "n1").unwrap().count(), 0, "{text}");
    }
    let text = "AutoDetect=nvml NodeName=n1";
    assert_eq!(GresConf::parse(text, "n1"), Err((1, GresFault::NodeName)));
}

#[test]
fn names_that_share_a_file_are_counted_apart() {
    let text = "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8 File=/dev/nvidia[0-1]\n";
    assert_eq!(conf(text, "n").count(), 2);
    assert_eq!(named(text, "shard", "n").unwrap().count(), 2);
    assert_eq!(named(text, "mps", "n").unwrap().count(), 0);
}

#[test]
fn what_is_only_counted_has_indexes_and_no_files() {
    let conf = conf("Name=gpu Count=2\nName=gpu File=/dev/nvidia0\n", "n");
    assert_eq!(conf.count(), 3);
    assert!(conf.resource(1).unwrap().1.is_empty());
    assert_eq!(conf.resource(2).unwrap().1, ["/dev/nvidia0"]);
    let lots = named("Name=bandwidth Count=4G\n", "bandwidth", "n").unwrap();
    assert_eq!(lots.count(), 4 << 30);
}

#[test]
fn auto_detect_is_off_where_the_node_says_so() {
    for (text, on) in [
        ("", false),
        ("AutoDetect=nvml", true),
        ("autodetect=OFF", false),
        ("AutoDetect=nvml\nNodeName=n1 AutoDetect=off", false),
        ("NodeName=n1 AutoDetect=off\nAutoDetect=nvml", false),
        ("AutoDetect=off\nNodeName=n1 Name=gpu AutoDetect=rsmi", true),
        ("AutoDetect=off\nNodeName=n2 AutoDetect=rsmi", false),
        ("AutoDetect=off\nAutoDetect=full", true),
        ("AutoDetect=full\nAutoDetect=off", true),
        ("NodeName=n1 Name=nic AutoDetect=nvidia File=/dev/nic0", true),
    ] {
        assert_eq!(GresConf::parse(text, "n1").unwrap().auto_detect(), on, "{text:?}");
    }
}

#[test]
fn a_broken_line_of_the_name_is_an_error_with_its_number() {
    for (line, fault) in [
        ("Name=gpu Fil=/dev/nvidia1", GresFault::Unknown("Fil".into())),
        ("Name=gpu File=/dev/nvidia0 MultipleFiles=/dev/nvidia1", GresFault::Both),
        ("Name=gpu File=/dev/nvidia0 Files=/dev/nvidia1", GresFault::Both),
        ("Name=gpu File=/etc/passwd", GresFault::Outside("/etc/passwd".into())),
        ("Name=gpu File=/dev/../etc/x", GresFault::Outside("/dev/../etc/x".into())),
        ("Name=gpu File=/dev/nvidia9", GresFault::Again("/dev/nvidia9".into())),
        ("Name=gpu File=/dev/a,/dev/a", GresFault::Again("/dev/a".into())),
        ("Name=gpu Count=x", GresFault::Count),
        ("Name=gpu Count=99999999P", GresFault::Count),
        ("Name=gpu Count=", GresFault::Line(LineFault::Form)),
        ("Name=gpu File=/dev/nvidia[0", GresFault::List("File", super::super::HostListError)),
        ("Name=gpu File=/dev/n[0-1024]", GresFault::List("File", super::super::HostListError)),
        ("NodeName=n[ Name=gpu", GresFault::List("NodeName", super::super::HostListError)),
        ("File=/dev/nvidia0", GresFault::NoName),
        ("Include other", GresFault::Line(LineFault::Form)),
    ] {
        let text = format!("# GPUs\nName=gpu File=/dev/nvidia9\n{line}\n");
        assert_eq!(named(&text, "gpu", "n1"), Err((3, fault)), "{line}");
    }
}

#[test]
fn a_broken_record_of_another_name_hides_nothing() {
    let text = "Name=nic Fil=/x Count=? File=[\nNodeName=[ Name=nic\nName=gpu File=/dev/nvidia0\n";
    assert_eq!(files(&conf(text, "n1")), [["/dev/nvidia0"]]);
}

#[test]
fn files_of_a_name_are_bounded_over_all_its_records() {
    let text = "Name=gpu File=/dev/a[0-1023]\n";
    assert_eq!(conf(text, "n").count(), 1024);
    let more = format!("{text}Name=gpu File=/dev/b\n");
    assert!(matches!(named(&more, "gpu", "n"), Err((2, GresFault::List(..)))));
    let multiple = format!("{text}Name=gpu MultipleFiles=/dev/b\n");
    assert!(matches!(named(&multiple, "gpu", "n"), Err((2, GresFault::List(..)))));
}

#[test]
fn random_files_give_the_indexes_that_their_lists_give_one_by_one() {
    let mut random = Random::new(5);
    for _ in 0..500 {
        let (mut text, mut next) = (String::new(), 0);
        let (mut expected, mut here) = (Vec::new(), Vec::new());
        for _ in 0..random.below(6) {
            let size = 1 + random.below(4);
            let names: Vec<_> = (next..next + size).map(|at| format!("/dev/x{at}")).collect();
            next += size;
            let list = format!("/dev/x[{}-{}]", next - size, next - 1);
            match random.below(4) {
                0 => {
                    text += &format!("Name=gpu MultipleFiles={list}\n");
                    expected.push(names);
                }
                1 => text += &format!("NodeName=n2 Name=gpu File={list}\n"),
                2 => text += &format!("Name=nic File={list}\n"),
                _ => {
                    text += &format!("NodeName=n[0-1] Name=gpu File={list}\n");
                    here.extend(names.into_iter().map(|name| vec![name]));
                }
            }
        }
        expected.extend(here);
        assert_eq!(files(&conf(&text, "n1")), expected, "{text}");
    }
}

use super::*;

#[test]
fn good_names_are_good_and_bad_ones_refuse_whatever_stands_beside_them() {
    let node = WholeNode::new();
    for name in good() {
        let mix = Mix { named: vec![name], ..Mix::of(Policy::Strict) };
        assert!(mix.resolve(&node).is_ok(), "{mix:?}: {:?}", mix.resolve(&node));
    }
    for name in bad() {
        for at in [0, 1] {
            let mut mix = Mix { named: vec![gpu("0")], ..Mix::of(Policy::Strict) };
            mix.named.insert(at, name.clone());
            assert!(mix.resolve(&node).is_err(), "{mix:?}");
        }
    }
}

/// From which follows that the order never matters and that one more name takes nothing away.
#[test]
fn names_together_open_what_each_opens_and_refuse_where_one_refuses() {
    let node = WholeNode::new();
    let mut random = Random::new(5);
    let mut refused = 0;
    for _ in 0..300 {
        let mix = Mix::random(&mut random);
        let each: Option<Vec<Opened>> = mix.parts().iter().map(|part| part.opened(&node)).collect();
        let expected = each.map(|each| each.into_iter().fold(Opened::new(), both));
        refused += u32::from(expected.is_none());
        assert_eq!(mix.opened(&node), expected, "{mix:?}");
    }
    assert!((20..100).contains(&refused), "{refused}");
}

#[test]
fn the_order_of_names_changes_nothing() {
    let node = WholeNode::new();
    let mut random = Random::new(7);
    for _ in 0..150 {
        let mix = Mix::random(&mut random);
        let other = Mix {
            policy: mix.policy,
            allow: shuffled(mix.allow.clone(), &mut random),
            named: shuffled(mix.named.clone(), &mut random),
            site: shuffled(mix.site.clone(), &mut random),
        };
        let (Ok(one), Ok(two)) = (mix.resolve(&node), other.resolve(&node)) else {
            assert!(mix.resolve(&node).is_err() && other.resolve(&node).is_err(), "{mix:?}");
            continue;
        };
        assert_eq!(opened(&one), opened(&two), "{mix:?}");
        assert_eq!(sorted(one.dropped), sorted(two.dropped), "{mix:?}");
        assert_eq!(sorted(one.warnings), sorted(two.warnings), "{mix:?}");
    }
}

#[test]
fn one_more_name_takes_nothing_away() {
    let node = WholeNode::new();
    let mut random = Random::new(9);
    let good = good();
    for _ in 0..100 {
        let mix = Mix::random(&mut random);
        let mut more = mix.clone();
        match random.below(3) {
            0 => more.allow.insert(0, random.one_of(&SPECIFIERS)),
            1 => more.site.push(random.one_of(&SPECIFIERS)),
            _ => more.named.insert(0, good[random.below(good.len() as u32) as usize].clone()),
        }
        let (before, after) = (mix.opened(&node), more.opened(&node));
        assert_eq!(before.is_some(), after.is_some(), "{more:?}");
        let Some((before, after)) = before.zip(after) else { continue };
        let kept =
            |device, access| after.get(device).is_some_and(|now: &Access| now.contains(access));
        assert!(before.iter().all(|(device, access)| kept(device, *access)), "{more:?}");
    }
}

#[test]
fn every_rule_is_a_device_of_this_node_and_no_name_stands_for_a_whole_major() {
    let node = WholeNode::new();
    let numbers = node.numbers();
    let mut random = Random::new(13);
    for _ in 0..200 {
        let mut mix = Mix::random(&mut random);
        mix.policy = Policy::Strict;
        let Some(opened) = mix.opened(&node) else { continue };
        for (kind, major, minor) in opened.keys() {
            match minor {
                Some(minor) => {
                    assert!(numbers.contains(&(*kind, *major, *minor)), "{major}:{minor}, {mix:?}");
                }
                None => {
                    let whole =
                        |spec: &&str| spec.starts_with("char-") || spec.starts_with("block-");
                    assert!(mix.allow.iter().any(whole), "{mix:?}");
                }
            }
        }
        mix.allow.clear();
        let opened = mix.opened(&node).unwrap_or_default();
        let exact = |((_, _, minor), access): (&(_, _, Option<u32>), &Access)| {
            minor.is_some() && Access::RW.contains(*access)
        };
        assert!(opened.iter().all(exact), "{mix:?}");
    }
}

/// Neither the capability that configures MIG nor the card node of a partition, and no GPU that was
/// not named.
#[test]
fn a_name_opens_nothing_of_another_gpu() {
    let node = WholeNode::new();
    let minors = |name: &Named, major: u32| -> Vec<u32> {
        let mix = Mix { named: vec![name.clone()], ..Mix::of(Policy::Strict) };
        let opened = mix.opened(&node).unwrap();
        let own = opened.keys().filter(|(_, of, _)| *of == major);
        own.filter_map(|(_, _, minor)| *minor).collect()
    };
    assert_eq!(minors(&gpu("0"), 195), [1, 255]);
    assert_eq!(minors(&gpu("1"), 195), [0, 255]);
    assert_eq!(minors(&gpu("0"), 226), [1, 129]);
    assert_eq!(minors(&gpu("2"), 226), [136]);
    assert_eq!(minors(&gpu("5"), 226), [139]);
    assert_eq!(minors(&gpu("6"), 226), [16, 144]);
    assert_eq!(minors(&gpu("7"), 261), [0]);
    assert_eq!(minors(&gpu("8"), 226), [32, 160]);
    assert_eq!(minors(&dir("mixed"), 235), [30, 31]);
    assert_eq!(minors(&Named::AllGpus, 195), [0, 1, 255]);
    for name in good() {
        assert!(!minors(&name, 235).contains(&1), "{name}");
    }
}

#[test]
fn one_gpu_is_the_same_whatever_it_is_called() {
    let node = WholeNode::new();
    let opened = |name: &Named| {
        let mix = Mix { named: vec![name.clone()], ..Mix::of(Policy::Strict) };
        mix.opened(&node).unwrap()
    };
    let upper = NVIDIA[0].2.to_uppercase();
    let same: [Vec<Named>; 3] = [
        vec![
            gpu("0"),
            gpu("0000:1b:00.0"),
            gpu("1b:00.0"),
            gpu("0000:1B:00.0"),
            gpu("00000000:1b:00.0"),
            gpu(format!("GPU-{}", NVIDIA[0].2)),
            gpu(format!("GPU-{upper}")),
            cdi("nvidia.com/gpu=0"),
            cdi(&format!("nvidia.com/gpu=GPU-{}", NVIDIA[0].2)),
            dir("one"),
        ],
        vec![gpu("6"), gpu("44:00.0"), gres("gpu", 2), gres("GPU", 2), cdi("amd.com/gpu=4")],
        vec![gpu("4"), gres("gpu", 3), gres("GPU", 3), cdi("amd.com/gpu=2")],
    ];
    for names in same {
        for name in &names {
            assert_eq!(opened(name), opened(&names[0]), "{name} and {}", names[0]);
        }
    }
    let instance = [
        gpu(format!("MIG-GPU-{}/1/0", NVIDIA[1].2)),
        gpu(format!("MIG-{MIG}")),
        gpu(format!("MIG-{}", MIG.to_uppercase())),
    ];
    let devices = |name: &Named| opened(name).into_keys().collect::<Vec<_>>();
    assert_eq!(devices(&instance[0]), devices(&instance[1]));
    assert_eq!(opened(&instance[1]), opened(&instance[2]));
}

/// Slurm's file names the node that programs compute by, and has no need of those for drawing.
#[test]
fn slurms_file_leaves_out_what_it_does_not_name() {
    let node = WholeNode::new();
    let opened = |name: Named| {
        let mix = Mix { named: vec![name], ..Mix::of(Policy::Strict) };
        mix.opened(&node).unwrap()
    };
    let (mut all, named) = (opened(gpu("0")), opened(gres("gpu", 1)));
    all.retain(|(_, major, _), _| *major != 226);
    assert_eq!(named, all);
}

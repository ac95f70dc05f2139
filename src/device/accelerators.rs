//! Every accelerator that this node may have, for a list that refuses.

use super::{FileError, Tree, major};
use crate::plan::{Access, DeviceRule, DeviceType};

/// Drivers of accelerators that get their major as they load. Of NVIDIA's all, whatever the name:
/// nothing of theirs is for processes outside of jobs. `kfd` is AMD's, `habanalabs` Intel's,
/// `gdrdrv` copies to and from NVIDIA's GPUs.
fn is_accelerators(driver: &str) -> bool {
    driver.starts_with("nvidia") || matches!(driver, "kfd" | "accel" | "habanalabs" | "gdrdrv")
}

/// NVIDIA's GPUs and control devices, DRM's render nodes and accelerators by their fixed numbers,
/// whether there is a driver or not; and whatever else the drivers of this moment have.
///
/// # Errors
/// [`FileError`] where the drivers cannot be told.
pub fn accelerators(tree: &Tree) -> Result<Vec<DeviceRule>, FileError> {
    let drivers = tree.drivers()?;
    let mut majors = vec![major::NVIDIA, major::ACCEL];
    for (major, _) in drivers.of_kind(DeviceType::Char).filter(|(_, name)| is_accelerators(name)) {
        if !majors.contains(&major) {
            majors.push(major);
        }
    }
    let whole = majors.into_iter().map(|major| (major, None));
    let render = major::DRM_RENDER.map(|minor| (major::DRM, Some(minor)));
    let rule = |(major, minor)| DeviceRule::new(DeviceType::Char, major, minor, Access::ALL).ok();
    Ok(whole.chain(render).filter_map(rule).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tests::Scratch;

    fn list(drivers: &str) -> Vec<String> {
        let scratch = Scratch::new();
        scratch.file("proc/devices", &format!("Character devices:\n{drivers}\nBlock devices:\n"));
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        accelerators(&tree).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fixed_numbers_need_no_driver() {
        let list = list("  1 mem\n 10 misc");
        assert_eq!(list.len(), 2 + 64);
        for rule in ["c:195:-1:rwm", "c:261:-1:rwm", "c:226:128:rwm", "c:226:191:rwm"] {
            assert!(list.iter().any(|found| found == rule), "{rule}: {list:?}");
        }
        let card = |rule: &&String| rule.starts_with("c:226:1:") || rule.starts_with("c:226:-1:");
        assert_eq!(list.iter().find(card), None);
    }

    #[test]
    fn other_numbers_are_those_of_the_drivers() {
        let drivers = "195 nvidia\n195 nvidiactl\n235 nvidia-caps\n237 nvidia-caps-imex-channels\n\
                       238 kfd\n226 drm\n240 habanalabs\n506 nvidia-nvswitch\n510 nvidia-uvm\n\
                       231 infiniband_verbs";
        let list = list(drivers);
        assert_eq!(list.len(), 2 + 64 + 6, "{list:?}");
        for major in [235, 237, 238, 240, 506, 510] {
            assert!(list.contains(&format!("c:{major}:-1:rwm")), "{major}: {list:?}");
        }
        assert!(!list.contains(&"c:231:-1:rwm".to_owned()));
    }

    #[test]
    fn drivers_that_cannot_be_told_are_an_error() {
        let scratch = Scratch::new();
        assert!(accelerators(&Tree::laid_out(scratch.path(), scratch.trust())).is_err());
    }
}

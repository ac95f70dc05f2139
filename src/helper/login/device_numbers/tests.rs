use super::note_numbers;
use crate::config::Config;
use crate::devices::{DeviceName, Policy, Resolver, build_allowlist, gres};
use crate::jobs::records::{LoginTarget, Record, RecordDevices, Via};
use crate::login::{add_slurm_list, list_nameable_gpus};
use crate::node::{ResolvedDevices, topology};

/// Adds numbers to the text of a record as `register` does, which resolves other names than specifiers and generic
/// resources as well. A text that is no record, and one with such names, stays as it is.
pub(in crate::login) fn register_text(text: &str, config: &Config, resolver: &Resolver) -> String {
    let Ok(mut record) = Record::parse(text.as_bytes()) else {
        return text.to_owned();
    };
    let RecordDevices::Requested(request) = record.devices() else {
        return text.to_owned();
    };
    let mut named = ResolvedDevices::default();
    for name in record.device_names() {
        let DeviceName::Gres { name, index } = name else {
            return text.to_owned();
        };
        let node_name = resolver.settings.node_name.as_deref();
        let Ok(resource) = gres::resolve(resolver.slurm_conf(), node_name, &name, index) else {
            return text.to_owned();
        };
        named.extend(topology::find_companions(&resolver.tree, &resource.devices).unwrap());
        named.extend(resource);
    }
    let site = &config.always_allowed;
    let mut allowlist = build_allowlist(&request, named, site, resolver).unwrap();
    if record.target == LoginTarget::Via(Via::Slurm) && request.policy != Policy::Strict {
        add_slurm_list(&mut allowlist, config, resolver);
    }
    let gpus = list_nameable_gpus(&resolver.tree).unwrap();
    record.resolved = Some(note_numbers(allowlist.list, gpus, resolver).unwrap());
    record.to_json().unwrap()
}

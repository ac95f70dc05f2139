//! Parses and checks job records.

use super::error::{RecordError, json_error};
use super::prolog_environment::PrologEnvironment;
use super::resolved::{ResolvedList, WireList};
use super::strict_json::{ByName, MapOnly, require_value};
use crate::devices::{DeviceName, DeviceRequest, Policy};
use crate::jobs::FluxId;
use protocol::{CgroupPath, JobId, LeafName, Scheduler, SourceName, parse_decimal, string_enum};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum bytes of a device name, an account's name and a path.
const TEXT_BYTES_MAX: usize = 4096;

/// A job of one user on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The job's id, unique on the node; for a job of Flux in the form of [`FluxId`].
    pub id: JobId,
    /// The user whose job it is.
    pub uid: u32,
    /// The target of logins.
    pub target: LoginTarget,
    /// When the job started, in seconds since the epoch.
    pub started: Option<i64>,
    /// When the job will end, in seconds since the epoch.
    pub ends: Option<i64>,
    /// The child of the job's cgroup that logins go to.
    pub leaf: Option<LeafName>,
    /// systemd properties of the job's devices.
    pub options: Option<Options>,
    /// CDI names, as `nvidia.com/gpu=0`.
    pub cdi: Option<Vec<String>>,
    /// GPUs of the job.
    pub gpus: Option<Vec<Gpu>>,
    /// Generic resources: numbers by name.
    pub gres: Option<BTreeMap<String, Vec<u32>>>,
    /// A directory of device files, absolute.
    pub device_dir: Option<String>,
    /// Accounts of the scheduler, by name or number, that may have processes in the job's cgroup. Beside
    /// `cgroup` only.
    pub accounts: Option<Vec<String>>,
    /// The job's mount namespace: a process of the job (beside `cgroup` only), or a path.
    pub namespaces: Option<String>,
    /// `false` if the job takes no logins: the site wants it so for jobs of this kind.
    pub logins: Option<bool>,
    /// The scheduler of the job, whose names its variables have. Beside `cgroup` only.
    pub scheduler: Option<Scheduler>,
    /// Environment of the job as the scheduler's prolog sees it.
    pub env: Option<PrologEnvironment>,
    /// What `register` resolved the devices to; `None` before, and for a record that asks for no list.
    pub resolved: Option<ResolvedList>,
}

/// The target of a job's logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginTarget {
    /// The job's cgroup.
    Cgroup(CgroupPath),
    /// A scheduler's source determines the place; the record only adds devices.
    Via(Via),
}

string_enum! {
    /// A scheduler that a record may add devices for.
    Via {
        /// Slurm.
        Slurm = "slurm",
        /// Flux.
        Flux = "flux",
    }
}

/// The systemd unit properties of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Options {
    /// The policy for devices besides the list.
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub device_policy: Option<Policy>,
    /// Specifiers and accesses, not parsed yet.
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub device_allow: Option<Vec<(String, String)>>,
}

/// The input that Flux's helper program gives to the IMP (RFC 15).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImpInput {
    /// The signed job specification. Whose job it is, the IMP verifies; here the caller says it.
    #[serde(rename = "J", default)]
    _signed_job: IgnoredAny,
    #[serde(default, deserialize_with = "require_value")]
    options: Option<MapOnly<Options>>,
}

impl Options {
    /// Parses the properties in the input of Flux's IMP; `None` if the input has none. The signed job
    /// specification beside them is not read.
    ///
    /// # Errors
    ///
    /// [`RecordError`] for anything but a JSON object of `J` and `options`, each at most once, and for a
    /// property that a record does not have.
    pub fn parse_imp_input(bytes: &[u8]) -> Result<Option<Self>, RecordError> {
        let MapOnly(input): MapOnly<ImpInput> =
            serde_json::from_slice(bytes).map_err(|error| json_error(&error))?;
        Ok(input.options.map(|MapOnly(options)| options))
    }
}

/// A GPU as a record names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "not the index, UUID or PCI address of a GPU")]
pub enum Gpu {
    /// Its index.
    Index(u32),
    /// Its UUID or PCI address.
    Name(String),
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The containment that a record asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordDevices<'a> {
    /// The record has no device key. It refuses logins, since its author may have meant either.
    Unspecified,
    /// No containment: `DevicePolicy` is `auto` and the record has no device key.
    Uncontained,
    /// These devices are the job's.
    Requested(DeviceRequest<'a>),
}

impl Record {
    /// Parses a record.
    ///
    /// # Errors
    ///
    /// [`RecordError`] for anything but a JSON object with the keys of a record, each of its type
    /// and within its range.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let MapOnly(wire): MapOnly<WireRecord> =
            serde_json::from_slice(bytes).map_err(|error| json_error(&error))?;
        if wire.version != VERSION {
            return Err(RecordError::unknown_version(wire.version, VERSION));
        }
        let invalid = RecordError::invalid_value;
        let target = LoginTarget::from_keys(wire.cgroup.as_deref(), wire.via.as_deref())?;
        let id = match target {
            LoginTarget::Via(Via::Flux) => FluxId::parse_job_id(&wire.id),
            _ => wire.id.parse().ok(),
        };
        let record = Self {
            id: id.ok_or_else(|| invalid("id"))?,
            uid: wire.uid,
            target,
            started: wire.started,
            ends: wire.ends,
            leaf: wire
                .leaf
                .map(|leaf| leaf.parse().map_err(|_| invalid("leaf")))
                .transpose()?,
            options: wire.options.map(|MapOnly(options)| options),
            cdi: wire.cdi,
            gpus: wire.gpus,
            gres: wire.gres.map(|ByName(gres)| gres),
            device_dir: wire.device_dir,
            accounts: wire.accounts,
            namespaces: wire.namespaces,
            logins: wire.logins,
            scheduler: wire
                .scheduler
                .map(|name| name.parse().map_err(|_| invalid("scheduler")))
                .transpose()?,
            env: None,
            resolved: wire
                .resolved
                .map(|MapOnly(list)| list.check())
                .transpose()?,
        };
        record.check()?;
        // The variables come last: they are checked against the record's id and scheduler.
        let env = match wire.env {
            Some(_) if record.target == LoginTarget::Via(Via::Flux) => return Err(invalid("env")),
            Some(ByName(variables)) => Some(
                PrologEnvironment::new(variables, &record.id, record.scheduler())
                    .map_err(|error| RecordError::unusable_variable(&error))?,
            ),
            None => None,
        };
        Ok(Self { env, ..record })
    }

    /// The record as one line of JSON, which [`Record::parse`] accepts.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if serde cannot encode the record, which does not occur with this type.
    pub fn to_json(&self) -> Result<String, RecordError> {
        let (cgroup, via) = match &self.target {
            LoginTarget::Cgroup(cgroup) => (Some(cgroup.as_str().to_owned()), None),
            LoginTarget::Via(via) => (None, Some(via.as_str().to_owned())),
        };
        let wire = WireRecord {
            version: VERSION,
            id: self.id.to_string(),
            uid: self.uid,
            cgroup,
            via,
            started: self.started,
            ends: self.ends,
            leaf: self.leaf.as_ref().map(ToString::to_string),
            options: self.options.clone().map(MapOnly),
            cdi: self.cdi.clone(),
            gpus: self.gpus.clone(),
            gres: self.gres.clone().map(ByName),
            device_dir: self.device_dir.clone(),
            accounts: self.accounts.clone(),
            namespaces: self.namespaces.clone(),
            logins: self.logins,
            scheduler: self.scheduler.map(|name| name.as_str().to_owned()),
            env: self.env.as_ref().map(|env| ByName(env.variables().clone())),
            resolved: self
                .resolved
                .as_ref()
                .map(|list| MapOnly(WireList::new(list))),
        };
        let mut text = serde_json::to_string(&wire).map_err(|error| json_error(&error))?;
        text.push('\n');
        Ok(text)
    }

    /// The containment that the record asks for. Any device key, even an empty list, means containment, and so does a
    /// policy other than `auto` without one.
    pub fn devices(&self) -> RecordDevices<'_> {
        let options = self.options.as_ref();
        let policy = options.and_then(|options| options.device_policy);
        let allow = options.and_then(|options| options.device_allow.as_deref());
        let has_device_key = allow.is_some()
            || self.cdi.is_some()
            || self.gpus.is_some()
            || self.gres.is_some()
            || self.device_dir.is_some();
        match (policy, has_device_key) {
            (None, false) => RecordDevices::Unspecified,
            (Some(Policy::Auto), false) => RecordDevices::Uncontained,
            (policy, _) => RecordDevices::Requested(DeviceRequest {
                // `auto` beside a device key means `closed`, as for systemd.
                policy: match policy {
                    Some(Policy::Strict) => Policy::Strict,
                    _ => Policy::Closed,
                },
                allow: allow.unwrap_or_default(),
            }),
        }
    }

    /// The scheduler of the job. A record that names none is of one without names of its own.
    pub fn scheduler(&self) -> Scheduler {
        match self.target {
            LoginTarget::Via(Via::Slurm) => Scheduler::Slurm,
            LoginTarget::Via(Via::Flux) => Scheduler::Flux,
            LoginTarget::Cgroup(_) => self.scheduler.unwrap_or(Scheduler::Other),
        }
    }

    /// Tells whether logins may join the job.
    pub fn takes_logins(&self) -> bool {
        self.logins != Some(false)
    }

    /// Tells whether the record may be in a file of this name: Flux ids have several notations.
    pub fn has_name(&self, name: &JobId) -> bool {
        let of_flux = self.target == LoginTarget::Via(Via::Flux);
        self.id == *name
            || (of_flux && FluxId::parse_job_id(name.as_str()).as_ref() == Some(&self.id))
    }

    /// Tells whether a user with this uid can own a job: root is never judged, and the largest
    /// number means no user (setuid(2)).
    pub fn can_own_job(uid: u32) -> bool {
        uid != 0 && uid != u32::MAX
    }

    /// Lists the devices that the record names by CDI name, GPU, generic resource or directory, in this order. Those
    /// of `DeviceAllow` are not among them.
    pub fn device_names(&self) -> Vec<DeviceName> {
        let cdi = self.cdi.iter().flatten().cloned().map(DeviceName::Cdi);
        let gpus = self
            .gpus
            .iter()
            .flatten()
            .map(|gpu| DeviceName::Gpu(gpu.to_string()));
        let gres = self.gres.iter().flatten().flat_map(|(name, indexes)| {
            indexes.iter().map(move |&index| DeviceName::Gres {
                name: name.clone(),
                index,
            })
        });
        let dir = self
            .device_dir
            .iter()
            .map(|dir| DeviceName::Dir(dir.into()));
        cdi.chain(gpus).chain(gres).chain(dir).collect()
    }

    /// Checks the values that serde cannot check, and that `accounts`, `scheduler` and the number of a process in
    /// `namespaces` stand beside `cgroup` only. A key that is missing passes.
    ///
    /// # Errors
    ///
    /// [`RecordError`] with the first key whose value is out of range or not for this target.
    fn check(&self) -> Result<(), RecordError> {
        let is_time = |time: Option<i64>| time.is_none_or(|seconds| seconds > 0);
        let is_dir = |dir: &String| is_text(dir) && dir.starts_with('/');
        let is_gpu = |gpu: &Gpu| matches!(gpu, Gpu::Index(_)) || is_text(&gpu.to_string());
        let in_cgroup = matches!(self.target, LoginTarget::Cgroup(_));
        let checks = [
            ("uid", Self::can_own_job(self.uid)),
            ("started", is_time(self.started)),
            ("ends", is_time(self.ends)),
            ("cdi", self.cdi.iter().flatten().all(|name| is_text(name))),
            ("gpus", self.gpus.iter().flatten().all(is_gpu)),
            (
                "gres",
                self.gres.iter().flatten().all(|(name, _)| is_text(name)),
            ),
            ("device_dir", self.device_dir.iter().all(is_dir)),
            (
                "accounts",
                self.accounts
                    .iter()
                    .all(|names| in_cgroup && is_account_list(names)),
            ),
            (
                "namespaces",
                self.namespaces
                    .iter()
                    .all(|name| is_namespace(name) && (in_cgroup || name.starts_with('/'))),
            ),
            (
                "scheduler",
                self.scheduler
                    .iter()
                    .all(|scheduler| in_cgroup && scheduler.source() == SourceName::Registry),
            ),
        ];
        match checks.into_iter().find(|(_, good)| !good) {
            Some((key, _)) => Err(RecordError::invalid_value(key)),
            None => Ok(()),
        }
    }
}

/// Maximum accounts of a record: their numbers fit one mark on a cgroup.
const ACCOUNTS_MAX: usize = 8;

/// Tells whether these can be the accounts of a record: at most [`ACCOUNTS_MAX`] texts.
fn is_account_list(names: &[String]) -> bool {
    names.len() <= ACCOUNTS_MAX && names.iter().all(|name| is_text(name))
}

/// Tells whether the text is a process id, or an absolute path that fits a mark on a cgroup.
fn is_namespace(name: &str) -> bool {
    parse_decimal(name).is_some() || name.starts_with('/') && name.len() <= 200 && is_text(name)
}

/// Tells whether a text is not empty, has at most [`TEXT_BYTES_MAX`] bytes and no control character.
fn is_text(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

impl LoginTarget {
    /// Makes the target from the keys `cgroup` and `via`, of which a record has exactly one.
    fn from_keys(cgroup: Option<&str>, via: Option<&str>) -> Result<Self, RecordError> {
        match (cgroup, via) {
            (Some(path), None) => path
                .parse()
                .map(Self::Cgroup)
                .map_err(|_| RecordError::invalid_value("cgroup")),
            (None, Some(name)) => name
                .parse()
                .map(Self::Via)
                .map_err(|_| RecordError::invalid_value("via")),
            _ => Err(RecordError::ambiguous_target()),
        }
    }
}

pub(super) const VERSION: u32 = 1;

/// The keys of a record. serde refuses unknown and repeated keys of a structure.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireRecord {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) uid: u32,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) cgroup: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) via: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) started: Option<i64>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) ends: Option<i64>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) leaf: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) options: Option<MapOnly<Options>>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) cdi: Option<Vec<String>>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) gpus: Option<Vec<Gpu>>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) gres: Option<ByName<Vec<u32>>>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) device_dir: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) accounts: Option<Vec<String>>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) namespaces: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) logins: Option<bool>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) scheduler: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) env: Option<ByName<String>>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) resolved: Option<MapOnly<WireList>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{ "version": 1, "id": "4242", "uid": 1001,
    "cgroup": "/system.slice/site-job-4242.scope", "started": 1795201200, "ends": 1795203000,
    "leaf": "logins",
    "options": { "DevicePolicy": "closed", "DeviceAllow": [["/dev/nvidia0", "rw"], ["char-pts", "rw"]] },
    "cdi": ["nvidia.com/gpu=0"],
    "gpus": ["GPU-edfee158-11c1-52b8-0517-92f30e7fac88", 3, "0000:65:00.0"],
    "gres": {"gpu": [0, 1]}, "device_dir": "/run/devices/4242", "accounts": ["oar"], "namespaces": "/run/ns/4242" }"#;

    /// Parses a record with the required keys and, before the closing brace, `more`.
    fn parse_with(more: &str) -> Result<Record, RecordError> {
        Record::parse(format!(r#"{{"version":1,"id":"1","uid":5,"cgroup":"/a"{more}}}"#).as_bytes())
    }

    #[test]
    fn full_record_round_trips() {
        let record = Record::parse(FULL.as_bytes()).unwrap();
        assert_eq!(record.started, Some(1_795_201_200));
        assert_eq!(record.gpus.as_ref().unwrap().get(1), Some(&Gpu::Index(3)));
        assert_eq!(
            Record::parse(record.to_json().unwrap().as_bytes()),
            Ok(record.clone())
        );
        let RecordDevices::Requested(request) = record.devices() else {
            panic!("{:?}", record.devices())
        };
        assert_eq!(request.policy, Policy::Closed);
        assert_eq!(request.allow.len(), 2);
        assert_eq!(
            record.device_names().first().unwrap().to_string(),
            "nvidia.com/gpu=0"
        );
        assert_eq!(record.device_names().len(), 7);
    }

    #[test]
    fn input_of_imp_is_taken_with_its_job_unread() {
        let parse = |text: &str| Options::parse_imp_input(text.as_bytes());
        let expected = Record::parse(FULL.as_bytes()).unwrap().options;
        let properties = r#""options": {"DevicePolicy": "closed",
            "DeviceAllow": [["/dev/nvidia0", "rw"], ["char-pts", "rw"]]}"#;
        for job in [r#""J": "eyJ2.e30.none","#, r#""J": {"J": [null]},"#, ""] {
            assert_eq!(
                parse(&format!("{{{job} {properties}}}")),
                Ok(expected.clone())
            );
        }
        assert_eq!(parse(r#"{"J": "x"}"#), Ok(None));
        for wrong in [
            "",
            "[]",
            r#"["x", {}]"#,
            r#"{"J": "x", "J": "y"}"#,
            r#"{"J": "x", "options": null}"#,
            r#"{"J": "x", "options": []}"#,
            r#"{"J": "x", "options": {}, "options": {}}"#,
            r#"{"J": "x", "options": {"DevicePolicy": "open"}}"#,
            r#"{"J": "x", "options": {"MemoryMax": "1G"}}"#,
            r#"{"J": "x", "option": {}}"#,
            r#"{"J": "x"} {}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn small_record_round_trips() {
        let record = parse_with("").unwrap();
        assert_eq!(
            Record::parse(record.to_json().unwrap().as_bytes()),
            Ok(record)
        );
        let via = br#"{"version":1,"id":"1","uid":5,"via":"flux","options":{}}"#;
        let via = Record::parse(via).unwrap();
        assert_eq!(via.target, LoginTarget::Via(Via::Flux));
        assert_eq!(Record::parse(via.to_json().unwrap().as_bytes()), Ok(via));
        let other_via =
            br#"{"version":1,"id":"1","uid":5,"via":"slurm","cdi":[],"namespaces":"/run/n",
                   "env":{"SLURM_JOB_NTASKS":"2","SLURM_JOB_WORK_DIR":"/a b"}}"#;
        let other_via = Record::parse(other_via).unwrap();
        assert_eq!(
            other_via.env.as_ref().unwrap().get("SLURM_JOB_WORK_DIR"),
            Some("/a b")
        );
        assert_eq!(
            Record::parse(other_via.to_json().unwrap().as_bytes()),
            Ok(other_via)
        );
    }

    /// Ids of other schedulers stay as they are.
    #[test]
    fn flux_ids_are_canonical_in_each_notation() {
        let with = |id: &str, target: &str| {
            let text = format!(r#"{{"version":1,"id":"{id}","uid":5,{target},"cdi":[]}}"#);
            Record::parse(text.as_bytes()).map(|record| record.id.to_string())
        };
        for id in [
            "fxyzzy",
            "\u{192}xyzzy",
            "633528662",
            "0x25c2e156",
            "0000.0000.25c2.e156",
        ] {
            assert_eq!(with(id, r#""via":"flux""#), Ok("fxyzzy".into()), "{id}");
        }
        for id in ["xyzzy", "fl", "site-7", "4.2"] {
            assert!(with(id, r#""via":"flux""#).is_err(), "{id}");
        }
        assert_eq!(
            with("633528662", r#""via":"slurm""#),
            Ok("633528662".into())
        );
        assert_eq!(
            with("633528662", r#""cgroup":"/a""#),
            Ok("633528662".into())
        );
    }

    #[test]
    fn device_keys_determine_containment() {
        let policy = |more: &str| match parse_with(more).unwrap().devices() {
            RecordDevices::Unspecified => "unsaid",
            RecordDevices::Uncontained => "uncontained",
            RecordDevices::Requested(request) => request.policy.as_str(),
        };
        for (more, says) in [
            ("", "unsaid"),
            (r#","options":{}"#, "unsaid"),
            (r#","options":{"DevicePolicy":"auto"}"#, "uncontained"),
            (
                r#","options":{"DevicePolicy":"auto","DeviceAllow":[]}"#,
                "closed",
            ),
            (r#","options":{"DevicePolicy":"auto"},"gpus":[]"#, "closed"),
            (r#","options":{"DeviceAllow":[]}"#, "closed"),
            (r#","options":{"DevicePolicy":"closed"}"#, "closed"),
            (r#","options":{"DevicePolicy":"strict"}"#, "strict"),
            (r#","options":{"DevicePolicy":"strict"},"cdi":[]"#, "strict"),
            (r#","cdi":[]"#, "closed"),
            (r#","gpus":[0]"#, "closed"),
            (r#","gres":{}"#, "closed"),
            (r#","device_dir":"/d""#, "closed"),
        ] {
            assert_eq!(policy(more), says, "{more}");
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for more in [
            r#","x":1"#,
            r#","uid":5"#,
            r#","via":"slurm""#,
            r#","started":0"#,
            r#","started":-1"#,
            r#","started":1.5"#,
            r#","started":"1""#,
            r#","started":null"#,
            r#","ends":9223372036854775808"#,
            r#","leaf":"cgroup.procs""#,
            r#","leaf":null"#,
            r#","options":null"#,
            r#","options":["closed",[]]"#,
            r#","options":{"DevicePolicy":"open"}"#,
            r#","options":{"DevicePolicy":"Closed"}"#,
            r#","options":{"DevicePolicy":null}"#,
            r#","options":{"DevicePolicy":1}"#,
            r#","options":{"DevicePolicy":"auto","DevicePolicy":"auto"}"#,
            r#","options":{"x":1}"#,
            r#","options":{"DeviceAllow":null}"#,
            r#","options":{"DeviceAllow":"/dev/null"}"#,
            r#","options":{"DeviceAllow":{}}"#,
            r#","options":{"DeviceAllow":["/dev/null"]}"#,
            r#","options":{"DeviceAllow":[["/dev/null"]]}"#,
            r#","options":{"DeviceAllow":[["/dev/null","r","x"]]}"#,
            r#","options":{"DeviceAllow":[["/dev/null",1]]}"#,
            r#","cdi":"nvidia.com/gpu=0""#,
            r#","cdi":[""]"#,
            r#","cdi":[1]"#,
            r#","gpus":[-1]"#,
            r#","gpus":[0.5]"#,
            r#","gpus":[4294967296]"#,
            r#","gpus":[""]"#,
            r#","gpus":[null]"#,
            r#","gres":[]"#,
            r#","gres":{"gpu":0}"#,
            r#","gres":{"gpu":[-1]}"#,
            r#","gres":{"gpu":[0],"gpu":[1]}"#,
            r#","gres":{"":[0]}"#,
            r#","device_dir":"run""#,
            r#","device_dir":"/a\u000ab""#,
        ] {
            assert!(parse_with(more).is_err(), "{more} was taken");
        }
        for text in [
            "",
            "{}",
            "[]",
            r#"[1,"1",5,"/a"]"#,
            r#"{"version":2,"id":"1","uid":5,"cgroup":"/a"}"#,
            r#"{"version":"1","id":"1","uid":5,"cgroup":"/a"}"#,
            r#"{"version":1,"id":"1","uid":5}"#,
            r#"{"version":1,"id":"1","cgroup":"/a"}"#,
            r#"{"version":1,"id":1,"uid":5,"cgroup":"/a"}"#,
            r#"{"version":1,"id":"../1","uid":5,"cgroup":"/a"}"#,
            r#"{"version":1,"id":"1","uid":-5,"cgroup":"/a"}"#,
            r#"{"version":1,"id":"1","uid":0,"cgroup":"/a"}"#,
            r#"{"version":1,"id":"1","uid":4294967295,"cgroup":"/a"}"#,
            r#"{"version":1,"id":"1","uid":"5","cgroup":"/a"}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/"}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"a"}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a/../b"}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"pbs"}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"flux","env":{}}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","scheduler":"oar"}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","scheduler":"slurm"}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","scheduler":"OAR"}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","scheduler":null}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","env":{"OAR_JOB_ID":"1"}}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","env":{"SLURM_JOB_NTASKS":"2"}}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","env":{"LD_PRELOAD":"/x"}}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","env":{"TMPDIR":"/a b"}}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","scheduler":"oar","env":{"OAR_JOB_ID":"2"}}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":[]}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":null}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"SLURM_JOB_NTASKS":2}}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"SLURM_JOB_NTASKS":""}}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"PATH":"/x"}}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"SLURM_JOB_USER":"a\u000ab"}}"#,
            r#"{"version":1,"id":"1","uid":5,"via":"slurm",
            "env":{"SLURM_JOB_USER":"a","SLURM_JOB_USER":"b"}}"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a"} x"#,
            r#"{"version":1,"id":"1","uid":5,"cgroup":"/a"}{}"#,
        ] {
            assert!(Record::parse(text.as_bytes()).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn record_has_variables_of_its_scheduler() {
        let more = r#","scheduler":"gridengine","env":{"JOB_ID":"1","TMPDIR":"/tmp/1.1.q"}"#;
        let record = parse_with(more).unwrap();
        assert_eq!(record.scheduler(), Scheduler::GridEngine);
        assert_eq!(
            Record::parse(record.to_json().unwrap().as_bytes()),
            Ok(record)
        );
        assert_eq!(parse_with("").unwrap().scheduler(), Scheduler::Other);
        let error = parse_with(r#","env":{"BASH_ENV":"/x"}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "key env: BASH_ENV is none of the variables of such a job, which job-adopt-record(5) \
             lists: leave it out"
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = format!(r#","gpus":{}"#, "[".repeat(100_000));
        assert!(parse_with(&deep).is_err());
    }

    #[test]
    fn error_has_one_line() {
        let error = parse_with(",\"a\\nb\":1").unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error:?}");
    }
}

//! `gres.conf` is read as the installed slurmd reads it, over generated files: the same devices in
//! the same order, or the same refusal.
//!
//! `slurmd -G` is what the daemon itself does at its start, and the daemon alone maps a job's indexes to
//! files. `slurmd -C` prints the machine without reading the file, which a test shows. slurmctld
//! starts with any file: 22.05 looks for what it includes and logs a parse error, 26.05 says nothing. It takes
//! the number, types and cores of a node's resources from that node's slurmd.

use helper::devices::gres::{Dialect, FaultyRecord, GresConf, GresRecord, Resources};

use schedulers::stepd::Release;

use crate::support::{Node, is_installed, on_node, skip, start_munged};

/// Files of an ordinary run. `JOB_ADOPT_GRES_FILES` in the environment asks for more.
const FILES: usize = 60;
const SEED: u64 = 39;

/// Slurm has all resources that a file may have, of any type.
const SLURM_CONF: &str = "ClusterName=site\nSlurmctldHost=n1\nSlurmUser=root\nGresTypes=gpu,nic\n\
    SlurmdSpoolDir=/tmp/spool\nSlurmdLogFile=/dev/null\nSlurmdParameters=config_overrides\n\
    ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nNodeName=n1 CPUs=1 Gres=gpu:1000P,nic:1000P\nPartitionName=all Nodes=ALL\n";

/// Asks slurmd for each file, and expands its lists of devices by Slurm itself.
const ASK_SLURMD: &str = r#"
mknod -m 666 /dev/nic0 c 10 200; mknod -m 666 /dev/nic1 c 10 201; mkdir /tmp/spool
ln -s nvidia1 /dev/link
ask() {
    cd "$1" && cp /tmp/slurm.conf /tmp/cgroup.conf . || exit
    slurmd -f "$1/slurm.conf" -N n1 -G >log 2>&1
    echo "exit $?"
    # Slurm 26.05 writes the time in place of the program's name.
    sed -n 's/^\(slurmd:\|\[[^ ]*\]\) Gres Name=\([^ ]*\) .*Count=\([0-9]*\) .* File=\(.*\)$/\2 \3 \4/p' log |
        sed 's/ \((null)\|Cores=.*\|Links=.*\|Flags=.*\)$//' |
        while read -r name count list; do
            echo "$name $count $(SLURM_CONF=/tmp/slurm.conf scontrol show hostnames "$list" | tr '\n' ' ')"
        done
}
# hardware FOLDER: prints what -C prints, but the time.
hardware() {
    slurmd -f "$1/slurm.conf" -N n1 -C 2>&1 | sed '/^UpTime=/d'
}
export -f ask hardware
printf '%s\0' /tmp/gres/* | xargs -0 -P2 -n1 bash -c 'ask "$1" >"$1/answer"' ask
mkdir /tmp/without && cp /tmp/slurm.conf /tmp/cgroup.conf /tmp/without
hardware /tmp/without >/tmp/hardware && grep -q ^NodeName= /tmp/hardware || exit
for index in 0 1 2 3 4 5 6 7 8 9; do
    hardware "/tmp/gres/$index" | diff /tmp/hardware - || exit
done
"#;

#[test]
fn generated_files_have_the_devices_of_slurmd() {
    if !["slurmd", "scontrol", "munged"]
        .into_iter()
        .all(is_installed)
    {
        return skip("needs slurmd, slurm-client and munge");
    }
    on_node(|node| {
        let count = std::env::var("JOB_ADOPT_GRES_FILES").ok();
        let count = count.map_or(FILES, |count| count.parse().unwrap());
        let mut random = Random(SEED);
        let texts: Vec<String> = (0..count).map(|_| random.file()).collect();
        node.write("/tmp/slurm.conf", SLURM_CONF);
        // Otherwise slurmd looks for cgroups, and ends where it finds those of both versions.
        node.write("/tmp/cgroup.conf", "CgroupPlugin=cgroup/v1\n");
        for (index, text) in texts.iter().enumerate() {
            node.create_dir(&format!("/tmp/gres/{index}"), 0o755);
            node.write(&format!("/tmp/gres/{index}/gres.conf"), text);
        }
        // From 24.11 on also this needs it.
        start_munged(node);
        node.run("bash", &["-c", ASK_SLURMD]).ok();
        // As "slurm-wlm 22.05.8".
        let version = node.run("slurmd", &["-V"]).ok().stdout;
        let version = version.split_whitespace().last().unwrap();
        let dialect = Dialect(Release::from_version(version));
        assert!(dialect.0.is_some(), "{version}");
        let mut refused = 0;
        for (index, text) in texts.iter().enumerate() {
            let expected = read_answer(node, index);
            let log = node.read(&format!("/tmp/gres/{index}/log"));
            assert_eq!(
                read_devices(text, dialect),
                expected,
                "file {index}:\n{text}\n{log}"
            );
            refused += usize::from(expected.is_none());
        }
        // Otherwise the files would show little.
        assert!(
            (count / 10..count * 9 / 10).contains(&refused),
            "{refused} of {count} refused"
        );
    });
}

/// The devices of each index, by name; `None` for a file with which slurmd does not start.
type Devices = Option<Vec<(String, Vec<String>)>>;

fn read_answer(node: &Node, index: usize) -> Devices {
    let answer = node.read(&format!("/tmp/gres/{index}/answer"));
    let (status, records) = answer.split_once('\n').unwrap();
    if status != "exit 0" {
        return None;
    }
    let mut devices = Vec::new();
    for record in records.lines() {
        let mut words = record.split_whitespace();
        let name = words.next().unwrap().to_ascii_lowercase();
        let count: usize = words.next().unwrap().parse().unwrap();
        let files: Vec<String> = words.map(str::to_owned).collect();
        let size = if count == files.len() { 1 } else { files.len() };
        let groups = files
            .chunks(size.max(1))
            .map(|files| (name.clone(), files.to_vec()));
        devices.extend(groups);
    }
    devices.sort_by(|one, other| one.0.cmp(&other.0));
    Some(devices)
}

fn read_devices(text: &str, dialect: Dialect) -> Devices {
    let conf = GresConf::parse(text, "n1", dialect).ok()?;
    let read = |name: &str| -> Result<Resources, FaultyRecord> {
        // Slurm compares the records of its own resources only.
        if name.eq_ignore_ascii_case("foo") {
            let resources = conf.records_of(name)?;
            resources
                .records()
                .iter()
                .try_for_each(GresRecord::check_as_slurmd)?;
            return Ok(resources);
        }
        let resources = conf.resources(name)?;
        resources.check_as_slurmd()?;
        Ok(resources)
    };
    let names = conf.names();
    if names.iter().any(|name| read(name).is_err()) {
        return None;
    }
    let mut devices = Vec::new();
    for name in ["gpu", "nic"] {
        let resources = read(name).ok()?;
        for record in resources.records() {
            let groups = record.file_groups().into_iter();
            devices.extend(groups.map(|files| (name.to_owned(), files.to_vec())));
        }
    }
    Some(devices)
}

/// The generator of Marsaglia's "Xorshift RNGs" with the shifts 13, 7 and 17.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).unwrap() % bound
    }

    fn is_one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn one_of<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.below(values.len())]
    }

    /// Returns the text of a `gres.conf`. In records of other nodes every key is known: slurmd
    /// refuses an unknown one there as well, which no login needs to suffer from.
    fn file(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.below(4) {
            let line = match self.below(20) {
                0 => self
                    .one_of(&["AutoDetect=off", "autodetect = off # x", "AutoDetect=other"])
                    .into(),
                1 => self.one_of(&["# Name=gpu x", "", " \t", "#\\"]).into(),
                2 if self.is_one_in(3) => self
                    .one_of(&["junk", "File=/dev/nvidia0", "AutoDetect=off x", "Name"])
                    .into(),
                _ => self.record(),
            };
            text += &line;
            text += "\n";
        }
        text
    }

    fn record(&mut self) -> String {
        let names = ["gpu", "gpu", "gpu", "nic", "foo", "\"gpu\"", "g\\pu"];
        let name = self
            .one_of(&["Name=", "Name=", "name = ", "NAME+="])
            .to_owned()
            + self.one_of(&names);
        let other = [
            "n2",
            "n[2-3]",
            "n[0",
            "n[2-1]",
            "\"n2, n3\"",
            ",",
            "N1",
            "n[01-02]",
            "n[0,n2",
            "n[0-99999]",
            "n[1]n[0-65536],n2",
            // The release decides whether these have this node.
            "n[2]-gpu,n1",
            "n[2]n[3]x,n1",
            "n[0-65536],n1",
            "n[[2]],n1",
        ];
        let this = [
            "n1",
            "n[0-1]",
            "n[1,3]",
            "\"n2, n1\"",
            "n1,",
            ",,n2,n1",
            "n[1-]",
            "n[1,n1",
            "n[0-65535]",
        ];
        let mut keys = match self.below(4) {
            0 => vec![format!("NodeName={}", self.one_of(&this)), name],
            1 => {
                let mut keys = vec![format!("NodeName={}", self.one_of(&other)), name];
                keys.push(self.file_key());
                return keys.join(" ");
            }
            _ => vec![name],
        };
        if !self.is_one_in(4) {
            keys.push(self.file_key());
        }
        if self.is_one_in(3) {
            let count = [
                "1", "1", "2", "2", "3", "1500GB", "2k", "1KiB", "4m", "1Pb", "x", "2x", "+1",
            ];
            keys.push(format!("Count={}", self.one_of(&count)));
        }
        if self.is_one_in(8) {
            keys.push(format!("Type={}", self.one_of(&["a", "A", "b"])));
        }
        if self.is_one_in(10) {
            keys.push("Flags=CountOnly".to_owned());
        }
        if self.is_one_in(10) {
            keys.push("AutoDetect=off".to_owned());
        }
        if self.is_one_in(30) {
            let faults = [
                "Fil=/dev/nvidia0",
                "x",
                "NodeName=n1",
                "Name=nic",
                "Count=",
                "File=\"/dev/nvidia0",
            ];
            keys.push(self.one_of(&faults).to_owned());
        }
        let blank = self.one_of(&[" ", " ", " ", "\t", "  ", " \\\n  "]);
        keys.join(blank) + self.one_of(&["", "", " ", " # File=/dev/nvidia3"])
    }

    fn file_key(&mut self) -> String {
        let key = self.one_of(&["File", "File", "File", "Files", "MultipleFiles", "file "]);
        let lists = [
            "/dev/nvidia0",
            "/dev/nvidia1",
            "/dev/nvidia2",
            "/dev/nvidia[0-1]",
            "/dev/nvidia[0,2-3]",
            "/dev/nvidia[3,1]",
            "/dev/nvidia1,",
            ",/dev/nvidia1",
            "/dev/nvidia0,,/dev/nvidia2",
            "/dev/link",
            "\"/dev/nvidia0, /dev/nvidia1\"",
            "\"/dev/nvidia[2-3] /dev/nic0\"",
            "/dev/nic[0-1]",
            "/dev/nic0",
            "/dev/nvidia[1-]",
            "/dev/nvidia[2-1]",
            "/dev/nvidia[0,x]",
            "/dev/nvidia[]",
            ",",
            "\"\"",
            "/dev/nvidia0,/dev/nvidia0",
            "/dev/nvi\\dia0",
        ];
        let most = if self.is_one_in(2) { lists.len() } else { 14 };
        format!("{key}={}", self.one_of(&lists[..most]))
    }
}

//! What `--help` shows. The whole story is in job-adopt(1).

pub(super) const ALL: &str = "\
usage: job-adopt COMMAND [OPTIONS]

Jobs of this node, and the ssh logins that join them.

  run         start a command as a job of a user, without a scheduler (root)
  register    make a job known, for a prolog (root)
  unregister  make a job unknown and end its logins, for an epilog (root)
  list        show the jobs of this node
  resolve     show what a login would get, and why
  devices     show what names of devices stand for, and what filters let through
  check       show what is amiss with this node's set-up, and what to do about it
  guard       keep what users run outside of jobs from GPUs (root)
  use         choose which of your jobs here the next logins join
  callerid    tell another node which job a connection is of (systemd, inetd)

  --help      show this text, or with a command its options
  --version   show the version

Exit status: 0 fine, 1 a login or a device would be refused, a record is broken, a guard does not
fit, something is amiss with the node or a job is not running here, 2 wrong usage, 3 could not be
told or done.
";

pub(super) const RUN: &str = "\
usage: job-adopt run --user USER [OPTIONS] -- COMMAND [ARGUMENT...]

Starts COMMAND as USER, in a cgroup and with devices of its own, in the user's home directory; the
job ends with it. INT, QUIT, TERM and HUP end the job. COMMAND has no controlling terminal;
script(1) gives it one. Ends with the status of COMMAND, or with 125.

  --user USER            whose job it is
  --id ID                its id; run- and a number unless given
  --policy POLICY        closed, strict or auto
  --device 'SPEC ACCESS' a device; may be repeated, ACCESS is rw unless given
  --cdi NAME             a CDI device, VENDOR/CLASS=NAME; may be repeated
  --gpu GPU              a GPU by number, UUID or PCI address; may be repeated
  --gres NAME:N,...      a resource in gres.conf by its indexes, or NAME:TYPE:N; may be repeated
  --device-dir DIR       a directory whose entries name devices
  --leaf NAME            the child cgroup that logins go to
  --ends SECONDS         when the job ends, in seconds since the epoch
  --conf FILE            configuration in place of /etc/security/job_adopt.conf
  --help                 show this text
";

pub(super) const REGISTER: &str = "\
usage: job-adopt register [OPTIONS]
       job-adopt register [--conf FILE] < RECORD

Makes a job known: stamps its cgroup, confines it to its devices, and writes its record. Without
job options a record is read from standard input.

  --id ID                the job's id, unique on this node
  --uid UID              whose job it is, by number
  --user USER            the same by name
  --cgroup PATH          its cgroup below the cgroup v2 mount
  --via SCHEDULER        slurm or flux, which places the logins itself
  --policy POLICY        closed, strict or auto
  --device 'SPEC ACCESS' a device; may be repeated, ACCESS is rw unless given
  --cdi NAME             a CDI device, VENDOR/CLASS=NAME; may be repeated
  --gpu GPU              a GPU by number, UUID or PCI address; may be repeated
  --gres NAME:N,...      a resource in gres.conf by its indexes, or NAME:TYPE:N; may be repeated
  --device-dir DIR       a directory whose entries name devices
  --leaf NAME            the child cgroup that logins go to
  --started SECONDS      when the job started, in seconds since the epoch; now unless given
  --ends SECONDS         when it ends
  --env NAME=VALUE       a variable of Slurm's prolog, for env = full; may be repeated
  --conf FILE            configuration in place of /etc/security/job_adopt.conf
  --help                 show this text
";

pub(super) const UNREGISTER: &str = "\
usage: job-adopt unregister [OPTIONS] ID

Makes a job unknown, then ends its logins: everything in a cgroup that job-adopt made, the logins
alone in another's. An unknown ID is no failure.

  --timeout SECONDS  how long to wait until they are gone, at most 3600; 10 unless given
  --conf FILE        configuration in place of /etc/security/job_adopt.conf
  --help             show this text
";

pub(super) const LIST: &str = "\
usage: job-adopt list [OPTIONS]

Shows the jobs of this node, with their logins, processes and devices. Status 1 where a record is
broken.

  --user USER  only this user's
  --json       as JSON
  --conf FILE  configuration in place of /etc/security/job_adopt.conf
  --help       show this text
";

pub(super) const RESOLVE: &str = "\
usage: job-adopt resolve --user USER [OPTIONS]

Shows what an ssh login of USER would get, without doing it: the text that the user would read,
then what led to it. The module's own arguments are taken to be the defaults.

  --user USER        who logs in
  --service NAME     the PAM service; sshd unless given
  --connection TEXT  the connection, as SSH_CONNECTION has it: client address and port, server
                     address and port. Where USER has several jobs, the one that the client runs in
                     is then asked for as at a login
  --json             as JSON
  --conf FILE        configuration in place of /etc/security/job_adopt.conf
  --help             show this text

Exit status: 0 admitted or not judged, 1 refused, 3 cannot tell.
";

pub(super) const DEVICES: &str = "\
usage: job-adopt devices [OPTIONS] NAME...
       job-adopt devices [OPTIONS] --cgroup PATH | --job ID
       job-adopt devices [OPTIONS] --cgroup PATH | --job ID --would-deny [NAME...]

Shows what names of devices stand for on this node; or what the filters at a cgroup let through,
whoever attached them (root); or which devices that its processes have open an allowlist would
refuse (root). NAME is a specifier ('SPEC ACCESS' in one word), a CDI name, a GPU, NAME:N,
imex/N, or all for all GPUs of NVIDIA's.

  --device 'SPEC ACCESS' a device; may be repeated, ACCESS is rw unless given
  --cdi NAME             a CDI device, VENDOR/CLASS=NAME; may be repeated
  --gpu GPU              a GPU by number, UUID or PCI address; may be repeated
  --gres NAME:N,...      a resource in gres.conf by its indexes, or NAME:TYPE:N; may be repeated
  --device-dir DIR       a directory whose entries name devices; may be repeated
  --cgroup PATH          a cgroup below the cgroup v2 mount
  --job ID               the cgroup that logins to a job of the registry go to
  --would-deny           try an allowlist: the one named here, else that of the job's record
  --policy POLICY        closed (the default), strict or auto; for --would-deny
  --root DIR             look names and nodes up below DIR, in files of the caller's
  --json                 as JSON; job-adopt(1) has the keys
  --conf FILE            configuration in place of /etc/security/job_adopt.conf
  --help                 show this text

Exit status: 0 fine, 1 a name does not resolve or an open device would be refused, 2 wrong usage,
3 cannot tell.
";

pub(super) const CHECK: &str = "\
usage: job-adopt check [OPTIONS]

Looks at all that logins depend on: PAM stacks, sshd, files, sources of jobs, the kernel. Shows what
is amiss, the gravest first, each with what to do about it. Anybody may run it; much of it only root
can tell. It leaves the node as it was; the kernel is tried in a cgroup of its own, for a moment.

  --service NAME  the PAM service; sshd unless given
  --verbose       show what is fine as well
  --json          as JSON
  --conf FILE     configuration in place of /etc/security/job_adopt.conf
  --help          show this text

Exit status: 0 fine, notes at most, 1 warnings or errors, 2 wrong usage, 3 cannot tell.
";

pub(super) const GUARD: &str = "\
usage: job-adopt guard [OPTIONS] --uid UID | --user USER | --all
       job-adopt guard [OPTIONS] --service NAME.service

Guards the slice in which systemd runs what users start outside of jobs: nothing in it opens a device
that the configuration guards. Once per slice; another list takes the place of the first. A slice
that is not there, that holds a job, or whose user is exempt, is none to guard, which is status 0.

  --uid UID          whose slice, by number; root's is never guarded
  --user USER        the same by name
  --all              those of all users that are there
  --service NAME     a service in place of a slice, as cron.service, with whatever root runs there
  --remove           take the guard off
  --conf FILE        configuration in place of /etc/security/job_adopt.conf
  --help             show this text

Exit status: 0 guarded or nothing to guard, 1 another filter there does not let one be added or the
service is not there, 2 wrong usage, 3 could not be told or done.
";

pub(super) const USE: &str = "\
usage: job-adopt use JOB
       job-adopt use --clear
       job-adopt use

Chooses, of several jobs that you have on this node, the one that your next logins join while it
runs here; a login from inside another of them joins that one all the same. Without JOB it shows
what is chosen. The first login to a node makes room for the choice, and so does a refusal with
JA05.

  --clear  choose none
  --help   show this text

Exit status: 0 fine, 1 the job is not one of yours that run here, 2 wrong usage, 3 cannot tell.
";

pub(super) const CALLERID: &str = "\
usage: job-adopt callerid [OPTIONS]

Answers one question of the Identification Protocol (RFC 1413): which job of this node a connection
to the host that asks is of. The connection is standard input; systemd or inetd runs this for each.
job-adopt-callerid(8) has the rest.

  --conf FILE  configuration in place of /etc/security/job_adopt.conf
  --help       show this text

Exit status: 0 answered, or nobody asked, 2 no TCP connection, 3 cannot tell.
";

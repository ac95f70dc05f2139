# OpenPBS: a hook that makes the cgroup of each job on each of its nodes, registers it for ssh logins, freezes it while
# the job is suspended, and ends what is left in it at the job's end:
#
#   qmgr -c 'create hook job_adopt event="execjob_begin,execjob_launch,execjob_attach"'
#   qmgr -c 'set hook job_adopt event+="execjob_postsuspend,execjob_preresume"'
#   qmgr -c 'set hook job_adopt event+="execjob_epilogue,execjob_end,execjob_abort"'
#   qmgr -c 'set hook job_adopt order=1000'
#   qmgr -c 'set hook job_adopt fail_action=offline_vnodes'
#   qmgr -c 'import hook job_adopt application/x-python default openpbs.py'
#
# The order makes it the last hook: if another rejects the start after it, no event withdraws the record.
#
# OpenPBS's own hook pbs_cgroups has no cgroup v2: leave it disabled there, where it holds every job. The site decides
# which devices a job may open: by default the standard ones. Add --gpu or --device for those that it gives to the job.
import os
import pwd
import re
import subprocess
import time

import pbs

JOBS = "/pbs-jobs"
JOB_ADOPT = "/usr/bin/job-adopt"
# The command gets no variable of the environment of pbs_mom.
environment = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

event = pbs.event()
job = event.job
# Ids of array jobs have brackets, which the id of a record cannot have.
name = str(job.id).replace("[", ".").replace("]", "")
folder = "/sys/fs/cgroup%s/%s" % (JOBS, name)


def job_adopt(*words):
    subprocess.check_output((JOB_ADOPT,) + words, env=environment, stderr=subprocess.STDOUT)


def load_late_devices():
    """What CUDA needs besides the GPUs, NVIDIA's driver loads at its first use, which is too late for the list of a job."""
    if os.path.isdir("/proc/driver/nvidia"):
        for words in ("nvidia-modprobe", "-u", "-c", "0"), ("modprobe", "nvidia-uvm"):
            try:
                if subprocess.call(words, env=environment, timeout=60) == 0:
                    break
            except (FileNotFoundError, subprocess.TimeoutExpired):
                pass


def variables():
    """What logins get of the job, with "env = full" in job_adopt.conf."""
    given = {"PBS_JOBID": str(job.id), "PBS_QUEUE": str(job.queue.name)}
    # Only the first node of a job has its node file.
    if job.in_ms_mom():
        given["PBS_NODEFILE"] = "%s/aux/%s" % (pbs.pbs_conf["PBS_HOME"], job.id)
    index = re.search(r"\[(\d+)\]", str(job.id))
    if index:
        given["PBS_ARRAY_INDEX"] = index.group(1)
    return ["--env=%s=%s" % pair for pair in sorted(given.items())]


def write(file, value):
    with open(os.path.join(folder, file), "w") as opened:
        opened.write("%d" % value)


def move(pid, owner=None):
    """Moves a process into the job, unless it is pbs_mom itself, of another job, or not the owner's.

    The process may end at any moment, and another may get its number. The directory in /proc shows the first one alone,
    so that it tells afterwards which of them was moved.
    """
    process = os.open("/proc/%d" % pid, os.O_PATH)

    def read(file, start):
        path = os.open(file, os.O_RDONLY, dir_fd=process)
        with open(path) as opened:
            return [line[len(start):].strip() for line in opened if line.startswith(start)][0]

    try:
        if (read("comm", ""), read("status", "PPid:")) == ("pbs_mom", "1"):
            raise OSError("process %d is pbs_mom, which is in no job" % pid)
        if owner and set(read("status", "Uid:").split()) != {str(pwd.getpwnam(owner).pw_uid)}:
            raise OSError("process %d does not belong to %s" % (pid, owner))
        cgroup = read("cgroup", "0::")
        if cgroup.startswith(JOBS + "/") and cgroup != "%s/%s" % (JOBS, name):
            raise OSError("process %d is in another job: %s" % (pid, cgroup))
        write("cgroup.procs", pid)
        try:
            read("status", "PPid:")
        except OSError:
            raise OSError("process %d has ended%s" % (pid, put_back(pid)))
    finally:
        os.close(process)


def put_back(pid):
    """Moves a process of somebody else that has got the number meanwhile to the cgroup of its parent.

    It may be of this very job, where a process of the job's user therefore stays, with the job's limits. If the parent
    has ended, process 1 stands for it, whose cgroup has no limits: the process stays, too. Returns what to say.
    """
    def read(pid, file, start):
        with open("/proc/%s/%s" % (pid, file)) as opened:
            return [line[len(start):].strip() for line in opened if line.startswith(start)][0]

    try:
        if read(pid, "cgroup", "0::") != "%s/%s" % (JOBS, name):
            return ""
        if str(pwd.getpwnam(str(job.euser)).pw_uid) in read(pid, "status", "Uid:").split():
            return ""
        parent = read(pid, "status", "PPid:")
    except (FileNotFoundError, ProcessLookupError):
        # Nobody has the number.
        return ""
    try:
        if int(parent) > 1:
            cgroup = read(parent, "cgroup", "0::")
            with open("/sys/fs/cgroup%s/cgroup.procs" % cgroup, "w") as opened:
                opened.write("%d" % pid)
            return ""
    except (FileNotFoundError, ProcessLookupError):
        # The process or its parent has ended.
        pass
    except OSError as error:
        return ", another has its number and stays in the job: %s" % error
    return ", another may have its number and stay in the job"


def end():
    """Writes the note of the end, ends the logins, then the rest of the job."""
    try:
        job_adopt("unregister", "--strays", name)
    finally:
        for _ in range(50):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                break
            except OSError:
                write("cgroup.kill", 1)
                time.sleep(0.1)


starts = event.type in (pbs.EXECJOB_BEGIN, pbs.EXECJOB_LAUNCH, pbs.EXECJOB_ATTACH)
try:
    if event.type == pbs.EXECJOB_BEGIN:
        os.makedirs(folder, exist_ok=True)
        load_late_devices()
        job_adopt("register", "--id", name, "--user", str(job.euser), "--cgroup", "%s/%s" % (JOBS, name),
                  "--policy", "closed", "--scheduler", "openpbs", *variables())
    elif event.type == pbs.EXECJOB_LAUNCH:
        # The process that becomes the task has started this hook.
        move(os.getppid())
    elif event.type == pbs.EXECJOB_ATTACH:
        # The user names this process by pbs_attach, and pbs_mom checks whose it is only after this hook.
        move(event.pid, str(job.euser))
    elif event.type == pbs.EXECJOB_POSTSUSPEND:
        write("cgroup.freeze", 1)
    elif event.type == pbs.EXECJOB_PRERESUME:
        write("cgroup.freeze", 0)
    else:
        end()
except (OSError, subprocess.CalledProcessError) as error:
    reason = "job-adopt: %s %s" % (error, getattr(error, "output", ""))
    if event.type == pbs.EXECJOB_BEGIN:
        # No other event follows. Only a hook that fails takes the node offline; one that rejects gets the job again.
        if os.path.isdir(folder):
            os.rmdir(folder)
        raise RuntimeError(reason)
    if starts:
        # A task outside of the job's cgroup should not run. Without this, the job would be deleted.
        if event.type == pbs.EXECJOB_LAUNCH:
            job.rerun()
        event.reject(reason)
    else:
        pbs.logmsg(pbs.EVENT_ERROR, reason)
        event.accept()
else:
    event.accept()

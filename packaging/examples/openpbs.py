# OpenPBS hook: registers each job for ssh logins, and withdraws it at its end.
#
# NOT RUN BY THIS PROJECT: written from OpenPBS's documentation. Try it on one node first.
#
#   qmgr -c 'create hook job_adopt event="execjob_begin,execjob_epilogue,execjob_end"'
#   qmgr -c 'set hook job_adopt order=200'          # after pbs_cgroups, which makes the job's cgroup
#   qmgr -c 'import hook job_adopt application/x-python default openpbs.py'
#
# Needs the hook pbs_cgroups on cgroup v2. Look once at /proc/PID/cgroup of a job's process and set CGROUP to
# where your version puts jobs. The site decides which devices a job may open besides the standard ones: by
# default none; add --gpu or --gres for what pbs_cgroups has assigned.
import subprocess

import pbs

CGROUP = "/pbs_jobs.service/jobs/%s"
JOB_ADOPT = "/usr/bin/job-adopt"
# The command gets no variable of the environment of pbs_mom.
environment = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

event = pbs.event()
job = event.job
# Ids of array jobs have brackets, which the id of a record cannot have.
name = str(job.id).replace("[", ".").replace("]", "")
try:
    if event.type == pbs.EXECJOB_BEGIN:
        words = ["register", "--id", name, "--user", str(job.euser), "--policy", "closed"]
        words += ["--cgroup", CGROUP % job.id]
    else:
        words = ["unregister", "--strays", name]
    subprocess.check_output([JOB_ADOPT] + words, env=environment, stderr=subprocess.STDOUT)
    event.accept()
except subprocess.CalledProcessError as error:
    # A job that is not registered gets no logins: it should run elsewhere.
    event.reject("job-adopt: %s" % error.output)

#!/bin/sh
# Epilog= of slurm.conf(5): slurmd runs it as root on each node of a job after the job has ended there.
#
# Takes away the record that the prolog beside it wrote and leaves a note of the end, valid for ten
# minutes. It ends nothing: Slurm has ended the job's logins by then. A job without a record is no
# failure, and neither is a record that stays, since without its job it admits nobody: neither is a
# reason to drain the node.
set -eu

LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

: "${SLURM_JOB_ID:?}"

job-adopt unregister "$SLURM_JOB_ID" || echo "$0: the record of job $SLURM_JOB_ID stays" >&2

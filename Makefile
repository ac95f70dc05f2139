## make              builds the module, the helper, the keeper and the command, for this machine's C library.
##                   GLIBC=2.28: for that one and newer, linked by zig. MACHINE=aarch64: for that machine
## make install      installs them, with pages, units, completions and the helper's account. DESTDIR, PREFIX,
##                   SECURITYDIR, UNITDIR, BUILT: packaging/install
## make uninstall    removes them, with the same variables
##
## As root on Debian the goals below first install what they run, and report it; lint, fuzz and corpus only name it.
## Times: on two idle processors, cold (no packages, crates or images), then warm.
##
## make demo         shows a job, a login to it and a login without one, on a private node       1 min, 5 s
## make test         what to run at each change: unit tests, real logins by a real sshd, a
##                   real Slurm where cgroup v1 is mounted, the demo                              3 min, 2 min
## make test-all     all tests, side by side: the parts below as well                            18 min, 15 min
##                   These take, beside the others and after their programs and images (4 min):
##   make test-slurm     Slurm of this machine and of booted nodes                               3 min
##   make test-nodes     booted Debian nodes with systemd, Flux, containers                      4 min
##   make test-kernels   other kernels, under QEMU                                               3 min
##   make test-stress    faults at each step of a login, logins by the hundred, MPI, parsers     4 min
##   make test-release   optimised programs, packages                                            7 min
##                   SUITE='WORD...' runs a part of a part: tests/all. CHART=FILE draws what ran when, as SVG
## make lint         formatting, clippy, documentation, manual pages, licences; warnings are errors
## make fresh        the README's commands on new systems of Debian 12 and 13, in clones below /root, below /tmp and
##                   below a path with a blank. SUITE=bookworm or trixie: on one
## make faults       makes each system call of a login fail once: all of them, where test-stress takes a few
## make soak         LOGINS=10000 logins in waves, to jobs that start and end
## make bench        measures a login, a device check and a look-up, as ratios
## make fuzz         searches inputs that break a parser until stopped; SECONDS=60 of each TARGET, or EXECUTIONS
## make corpus       keeps those inputs that reach new code
## make picture      draws docs/pictures/demo.svg from the demo
## make dist         builds a release in target/releases/VERSION: docs/release.md. MAINTAINER='NAME <ADDRESS>', or
##                   DRAFT=1
## make needs        installs what all of these run; then only tests need root
## make clean

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
SECONDS ?= 60
LOGINS ?= 10000
export CARGO CARGO_TARGET_DIR
export PATH := $(PATH):/usr/sbin:/sbin
# Some sites have a variable of this name in their environment: only make's own counts.
MACHINE =
export MACHINE

# Releases run with older C libraries than this machine's, and so does what other releases' nodes test.
GLIBC ?= $(if $(MACHINE)$(filter dist test-%,$(MAKECMDGOALS)),2.28)
export GLIBC
BUILD = $(or $(BUILT),$(CARGO_TARGET_DIR)/$(if $(GLIBC),glibc-$(GLIBC),dist)$(MACHINE:%=-%))
# The module as the name of a target, in which a blank has a backslash. It is the last file of those that are built.
empty =
MODULE = $(subst $(empty) $(empty),\ ,$(BUILD))/pam_job_adopt.so
SOURCES = Cargo.toml Cargo.lock build.rs $(shell find src -name '*.rs' -o -name Cargo.toml)
PARTS = test-slurm test-nodes test-kernels test-stress test-release
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Programs that are not optimised: the compiler needs a third of the time, and compiles for the tests as well.
DEVELOPMENT = $(CARGO_TARGET_DIR)/development

ifneq ($(TIER),)
$(error TIER=$(TIER): these are parts now, such as make test-nodes; make help lists them)
endif

.PHONY: all help needs install uninstall demo picture test test-all $(PARTS) lint fresh faults soak bench fuzz corpus dist clean

all: $(if $(BUILT),,$(MODULE))

$(MODULE): $(SOURCES)
	packaging/build '$(BUILD)'

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

install: all
	@packaging/install '$(BUILD)'

uninstall:
	@packaging/install --remove

needs:
	@packaging/needs test-all lint fresh dist bench

demo:
	@packaging/needs demo
	@tests/development '$(DEVELOPMENT)'
	@JOB_ADOPT_ARTIFACTS='$(DEVELOPMENT)' tests/demo

picture:
	@packaging/needs demo
	@tests/development '$(DEVELOPMENT)'
	JOB_ADOPT_ARTIFACTS='$(DEVELOPMENT)' tests/demo >'$(DEVELOPMENT)/output' 2>&1
	docs/pictures/render <'$(DEVELOPMENT)/output' >docs/pictures/demo.svg

test:
	@SUITE='$(SUITE)' CHART='$(CHART)' tests/all core

test-all:
	@SUITE='$(SUITE)' CHART='$(CHART)' tests/all core slurm nodes kernels stress release

$(PARTS):
	@SUITE='$(SUITE)' CHART='$(CHART)' tests/all $(@:test-%=%)

lint:
	@packaging/needs --check lint
	@tests/lint

fresh:
	@packaging/needs fresh
	@tests/fresh/all $(SUITE)

faults soak:
	@packaging/needs test-stress
	@packaging/build '$(BUILD)'
	JOB_ADOPT_FAULTS=all LOGINS=$(LOGINS) JOB_ADOPT_TESTS=all JOB_ADOPT_ARTIFACTS="$$(realpath '$(BUILD)')" \
	    '$(CARGO)' test --locked --test native -- --nocapture --test-threads 4 $@::

bench:
	@packaging/needs bench
	@packaging/build '$(BUILD)'
	JOB_ADOPT_ARTIFACTS="$$(realpath '$(BUILD)')" '$(CARGO)' bench --locked --bench native

fuzz:
	@packaging/needs --check fuzz
	fuzz/run $(if $(EXECUTIONS),count $(EXECUTIONS),hunt $(SECONDS)) $(TARGET)

corpus:
	@packaging/needs --check fuzz
	fuzz/run keep $(TARGET)

dist:
	@DRAFT='$(DRAFT)' MAINTAINER='$(MAINTAINER)' packaging/release '$(CARGO_TARGET_DIR)/releases/$(VERSION)'

clean:
	'$(CARGO)' clean

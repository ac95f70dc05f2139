# Builds, installs and tests pam_job_adopt.
#
#   make            builds the module, the helper, the keeper and the admin's program in $(BUILD), for the C
#                   library of this machine and newer ones. With GLIBC=2.28 for that version and newer ones,
#                   linked by zig, which pip installs below $(CARGO_TARGET_DIR) unless ZIG=PATH names one. With
#                   MACHINE=aarch64 for that machine (docs/release.md)
#   make install    installs the four, the manual pages, completions and units, and creates the helper's account
#   make uninstall  removes them, with the same variables
#   make test       runs every test but a few groups (CONTRIBUTING.md), as root and without a skip. TIER=unit
#                   (which needs no root), native, node or kernel runs that tier alone, and SUITE=NAME a part of
#                   it (tests/all lists them). LINT=1 runs `make lint` at the same time
#   make faults     makes every system call of a login fail once, and cuts every reply of the helper: each login
#                   is refused in time or confined, and leaves nothing; as root
#   make soak       runs LOGINS (10000) logins in waves, to jobs that start and end; as root
#   make demo       shows a job, a login to it and a login without one, on a private node; as root
#   make picture    draws docs/pictures/demo.svg from the demo's output; as root
#   make fuzz       searches inputs that break a parser, until it is stopped or has found one: runs each
#                   target of fuzz/src/bin for SECONDS (60), in rounds. TARGET=NAME selects one target;
#                   EXECUTIONS=NUMBER runs each that often and ends. target/fuzz keeps the inputs
#   make corpus     adds those inputs to fuzz/corpus that reach new code
#   make bench      measures a login, a device check and a lookup, as ratios; as root
#   make dist       builds a release for glibc 2.28 in target/releases/VERSION, with checksums
#                   (docs/release.md), with MAINTAINER="NAME <ADDRESS>". DRAFT=1: for yourself, without one
#   make fresh      runs the README's commands on Debian 12 and 13 as mmdebstrap makes them; as root.
#                   SUITE=bookworm or trixie runs one
#   make lint       checks formatting, clippy, documentation, manual pages and the code of each privilege, with
#                   warnings as errors
#   make clean
#
#   make needs      installs all programs that the goals above run. As root on Debian, demo, picture, test,
#                   faults, soak, bench, fresh and dist first install their own, and report it; all others only name
#                   the missing packages
#
# Variables of install:
#   DESTDIR      a folder to install into instead of /; then no account is created
#   PREFIX       /usr. Another one requires SECURITYDIR too, since PAM finds modules in one folder
#                only, and helper=PATH in both PAM lines, since the module finds its helper, and the
#                keeper beside it, in /usr/libexec/job-adopt
#   SECURITYDIR  the folder in which PAM finds modules; by default /usr/lib/ARCHITECTURE/security as
#                $(CC) names it, else the folder with pam_permit.so
#   BUILT        a folder with the files that `make` builds, to be installed unchanged
#   UNITDIR      the folder in which systemd finds units; PREFIX/lib/systemd/system. No unit is
#                enabled. Drop-ins for foreign units are in PREFIX/share/job-adopt/systemd, and one for
#                podman's configuration in PREFIX/share/job-adopt/containers: an admin copies them, and
#                the scripts for schedulers and monitoring beside these folders

PREFIX ?= /usr
DESTDIR ?=
CARGO ?= cargo
SECONDS ?= 60
LOGINS ?= 10000
# make itself sets it to `lint`.
LINT =
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
export PATH := $(PATH):/usr/sbin:/sbin

# Tests and releases are linked in the same way.
GLIBC ?= $(if $(MACHINE)$(filter test dist,$(MAKECMDGOALS)),2.28)
BUILD = $(or $(BUILT),$(CARGO_TARGET_DIR)/$(if $(GLIBC),glibc-$(GLIBC),dist)$(MACHINE:%=-%))
ARTIFACTS = pam_job_adopt.so resolve keeper job-adopt
SOURCES = Cargo.toml Cargo.lock build.rs $(shell find src -name '*.rs' -o -name Cargo.toml)

# Cross-compilation for MACHINE: compiler, cargo's output folder, emulator. MACHINE counts only as an
# argument of make, since some sites have a variable of this name. For an older C library cargo is told the
# target as well, so that it links what it runs itself as ever.
MACHINE =
TARGET = $(or $(MACHINE:%=%-unknown-linux-gnu),$(if $(GLIBC),$(shell $(CARGO) -vV | sed -n 's/^host: //p')))
TRIPLET = $(MACHINE:%=%-linux-gnu)
OUTPUT = $(CARGO_TARGET_DIR)$(TARGET:%=/%)
FOR = $(TARGET:%=--target=%)
RELEASE = $(OUTPUT)/release
STRIP = $(TRIPLET:%=%-)strip
ifneq ($(MACHINE),)
CC = $(TRIPLET)-gcc
RUN = qemu-$(MACHINE)-static -L /usr/$(TRIPLET) $(LIBRARIES:%=-E LD_LIBRARY_PATH=%)
export CC MACHINE
else
unexport MACHINE
endif

# PAM finds modules in one folder only, which differs between distributions. On a machine with folders of
# several architectures the compiler's architecture is the module's.
LIB = /usr/lib
MULTIARCH = $(shell $(CC) -print-multiarch 2>/dev/null)
ifeq ($(SECURITYDIR),)
ifneq ($(filter install uninstall,$(MAKECMDGOALS)),)
ifneq ($(PREFIX),/usr)
$(error PREFIX=$(PREFIX): PAM does not look for modules there; give SECURITYDIR too, or leave PREFIX at /usr)
endif
endif
override SECURITYDIR = $(firstword $(TRIPLET:%=$(LIB)/%/security) $(addsuffix /security,$(wildcard $(MULTIARCH:%=$(LIB)/%))) \
    $(patsubst %/pam_permit.so,%,$(wildcard $(addsuffix /security/pam_permit.so,\
        $(LIB)64 $(LIB)/*-linux-gnu))) \
    $(LIB)/security)
endif
LIBEXEC = $(PREFIX)/libexec/job-adopt
ifeq ($(UNITDIR),)
override UNITDIR = $(PREFIX)/lib/systemd/system
endif
# The bus reads policies in this folder only.
DBUS_POLICY = /usr/share/dbus-1/system.d/job-adopt.conf
UNITS = $(wildcard packaging/systemd/*.*t packaging/systemd/*.service packaging/systemd/*.timer)
DROPINS = $(wildcard packaging/systemd/*.d/*.conf packaging/containers/*.d/*.conf packaging/selinux/*.cil)
# Scripts that an admin copies: images often lack all of /usr/share/doc.
HOOKS = $(wildcard $(addprefix packaging/,slurm/* flux/* examples/* monitoring/*))
SHARED = $(DROPINS) $(HOOKS)
MANPAGES = $(wildcard docs/man/*.[1-8])

# Required programs, as PROGRAM=PACKAGE; a path names a file. Of A|B one is enough, and the first package that
# the distribution has is installed: Debian 12 has a current Rust under names of its own.
BUILD_NEEDS = $(CARGO)=cargo-web|cargo cc=gcc strip=binutils /usr/include/security/pam_appl.h=libpam0g-dev \
    $(if $(MACHINE),$(CC)=gcc-$(TRIPLET) $(firstword $(RUN))=qemu-user-static)
CRATE_NEEDS = $(BUILD_NEEDS) /etc/ssl/certs/ca-certificates.crt|/etc/pki/tls/cert.pem|/etc/ssl/cert.pem=ca-certificates
DEMO_NEEDS = $(CRATE_NEEDS) sshd=openssh-server ssh=openssh-client ip=iproute2 nsenter=util-linux
FUZZ_NEEDS = $(CRATE_NEEDS) c++=g++
LINT_NEEDS = $(FUZZ_NEEDS) cargo-clippy=rust-web-clippy|rust-clippy rustfmt=rustfmt-web|rustfmt groff=groff
PIP_NEEDS = pip3=python3-pip
DIST_NEEDS = $(CRATE_NEEDS) $(PIP_NEEDS) git=git xz=xz-utils dpkg-buildpackage=dpkg-dev dh=debhelper rpmbuild=rpm
FRESH_NEEDS = mmdebstrap=mmdebstrap cpio=cpio git=git
# Programs of all tests, benchmarks, fuzz targets and lint: one list, installed by one call.
NEEDS = $(sort $(DEMO_NEEDS) $(FUZZ_NEEDS) $(LINT_NEEDS) $(DIST_NEEDS) $(FRESH_NEEDS) \
    pamtester=pamtester strace=strace valgrind=valgrind setfattr=attr openssl=openssl \
    /usr/bin/python3=python3 pgrep=procps mpirun=openmpi-bin mpiexec.hydra=mpich pdsh=pdsh lintian=lintian rpmlint=rpmlint \
    slurmctld=slurmctld slurmd=slurmd sbatch=slurm-client munged=munge \
    /lib/security/$(RIVAL)|/lib/*/security/$(RIVAL)=libpam-slurm-adopt \
    qemu-system-x86_64=qemu-system-x86 setfiles=policycoreutils mke2fs=e2fsprogs)
RIVAL = pam_slurm_adopt.so
# For the kernel tier's suites arm64 and arm64-16k alone.
ARM64_NEEDS = qemu-system-aarch64=qemu-system-arm

# Script that Debian's packages ask whether they may start services (invoke-rc.d(8)).
POLICY = /usr/sbin/policy-rc.d
# Maximum seconds to wait for apt's locks.
PATIENCE = 600

require = @packaging/require $(foreach pair,$(1),'$(pair)')

# wheels LIST FOLDER WHAT ADVICE: replaces a folder by the packages of PyPI that LIST names.
define wheels
rm -rf $(2).new
pip3 install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --no-cache-dir \
    --target $(2).new --requirement $(1) >$(2).log 2>&1 || { \
    rm -rf $(2).new; \
    echo "make: pip did not get $(3), as $(1) names it: $$(grep -m 1 -E 'Retrying|ERROR' $(2).log)$(4)" >&2; \
    exit 1; }
rm -rf $(2) && mv $(2).new $(2)
endef

# install PROGRAM=PACKAGE...: installs the packages of missing programs, as root on a machine with apt. apt waits
# for dpkg's locks, but not for its own: while another program holds one, it is called again. No service is
# started: a Slurm daemon that a test needs must not run on the machine itself.
define install
@lacks() { missing=$$(packaging/require $(foreach pair,$(1),'$(pair)') 2>&1) && return 1; missing=$${missing#*:}; }; \
lacks || exit 0; before=; \
if test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
    echo "make: please install:$$missing" >&2; exit 1; \
fi; \
echo "make: installing$$missing"; \
mkdir -p $(CARGO_TARGET_DIR); log=$(CARGO_TARGET_DIR)/packages.log; last=$$(($$(date +%s) + $(PATIENCE))); \
apt() { \
    until LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$$@" -qq -o DPkg::Lock::Timeout=$(PATIENCE) \
        -o Acquire::Retries=3 >$$log 2>&1 </dev/null; do \
        grep -q 'Could not get lock' $$log && test $$(date +%s) -lt $$last || return 1; \
        sleep 1; \
    done; \
}; \
reason() { sed -n '/^[EW]: /{s///p;q}' $$log; }; \
apt update -o APT::Update::Error-Mode=any || before="$$(reason); then "; \
chosen=; \
for names in $$missing; do \
    for name in $$(echo "$$names" | tr '|' ' '); do apt-cache show "$$name" >/dev/null 2>&1 && break; done; \
    chosen="$$chosen $$name"; \
done; \
if test ! -e $(POLICY); then \
    trap 'rm -f $(POLICY)' EXIT; trap 'exit 1' HUP INT TERM; \
    printf '#!/bin/sh\nexit 101\n' >$(POLICY); chmod 0755 $(POLICY); \
fi; \
apt install -y --no-install-recommends $$chosen || { \
    echo "make: apt-get did not install$$chosen: $$before$$(reason) ($$log)" >&2; exit 1; }; \
! lacks || { echo "make: apt-get did not bring what is in$$missing" >&2; exit 1; }
endef

# put MODE FILE DESTINATION: replaces a file by rename, so that no login reads half of it.
define put
install -D -m $(1) $(2) "$(DESTDIR)$(3).new" && mv -f "$(DESTDIR)$(3).new" "$(DESTDIR)$(3)"
endef

# In systemd 257 and later "u!" creates an expired account; older versions do not know it.
EXPIRED = $(shell systemd-sysusers --version 2>/dev/null | awk 'NR == 1 && $$2 >= 257 { print "!" }')

# Path of a unit. The name of a mount is its escaped path (systemd.mount(5)), which cargo cannot package.
unit_path = $(DESTDIR)$(UNITDIR)/$(subst job-adopt-use.,run-job\x2dadopt-use.,$(notdir $(1)))

PRESET = $(PREFIX)/lib/systemd/system-preset/90-job-adopt.preset

# A drop-in for a foreign unit or configuration would take effect as soon as its reader finds it.
shared_path = $(patsubst packaging/%,$(DESTDIR)$(PREFIX)/share/job-adopt/%,$(1))

# Folders in which shells find completions.
BASH_COMPLETION = $(PREFIX)/share/bash-completion/completions/job-adopt
ZSH_COMPLETION = $(PREFIX)/share/zsh/site-functions/_job-adopt
FISH_COMPLETION = $(PREFIX)/share/fish/vendor_completions.d/job-adopt.fish
COMPLETIONS = bash zsh fish

# unit FILE PATH: installs a unit or a script with the paths of this installation.
define unit
sed 's|=/usr/bin/|=$(PREFIX)/bin/|; s|/usr/share/job-adopt|$(PREFIX)/share/job-adopt|' '$(1)' | \
    install -D -m $(if $(filter %.sh,$(1)),0755,0644) /dev/stdin "$(2).new" && mv -f "$(2).new" "$(2)"
endef

.PHONY: all needs install uninstall dist test fresh faults soak demo picture fuzz corpus bench lint clean

all: $(if $(BUILT),,$(addprefix $(BUILD)/,$(ARTIFACTS)) $(addprefix $(BUILD)/completions/,$(COMPLETIONS)))

# The results contain no path of this machine, and name crates as a release archive does.
HOME_OF_CARGO = $(or $(CARGO_HOME),$(HOME)/.cargo)
REPRODUCIBLE = RUSTFLAGS='$(RUSTFLAGS) $(LINKED) $(patsubst %,--remap-path-prefix=%=vendor,$(CURDIR)/vendor \
    $(wildcard $(HOME_OF_CARGO)/registry/src/*))'

# A program built for an older C library runs with newer ones, but not the other way round.
OWN_ZIG = $(abspath $(CARGO_TARGET_DIR))/zig/ziglang/zig
ZIG ?= $(OWN_ZIG)
LINKER = $(if $(GLIBC),$(filter $(OWN_ZIG),$(ZIG)))
LINKED = $(if $(GLIBC),-C linker=$(CURDIR)/packaging/floor/cc)
export GLIBC ZIG
export ZIG_GLOBAL_CACHE_DIR ?= $(abspath $(CARGO_TARGET_DIR))/zig-cache
export ZIG_LOCAL_CACHE_DIR ?= $(ZIG_GLOBAL_CACHE_DIR)
comma := ,
$(OWN_ZIG): packaging/floor/zig.txt
	$(call require,$(PIP_NEEDS))
	$(call wheels,$<,$(@D:/ziglang=),zig,; give ZIG=PATH$(comma) or GLIBC= to build for the C library of this machine)
	touch $@

# One call compiles the shared crates of these three once, and links the three side by side.
$(BUILD)/pam_job_adopt.so: $(SOURCES) | $(LINKER)
	$(call require,$(BUILD_NEEDS))
	$(REPRODUCIBLE) $(CARGO) build --locked $(FOR) --release --package pam --package pam_job_adopt \
	    --lib --bin keeper --bin job-adopt
	mkdir -p $(BUILD)
	$(STRIP) -o $@ $(RELEASE)/libpam_job_adopt.so

$(BUILD)/keeper $(BUILD)/job-adopt: $(BUILD)/%: $(BUILD)/pam_job_adopt.so
	$(STRIP) -o $@ $(RELEASE)/$*

# The helper is static: its start and one reply take 440 us, of which an empty C program takes 350. A
# dynamic one with the name service takes 1060 us. It is position-independent, which costs 25 us, since
# it parses foreign text. This call only links it.
$(BUILD)/resolve: $(BUILD)/pam_job_adopt.so
	$(REPRODUCIBLE) $(CARGO) rustc --locked $(FOR) --release --package pam_job_adopt --bin resolve -- \
	    -C target-feature=+crt-static
	$(STRIP) -o $@ $(RELEASE)/resolve

# Generated from the same declaration that parses the command line.
$(BUILD)/completions/%: $(BUILD)/job-adopt
	mkdir -p $(BUILD)/completions
	$(RUN) $(BUILD)/job-adopt completions $* >$@.new && mv -f $@.new $@

install: all
	sed 's/^u /u$(EXPIRED) /' packaging/sysusers.d/job-adopt.conf | \
	    install -D -m 0644 /dev/stdin "$(DESTDIR)$(PREFIX)/lib/sysusers.d/job-adopt.conf"
	$(call put,0644,packaging/tmpfiles.d/job-adopt.conf,$(PREFIX)/lib/tmpfiles.d/job-adopt.conf)
	$(call put,0711,$(BUILD)/resolve,$(LIBEXEC)/resolve)
	$(call put,0755,$(BUILD)/keeper,$(LIBEXEC)/keeper)
	$(call put,0755,packaging/account,$(LIBEXEC)/account)
	$(call put,0755,packaging/in-use,$(LIBEXEC)/in-use)
	$(call put,0755,$(BUILD)/job-adopt,$(PREFIX)/bin/job-adopt)
	$(call put,0644,$(BUILD)/completions/bash,$(BASH_COMPLETION))
	$(call put,0644,$(BUILD)/completions/zsh,$(ZSH_COMPLETION))
	$(call put,0644,$(BUILD)/completions/fish,$(FISH_COMPLETION))
	$(foreach file,$(UNITS),$(call unit,$(file),$(call unit_path,$(file))) &&) true
	$(call put,0644,packaging/system-preset/90-job-adopt.preset,$(PRESET))
	$(foreach file,$(SHARED),$(call unit,$(file),$(call shared_path,$(file))) &&) true
	$(foreach page,$(MANPAGES),$(call put,0644,$(page),$(PREFIX)/share/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page))) &&) true
	$(call put,0644,packaging/dbus/job-adopt.conf,$(DBUS_POLICY))
	$(if $(DESTDIR),,$(LIBEXEC)/account)
	$(call put,0644,$(BUILD)/pam_job_adopt.so,$(SECURITYDIR)/pam_job_adopt.so)
ifneq ($(PREFIX),/usr)
	@echo "make: both PAM lines need helper=$(LIBEXEC)/resolve"
endif

# A stack that names a missing module refuses every login, root included.
uninstall:
	@packaging/in-use "$(DESTDIR)"
	rm -f "$(DESTDIR)$(SECURITYDIR)/pam_job_adopt.so" "$(DESTDIR)$(PREFIX)/bin/job-adopt"
	rm -f "$(DESTDIR)$(LIBEXEC)/resolve" "$(DESTDIR)$(LIBEXEC)/keeper"
	rm -f "$(DESTDIR)$(LIBEXEC)/in-use" "$(DESTDIR)$(LIBEXEC)/account"
	rm -f "$(DESTDIR)$(BASH_COMPLETION)" "$(DESTDIR)$(ZSH_COMPLETION)" "$(DESTDIR)$(FISH_COMPLETION)"
	rm -f "$(DESTDIR)$(PREFIX)/lib/sysusers.d/job-adopt.conf"
	rm -f "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/job-adopt.conf" "$(DESTDIR)$(DBUS_POLICY)" "$(DESTDIR)$(PRESET)"
	rm -f $(foreach file,$(UNITS),"$(call unit_path,$(file))")
	rm -f $(foreach file,$(SHARED),"$(call shared_path,$(file))")
	-find "$(DESTDIR)$(PREFIX)/share/job-adopt" -depth -type d -empty -delete
	rm -f $(foreach page,$(MANPAGES),"$(DESTDIR)$(PREFIX)/share/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page))")
	-rmdir "$(DESTDIR)$(LIBEXEC)"

# Installs all programs of the goals below, which then need no root for that.
needs:
	$(call install,$(NEEDS))

# Builds after an installation, which may bring the compiler; so this is no prerequisite.
BUILT_FIRST = @$(MAKE) --no-print-directory -j all

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
dist:
	@test -n '$(DRAFT)' || grep -q '^Maintainer:' debian/control || \
	    echo '$(MAINTAINER)' | grep -Eq '^[^<>]+ <[^<>@ ]+@[^<>@ ]+\.[^<>@ ]+>$$' || { \
	    echo 'make: a release names who answers for it: MAINTAINER="NAME <ADDRESS>", or DRAFT=1 for yourself' >&2; exit 1; }
	$(call install,$(DIST_NEEDS))
	$(if $(LINKER),$(MAKE) --no-print-directory $(LINKER))
	CARGO='$(CARGO)' MAINTAINER='$(MAINTAINER)' packaging/release '$(CARGO_TARGET_DIR)/releases/$(VERSION)'

# Launchers of MPI that Debian lacks, for the group launchers-pypi of the node tests.
LAUNCHERS = $(patsubst tests/node/pypi/%.txt,$(CARGO_TARGET_DIR)/pypi/%,$(wildcard tests/node/pypi/*.txt))
$(LAUNCHERS): $(CARGO_TARGET_DIR)/pypi/%: tests/node/pypi/%.txt
	$(call require,$(PIP_NEEDS))
	mkdir -p $(@D)
	$(call wheels,$<,$@,$*)
	touch $@

# Each tier builds its files while others run already. With `-n` make would run the line below if it named
# $(MAKE).
test:
	$(if $(filter-out unit native node kernel sample,$(TIER)),$(error TIER=$(TIER): unit, native, node, kernel or sample))
	$(call install,$(if $(filter unit,$(TIER)),$(FUZZ_NEEDS) $(if $(filter arm64,$(SUITE)),$(FRESH_NEEDS)),\
	    $(NEEDS) $(if $(filter arm64%,$(SUITE)),$(ARM64_NEEDS))))
	$(if $(filter launchers-pypi,$(SUITE)),@$(MAKE) --no-print-directory $(LAUNCHERS))
	@CARGO='$(CARGO)' MAKE='$(MAKE_COMMAND)' JOB_ADOPT_ARTIFACTS='$(abspath $(BUILD))' LINT='$(LINT)' FRESH='$(FRESH)' \
	    tests/all '$(TIER)' $(SUITE)

fresh:
	$(call install,$(FRESH_NEEDS))
	tests/fresh/all $(SUITE)

# The native tier runs a few of the same tests.
faults soak:
	$(call install,$(NEEDS))
	$(BUILT_FIRST)
	JOB_ADOPT_FAULTS=all LOGINS=$(LOGINS) JOB_ADOPT_TESTS=all JOB_ADOPT_ARTIFACTS=$(abspath $(BUILD)) \
	    $(CARGO) test --locked --test native -- --nocapture --test-threads 4 $@::

# The demo's programs are not optimised: the compiler needs a third of the time, and compiles for the tests as well.
DEBUG = $(CARGO_TARGET_DIR)/debug
DEMO = $(CARGO_TARGET_DIR)/demo
define demo
$(call install,$(DEMO_NEEDS))
$(CARGO) build --locked --workspace
mkdir -p $(DEMO)
ln -f $(DEBUG)/libpam_job_adopt.so $(DEMO)/pam_job_adopt.so
ln -f $(DEBUG)/resolve $(DEBUG)/job-adopt $(DEMO)
endef

demo:
	$(demo)
	JOB_ADOPT_ARTIFACTS=$(DEMO) tests/demo

picture:
	$(demo)
	JOB_ADOPT_ARTIFACTS=$(DEMO) tests/demo >$(DEMO)/output 2>&1
	docs/pictures/render <$(DEMO)/output >docs/pictures/demo.svg

fuzz:
	$(call require,$(FUZZ_NEEDS))
	CARGO=$(CARGO) fuzz/run $(if $(EXECUTIONS),count $(EXECUTIONS),hunt $(SECONDS)) $(TARGET)

corpus:
	$(call require,$(FUZZ_NEEDS))
	CARGO=$(CARGO) fuzz/run keep $(TARGET)

bench:
	$(call install,$(NEEDS))
	$(BUILT_FIRST)
	JOB_ADOPT_ARTIFACTS=$(abspath $(BUILD)) $(CARGO) bench --locked --bench native

lint:
	$(call require,$(LINT_NEEDS))
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --locked --all-targets -- -D warnings
	CARGO='$(CARGO)' fuzz/run lint
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps
	for page in $(MANPAGES); do \
	    warnings=$$(groff -man -Tutf8 -wall -Wbreak -z "$$page" 2>&1); \
	    test -z "$$warnings" || { echo "$$warnings" >&2; exit 1; }; \
	done
	$(CARGO) test --quiet --locked --test privileges -- --nocapture

clean:
	$(CARGO) clean

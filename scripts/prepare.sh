# SPDX-License-Identifier: BSD-3-Clause
# What scripts/demo and scripts/check share: Debian packages, and a build in a folder.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)
# Compilers are used through ccache if it is there: sources that have not changed are compiled once.
[ ! -d /usr/lib/ccache ] || PATH=/usr/lib/ccache:$PATH
# What others may write to is not loaded as a module.
umask 022
# configure would take bash, which begins later than Debian's sh, and libtool is run for each file.
export CONFIG_SHELL=${CONFIG_SHELL-/bin/sh}

# Package, and what it is for.
packages_build='
autoconf                 makes ./configure
automake                 makes Makefile.in
libtool                  builds shared libraries
autoconf-archive         compiler checks for ./configure
pkg-config               finds libraries
make                     builds
gcc                      compiles
libc6-dev                the C library'\''s headers
libhwloc-dev             the topology of the machine
libssl-dev               proves that ranks have the secret; TLS
zlib1g-dev               reads .gz files
libjansson-dev           reads JSON: saved measurements, saved models
libopenblas-serial-dev   matrix products, one thread a rank
libopenmpi-dev           the mpi module for Open MPI
openmpi-bin              mpirun
libucx-dev               the ucx module
'
packages_check='
libmpich-dev             the mpi module for MPICH
mpich                    mpirun of MPICH
libcmocka-dev            unit tests
openssl                  makes certificates for tests
strace                   shows tests what a process sends
mandoc                   checks the man pages
clang                    the second compiler
g++                      checks that C++ programs can use it
gfortran                 checks that MPI programs in Fortran are served
cmake                    checks that CMake programs can use it
iproute2                 a second machine inside this one, for tests
mount                    the same: its folders
procps                   finds processes that tests leave behind
clang-format             checks the layout of the source (version 14 only)
valgrind                 counts the instructions of a short call
llvm                     counts what the fuzzers'\'' inputs reach
python3-numpy            arrays for the tests of the Python package
python3-pytest           runs them
'
packages_long='
slurmctld                a Slurm of its own for the tests
slurmd                   the same: its nodes
slurm-client             the same: srun
munge                    the same: who is who
python3-yaml             reads the examples for Kubernetes
shellcheck               checks the example for Slurm
pandoc                   writes the site
rpm                      reads the recipe for RPM packages
rpmlint                  checks it
musl-tools               builds with another C library
'
packages_root='
mmdebstrap               makes a bare root of Debian
'
packages_deb='
lintian                  checks the Debian packages
autopkgtest              tests the installed packages
'

say() { printf '%s\n' "$@"; }
stop() { printf '%s: %s\n' "$0" "$*" >&2; exit 1; }

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

apt_install()
{
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@" >"$top/build/apt.log" 2>&1
}

# install_packages LIST: installs what is missing of it. Sets installed=yes if it did.
installed=no
install_packages()
{
    local package purpose missing=()
    command -v dpkg-query >/dev/null ||
        { say "No Debian here: see that these are installed:$1"; return; }
    while read -r package purpose; do
        [ -z "$package" ] || is_installed "$package" && continue
        [ ${#missing[@]} -gt 0 ] || say "Installing Debian packages:"
        printf '  %-24s %s\n' "$package" "$purpose"
        missing+=("$package")
    done <<<"$1"
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        stop "not root, and there is no sudo: run  apt-get install ${missing[*]}  as root"
    mkdir -p "$top/build"
    # A fresh system has no package lists yet, an old one has lists of files that are gone.
    if ! apt_install "${missing[@]}"; then
        say "Fetching the package lists (apt-get update)"
        as_root apt-get update -q >"$top/build/apt.log" 2>&1 ||
            { tail -n 5 "$top/build/apt.log" >&2; stop "apt-get update failed"; }
        apt_install "${missing[@]}" ||
            { tail -n 5 "$top/build/apt.log" >&2; stop "apt-get install failed"; }
    fi
    installed=yes
}

# quietly NAME COMMAND...: shows the command's output only if it fails.
quietly()
{
    local name=$1 log
    shift
    log=$(mktemp)
    say "$name"
    if ! "$@" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

configure_in() { mkdir -p "$1" && (cd "$1" && shift && "$top/configure" "$@"); }

# build_in FOLDER CONFIGURE-ARGUMENTS...: bootstraps and configures where that has not been
# done, and builds. Called again it does only what is new.
build_in()
{
    local folder=$top/$1
    shift
    [ -x "$top/configure" ] || quietly "Making ./configure" "$top/bootstrap" || return
    if [ $installed = yes ] || [ ! -f "$folder/config.status" ] || [ ! -f "$folder/Makefile" ]; then
        quietly "Configuring ${folder#"$top"/} (./configure $*)" configure_in "$folder" "$@" ||
            return
    fi
    quietly "Building ${folder#"$top"/}" make -C "$folder" -j"$jobs" || return
}

# make_variable FOLDER NAME: what configure found.
make_variable() { sed -n "s/^$2 = //p" "$top/$1/Makefile" | head -n 1; }

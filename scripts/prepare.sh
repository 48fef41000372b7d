# SPDX-License-Identifier: BSD-3-Clause
# Functions that the scripts share: installing Debian packages, and building. Sourced by bash.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)
# Use ccache if it is installed, so that unchanged sources are compiled only once.
[ ! -d /usr/lib/ccache ] || PATH=/usr/lib/ccache:$PATH
# libdist loads no modules that other users may write to.
umask 022
# libtool runs a shell for each file: Debian's sh starts faster than bash, which configure would select.
export CONFIG_SHELL=${CONFIG_SHELL-/bin/sh}

# Each line is a package and its purpose.
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
libssl-dev               authenticates the ranks of a job; TLS
zlib1g-dev               reads .gz files
libjansson-dev           reads JSON: saved measurements, saved models
libopenblas-serial-dev   matrix products, one thread per rank
libopenmpi-dev           the mpi module for Open MPI
openmpi-bin              mpirun
libucx-dev               the ucx module
'
packages_check='
libmpich-dev             the mpi module for MPICH
mpich                    mpirun of MPICH
libcmocka-dev            unit tests
openssl                  creates certificates for tests
strace                   lets tests inspect system calls
mandoc                   checks the man pages
clang                    the second compiler
g++                      checks that C++ programs can use it
gfortran                 checks that MPI programs in Fortran are served
cmake                    checks that CMake programs can use it
iproute2                 network namespaces as additional machines, for tests
mount                    file systems of these machines
procps                   finds processes that tests have left running
clang-format             checks the layout of the source (version 14 only)
valgrind                 counts the instructions of a short call
llvm                     measures the coverage of the fuzzers'\'' inputs
python3-numpy            arrays for the tests of the Python package
python3-pytest           runs these tests
python3-pip              builds the Python wheel
python3-setuptools       builds the Python wheel
python3-wheel            builds the Python wheel
patchelf                 makes paths in the wheel relative
'
packages_long='
slurmctld                Slurm for the tests: the controller
slurmd                   Slurm for the tests: the nodes
slurm-client             Slurm for the tests: srun
munge                    Slurm for the tests: authentication
python3-yaml             reads the examples for Kubernetes
shellcheck               checks the example for Slurm
pandoc                   writes the site
rpm                      reads the recipe for RPM packages
rpmlint                  checks the recipe
musl-tools               builds with another C library
'
packages_root='
mmdebstrap               creates a minimal root directory of Debian
'
packages_wheel='
autoconf                 makes ./configure
automake                 makes Makefile.in
autoconf-archive         compiler checks for ./configure
libtool                  builds shared libraries
pkg-config               finds libraries
make                     builds
gcc                      compiles
perl                     configures OpenSSL
dpkg-dev                 unpacks sources
python3-venv             the build tools from PyPI
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

# install_packages LIST: installs the missing packages of the list, and then sets installed=yes.
installed=no
install_packages()
{
    local package purpose missing=()
    command -v dpkg-query >/dev/null ||
        { say "This is not Debian: make sure that these packages are installed:$1"; return; }
    while read -r package purpose; do
        [ -z "$package" ] || is_installed "$package" && continue
        [ ${#missing[@]} -gt 0 ] || say "Installing Debian packages:"
        printf '  %-24s %s\n' "$package" "$purpose"
        missing+=("$package")
    done <<<"$1"
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        stop "neither root nor sudo: run  apt-get install ${missing[*]}  as root"
    mkdir -p "$top/build"
    # A fresh system has no package lists, and old lists refer to files that no longer exist.
    if ! apt_install "${missing[@]}"; then
        say "Fetching the package lists (apt-get update)"
        as_root apt-get update -q >"$top/build/apt.log" 2>&1 ||
            { tail -n 5 "$top/build/apt.log" >&2; stop "apt-get update failed"; }
        apt_install "${missing[@]}" ||
            { tail -n 5 "$top/build/apt.log" >&2; stop "apt-get install failed"; }
    fi
    installed=yes
}

# quietly NAME COMMAND...: prints the name, and the end of the command's output only if it fails.
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

# build_in FOLDER CONFIGURE-ARGUMENTS...: builds, after bootstrapping and configuring if that has not been
# done yet or packages have been installed.
build_in()
{
    local folder=$top/$1
    shift
    [ -x "$top/configure" ] || quietly "Creating ./configure" "$top/bootstrap" || return
    if [ $installed = yes ] || [ ! -f "$folder/config.status" ] || [ ! -f "$folder/Makefile" ]; then
        quietly "Configuring ${folder#"$top"/} (./configure $*)" configure_in "$folder" "$@" ||
            return
    fi
    quietly "Building ${folder#"$top"/}" make -C "$folder" -j"$jobs" || return
}

# make_variable FOLDER NAME: prints the value of a variable of the Makefile that configure has created.
make_variable() { sed -n "s/^$2 = //p" "$top/$1/Makefile" | head -n 1; }

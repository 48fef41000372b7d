# SPDX-License-Identifier: BSD-3-Clause
# Minimal root directories of Debian for scripts/check-packages and scripts/check --chroot. Sourced after
# prepare.sh.

# root_obstacle: prints why a root directory cannot be created on this machine, and fails if it can.
root_obstacle()
{
    if [ "$(id -u)" -ne 0 ]; then
        echo "needs root"
    elif ! unshare --mount true 2>/dev/null; then
        echo "not allowed to mount file systems"
    elif ! command -v mmdebstrap >/dev/null; then
        echo "mmdebstrap not found"
    else
        return 1
    fi
}

# Print the mirror and the proxy that apt uses on this machine.
root_mirror()
{
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1
}
root_proxy() { (eval "$(apt-config shell proxy Acquire::http::Proxy)" && echo "${proxy-}"); }

# root_make FOLDER SUITE: creates a root directory with the essential packages, apt and the package lists.
# mmdebstrap also stores the options of apt in the root directory.
root_make()
{
    local proxy mirror
    proxy=$(root_proxy)
    mirror=$(root_mirror)
    mmdebstrap --variant=apt ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
        --aptopt='APT::Install-Recommends "false"' "$2" "$1" ${mirror:+"$mirror"} &&
        cp -L /etc/resolv.conf /etc/hosts "$1/etc/" && root_run "$1" apt-get update -q
}

# root_mounted FOLDER COMMAND...: runs the command with /proc, /sys and /dev mounted in the root directory,
# which is a mount point itself, as programs expect of /. Mounts and processes are in namespaces that end
# with the command. The shell stays process 1 there, so signals from the terminal do not end it.
root_mounted()
{
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -c '
        set -e
        folder=$0
        mount --rbind "$folder" "$folder"
        mount -t proc proc "$folder/proc"
        mount --rbind /sys "$folder/sys"
        mount --rbind /dev "$folder/dev"
        mount -t tmpfs tmpfs "$folder/dev/shm"
        "$@"
        exit' "$@"
}

# root_run FOLDER COMMAND...: runs the command in the root directory with a clean environment.
root_run()
{
    local folder=$1
    shift
    root_mounted "$folder" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$folder" "$@"
}

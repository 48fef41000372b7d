# SPDX-License-Identifier: BSD-3-Clause
# Bare roots of Debian for scripts/check-packages and scripts/check --chroot. Sourced after
# prepare.sh.

# root_obstacle: prints why this machine cannot make a root, and fails if it can.
root_obstacle()
{
    if [ "$(id -u)" -ne 0 ]; then
        echo "needs root"
    elif ! unshare --mount true 2>/dev/null; then
        echo "this machine allows no mounts"
    elif ! command -v mmdebstrap >/dev/null; then
        echo "there is no mmdebstrap"
    else
        return 1
    fi
}

# The mirror and the proxy that apt uses on this machine.
root_mirror()
{
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1
}
root_proxy() { (eval "$(apt-config shell proxy Acquire::http::Proxy)" && echo "${proxy-}"); }

# root_make FOLDER SUITE: essential packages, apt and the package lists. mmdebstrap writes apt's
# options into the root too.
root_make()
{
    local proxy mirror
    proxy=$(root_proxy)
    mirror=$(root_mirror)
    mmdebstrap --variant=apt ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
        --aptopt='APT::Install-Recommends "false"' "$2" "$1" ${mirror:+"$mirror"} &&
        cp -L /etc/resolv.conf /etc/hosts "$1/etc/" && root_run "$1" apt-get update -q
}

# root_mounted FOLDER COMMAND...: with /proc, /sys and /dev in the root. The root is a mount itself, as
# programs expect of /. The mounts and all processes belong to namespaces that end with the command,
# however it ends. The shell stays process 1 there, which a signal from the terminal does not reach
# unless it has a handler.
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

# root_run FOLDER COMMAND...: in the root, without this machine's environment.
root_run()
{
    local folder=$1
    shift
    root_mounted "$folder" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$folder" "$@"
}

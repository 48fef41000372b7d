#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Defective modules: the error names each one, its defect and what to do; nothing crashes or hangs.
. "$srcdir/tests/support/job.sh"
job_needs_modules

modules=$job_folder/modules
mkdir "$modules" "$job_folder/second"
folders=$DIST_PLUGIN_PATH
export DIST_PLUGIN_PATH=$modules:$folders XDG_CACHE_HOME=$job_folder
says() { grep -qF -- "$1" "$job_output"; }
compile() { ${CC:-gcc} -std=gnu11 -D_GNU_SOURCE "-I$srcdir/include" -fPIC -fvisibility=hidden "$@"; }
if ! command -v ${CC:-gcc} >/dev/null; then
    job_skip "bad modules" "there is no compiler"
    exit
fi

# The error names the file and contains the text.
refused()
{
    job_fails "$2" self 1 dist_info backends --backend $1
    job_check "the error names dist_$1.so" says "$modules/dist_$1.so"
}
# build NAME [FLAG]...
build()
{
    compile -shared "-DNAME=\"$1\"" "${@:2}" "$srcdir/tests/jobs/bad_module.c" \
        -o "$modules/dist_$1.so" || job_fail "compiling dist_$1.so" "see above"
}
# bad NAME TEXT [FLAG]...: compiles a module with these flags; it is refused with TEXT.
bad() { build "$1" "${@:3}" && refused "$1" "$2"; }

build sound
job_fails "it is for no machine" self 1 dist_info backends --backend sound
bad abi "was built for ABI 4, this library has ABI" -DENTRY_ABI=4
bad size "its struct dist_module has 8 bytes" -DENTRY_SIZE=8
bad babi "was built for ABI 3 (" -DBACKEND_ABI=3
bad bsize "(64 bytes), this library has ABI" -DBACKEND_SIZE=64
bad slot "lacks the mandatory slot 'post'" -DNO_POST
bad noentry "does not define dist_module_entry" -DENTRY_NONE
bad nullentry "does not define dist_module_entry" -DENTRY_NONE -DENTRY_NULL
bad neither "provides neither a backend nor a transport" -DNEITHER
bad other "provides backend 'another', not 'other'" -UNAME '-DNAME="another"'
bad wire "lacks the mandatory slot 'open'" -DTRANSPORT
bad undefined "undefined symbol: nobody_has_this: link the module with" -DCALLS=nobody_has_this
bad ours "a module must call the library through struct dist_host" -DCALLS=dist_nothing
bad junk "returned 4711, which is neither DIST_OK nor a DIST_ERR_" -DPROBE=4711
bad silent "without giving a reason" -DPROBE=DIST_ERR_UNSUPPORTED
bad loadcrash "crashed (Segmentation fault) when it was loaded" -DCRASH_LOAD
bad probecrash "crashed (Bus error) when it was loaded or probed" -DCRASH_PROBE
bad loadexit "ended the process (exit code 3)" -DEXIT_LOAD

# Files that are not modules.
good=$modules/dist_sound.so
: >"$modules/dist_empty.so"
refused empty "is not a shared object (0 bytes)"
echo 'int main(void) { return 0; }' >"$modules/dist_text.so"
refused text "is not a shared object"
mkdir "$modules/dist_folder.so"
refused folder "is a directory, not a regular file"
ln -s nowhere "$modules/dist_link.so"
refused link "cannot be read: No such file or directory"
compile -c "$srcdir/tests/jobs/bad_module.c" -o "$modules/dist_object.so"
refused object "is an object file, not a shared object"
for bytes in 40 100 3000; do
    head -c $bytes "$good" >"$modules/dist_cut.so"
    refused cut ": "
done
head -c $(($(stat -c %s "$good") / 2)) "$good" >"$modules/dist_cut.so"
refused cut "is truncated: it has"
cp "$good" "$modules/dist_machine.so"
printf '\xf3\x00' | dd of="$modules/dist_machine.so" bs=1 seek=18 conv=notrunc status=none
refused machine "was built for another machine (ELF machine 243"
# A group that may write to the library may write to a module.
modes="775 757"
[ -z "$(find "$builddir/.libs/" -name 'libdist.so*' -type f -perm -020)" ] || modes=757
for mode in $modes; do
    cp "$good" "$modules/dist_open.so"
    chmod $mode "$modules/dist_open.so"
    refused open "(mode 0$mode), so it is not loaded: if you trust it, run chmod"
done
cp "$good" "$modules/dist_theirs.so"
if chown 54321 "$modules/dist_theirs.so" 2>/dev/null; then
    refused theirs "belongs to user 54321, but only modules of root or this user are loaded"
    # A module is refused if another user could replace it.
    mkdir -m 755 "$job_folder/theirs"
    cp "$good" "$job_folder/theirs/dist_inside.so"
    ln -s "$good" "$modules/dist_linked.so"
    chown 54321 "$job_folder/theirs"
    chown -h 54321 "$modules/dist_linked.so"
    refused linked "is a link of user 54321:"
    DIST_PLUGIN_PATH=$job_folder/theirs job_fails "theirs, which belongs to user 54321, who could replace it" \
        self 1 dist_info backends --backend inside
else
    job_skip "another user's module" "this user cannot give files away"
fi
mkdir -m 777 "$job_folder/open"
cp "$good" "$job_folder/open/dist_outside.so"
DIST_PLUGIN_PATH=$job_folder/open job_fails "where everybody could replace it (mode 0777)" \
    self 1 dist_info backends --backend outside
cp "$good" "$modules/dist_private.so"
chmod 0 "$modules/dist_private.so"
if [ -r "$modules/dist_private.so" ]; then
    job_skip "a module that may not be read" "this user reads everything"
else
    refused private "Permission denied: let this user read it"
fi

# In a job: the same text, an exit code, and no other module is loaded to list it.
for name in abi slot cut folder undefined; do
    DIST_BACKEND=$name job_fails "$modules/dist_$name.so" self 1 examples/hello_all_reduce
done
DIST_BACKEND=abi job_fails "other modules: abi, babi" shell 2 examples/hello_all_reduce
DIST_BACKEND=slott job_fails "there is no module dist_slott.so; there is dist_slot.so" \
    self 1 examples/hello_all_reduce
job_check "the error lists the searched folders" says "Modules are searched for in $modules, "
DIST_BACKEND=wire job_fails "lacks the mandatory slot 'open'" self 1 examples/hello_all_reduce

# The list continues after all of them, and after one that never returns.
build hang -DHANG_PROBE
job self 1 dist_info
for name in sound abi slot neither wire loadcrash probecrash loadexit empty folder cut hang; do
    job_check "dist_info lists module $name" grep -qE "^  $name +no +[a-z].*" "$job_output"
done
job_check "the list reports the module that did not return" \
    grep -qE "^  hang +no .*dist_hang.so did not return within" "$job_output"
job_check "gloo is listed" grep -qE "^  gloo +yes " "$job_output"
rm -rf "$modules"/*

# The first of two modules with one name is used.
cp "$builddir/tests/conformance/.libs/dist_faulty.so" "$modules"
cp "$builddir/tests/conformance/.libs/dist_faulty.so" "$job_folder/second"
export DIST_PLUGIN_PATH=$modules:$job_folder/second
DIST_DEBUG=info DIST_BACKEND=faulty job self 1 examples/hello_all_reduce
job_check "the first is loaded" says "module $modules/dist_faulty.so loaded"
job_check "the second is reported as ignored" says "module $job_folder/second/dist_faulty.so is ignored"

# A module with a transport only.
compile -shared "$srcdir"/examples/plugin-minimal/minimal*.c -o "$modules/dist_minimal.so"
job self 3 dist_info selftest --transport minimal --ranks 3 --brief --mode blocking
job self 1 dist_info
job_check "minimal is listed as a transport" grep -qE "^  minimal +yes +Unix sockets" "$job_output"
job_check "minimal is not listed as a backend" test "$(grep -c '^  minimal ' "$job_output")" = 1
DIST_BACKEND=minimal job_fails "provides transports but no backend" self 1 examples/hello_all_reduce
DIST_TRANSPORT=minimal,tcp job shell 3 examples/hello_all_reduce
DIST_DEBUG=info DIST_TRANSPORT=minimal job shell 2 examples/hello_all_reduce
job_check "the transport is used" says "is reached via minimal"
DIST_TRANSPORT=minimum job_fails "there is no module dist_minimum.so; there is dist_minimal.so" \
    shell 2 examples/hello_all_reduce
job_check "the error lists built-in transports" says "Built-in transports: shm, tcp; modules are searched for in $modules"
DIST_TRANSPORT=faulty job_fails "has no transport 'faulty' (its transports: none)" shell 2 examples/hello_all_reduce

# Rank 0 has the transport, rank 1 does not: they use a common one, or report that there is none.
some() { "$@" shell 2 /bin/bash -c '[ $RANK = 1 ] || export DIST_TRANSPORT=$0; exec "$1"' \
    "$transport" "$builddir/examples/hello_all_reduce"; }
export DIST_TIMEOUT=20
transport=tcp,minimal some job
transport=minimal some job_fails "the peer's DIST_TRANSPORT differs: set the same value on all ranks"

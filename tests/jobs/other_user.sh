#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Another user of the machine: files he has prepared are refused or replaced, with a clear error,
# and never followed; he gains nothing from running ranks.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null || ! command -v python3 >/dev/null; then
    job_skip "another user" "it needs root, setpriv and python3"
    exit
fi
hello=examples/hello_all_reduce
their=(setpriv --reuid=65534 --regid=65534 --clear-groups)
attacker=$srcdir/tests/jobs/other_user.py
pause=60
[ -z "${CHECK_LONG-}" ] || pause=500
export DIST_TIMEOUT=5 DIST_TUNING=off
# A folder in which all users may create files, such as /tmp, and which they can reach.
chmod 711 "$job_folder" "${TMPDIR:-$job_folder}"
all=$job_folder/all
mkdir -m 1777 "$all"
as_them() { "${their[@]}" "$BASH" -c "$1"; }
says() { grep -qF -- "$1" "$job_output"; }
untouched() { [ "$(cat "$job_folder/ours")" = "what is ours" ]; }
echo "what is ours" >"$job_folder/ours"
ours=$job_folder/ours

# --- cookie and token files

if grep -q '^#define HAVE_OPENSSL' "$builddir/config.h"; then
    export XDG_CONFIG_HOME=$all
    as_them "umask 077; mkdir '$all/libdist'; echo 'a secret that they know well' >'$all/libdist/cookie'"
    job_fails "is not a regular file of this user in a directory of this user: remove it" shell 2 $hello
    rm -f "$all/libdist/cookie"
    as_them "umask 077; echo 'a secret that they know well' >'$all/known'; ln -s ../known '$all/libdist/cookie'"
    job_fails "is not a regular file of this user in a directory of this user: remove it" shell 2 $hello
    DIST_SECRET_FILE=$all/known job_fails "$all/known" shell 2 $hello
    rm -rf "$all/libdist" "$all/known"
    # A folder of the other user, who could replace the file in it.
    as_them "mkdir -m 777 '$all/libdist'"
    job_fails "in a directory of this user: " shell 2 $hello
    rm -rf "$all/libdist"
    (umask 077; mkdir "$all/libdist"; echo 'a secret that is ours' >"$all/libdist/cookie")
    job shell 2 $hello
    as_them "ln -s libdist/cookie '$all/link'"
    DIST_SECRET_FILE=$all/link job_fails "is a link of another user's" shell 2 $hello
    ln -s libdist/cookie "$all/own"
    DIST_SECRET_FILE=$all/own job shell 2 $hello
    for file in cert key ca; do
        as_them "umask 077; echo theirs >'$all/$file'"
    done
    DIST_TLS_CERT=$all/cert DIST_TLS_KEY=$all/key DIST_TLS_CA=$all/ca \
        job_fails "DIST_TLS_CERT: the file $all/cert belongs to another user" shell 2 $hello
    rm -rf "$all/libdist" "$all/link" "$all/own" "$all"/{cert,key,ca}
    unset XDG_CONFIG_HOME
else
    job_skip "secrets" "built without OpenSSL"
fi

# --- rendezvous

# A job that has a name on this machine, as srun's jobs have.
cat >"$job_folder/by_name" <<END
#!/bin/bash
export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_PROCID=\$RANK SLURM_LOCALID=\$RANK
export SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE=2
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
exec "$builddir/$hello"
END
chmod +x "$job_folder/by_name"
by_name() { "$@" shell 2 "$job_folder/by_name"; }
by_name job
python3 "$attacker" hold "dist/0/slurm.$$.0" >"$job_folder/held" 2>&1 9>&- &
holder=$!
job_check "the other user has the socket" job_until grep -q held "$job_folder/held"
by_name job_fails "set MASTER_ADDR and MASTER_PORT instead"
kill $holder
wait $holder 2>/dev/null
by_name job

# --- files

export DIST_FLIGHT_FILE=$all/flight
as_them "ln -s '$ours' '$all/flight'"
DIST_FAULT=kill:1@4 job shell 2 tests/jobs/kills gloo barrier 1 1
job_check "the flight recorder follows no link" untouched
rm -f "$all/flight"
as_them "umask 0; touch '$all/flight'"
DIST_FAULT=kill:1@4 job shell 2 tests/jobs/kills gloo barrier 1 1
job_check "the flight recorder writes nothing into the other user's file" [ ! -s "$all/flight" ]
rm -f "$all/flight"
DIST_FLIGHT_FILE=/dev/null

if grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    train=(shell 1 train_mnist --arch mlp --epochs 1 --train-samples 64 --test-samples 10 --dist-backend gloo)
    as_them "mkdir -m 777 '$all/kept'; ln -s '$ours' '$all/kept/file.tmp-01234567'; ln -s '$ours' '$all/kept/trace.tmp-01234567'"
    job "${train[@]}" --checkpoint "$all/kept/file" --trace "$all/kept/trace"
    job_check "checkpoints and traces follow no link" untouched
    job_check "checkpoints and traces are files of this user" [ "$(stat -c '%u %F' "$all/kept/file")" = "0 regular file" ]
    rm -rf "$all/kept"
    as_them "echo junk >'$all/file'"
    job_fails "$all/file" "${train[@]}" --checkpoint "$all/file"
    rm -f "$all/file"
    # A valid checkpoint is refused if it belongs to another user, and so is his link to a file of
    # this user, or a pipe.
    job "${train[@]}" --checkpoint "$job_folder/good"
    cp "$job_folder/good" "$all/file"
    chown 65534 "$all/file"
    job_fails "owned by user 65534" "${train[@]}" --checkpoint "$all/file"
    rm -f "$all/file"
    as_them "ln -s '$job_folder/good' '$all/file'"
    if [ "$(cat /proc/sys/fs/protected_symlinks)" = 0 ]; then
        job_fails "symbolic link owned by user 65534" "${train[@]}" --checkpoint "$all/file"
    else # the kernel hides the link's target, and the checkpoint replaces the link
        job "${train[@]}" --checkpoint "$all/file"
        job_check "a checkpoint behind another user's link is not loaded" eval '! says "resuming from"'
    fi
    rm -f "$all/file"
    as_them "mkfifo '$all/file'"
    job_fails "$all/file: not a regular file" "${train[@]}" --checkpoint "$all/file"
    rm -f "$all/file"
fi

# --- a running job

# attacked TRANSPORT SOCKETS: while the job runs, another user tries to use its processes and
# sockets.
attacked()
{
    local attack=$job_folder/attack
    python3 "$attacker" attack "OTHER_USER=$$.$1" >"$attack" 2>&1 9>&- &
    OTHER_USER=$$.$1 DIST_TRANSPORT=$1 DIST_FAULT="slow:*@*:time=${pause}ms" TMPDIR=$all \
        job self 2 distrun -n 2 "$builddir/tests/jobs/kills" gloo network 0 1024
    wait $!
    cp "$attack" "$job_output"
    job_check "$1: processes and $2 sockets were tried: $(sort "$attack" | tail -n 1)" \
        grep -qE "tried: [1-9][0-9]* files.* [1-9][0-9]* $2" "$attack"
    job_check "$1: another user gains nothing" eval '! grep -qE "gained|Error" "$job_output"'
}
attacked shm Unix
attacked tcp TCP

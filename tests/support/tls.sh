# SPDX-License-Identifier: BSD-3-Clause
# Certificates of a script, in $job_folder; sourced after job.sh.

tls_possible()
{
    grep -q '^#define HAVE_OPENSSL' "$builddir/config.h" && command -v openssl >/dev/null
}
tls_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

# tls_authority NAME
tls_authority()
{
    openssl req -x509 "${tls_key[@]}" -days 2 -subj "/CN=$1" -keyout "$job_folder/$1.key" \
        -out "$job_folder/$1.pem" 2>/dev/null
}

# tls_certificate NAME AUTHORITY DAYS ALTERNATIVE-NAMES
tls_certificate()
{
    openssl req "${tls_key[@]}" -subj "/CN=$1" -keyout "$job_folder/$1.key" \
        -out "$job_folder/$1.csr" 2>/dev/null
    openssl x509 -req -in "$job_folder/$1.csr" -CA "$job_folder/$2.pem" -CAkey "$job_folder/$2.key" \
        -CAcreateserial -days "$3" -out "$job_folder/$1.pem" 2>/dev/null \
        -extfile <(printf 'subjectAltName=%s\n' "$4")
}

# tls_use CERTIFICATE AUTHORITY
tls_use()
{
    export DIST_TLS_CERT=$job_folder/$1.pem DIST_TLS_KEY=$job_folder/$1.key
    export DIST_TLS_CA=$job_folder/$2.pem
}

# tls_with COMMAND...: with a certificate for this machine's ranks.
tls_with()
{
    tls_authority with
    tls_certificate rank with 2 IP:127.0.0.1
    tls_use rank with
    "$@"
    unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA
}

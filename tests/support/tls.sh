# SPDX-License-Identifier: BSD-3-Clause
# Certificates for a script, in $job_folder; sourced after job.sh.

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

tls_request()
{
    openssl req "${tls_key[@]}" -subj "/CN=$1" -keyout "$job_folder/$1.key" \
        -out "$job_folder/$1.csr" 2>/dev/null
}

# tls_certificate NAME AUTHORITY DAYS ALTERNATIVE-NAMES
tls_certificate()
{
    tls_request "$1"
    openssl x509 -req -in "$job_folder/$1.csr" -CA "$job_folder/$2.pem" -CAkey "$job_folder/$2.key" \
        -CAcreateserial -days "$3" -out "$job_folder/$1.pem" 2>/dev/null \
        -extfile <(printf 'subjectAltName=%s\n' "$4")
}

# tls_expired NAME AUTHORITY ALTERNATIVE-NAMES: creates a certificate that was valid for one day in the
# past. Uses openssl ca, because openssl x509 accepts dates from version 3.4 only, and negative days
# before version 3.5 only.
tls_expired()
{
    tls_request "$1"
    : >"$job_folder/database"
    cat >"$job_folder/ca.conf" <<END
[ca]
default_ca = tests
[tests]
database = $job_folder/database
new_certs_dir = $job_folder
rand_serial = yes
default_md = sha256
policy = names
[names]
commonName = supplied
END
    openssl ca -batch -notext -config "$job_folder/ca.conf" -in "$job_folder/$1.csr" \
        -out "$job_folder/$1.pem" -cert "$job_folder/$2.pem" -keyfile "$job_folder/$2.key" \
        -startdate 20200101000000Z -enddate 20200102000000Z \
        -extfile <(printf 'subjectAltName=%s\n' "$3") 2>/dev/null
}

# tls_use CERTIFICATE AUTHORITY
tls_use()
{
    export DIST_TLS_CERT=$job_folder/$1.pem DIST_TLS_KEY=$job_folder/$1.key
    export DIST_TLS_CA=$job_folder/$2.pem
}

# tls_with COMMAND...: runs COMMAND with a certificate for the ranks of this machine.
tls_with()
{
    tls_authority with
    tls_certificate rank with 2 IP:127.0.0.1
    tls_use rank with
    "$@"
    unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA
}

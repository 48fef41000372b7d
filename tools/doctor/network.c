/* SPDX-License-Identifier: BSD-3-Clause */
/* The network: which address others get, and what this machine's name stands for. */
#include <config.h>

#include "doctor.h"
#include "tools/common/launched.h"

#include <arpa/inet.h>
#include <dist/backend.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An interface with an address that others could be given. */
struct network_link {
    char name[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
    bool virtual; /* of containers and machines inside this one */
};

enum { NETWORK_LINKS = 64 };

static bool network_is_virtual(const char *name)
{
    static const char *const kinds[] = {"docker", "virbr", "veth",   "br-",  "cni",   "flannel",
                                        "lxc",    "lxd",   "podman", "cali", "vmnet", "vboxnet"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    }
    return false;
}

/* Does the name fit DIST_SOCKET_IFNAME: beginnings, "=names", "^all but these"? */
static bool network_fits(const char *spec, const char *name)
{
    const bool except = *spec == '^', exact = spec[except] == '=';
    bool fits = false;

    spec += except + exact;
    while (*spec) {
        const size_t length = strcspn(spec, ",");

        fits = fits || (length && strncmp(spec, name, length) == 0 && (!exact || !name[length]));
        spec += length + (spec[length] == ',');
    }
    return fits != except;
}

/* IPv4 before IPv6, as libdist takes them. */
static int network_links(struct network_link *links)
{
    struct ifaddrs *all = NULL;
    int count = 0;

    if (getifaddrs(&all) != 0)
        return 0;
    for (int pass = 0; pass < 2; pass++) {
        for (struct ifaddrs *at = all; at && count < NETWORK_LINKS; at = at->ifa_next) {
            struct network_link *link = &links[count];
            const struct sockaddr_in6 *six = (const void *)at->ifa_addr;

            if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK) ||
                at->ifa_addr->sa_family != (pass ? AF_INET6 : AF_INET) ||
                (pass && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)))
                continue;
            snprintf(link->name, sizeof(link->name), "%s", at->ifa_name);
            link->virtual = network_is_virtual(at->ifa_name);
            getnameinfo(at->ifa_addr, pass ? sizeof(*six) : sizeof(struct sockaddr_in),
                        link->address, sizeof(link->address), NULL, 0, NI_NUMERICHOST);
            count++;
        }
    }
    freeifaddrs(all);
    return count;
}

/*
 * From which address packets to that host would go. 1: that address; 0: the host has none; -1: no
 * route leads to it. Nothing is sent.
 */
static int network_source(const char *host, char address[INET6_ADDRSTRLEN])
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *to = NULL;
    struct sockaddr_storage from;
    socklen_t size = sizeof(from);
    int fd, result = -1;

    if (getaddrinfo(host, "9", &hints, &to) != 0)
        return 0;
    fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&from, &size) == 0 &&
        getnameinfo((struct sockaddr *)&from, size, address, INET6_ADDRSTRLEN, NULL, 0,
                    NI_NUMERICHOST) == 0)
        result = 1;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    return result;
}

/*
 * The one that would be taken: as the settings say, else that towards MASTER_ADDR, else that of the
 * default route, else the first.
 */
static const struct network_link *network_taken(const struct network_link *links, int count)
{
    const char *spec = getenv("DIST_SOCKET_IFNAME");
    const struct network_link *first = NULL;
    const char *meeting = getenv("MASTER_ADDR");
    char route[IF_NAMESIZE], source[INET6_ADDRSTRLEN];
    const bool leads = meeting && *meeting && network_source(meeting, source) == 1;

    for (int i = 0; i < count && leads && !(spec && *spec); i++) {
        if (strcmp(links[i].address, source) == 0)
            return &links[i];
    }
    for (int i = 0; i < count && !first; i++) {
        if (!spec || !*spec || network_fits(spec, links[i].name))
            first = &links[i];
    }
    /* The interface of the default route; false: there is none. */
    FILE *routes = fopen("/proc/net/route", "re");
    char line[256], interface[64];
    unsigned long destination;
    bool found = false;

    while (routes && !found && fgets(line, sizeof(line), routes)) {
        found = sscanf(line, "%15s %lx", interface, &destination) == 2 && destination == 0;
        if (found)
            snprintf(route, IF_NAMESIZE, "%.15s", interface);
    }
    if (routes)
        fclose(routes);
    if (!found || (spec && *spec && *spec != '^'))
        return first;
    for (int i = 0; i < count; i++) {
        if (strcmp(links[i].name, route) == 0 && (!spec || !*spec || network_fits(spec, route)))
            return &links[i];
    }
    return first;
}

/* The one that is taken, and one that leads out of this machine; first NULL: there is none at all.
 */
static void network_interface(struct doctor_report *report, const struct network_link *taken,
                              const struct network_link *physical, const struct network_link *first)
{
    const char *spec = getenv("DIST_SOCKET_IFNAME");

    if (!taken && first) {
        doctor_fault(report, "interface", "DIST_SOCKET_IFNAME=%.40s fits none of the interfaces",
                     spec);
        doctor_mend(report, "export DIST_SOCKET_IFNAME='=%s'", first->name);
    } else if (!taken) {
        doctor_note(report, "interface", "loopback only: all ranks must be on this machine");
    } else if (taken->virtual && physical && !(spec && *spec && *spec != '^')) {
        doctor_fault(report, "interface",
                     "other machines would be given %s of %s, which leads into this machine",
                     taken->address, taken->name);
        doctor_mend(report, "export DIST_SOCKET_IFNAME='=%s'", physical->name);
    } else if (taken->virtual) {
        doctor_note(report, "interface", "%s %s, which leads into this machine", taken->name,
                    taken->address);
    } else {
        doctor_ok(report, "interface", "%s %s", taken->name, taken->address);
    }
    doctor_own(report);
}

static void network_meeting(struct doctor_report *report, const struct network_link *physical)
{
    const char *meeting = getenv("MASTER_ADDR");
    char source[INET6_ADDRSTRLEN];
    int found = meeting && *meeting ? network_source(meeting, source) : 0;

    if (found == 0)
        return; /* the check of what MASTER_ADDR is says that */
    if (found > 0) {
        doctor_ok(report, "route", "from %s to MASTER_ADDR", source);
    } else {
        doctor_fault(report, "route", "no route leads to MASTER_ADDR=%.60s", meeting);
        if (physical)
            doctor_mend(report, "ip route add %.60s dev %s", meeting, physical->name);
        doctor_other(report, "set MASTER_ADDR to an address in a network of this machine");
    }
    doctor_own(report);
}

/* ---- the machine's name ---- */

/* The numeric address that the name stands for first; what is wrong, or NULL. */
static const char *network_resolve(const char *name, char address[INET6_ADDRSTRLEN])
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int error = getaddrinfo(name, NULL, &hints, &found);

    if (error) {
        hints.ai_family = AF_INET6;
        error = getaddrinfo(name, NULL, &hints, &found);
    }
    if (error)
        return gai_strerror(error);
    getnameinfo(found->ai_addr, found->ai_addrlen, address, INET6_ADDRSTRLEN, NULL, 0,
                NI_NUMERICHOST);
    freeaddrinfo(found);
    return NULL;
}

void doctor_network(struct doctor_report *report)
{
    struct network_link links[NETWORK_LINKS];
    const int count = network_links(links);

    const struct network_link *taken = network_taken(links, count), *physical = NULL;

    for (int i = 0; i < count && !physical; i++)
        physical = links[i].virtual ? NULL : &links[i];
    network_interface(report, taken, physical, count ? links : NULL);
    network_meeting(report, physical);
    char address[INET6_ADDRSTRLEN];
    const char *wrong = network_resolve(report->host, address);

    if (wrong) {
        doctor_fault(report, "host-name", "this machine's name, %s, stands for no address: %s",
                     report->host, wrong);
        doctor_mend(report, "echo '%s %s' >>/etc/hosts", taken ? taken->address : "127.0.0.1",
                    report->host);
    } else if (strncmp(address, "127.", 4) == 0 && taken) {
        /*
         * As Debian has it in /etc/hosts: 127.0.1.1. libdist, distrun and Open MPI ask the
         * interfaces, so it does them no harm; MPICH's mpirun tells its other hosts to call that
         * name.
         */
        const char *hosts = getenv("HYDRA_HOST_FILE"), *interface = getenv("HYDRA_IFACE");

        if (hosts && *hosts && !(interface && *interface))
            doctor_fault(report, "host-name",
                         "/etc/hosts maps this machine's name, %s, to %s, so the other hosts of "
                         "HYDRA_HOST_FILE do not reach MPICH's mpirun here",
                         report->host, address);
        else
            doctor_note(report, "host-name",
                        "/etc/hosts maps this machine's name, %s, to %s: no matter to libdist, but "
                        "MPICH's mpirun over several hosts needs -iface %s then",
                        report->host, address, taken->name);
        /* Not sed -i: in a container the file is a mount, which cannot be replaced. */
        doctor_mend(report,
                    "hosts=$(sed '/^127\\./s/[[:space:]]%s\\>//' /etc/hosts) && "
                    "printf '%%s\\n%%s\\n' '%s %s' \"$hosts\" >/etc/hosts",
                    report->host, taken->address, report->host);
        doctor_other(report, "export HYDRA_IFACE=%s", taken->name);
    } else {
        doctor_ok(report, "host-name", "%s is %s", report->host, address);
    }
    doctor_own(report);
}

/* TLS: the files that DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA name, and the names in them. */

/* By the variables: the certificate, its key, and who has signed it and the others'. */
enum { TLS_CERT, TLS_KEY, TLS_CA, TLS_FILES };
static const char *const tls_variables[] = {"DIST_TLS_CERT", "DIST_TLS_KEY", "DIST_TLS_CA"};

#ifdef HAVE_OPENSSL
#include <limits.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

/* A certificate that ends within so long is worth a note. */
#define TLS_SOON_S (7 * 24 * 3600)

/* What has been read of the files. */
struct tls_found {
    const char *paths[TLS_FILES];
    X509 *cert;
    EVP_PKEY *key;
};

static bool tls_wrong(struct doctor_report *report, const struct tls_found *found, int file,
                      const char *what, const char *next)
{
    doctor_fault(report, "tls", "%s=%.120s %s", tls_variables[file], found->paths[file], what);
    doctor_other(report, "%s", next);
    return false;
}

static bool tls_readable(struct doctor_report *report, const struct tls_found *found, int file)
{
    FILE *stream = fopen(found->paths[file], "re");
    char what[80];
    struct stat about;
    bool open_to_all;

    if (!stream) {
        snprintf(what, sizeof(what), "cannot be read: %s", strerror(errno));
        return tls_wrong(report, found, file, what,
                         "name a file that this user may read, on each machine");
    }
    open_to_all = file == TLS_KEY && fstat(fileno(stream), &about) == 0 && about.st_mode & S_IRWXO;
    fclose(stream);
    if (!open_to_all)
        return true;
    tls_wrong(report, found, file, "can be opened by every user",
              "then have another key made: this one may be known");
    doctor_mend(report, "chmod 600 '%.200s'", found->paths[file]);
    return false;
}

/* A key with a passphrase would have OpenSSL ask at the terminal. */
static int tls_no_passphrase(char *text, int size, int writing, void *arg)
{
    (void)text, (void)size, (void)writing, (void)arg;
    return 0;
}

/* Certificate and key can be read, and belong together. */
static bool tls_pair(struct doctor_report *report, struct tls_found *found)
{
    FILE *cert = fopen(found->paths[TLS_CERT], "re"), *key = fopen(found->paths[TLS_KEY], "re");

    found->cert = cert ? PEM_read_X509(cert, NULL, tls_no_passphrase, NULL) : NULL;
    found->key = key ? PEM_read_PrivateKey(key, NULL, tls_no_passphrase, NULL) : NULL;
    if (cert)
        fclose(cert);
    if (key)
        fclose(key);
    if (!found->cert)
        return tls_wrong(report, found, TLS_CERT, "begins with no certificate",
                         "give one in PEM form: -----BEGIN CERTIFICATE-----");
    if (!found->key)
        return tls_wrong(report, found, TLS_KEY, "holds no key that can be used",
                         "give the certificate's key, in PEM form and without a passphrase");
    if (X509_check_private_key(found->cert, found->key) != 1)
        return tls_wrong(report, found, TLS_KEY, "is not the key of DIST_TLS_CERT",
                         "give the key with which that certificate was asked for");
    return true;
}

static bool tls_in_time(struct doctor_report *report, const struct tls_found *found)
{
    time_t soon = time(NULL) + TLS_SOON_S;

    if (X509_cmp_current_time(X509_get0_notBefore(found->cert)) > 0)
        return tls_wrong(report, found, TLS_CERT, "does not hold yet",
                         "see the clock of this machine, or when it begins (openssl x509 -dates)");
    if (X509_cmp_current_time(X509_get0_notAfter(found->cert)) < 0)
        return tls_wrong(report, found, TLS_CERT, "has expired",
                         "renew it; openssl x509 -dates says when it ended");
    if (X509_cmp_time(X509_get0_notAfter(found->cert), &soon) < 0) {
        doctor_note(report, "tls-expiry", "%.120s expires within a week", found->paths[TLS_CERT]);
        doctor_other(report, "renew it before");
    }
    return true;
}

/* What follows the certificate in its file: those between it and the authority. */
static STACK_OF(X509) * tls_chain(const struct tls_found *found)
{
    STACK_OF(X509) *chain = sk_X509_new_null();
    FILE *file = fopen(found->paths[TLS_CERT], "re");
    X509 *next;

    while (chain && file && (next = PEM_read_X509(file, NULL, tls_no_passphrase, NULL)))
        sk_X509_push(chain, next);
    if (file)
        fclose(file);
    return chain;
}

/* Does the certificate hold for that purpose? Returns OpenSSL's error; X509_V_OK: it does. */
static int tls_verify(const struct tls_found *found, X509_STORE *trusted, STACK_OF(X509) * chain,
                      int purpose)
{
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    int error = X509_V_ERR_OUT_OF_MEM;

    if (check && X509_STORE_CTX_init(check, trusted, found->cert, chain) == 1 &&
        X509_STORE_CTX_set_purpose(check, purpose) == 1) {
        (void)X509_verify_cert(check);
        error = X509_STORE_CTX_get_error(check);
    }
    X509_STORE_CTX_free(check);
    return error;
}

/* The authority has signed it, for both ends of a connection: each rank calls some, and is called
 * by others. */
static bool tls_signed(struct doctor_report *report, const struct tls_found *found)
{
    X509_STORE *trusted = X509_STORE_new();
    STACK_OF(X509) *chain = tls_chain(found);
    bool loaded = trusted && X509_STORE_load_locations(trusted, found->paths[TLS_CA], NULL) == 1;
    int error = X509_V_OK;
    char what[112];

    if (loaded)
        error = tls_verify(found, trusted, chain, X509_PURPOSE_SSL_CLIENT);
    if (loaded && error == X509_V_OK)
        error = tls_verify(found, trusted, chain, X509_PURPOSE_SSL_SERVER);
    X509_STORE_free(trusted);
    sk_X509_pop_free(chain, X509_free);
    if (!loaded)
        return tls_wrong(report, found, TLS_CA, "holds no certificate of an authority",
                         "give that of whoever signs the ranks' certificates, in PEM form");
    if (error == X509_V_OK)
        return true;
    snprintf(what, sizeof(what), "does not hold: %.80s", X509_verify_cert_error_string(error));
    return tls_wrong(report, found, TLS_CERT, what,
                     error == X509_V_ERR_INVALID_PURPOSE
                         ? "have one made for both ends: extendedKeyUsage=serverAuth,clientAuth"
                         : "DIST_TLS_CA must be the certificate of what signed it");
}

/* As certificates have it. False: ranks meet at no such address. */
static bool tls_address(const struct sockaddr *address, char *text, size_t size)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;

    if (address && address->sa_family == AF_INET)
        return inet_ntop(AF_INET, &four->sin_addr, text, (socklen_t)size);
    return address && address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) &&
           inet_ntop(AF_INET6, &six->sin6_addr, text, (socklen_t)size);
}

static void tls_files(struct doctor_report *report, const char *const paths[TLS_FILES])
{
    struct tls_found found = {.paths = {paths[TLS_CERT], paths[TLS_KEY], paths[TLS_CA]}};
    bool fine = true;

    for (int i = 0; i < TLS_FILES && fine; i++)
        fine = tls_readable(report, &found, i);
    if (fine && tls_pair(report, &found) && tls_in_time(report, &found) &&
        tls_signed(report, &found)) {
        /* Ranks call each other by address; the host name counts only where the store is called by
         * it.
         */
        bool address = false, loopback = false, host;
        char addresses[160] = ""; /* the machine's, as a new certificate would have them */
        char name[HOST_NAME_MAX + 1] = "", text[INET6_ADDRSTRLEN];
        struct ifaddrs *all = NULL;
        size_t used = 0;

        gethostname(name, sizeof(name));
        host = X509_check_host(found.cert, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
        for (struct ifaddrs *at = getifaddrs(&all) == 0 ? all : NULL; at; at = at->ifa_next) {
            if (!tls_address(at->ifa_addr, text, sizeof(text)))
                continue;
            if (X509_check_ip_asc(found.cert, text, 0) == 1)
                *(at->ifa_flags & IFF_LOOPBACK ? &loopback : &address) = true;
            if (used + sizeof(text) + 4 < sizeof(addresses))
                used += (size_t)snprintf(addresses + used, sizeof(addresses) - used, "%sIP:%s",
                                         used ? "," : "", text);
        }
        freeifaddrs(all);
        if (address) {
            doctor_ok(report, "tls",
                      "certificate, key and authority fit, and name an address of this machine");
        } else if (loopback) {
            doctor_note(report, "tls",
                        "%.120s names this machine by the loopback alone: its ranks can "
                        "have no others",
                        found.paths[TLS_CERT]);
            doctor_other(report, "for several machines: subjectAltName=%s", addresses);
        } else {
            doctor_fault(report, "tls", "%.120s names %s: no rank will connect with one here",
                         found.paths[TLS_CERT],
                         host ? "this machine by its host name alone, not by an address"
                              : "no address of this machine");
            doctor_other(report, "have one made with subjectAltName=%s", addresses);
        }
    }
    X509_free(found.cert);
    EVP_PKEY_free(found.key);
}
#else
static void tls_files(struct doctor_report *report, const char *const paths[TLS_FILES])
{
    (void)paths;
    doctor_fault(report, "tls", "this libdist was built without OpenSSL, and so without TLS");
    doctor_mend(report, "unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA");
    doctor_other(report, "install OpenSSL's headers (libssl-dev), and build libdist again");
}
#endif

void doctor_tls(struct doctor_report *report)
{
    const char *paths[TLS_FILES];
    int set = 0;

    for (int i = 0; i < TLS_FILES; i++) {
        const char *value = getenv(tls_variables[i]);

        paths[i] = value ? value : "";
        set += *paths[i] != '\0';
    }

    if (!set) {
        doctor_ok(report, "tls", "not asked for: DIST_TLS_CERT is not set");
    } else if (set < TLS_FILES) {
        int missing = 0;

        while (*paths[missing])
            missing++;
        doctor_fault(report, "tls",
                     "%s is not set: TLS needs all three of DIST_TLS_CERT, DIST_TLS_KEY "
                     "and DIST_TLS_CA",
                     tls_variables[missing]);
        doctor_mend(report, "unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA");
        doctor_other(report, "set it to the path of a PEM file, on all ranks");
    } else {
        tls_files(report, paths);
    }
}

/* Launchers and settings: slots, root, Open MPI's parameters, where the ranks meet, names. */

/* ---- Open MPI ---- */

/* The major version of the Open MPI whose mpirun is found first; 0: there is none. */
static int launch_openmpi(void)
{
    FILE *answer = popen("m=$(command -v mpirun.openmpi || command -v mpirun) && "
                         "timeout 5 \"$m\" --version 2>/dev/null </dev/null",
                         "re");
    char line[128] = "";
    const char *number;
    int version = 0;

    if (!answer)
        return 0;
    if (fgets(line, sizeof(line), answer) &&
        (strstr(line, "Open MPI") || strstr(line, "OpenRTE"))) {
        number = strpbrk(line, "0123456789");
        version = number ? atoi(number) : 0;
    }
    pclose(answer);
    return version;
}

static bool launch_is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static void launch_slots(struct doctor_report *report, int version)
{
    const char *variable = version < 5 ? "OMPI_MCA_rmaps_base_oversubscribe=1"
                                       : "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe";
    /* Cores, not hardware threads, of the CPUs there are: what Open MPI counts as slots. */
    static int seen[4096]; /* too large for a small stack */
    char path[128], package[16], core[16];
    int cores = 0;
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);

    for (long cpu = 0; cpu < cpus && cores < 4096; cpu++) {
        int key, i = 0;

        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/topology/core_id", cpu);
        if (!doctor_read(path, core, sizeof(core)))
            continue;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/topology/physical_package_id",
                 cpu);
        if (!doctor_read(path, package, sizeof(package)))
            continue;
        key = atoi(package) * 65536 + atoi(core);
        while (i < cores && seen[i] != key)
            i++;
        if (i == cores)
            seen[cores++] = key;
    }
    const int slots = cores ? cores : (int)cpus;

    if (launch_is_set(version < 5 ? "OMPI_MCA_rmaps_base_oversubscribe"
                                  : "PRTE_MCA_rmaps_default_mapping_policy")) {
        doctor_ok(report, "slots", "Open MPI may start more ranks than the %d cores", slots);
    } else if (report->ranks > slots) {
        doctor_fault(report, "slots",
                     "Open MPI refuses %d ranks here: it has a slot for each of %d "
                     "cores",
                     report->ranks, slots);
        doctor_mend(report, "export %s", variable);
        doctor_other(report, "mpirun --oversubscribe, or a hostfile with more slots");
    } else {
        doctor_ok(report, "slots", "%d: Open MPI starts more ranks with --oversubscribe only",
                  slots);
    }
}

/* Does the file have a line "pml = ^ucx", or so? */
static bool launch_refuses_ucx(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[256];
    bool refuses = false;

    while (file && fgets(line, sizeof(line), file)) {
        const char *name = line + strspn(line, " \t");

        refuses = refuses || (strncmp(name, "pml", 3) == 0 && strchr(name, '^') &&
                              strstr(strchr(name, '^'), "ucx"));
    }
    if (file)
        fclose(file);
    return refuses;
}

static void launch_ucx(struct doctor_report *report)
{
    static const char *const files[] = {"/etc/openmpi/openmpi-mca-params.conf",
                                        "/usr/local/etc/openmpi-mca-params.conf",
                                        "/usr/lib64/openmpi/etc/openmpi-mca-params.conf"};
    const bool fast = doctor_exists("/sys/class/infiniband/*", NULL, 0);
    const char *refuses = NULL;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !refuses; i++)
        refuses = launch_refuses_ucx(files[i]) ? files[i] : NULL;
    if (!refuses || launch_is_set("OMPI_MCA_pml")) {
        doctor_ok(report, "openmpi-ucx", "Open MPI may use UCX");
    } else if (!fast) {
        doctor_note(report, "openmpi-ucx", "%s forbids UCX; no matter, as no InfiniBand is here",
                    refuses);
    } else {
        doctor_fault(report, "openmpi-ucx", "%s forbids UCX, so MPI uses no InfiniBand", refuses);
        doctor_mend(report, "export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx");
        doctor_other(report, "remove ^ucx from that file");
    }
}

/* ---- settings ---- */

static void launch_unknown(struct doctor_report *report, char *line)
{
    const char *name, *like;

    strsep(&line, "\t");
    name = strsep(&line, "\t");
    like = strsep(&line, "\t");
    if (like && *like)
        doctor_fault(report, "variables", "nobody reads %.80s: did you mean %s?", name, like);
    else
        doctor_fault(report, "variables", "nobody reads %.80s", name);
    if (like && *like)
        doctor_mend(report, "export %s=\"$%.80s\"; unset %.80s", like, name, name);
    else
        doctor_mend(report, "unset %.80s", name);
}

/* ---- where the ranks meet ---- */

/* More ranks in the job than on this machine? */
static bool launch_several_machines(void)
{
    const char *all = getenv("WORLD_SIZE"), *here = getenv("LOCAL_WORLD_SIZE");

    return all && here && atoi(all) > atoi(here);
}

/* The first one: its own name may stand for itself by a loopback address, as Debian has it. */
static bool launch_is_first_machine(const char *host)
{
    const char *rank = getenv("RANK"), *local_rank = getenv("LOCAL_RANK");
    unsigned char bytes[sizeof(struct in6_addr)];
    const bool numeric =
        inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;

    return rank && local_rank && atoi(rank) == atoi(local_rank) && !numeric &&
           strcmp(host, "localhost") != 0;
}

static void launch_meeting(struct doctor_report *report)
{
    const char *host = getenv("MASTER_ADDR");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int error;

    if (!host || !*host) {
        doctor_ok(report, "meeting", "MASTER_ADDR is not set: the launcher says where ranks meet");
        return;
    }
    error = getaddrinfo(host, NULL, &hints, &found);
    if (error) {
        doctor_fault(report, "meeting", "MASTER_ADDR=%.60s: %s", host, gai_strerror(error));
        doctor_mend(report, "export MASTER_ADDR=127.0.0.1");
        doctor_other(report, "with several machines: an address of the first one");
        return;
    }
    const struct sockaddr_in *four = (const void *)found->ai_addr;
    const struct sockaddr_in6 *six = (const void *)found->ai_addr;
    if ((found->ai_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
                                     : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)) &&
        launch_several_machines() && !launch_is_first_machine(host)) {
        doctor_fault(report, "meeting",
                     "MASTER_ADDR=%.60s is this machine here, but rank 0 is on another", host);
        doctor_other(report, "set MASTER_ADDR to an address of the first machine that the others "
                             "reach");
    } else {
        doctor_ok(report, "meeting", "MASTER_ADDR=%.60s resolves", host);
    }
    freeaddrinfo(found);
}

void doctor_launch(struct doctor_report *report)
{
    const int version = launched_in_job() ? 0 : launch_openmpi();

    if (version) {
        launch_slots(report, version);
        if (geteuid() != 0) {
            doctor_ok(report, "root", "not root");
        } else if (launch_is_set("OMPI_ALLOW_RUN_AS_ROOT") &&
                   launch_is_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")) {
            doctor_ok(report, "root", "Open MPI is allowed to run as root");
        } else {
            doctor_fault(report, "root", "Open MPI refuses to run as root");
            doctor_mend(report, "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
            doctor_other(report, "run jobs as another user");
        }
    }
    launch_ucx(report);
    const size_t size = dist_list_variables(NULL, 0) + 1;
    char *text = malloc(size), *rest = text, *line;
    int before = report->count;

    if (text)
        dist_list_variables(text, size);
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "unknown\t", strlen("unknown\t")) == 0) {
            launch_unknown(report, line);
        } else if (strncmp(line, "wrong\t", strlen("wrong\t")) == 0) {
            const char *name;

            strsep(&line, "\t");
            name = strsep(&line, "\t");
            strsep(&line, "\t");
            doctor_fault(report, "variables", "%.300s", line ? line : name);
            doctor_mend(report, "unset %.80s", name);
        }
    }
    free(text);
    if (report->count == before)
        doctor_ok(report, "variables",
                  "libdist knows every DIST_ variable that is set, and its value");
    launch_meeting(report);
}

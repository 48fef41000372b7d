/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor: the checks of the network, TLS, launchers and settings. */
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

/* An interface with an address that could be announced to other machines. */
struct network_link {
    char name[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
    bool virtual; /* serves containers and virtual machines on this machine */
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

/* True if the name matches DIST_SOCKET_IFNAME: a list of prefixes, of names after "=", or of
 * excluded names or prefixes after "^". */
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

/* Lists the interfaces with an address, IPv4 before IPv6, in libdist's order of preference. Returns
 * their number. */
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
 * Determines the source address of packets to the host, without sending any. Returns 1 and writes
 * the address; 0 if the host's name does not resolve; -1 if there is no route.
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
 * Returns the interface that libdist would select, or NULL if there is none. With
 * DIST_SOCKET_IFNAME: the first interface that matches; if the setting only excludes names and the
 * interface of the default route matches, that one. Otherwise: the interface of the route to
 * MASTER_ADDR; if there is none, the interface of the default route; if there is none, the first.
 */
static const struct network_link *network_selected(const struct network_link *links, int count)
{
    const char *spec = getenv("DIST_SOCKET_IFNAME");
    const struct network_link *first = NULL;
    const char *master = getenv("MASTER_ADDR");
    char route[IF_NAMESIZE], source[INET6_ADDRSTRLEN];
    const bool routed = master && *master && network_source(master, source) == 1;

    for (int i = 0; i < count && routed && !(spec && *spec); i++) {
        if (strcmp(links[i].address, source) == 0)
            return &links[i];
    }
    for (int i = 0; i < count && !first; i++) {
        if (!spec || !*spec || network_fits(spec, links[i].name))
            first = &links[i];
    }
    /* Find the interface of the default route. */
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

/*
 * Checks the selected interface. `physical` is an interface that other machines can reach, or NULL;
 * `first` is the first interface, or NULL.
 */
static void network_interface(struct doctor_report *report, const struct network_link *selected,
                              const struct network_link *physical, const struct network_link *first)
{
    const char *spec = getenv("DIST_SOCKET_IFNAME");

    if (!selected && first) {
        doctor_fault(report, "interface", "DIST_SOCKET_IFNAME=%.40s matches none of the interfaces",
                     spec);
        doctor_fix(report, "export DIST_SOCKET_IFNAME='=%s'", first->name);
    } else if (!selected) {
        doctor_note(report, "interface", "loopback only: all ranks must be on this machine");
    } else if (selected->virtual && physical && !(spec && *spec && *spec != '^')) {
        doctor_fault(
            report, "interface",
            "other machines would get address %s of %s, an internal bridge they cannot reach",
            selected->address, selected->name);
        doctor_fix(report, "export DIST_SOCKET_IFNAME='=%s'", physical->name);
    } else if (selected->virtual) {
        doctor_note(report, "interface", "%s %s, an internal bridge of this machine",
                    selected->name, selected->address);
    } else {
        doctor_ok(report, "interface", "%s %s", selected->name, selected->address);
    }
    doctor_host_specific(report);
}

static void network_route(struct doctor_report *report, const struct network_link *physical)
{
    const char *master = getenv("MASTER_ADDR");
    char source[INET6_ADDRSTRLEN];
    int found = master && *master ? network_source(master, source) : 0;

    if (found == 0)
        return; /* launch_master reports this */
    if (found > 0) {
        doctor_ok(report, "route", "from %s to MASTER_ADDR", source);
    } else {
        doctor_fault(report, "route", "no route to MASTER_ADDR=%.60s", master);
        if (physical)
            doctor_fix(report, "ip route add %.60s dev %s", master, physical->name);
        doctor_other(report, "set MASTER_ADDR to an address in a network of this machine");
    }
    doctor_host_specific(report);
}

/* ---- the machine's name ---- */

/* Writes the first numeric address of the name, IPv4 if possible. Returns NULL, or the error. */
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

    const struct network_link *selected = network_selected(links, count), *physical = NULL;

    for (int i = 0; i < count && !physical; i++)
        physical = links[i].virtual ? NULL : &links[i];
    network_interface(report, selected, physical, count ? links : NULL);
    network_route(report, physical);
    char address[INET6_ADDRSTRLEN];
    const char *wrong = network_resolve(report->host, address);

    if (wrong) {
        doctor_fault(report, "host-name", "this machine's name, %s, does not resolve: %s",
                     report->host, wrong);
        doctor_fix(report, "echo '%s %s' >>/etc/hosts", selected ? selected->address : "127.0.0.1",
                   report->host);
    } else if (strncmp(address, "127.", 4) == 0 && selected) {
        /*
         * Debian's /etc/hosts maps the name to 127.0.1.1. This is harmless for libdist, distrun and
         * Open MPI, which use the addresses of the interfaces. MPICH's mpirun makes its other hosts
         * connect to the name.
         */
        const char *hosts = getenv("HYDRA_HOST_FILE"), *interface = getenv("HYDRA_IFACE");

        if (hosts && *hosts && !(interface && *interface))
            doctor_fault(report, "host-name",
                         "/etc/hosts maps this machine's name, %s, to %s, so the other hosts of "
                         "HYDRA_HOST_FILE cannot reach MPICH's mpirun here",
                         report->host, address);
        else
            doctor_note(report, "host-name",
                        "/etc/hosts maps this machine's name, %s, to %s: libdist does not use it, "
                        "but MPICH's mpirun over several hosts needs -iface %s then",
                        report->host, address, selected->name);
        /* sed -i does not work in a container, where the file is a mount point. */
        doctor_fix(report,
                   "hosts=$(sed '/^127\\./s/[[:space:]]%s\\>//' /etc/hosts) && "
                   "printf '%%s\\n%%s\\n' '%s %s' \"$hosts\" >/etc/hosts",
                   report->host, selected->address, report->host);
        doctor_other(report, "export HYDRA_IFACE=%s", selected->name);
    } else {
        doctor_ok(report, "host-name", "%s is %s", report->host, address);
    }
    doctor_host_specific(report);
}

/* TLS: the files that DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA name, and the names in them. */

/* The files: the certificate, its key, and the authority that has signed all ranks' certificates.
 */
enum { TLS_CERT, TLS_KEY, TLS_CA, TLS_FILES };
static const char *const tls_variables[] = {"DIST_TLS_CERT", "DIST_TLS_KEY", "DIST_TLS_CA"};

#ifdef HAVE_OPENSSL
#include <limits.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

/* A certificate that expires within this time gets a note. */
#define TLS_SOON_S (7 * 24 * 3600)

/* The files and their contents. */
struct tls_found {
    const char *paths[TLS_FILES];
    X509 *cert;
    EVP_PKEY *key;
};

/* Adds a fault: `what` is wrong with a file, and `next` is what to do. Returns false. */
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
              "and create a new key, since other users may have read this one");
    doctor_fix(report, "chmod 600 '%.200s'", found->paths[file]);
    return false;
}

/* Passphrase callback that fails, since OpenSSL's default prompts at the terminal. */
static int tls_no_passphrase(char *text, int size, int writing, void *arg)
{
    (void)text, (void)size, (void)writing, (void)arg;
    return 0;
}

/* Reads the certificate and its key. Returns true if they are valid and belong together. */
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
                         "name a file in PEM format: -----BEGIN CERTIFICATE-----");
    if (!found->key)
        return tls_wrong(report, found, TLS_KEY, "contains no usable key",
                         "name the certificate's key, in PEM format and without a passphrase");
    if (X509_check_private_key(found->cert, found->key) != 1)
        return tls_wrong(report, found, TLS_KEY, "is not the key of DIST_TLS_CERT",
                         "name the key that the certificate was requested with");
    return true;
}

static bool tls_in_time(struct doctor_report *report, const struct tls_found *found)
{
    time_t soon = time(NULL) + TLS_SOON_S;

    if (X509_cmp_current_time(X509_get0_notBefore(found->cert)) > 0)
        return tls_wrong(report, found, TLS_CERT, "is not valid yet",
                         "check the clock of this machine, and the dates (openssl x509 -dates)");
    if (X509_cmp_current_time(X509_get0_notAfter(found->cert)) < 0)
        return tls_wrong(report, found, TLS_CERT, "has expired",
                         "renew it; openssl x509 -dates prints when it expired");
    if (X509_cmp_time(X509_get0_notAfter(found->cert), &soon) < 0) {
        doctor_note(report, "tls-expiry", "%.120s expires within a week", found->paths[TLS_CERT]);
        doctor_other(report, "renew it");
    }
    return true;
}

/* Reads all certificates of DIST_TLS_CERT's file, including the intermediate ones up to the
 * authority. The caller frees the result. */
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

/* Verifies the certificate for a purpose. Returns X509_V_OK, or OpenSSL's error. */
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

/* True if the authority has signed the certificate for clients and servers. A rank is both, since
 * it opens and accepts connections. */
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
        return tls_wrong(report, found, TLS_CA, "contains no certificate of an authority",
                         "name the certificate of the authority that signs the ranks' "
                         "certificates, in PEM format");
    if (error == X509_V_OK)
        return true;
    snprintf(what, sizeof(what), "is not valid: %.80s", X509_verify_cert_error_string(error));
    return tls_wrong(report, found, TLS_CERT, what,
                     error == X509_V_ERR_INVALID_PURPOSE
                         ? "create one for both ends: extendedKeyUsage=serverAuth,clientAuth"
                         : "DIST_TLS_CA must be the certificate of the authority that signed it");
}

/* Writes the address in the notation of certificates. Returns false for an address that ranks do
 * not use: neither IPv4 nor IPv6, or link-local. */
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
        /* Ranks connect to each other by address. The host name is only used to connect to the
         * store. */
        bool address = false, loopback = false, host;
        char addresses[160] = ""; /* the machine's addresses, for a new certificate */
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
                      "certificate, key and authority match, and name an address of this machine");
        } else if (loopback) {
            doctor_note(report, "tls",
                        "%.120s names this machine by its loopback address only: "
                        "all ranks must be on this machine",
                        found.paths[TLS_CERT]);
            doctor_other(report, "for several machines: subjectAltName=%s", addresses);
        } else {
            doctor_fault(report, "tls",
                         "%.120s names %s: ranks will refuse to connect to this machine",
                         found.paths[TLS_CERT],
                         host ? "this machine by its host name only, not by an address"
                              : "no address of this machine");
            doctor_other(report, "create one with subjectAltName=%s", addresses);
        }
    }
    X509_free(found.cert);
    EVP_PKEY_free(found.key);
}
#else
static void tls_files(struct doctor_report *report, const char *const paths[TLS_FILES])
{
    (void)paths;
    doctor_fault(report, "tls", "TLS is not available: libdist was built without OpenSSL");
    doctor_fix(report, "unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA");
    doctor_other(report, "install OpenSSL's headers (libssl-dev) and rebuild libdist");
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
        doctor_ok(report, "tls", "not used: DIST_TLS_CERT is not set");
    } else if (set < TLS_FILES) {
        int missing = 0;

        while (*paths[missing])
            missing++;
        doctor_fault(report, "tls",
                     "%s is not set: TLS needs all three of DIST_TLS_CERT, DIST_TLS_KEY "
                     "and DIST_TLS_CA",
                     tls_variables[missing]);
        doctor_fix(report, "unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA");
        doctor_other(report, "set it to the path of a PEM file, on all ranks");
    } else {
        tls_files(report, paths);
    }
}

/* Launchers and settings: slots, root, Open MPI's parameters, MASTER_ADDR, DIST_ variables. */

/* ---- Open MPI ---- */

/* Returns the major version of the Open MPI whose mpirun is first in PATH; 0: none. */
static int launch_openmpi(void)
{
    FILE *output = popen("m=$(command -v mpirun.openmpi || command -v mpirun) && "
                         "timeout 5 \"$m\" --version 2>/dev/null </dev/null",
                         "re");
    char line[128] = "";
    const char *number;
    int version = 0;

    if (!output)
        return 0;
    if (fgets(line, sizeof(line), output) &&
        (strstr(line, "Open MPI") || strstr(line, "OpenRTE"))) {
        number = strpbrk(line, "0123456789");
        version = number ? atoi(number) : 0;
    }
    pclose(output);
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
    /* Open MPI's slots are the cores of all CPUs, not their hardware threads. */
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
                     "Open MPI refuses %d ranks here: it has %d slots, one per core", report->ranks,
                     slots);
        doctor_fix(report, "export %s", variable);
        doctor_other(report, "mpirun --oversubscribe, or a hostfile with more slots");
    } else {
        doctor_ok(report, "slots", "%d: Open MPI starts more ranks with --oversubscribe only",
                  slots);
    }
}

/* True if the file has a line like "pml = ^ucx". */
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
        doctor_note(report, "openmpi-ucx", "%s forbids UCX, which is harmless without InfiniBand",
                    refuses);
    } else {
        doctor_fault(report, "openmpi-ucx", "%s forbids UCX, so MPI does not use InfiniBand",
                     refuses);
        doctor_fix(report, "export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx");
        doctor_other(report, "remove ^ucx from that file");
    }
}

/* ---- settings ---- */

/* Adds a fault for an unknown variable: a line "unknown\tNAME\tSIMILAR_NAME" of
 * dist_list_variables. */
static void launch_unknown(struct doctor_report *report, char *line)
{
    const char *name, *like;

    strsep(&line, "\t");
    name = strsep(&line, "\t");
    like = strsep(&line, "\t");
    if (like && *like)
        doctor_fault(report, "variables", "%.80s is no variable of libdist: did you mean %s?", name,
                     like);
    else
        doctor_fault(report, "variables", "%.80s is no variable of libdist", name);
    if (like && *like)
        doctor_fix(report, "export %s=\"$%.80s\"; unset %.80s", like, name, name);
    else
        doctor_fix(report, "unset %.80s", name);
}

/* ---- MASTER_ADDR ---- */

/* True if the job has more ranks than this machine. */
static bool launch_several_machines(void)
{
    const char *all = getenv("WORLD_SIZE"), *here = getenv("LOCAL_WORLD_SIZE");

    return all && here && atoi(all) > atoi(here);
}

/* True if this is the first machine and `host` is a name other than localhost. The name of this
 * machine may then resolve to a loopback address, as in Debian's /etc/hosts. */
static bool launch_is_first_machine(const char *host)
{
    const char *rank = getenv("RANK"), *local_rank = getenv("LOCAL_RANK");
    unsigned char bytes[sizeof(struct in6_addr)];
    const bool numeric =
        inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;

    return rank && local_rank && atoi(rank) == atoi(local_rank) && !numeric &&
           strcmp(host, "localhost") != 0;
}

static void launch_master(struct doctor_report *report)
{
    const char *host = getenv("MASTER_ADDR");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int error;

    if (!host || !*host) {
        doctor_ok(report, "master-addr",
                  "MASTER_ADDR is not set: the launcher provides the address");
        return;
    }
    error = getaddrinfo(host, NULL, &hints, &found);
    if (error) {
        doctor_fault(report, "master-addr", "MASTER_ADDR=%.60s: %s", host, gai_strerror(error));
        doctor_fix(report, "export MASTER_ADDR=127.0.0.1");
        doctor_other(report, "with several machines: an address of the first one");
        return;
    }
    const struct sockaddr_in *four = (const void *)found->ai_addr;
    const struct sockaddr_in6 *six = (const void *)found->ai_addr;
    if ((found->ai_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
                                     : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)) &&
        launch_several_machines() && !launch_is_first_machine(host)) {
        doctor_fault(report, "master-addr",
                     "MASTER_ADDR=%.60s resolves to this machine, but rank 0 is on another machine",
                     host);
        doctor_other(report, "set MASTER_ADDR to an address of the first machine that the other "
                             "machines can reach");
    } else {
        doctor_ok(report, "master-addr", "MASTER_ADDR=%.60s resolves", host);
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
            doctor_fix(report, "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
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
            doctor_fix(report, "unset %.80s", name);
        }
    }
    free(text);
    if (report->count == before)
        doctor_ok(report, "variables",
                  "all DIST_ variables that are set are known and have valid values");
    launch_master(report);
}

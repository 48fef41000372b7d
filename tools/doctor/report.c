/* SPDX-License-Identifier: BSD-3-Clause */
/* Findings, and how the checks read the machine's files. */
#include "doctor.h"

#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

static void report_add(struct doctor_report *report, const char *check, enum doctor_level level,
                       const char *format, va_list arguments)
{
    struct doctor_finding *finding = &report->findings[report->count];

    report->full = report->count == DOCTOR_FINDINGS;
    if (report->full)
        return;
    memset(finding, 0, sizeof(*finding));
    snprintf(finding->check, sizeof(finding->check), "%s", check);
    finding->level = (int)level;
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    report->count++;
}

#define REPORT_LEVEL(name, level)                                                                  \
    void doctor_##name(struct doctor_report *report, const char *check, const char *format, ...)   \
    {                                                                                              \
        va_list arguments;                                                                         \
                                                                                                   \
        va_start(arguments, format);                                                               \
        report_add(report, check, level, format, arguments);                                       \
        va_end(arguments);                                                                         \
    }
REPORT_LEVEL(ok, DOCTOR_OK)
REPORT_LEVEL(note, DOCTOR_NOTE)
REPORT_LEVEL(fault, DOCTOR_FAULT)

void doctor_mend(struct doctor_report *report, const char *format, ...)
{
    struct doctor_finding *last = &report->findings[report->count - 1];
    va_list arguments;

    if (report->full)
        return;
    va_start(arguments, format);
    vsnprintf(last->mend, sizeof(last->mend), format, arguments);
    va_end(arguments);
}

void doctor_other(struct doctor_report *report, const char *format, ...)
{
    struct doctor_finding *last = &report->findings[report->count - 1];
    va_list arguments;

    if (report->full)
        return;
    va_start(arguments, format);
    vsnprintf(last->other, sizeof(last->other), format, arguments);
    va_end(arguments);
}

void doctor_own(struct doctor_report *report)
{
    if (!report->full)
        report->findings[report->count - 1].own = 1;
}

/* ---- files ---- */

bool doctor_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, (int)size, file);

    if (file)
        fclose(file);
    if (read)
        text[strcspn(text, "\n")] = '\0';
    return read;
}

bool doctor_exists(const char *pattern, char *path, size_t size)
{
    glob_t found;
    bool exists = glob(pattern, GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc > 0;

    if (exists && path)
        snprintf(path, size, "%s", found.gl_pathv[0]);
    globfree(&found);
    return exists;
}

/* Reads file in that group below the mount, or else in the closest group above it that has one. */
static bool report_in_group(const char *mount, char *group, const char *file, char *text,
                            size_t size)
{
    char path[2 * PATH_MAX], *slash;

    for (;;) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s/%s", mount,
                 strcmp(group, "/") == 0 ? "" : group, file);
        if (doctor_read(path, text, size))
            return true;
        slash = strrchr(group, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
}

/* Is the controller among "cpu,cpuacct:"? */
static bool report_controls(const char *controllers, const char *controller)
{
    while (*controllers) {
        const size_t length = strcspn(controllers, ",");

        if (length == strlen(controller) && strncmp(controllers, controller, length) == 0)
            return true;
        controllers += length + (controllers[length] == ',');
    }
    return false;
}

/* A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH"; version 2 names no controllers. */
bool doctor_cgroup(const char *file, const char *controller, const char *old, char *text,
                   size_t size)
{
    char line[PATH_MAX], mount[64];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    bool found = false;

    snprintf(mount, sizeof(mount), "/%s", controller);
    while (groups && !found && fgets(line, sizeof(line), groups)) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!controllers[1])
            found = report_in_group("", group, file, text, size);
        else if (report_controls(controllers + 1, controller))
            found = report_in_group(mount, group, old, text, size);
    }
    if (groups)
        fclose(groups);
    return found;
}

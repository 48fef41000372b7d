/* SPDX-License-Identifier: BSD-3-Clause */
/* What the page says of the machine and the job. */
#ifndef TRAIN_RECORDS_HOST_H
#define TRAIN_RECORDS_HOST_H

#include <dist/dist.h>

#include "train/records/records.h"

enum { HOST_FACTS = 8 };

/* Fills in what is known of this machine and the group, NULL: of none. Returns how many facts. */
int host_facts(dist_group *group, struct record_fact facts[HOST_FACTS]);

#endif

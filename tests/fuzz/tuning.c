/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuning files: values that are read are plausible, and unchanged when written and read again. */
#include "tests/fuzz/fuzz.h"

#include "tuning/tuning.h"

#include <stdlib.h>

void fuzz_tuning(struct fuzz_input *input)
{
    struct disti_tuning tuning, again;
    char why[256] = "", text[2 * DISTI_TUNING_TEXT];
    char *file = fuzz_text(input);

    if (disti_tuning_parse(file, "FILE", NULL, &tuning, why, sizeof(why)) != DIST_OK) {
        FUZZ_MUST(why[0]);
    } else {
        disti_tuning_round(&tuning);
        disti_tuning_fixed(&tuning, DIST_COLL_ALL_REDUCE, 1 << 16, 4);
        FUZZ_MUST(disti_tuning_sane(&tuning));
        FUZZ_MUST(disti_tuning_print(&tuning, "here", text, sizeof(text)) < sizeof(text));
        FUZZ_MUST(disti_tuning_parse(text, "FILE", "here", &again, why, sizeof(why)) == DIST_OK);
        FUZZ_MUST(disti_tuning_parse(text, "FILE", "there", &again, why, sizeof(why)) != DIST_OK);
        FUZZ_MUST(again.fixed_count == tuning.fixed_count);
    }
    free(file);
}

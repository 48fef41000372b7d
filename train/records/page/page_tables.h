/* SPDX-License-Identifier: BSD-3-Clause */
/* The words and figures of the page. */
#ifndef TRAIN_RECORDS_PAGE_TABLES_H
#define TRAIN_RECORDS_PAGE_TABLES_H

#include "page.h"

/* What the training is, and how far. */
void page_subtitle(const struct page *page, FILE *to);

/* The figures that matter most. */
void page_tiles(const struct page *page, FILE *to);

/* The parts of a step in figures, the mean of all ranks. */
void page_parts(const struct balance *balance, FILE *to);

/* Who is slowest, and by how much. */
void page_slowest(const struct balance *balance, FILE *to);

/* A card with a table. note: below it, or NULL. */
void page_facts(const char *heading, const struct record_fact *facts, int count, const char *note,
                FILE *to);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of the simulator call. */
#ifndef DISTI_SIMULATE_INTERNAL_H
#define DISTI_SIMULATE_INTERNAL_H

#include "tuning/tuning.h"

/* As disti_simulation_run, but if `whole` is true no rank stands for others. */
dist_status disti_sim_run(const struct disti_simulation *simulation, size_t bytes, bool whole,
                          const struct disti_cost *cost, struct disti_forecast *forecast_p);

#endif

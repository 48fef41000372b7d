/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of the simulator that only its tests use. */
#ifndef DISTI_SIMULATE_INTERNAL_H
#define DISTI_SIMULATE_INTERNAL_H

#include "tuning/tuning.h"

/* Like disti_simulation_run(), but if `whole` is true, every rank is simulated individually. */
dist_status disti_sim_run(const struct disti_simulation *simulation, size_t bytes, bool whole,
                          const struct disti_cost *cost, struct disti_forecast *forecast_p);

#endif

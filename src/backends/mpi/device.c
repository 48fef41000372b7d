/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of GPUs, where the MPI takes it: for its own collectives only. */
#include "backends/mpi/native.h"

#include "base/settings/env.h"
#include "device/driver.h"

#include <stdlib.h>
#include <string.h>

/* Both MPIs have it, if they know of GPUs at all. */
extern int MPIX_Query_cuda_support(void) __attribute__((weak));

bool disti_mpi_takes_devices(void)
{
    const char *setting = disti_env("DIST_MPI_CUDA");

    if (setting)
        return strcmp(setting, "0") != 0;
    return MPIX_Query_cuda_support && MPIX_Query_cuda_support() == 1;
}

bool disti_native_takes_devices(const struct disti_native *native, const struct dist_call *call)
{
    size_t count;

    return disti_mpi_takes_devices() && disti_native_takes(native, call) && call->op != DIST_AVG &&
           !disti_native_stages(native, call, &count) && !disti_native_brings(native, call);
}

dist_status disti_native_wait_stream(const struct disti_native *native,
                                     const struct dist_call *call)
{
    const struct disti_driver *driver = disti_driver_loaded();
    int error = 0;

    if (!driver || !(disti_driver_enter(driver, call->in) || disti_driver_enter(driver, call->out)))
        return DIST_OK;
    error = driver->stream_synchronize(call->stream);
    disti_driver_exit(driver);
    if (!error)
        return DIST_OK;
    return native->host->fail(DIST_ERR_SYSTEM, "%s: earlier work on the stream failed: %s",
                              native->host->collective_string(call->collective),
                              disti_driver_text(driver, error));
}

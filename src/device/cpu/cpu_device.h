/* device/cpu/cpu_device.h - the processor as a device: memory is what it is, programs run on the pool. */
#ifndef DF_DEVICE_CPU_DEVICE_H
#define DF_DEVICE_CPU_DEVICE_H

#include "device/cpu/cpu_exec.h"
#include "device/device.h"

/* Borrows pool and kernels. MEMORY. */
df_status df_cpu_device_create(df_pool *pool, const df_kernels *kernels, df_device **out, df_error *err) DF_CHECK;

#endif

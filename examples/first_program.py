"""Name what each task reads and writes; the order, the copies and the streams follow from it."""

import numpy as np
import warp as wp

import stf_places as stf
from stf_places.interop import warp as stf_warp


@wp.kernel
def scale(x: wp.array(dtype=float), factor: float):  # type: ignore
    x[wp.tid()] *= factor


values = np.arange(4, dtype=np.float32)
with stf.context() as ctx:
    x = ctx.logical_data(values)
    for device in range(stf.machine().device_count):
        with ctx.task(stf.exec_place.device(device), x.rw()) as t:
            stf_warp.launch(t, scale, dim=4, inputs=[stf_warp.array(t, 0), 10.0])
print(stf.machine(), values, *ctx.stats.places, sep="\n")

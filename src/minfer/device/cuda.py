"""The launcher of CUDA C sources, through CuPy: its arrays, its memory, its run-time compiler.

CuPy rather than cuda-core, which is lighter but has no arrays of its own: allocation, copies and
errors would be ours to write. CuPy keeps what it has compiled between processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.device.runs import CudaProgram, Device
from minfer.errors import DeviceError

#: Threads of a block, and blocks of a launch at most: threads go on to the next place.
BLOCK, BLOCKS = 256, 132 * 16
#: The same of kernels whose blocks meet at the end, or mostly have nothing to do.
FEWER = {"sweep": 132 * 5, "mix": 132 * 5, "update": 132 * 4, "finish": 132 * 4}
#: The same of sweeps whose threads hold many numbers: few of them fit, and small blocks end soon.
WIDE = {"vectors": (128, 132 * 64)}
#: What the source needs of the language: see its text.
PRELUDE = """
#define HELPER __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define KERNEL extern "C" __global__
#define ARRAY(T) T*
#define UNROLL _Pragma("unroll")
#define BARRIER() __syncthreads()
#define BOUNDED(threads, blocks) __launch_bounds__(threads, blocks)
#define SHARED(T, name, n) __shared__ T name[n]
#define LANES 32
#define ROOM(room, per) ((per) == 0 ? shared_room : (room) + (long long)blockIdx.x * (per))
#define OWN(room, per) shared_room
extern __shared__ double shared_room[];
HELPER double *part(double *from, long long n) { return from + n; }
template <class T> HELPER T *as(double *from, long long at, long long n) { return (T*)(from + at); }
HELPER float quick(float x, float y) {  // none of them, nor 1 / y, is below what floats are
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(y));
  return x * y;
}
HELPER double quick(double x, double y) { return x / y; }
HELPER float near_exp(float x) { return __expf(x); }
HELPER double near_exp(double x) { return exp(x); }
HELPER float near_log(float x) { return __logf(x); }
HELPER double near_log(double x) { return log(x); }
HELPER double as_double(unsigned long long x) { return __longlong_as_double((long long)x); }
HELPER double seen_at(unsigned long long *seen, long long at) {
  return as_double(*(volatile unsigned long long *)(seen + at));
}
HELPER void raise_to(unsigned long long *seen, long long at, double x) {
  __shared__ double most[32];
  x = x <= 1e300 ? x : 1e300;  // NaN is much
  for (int k = 16; k > 0; k /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, k));
  __syncthreads();
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int k = 1; k < blockDim.x / 32; ++k) x = fmax(x, most[k]);
  x = x > 0 ? x : 0;  // -0 has the largest bits of all
  unsigned long long bits = (unsigned long long)__double_as_longlong(x);  // in order from 0 on
  if (bits > *(volatile unsigned long long *)(seen + at)) atomicMax(seen + at, bits);
}
HELPER bool is_last(int *tickets, long long row) {
  __syncthreads();
  if (threadIdx.x != 0) return false;
  __threadfence();
  if (atomicAdd(tickets + row, 1) < gridDim.x - 1) return false;
  tickets[row] = 0;
  __threadfence();
  return true;
}
"""
ADVICE = "or solve on the processor (device='cpu')"


class Cuda:
    """The current card. ``name`` is what it calls itself."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        with told(cupy):
            properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
            self.name: str = properties["name"].decode()
            self.gib = properties["totalGlobalMem"] / 2**30
            self.shared = int(properties.get("sharedMemPerBlockOptin", 48 * 1024)) - 1024
            cupy.zeros(1).get()  # that it works at all

    def put(self, array: NDArray) -> Any:
        with told(self.cupy):
            return self.cupy.asarray(np.ascontiguousarray(array))

    @property
    def room(self) -> int:
        with told(self.cupy):
            pool = self.cupy.get_default_memory_pool()
            return int(self.cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes())

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        with told(self.cupy):
            return self.cupy.zeros(shape, dtype)

    def get(self, there: Any) -> NDArray:
        with told(self.cupy):
            return self.cupy.asnumpy(there)

    def take(self, there: Any, columns: Any) -> Any:
        with told(self.cupy):
            return self.cupy.take(there, columns, axis=1)

    def fill(self, there: Any, numbers: Any, columns: Any = None) -> None:
        with told(self.cupy):
            if isinstance(numbers, np.ndarray):
                numbers = self.cupy.asarray(numbers)
            there[... if columns is None else (slice(None), columns)] = numbers

    def launch(
        self, program: CudaProgram, kernel: str, threads: int, rows: int, *given: Any
    ) -> None:
        with told(self.cupy):
            size, most = BLOCK, FEWER.get(kernel, BLOCKS)
            if kernel in ("sweep", "mix"):
                size, most = WIDE.get(program.source, (size, most))
            blocks = min(-(-threads // size), max(most // rows, 1))
            self._kernel(program, kernel)((max(blocks, 1), rows), (size,), given)

    def launch_blocks(
        self, program: CudaProgram, kernel: str, blocks: int, size: int, per: int, *given: Any
    ) -> None:
        with told(self.cupy):
            found = self._kernel(program, kernel)
            shared = 8 * per <= self.shared
            if shared and 8 * per > 48 * 1024:
                found.max_dynamic_shared_size_bytes = 8 * per  # type: ignore[attr-defined]
            room = self.cupy.empty(1 if shared else blocks * per)
            last = np.int64(0 if shared else per), *given, room
            found((blocks,), (size,), last, shared_mem=8 * per if shared else 0)

    def borrow(self, tensor: Any) -> Any:
        size = tensor.numel() * tensor.element_size()
        with told(self.cupy):  # a tenth of the time that asarray takes
            memory = self.cupy.cuda.UnownedMemory(tensor.data_ptr(), size, tensor)
            there = self.cupy.cuda.MemoryPointer(memory, 0)
            name = str(tensor.dtype).removeprefix("torch.")
            return self.cupy.ndarray(tuple(tensor.shape), name, there)

    @contextmanager
    def beside(self, tensor: Any) -> Iterator[None]:
        import torch

        stream, number = torch.cuda.current_stream(tensor.device), tensor.device.index
        with self.cupy.cuda.Device(number), followed(self.cupy, stream, number):
            yield

    def recorded(self, program: CudaProgram, work: Callable[[], None]) -> Callable[[], None]:
        with told(self.cupy):
            for name in program.kernels:
                self._kernel(program, name)  # what is loaded for the first time is not recorded
            stream = self.cupy.cuda.Stream()  # waits for what others launched, and they for it
            with stream:
                stream.begin_capture()
                try:
                    work()
                finally:
                    graph = stream.end_capture()

        def again() -> None:
            with told(self.cupy):
                graph.launch(stream)

        return again

    @cache  # noqa: B019 - there is one, for the life of the process
    def _kernel(self, program: CudaProgram, name: str) -> Callable[..., None]:
        return self._module(program).get_function(name)

    @cache  # noqa: B019
    def _module(self, program: CudaProgram) -> Any:
        return self.cupy.RawModule(code=PRELUDE + program.text, options=("--std=c++17",))


def followed(cupy: Any, stream: Any, device: int) -> Any:
    """A stream of torch as one of CuPy: by the protocol that both have, or by its address where one
    of them is too old for that."""
    newer = getattr(cupy.cuda.Stream, "from_external", None)
    if newer is not None and hasattr(stream, "__cuda_stream__"):
        return newer(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream, device)


@contextmanager
def told(cupy: Any) -> Iterator[None]:
    """What goes wrong on a card, as an error of ours."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(
            f"the card is out of memory ({error}); ask for dtype='float32', a smaller model or "
            f"fewer rows at once, {ADVICE}"
        ) from None
    except (
        cupy.cuda.runtime.CUDARuntimeError,
        cupy.cuda.driver.CUDADriverError,
        cupy.cuda.compiler.CompileException,
    ) as error:
        raise DeviceError(
            f"the card or its driver failed: {' '.join(str(error).split())[:300]}; `minfer doctor` "
            f"says what it finds, {ADVICE}"
        ) from None


_turn = 0


def take_turn(number: int) -> None:
    """Before a process has a card: which of several it takes, counted round."""
    global _turn
    _turn = number


@cache
def cuda() -> Device:
    """The card, looked for once: the current one, or that of :func:`take_turn`; or
    :class:`~minfer.errors.DeviceError`, which says what to do."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"device='cuda' needs CuPy ({error}): pip install 'minfer[cuda]', {ADVICE}"
        ) from None
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        n = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no driver, or one that is older than CuPy: many types
        raise DeviceError(
            f"no driver for NVIDIA cards answers ({' '.join(str(error).split())[:200]}): install "
            f"one that fits CuPy, {ADVICE}"
        ) from None
    if n == 0 or hidden == "":
        raise DeviceError(f"there is no NVIDIA card here that may be used, {ADVICE}")
    if _turn % n:
        cupy.cuda.Device(_turn % n).use()
    return Cuda(cupy)

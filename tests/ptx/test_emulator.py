"""The PTX emulator: what kernels compute on it, and what it finds wrong with bad ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from . import Function, LaunchError, PtxError, PtxModule, RawModule
from .launch import ORDERS

pytestmark = pytest.mark.emulated

N = np.int32(64)


@cache
def kernels(*bodies: str, params: str = "float* x, float* y, int n", **how: Any) -> list[Function]:
    """Kernels with ``i`` for the number of a thread, one on each line of the source."""
    entries = [
        f'extern "C" __global__ void k{k}({params}) {{ const int i = threadIdx.x; {" ".join(body.split())} }}'
        for k, body in enumerate(bodies)
    ]
    module = RawModule(code="\n".join(entries), options=("--std=c++17",), **how)
    return [module.get_function(f"k{k}") for k in range(len(bodies))]


def kernel(body: str, params: str = "float* x, float* y, int n", **how: Any) -> Function:
    return kernels(body, params=params, **how)[0]


def vectors(size: int = 64) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).random(size, dtype=np.float32), np.zeros(size, dtype=np.float32)


# ------------------------------------------------------------------------------------------------- what it computes

INTEGERS = {
    "a + b * 3u": lambda a, b: a + b * 3,
    "(unsigned)((long long)(int)a * (int)b >> 32)": lambda a, b: signed(a) * signed(b) >> 32,
    "__umulhi(a, b)": lambda a, b: a * b >> 32,
    "a / b": lambda a, b: a // b,
    "a % b": lambda a, b: a % b,
    "(unsigned)((int)a / (int)(b | 1))": lambda a, b: truncated(signed(a), signed(b | 1)),
    "a << (b & 31)": lambda a, b: a << (b & 31),
    "(unsigned)((int)a >> (b & 31))": lambda a, b: signed(a) >> (b & 31),
    "(a & b) | (~a ^ b)": lambda a, b: (a & b) | (~a ^ b),
    "__popc(a) + 64 * __clz(b)": lambda a, b: a.bit_count() + 64 * (32 - b.bit_length()),
    "__funnelshift_l(a, b, 7)": lambda a, b: ((b << 32 | a) << 7) >> 32,
    "__funnelshift_r(a, b, 7)": lambda a, b: (b << 32 | a) >> 7,
    "min(a, b) + (unsigned)max((int)a, (int)b)": lambda a, b: min(a, b) + max(signed(a), signed(b)),
    "(unsigned)(int)(signed char)a + (unsigned short)b": lambda a, b: ((a & 255 ^ 128) - 128) + (b & 65535),
    "(unsigned)((unsigned long long)a * b % 1000003u)": lambda a, b: a * b % 1000003,
    "(unsigned)__clzll((unsigned long long)a << 20)": lambda a, b: 64 - (a << 20).bit_length(),
    "(a < b) + 2 * ((int)a < (int)b) + 4 * (a == b)": lambda a, b: (a < b) + 2 * (signed(a) < signed(b)) + 4 * (a == b),
    "a > b ? a - b : b - a": lambda a, b: abs(a - b),
}


def signed(x: int) -> int:
    return (x ^ 2**31) - 2**31


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def test_integers() -> None:
    """All in one kernel, against Python's integers."""
    generator = np.random.default_rng(0)
    a, b = generator.integers(1, 2**32, (2, 64), dtype=np.uint32)
    a[:4], b[:4] = (0, 2**31, 2**32 - 1, 7), (1, 2**32 - 1, 2**31, 7)
    body = "".join(f"out[{k} * 64 + i] = {expression};" for k, expression in enumerate(INTEGERS))
    out = np.zeros((len(INTEGERS), 64), dtype=np.uint32)
    params = "const unsigned* x, const unsigned* y, unsigned* out"
    kernel(f"const unsigned a = x[i], b = y[i]; {body}", params)((1,), (64,), (a, b, out))
    for row, (expression, meant) in zip(out, INTEGERS.items(), strict=True):
        expected = [meant(int(p), int(q)) % 2**32 for p, q in zip(a, b, strict=True)]
        assert row.tolist() == expected, expression


FLOATS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "1 / a": lambda a, b: 1 / a,
    "-fabs(a)": lambda a, b: -np.abs(a),
    "sqrt(fabs(a))": lambda a, b: np.sqrt(np.abs(a)),
    "fmin(a, b)": np.fmin,
    "fmax(a, b)": np.fmax,
    "(T)(long long)a": lambda a, b: np.trunc(a),
    "floor(a) + 2 * ceil(b)": lambda a, b: np.floor(a) + 2 * np.ceil(b),
    "rint(a)": lambda a, b: np.rint(a),
    "(T)((a < b) + 2 * (a <= b) + 4 * (a != b) + 8 * !(a > b) + 16 * (a == a))": lambda a, b: (
        (a < b) + 2 * (a <= b) + 4 * (a != b) + 8 * ~(a > b) + 16 * (a == a)
    ),
}


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_floats(dtype: type) -> None:
    """Bit by bit, against NumPy: every one of these is rounded once, or not at all."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((2, 64)) * 100).astype(dtype)
    a[:4], b[:4] = (np.nan, np.inf, -np.inf, 3), (1, -np.inf, np.nan, 3)
    chosen = {e: f for e, f in FLOATS.items() if dtype == np.float64 or ("floor" not in e and "rint" not in e)}
    body = "".join(f"if (isfinite(a) || {k} < 9 || {k} > 11) out[{k} * 64 + i] = {e};" for k, e in enumerate(chosen))
    out = np.zeros((len(chosen), 64), dtype=dtype)
    name = {np.float32: "float", np.float64: "double"}[dtype]
    code = f"typedef {name} T; const T a = x[i], b = y[i]; {body}"
    kernel(code, f"const {name}* x, const {name}* y, {name}* out")((1,), (64,), (a, b, out))
    for k, (row, (expression, meant)) in enumerate(zip(out, chosen.items(), strict=True)):
        with np.errstate(all="ignore"):
            expected = np.where(np.isfinite(a) | (k < 9) | (k > 11), meant(a, b), 0).astype(dtype)
        np.testing.assert_array_equal(row, expected, err_msg=expression)


def test_functions_of_the_cuda_library() -> None:
    """Their PTX moves bits between floats and integers, and guesses reciprocals: within 2 units in the last place, as
    CUDA promises of them in double precision."""
    x = np.linspace(0.1, 20.0, 64)
    out = np.zeros((2, 64))
    kernel("out[i] = exp(-x[i]); out[64 + i] = log(x[i]);", "const double* x, double* out")((1,), (64,), (x, out))
    for found, expected in zip(out, (np.exp(-x), np.log(x)), strict=True):
        assert (np.abs(found - expected) <= 2 * np.spacing(np.abs(expected))).all()


def test_conversions_are_clamped() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e300, -2.7, 2.7])
    out, low = np.zeros(6, dtype=np.int64), -(2**63)
    kernel("out[i] = (long long)x[i];", "const double* x, long long* out")((1,), (6,), (x, out))
    assert out.tolist() == [low, 2**63 - 1, low, 2**63 - 1, -2, 2]


def test_memory_of_all_kinds() -> None:
    """Constants, variables, arrays of a thread, vectors, bytes, shared memory of a size given at the launch."""
    code = """
    __constant__ float factors[4] = {1, 2, 3, 4};
    __device__ int launches = 3;
    extern "C" __global__ void k(const float4* x, float* y, unsigned char* bytes, long long big) {
      extern __shared__ float row[];
      const int i = threadIdx.x, n = blockDim.x;
      float own[4]; float4 q = x[i];
      own[0] = q.x; own[1] = q.y; own[2] = q.z; own[3] = q.w;
      float sum = 0;
      for (int k = 0; k < n % 5; k++) sum += own[(k + i) & 3] * factors[k & 3];
      row[i] = sum;
      __syncthreads();
      y[i + n * blockIdx.x] = row[n - 1 - i];
      bytes[i + n * blockIdx.x] = (unsigned char)(i + big);
      if (i == 0 && blockIdx.x == 0) launches++;
    }"""
    module = RawModule(code=code)
    x, y = np.random.default_rng(0).random((64, 4), dtype=np.float32), np.zeros(128, dtype=np.float32)
    bytes_ = np.zeros(128, dtype=np.uint8)
    module.get_function("k")((2,), (64,), (x, y, bytes_, np.int64(2**40 + 5)), shared_mem=256)
    sums = [sum(x[i, (k + i) & 3] * np.float32(k + 1) for k in range(4)) for i in range(64)]
    np.testing.assert_allclose(y, [*sums[::-1]] * 2, rtol=1e-6)  # four roundings of float32
    assert bytes_.tolist() == [(i + 5) % 256 for i in range(64)] * 2
    assert module.variable("launches").view(np.int32)[0] == 4
    with pytest.raises(LaunchError, match="out of bounds: store of 4 bytes in shared memory at 128 of 128"):
        module.get_function("k")((1,), (64,), (x, y, bytes_, np.int64(0)), shared_mem=128)


@pytest.mark.parametrize("order", ORDERS)
def test_geometry(order: str) -> None:
    """Every thread of a grid in three dimensions knows its place."""
    out = np.zeros(2 * 3 * 2 * 4 * 2 * 3, dtype=np.int32)
    body = """
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + i;
    const int here = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[here] += here + 1;"""
    kernel(body, "int* out")((2, 3, 2), (4, 2, 3), (out,), order=order)
    assert out.tolist() == list(range(1, len(out) + 1))


@pytest.mark.parametrize("order", ORDERS)
def test_warps(order: str) -> None:
    body = """
    const unsigned all = 0xffffffffu; const int v = x[i], lane = i & 31;
    out[i] = __shfl_sync(all, v, lane * 7 & 31); out[64 + i] = __shfl_up_sync(all, v, 3);
    out[128 + i] = __shfl_down_sync(all, v, 5, 8); out[192 + i] = __shfl_xor_sync(all, v, 9);
    out[256 + i] = __ballot_sync(all, v & 1); out[320 + i] = __any_sync(all, v > 60) + 2 * __all_sync(all, v >= 0);
    if (lane < 8) out[384 + i] = __shfl_xor_sync(0xff, v, 1);"""
    x, out = np.random.default_rng(0).permutation(64).astype(np.int32), np.zeros((7, 64), dtype=np.int32)
    kernel(body, "const int* x, int* out")((1,), (64,), (x, out), order=order)
    for w in (0, 1):
        v, found, lane = x[32 * w : 32 * w + 32], out[:, 32 * w : 32 * w + 32], np.arange(32)
        assert (found[0] == v[lane * 7 & 31]).all() and (found[1] == v[np.where(lane >= 3, lane - 3, lane)]).all()
        assert (found[2] == v[np.where((lane & 7) + 5 < 8, lane + 5, lane)]).all() and (found[3] == v[lane ^ 9]).all()
        assert (found[4].view(np.uint32) == sum(1 << int(k) for k in lane if v[k] & 1)).all()
        assert (found[5] == int((v > 60).any()) + 2).all()
        assert (found[6, :8] == v[lane[:8] ^ 1]).all() and not found[6, 8:].any()


def test_atomics() -> None:
    body = """
    atomicAdd(a, i); atomicMin(a + 1, -i); atomicMax(a + 2, i); atomicAnd(a + 3, ~(1 << (i & 7)));
    atomicOr(a + 4, 1 << (i & 15)); atomicXor(a + 5, i); atomicExch(a + 6, 7);
    atomicAdd(f, 0.5); atomicAdd(u, 1ull << 33);
    int before = 0, seen; while ((seen = atomicCAS(a + 7, before, before + 3)) != before) before = seen;"""
    a, f, u = np.zeros(8, dtype=np.int32), np.zeros(1), np.zeros(1, dtype=np.uint64)
    a[3] = -1
    kernel(body, "int* a, double* f, unsigned long long* u")((2,), (64,), (a, f, u), order="random")
    assert a.tolist() == [2 * 2016, -63, 63, ~255, 65535, 0, 7, 3 * 128]
    assert f[0] == 64 and u[0] == 128 << 33


# -------------------------------------------------------------------------------------------- what it finds wrong

REVERSED = "__shared__ float s[64]; s[i] = x[i]; {} y[i] = s[63 - i];"
NEIGHBOURS = "__shared__ float s[64]; s[i] = x[i]; {} y[i] = s[i ^ 1];"
BYTES_AS_WORDS = "__shared__ __align__(4) unsigned char s[64]; s[i] = i; {} if (i < 16) y[i] = ((int*)s)[i];"
TOTAL = "__shared__ int s; if (i == 0) s = 0; {} atomicAdd(&s, 1); {} y[i] = s;"
BARRIER, WARP = "__syncthreads();", "__syncwarp();"
FAULTS = [
    ("y[i + 1] = 1;", "out of bounds: store of 4 bytes in global"),
    ("y[i] = x[i - 1];", "out of bounds: load of 4 bytes in global"),
    ("__shared__ float s[64]; s[i] = 0; __syncthreads(); y[i] = s[i + n];", "out of bounds: load of 4 bytes in shared"),
    ("*(float2*)(y + 1 + 2 * i) = make_float2(0, 1);", "misaligned store of 8 bytes in global"),
    (REVERSED.format(""), "race in shared memory"),
    (REVERSED.format(WARP), "race in shared memory"),
    (NEIGHBOURS.format(""), "race in shared memory"),
    (BYTES_AS_WORDS.format(""), "race in shared memory"),
    (TOTAL.format("", BARRIER), "race in shared memory: (atomic operation after a w|write after an a)"),
    (TOTAL.format(BARRIER, ""), "race in shared memory: (read after an a|atomic operation after a r)"),
    ("y[i] = x[i ^ 1]; x[i] = 2;", "race in global memory"),
    ("if (i < 16) __syncthreads();", "deadlock: 16 threads wait at a barrier, 0 for their warp, 48 have ended"),
    ("if (i < 9) { y[i] = 1; __syncthreads(); } else { x[i] = 3; __syncthreads(); }", "barrier divergence: other"),
    ("if (i & 1) y[i] = __shfl_xor_sync(~0u, x[i], 1); else __syncthreads();", "deadlock: 32 threads wait at a"),
    ("y[i] = __shfl_xor_sync(0xffffu, x[i], 1);", "warp operation: lane 16 is not in its own mask 0000ffff"),
    ("if ((i & 31) < 8) y[i] = __shfl_sync(0xff, x[i], 9);", "shuffle: lane 0 reads lane 9, which does not take part"),
    ("if (n > 5) __trap();", "trap"),
]  # fmt: skip


FINE = [
    REVERSED.format(BARRIER),
    NEIGHBOURS.format(WARP),
    BYTES_AS_WORDS.format(BARRIER),
    TOTAL.format(BARRIER, BARRIER),
]


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=lambda number: FAULTS[number][0])
def test_faults(number: int) -> None:
    """Each is found, and its line of the CUDA source is named."""
    run, told = kernels(*(body for body, _ in FAULTS))[number], FAULTS[number][1]
    with pytest.raises(LaunchError, match=rf"k{number}: ({told}).*CUDA line {number + 1}\b"):
        run((1,), (64,), (*vectors(), N))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("number", range(len(FINE)), ids=lambda number: FINE[number])
def test_no_false_alarm(number: int, order: str) -> None:
    x, y = vectors()
    kernels(*FINE)[number]((1,), (64,), (x, y, N), order=order)
    words = (np.arange(64, dtype=np.uint8).view(np.int32)).astype(np.float32)
    expected = (x[::-1], x[np.arange(64) ^ 1], np.pad(words, (0, 48)), np.full(64, 64))[number]
    assert (y == expected).all()


def test_races_between_blocks() -> None:
    x, y = vectors()
    with pytest.raises(LaunchError, match="race in global memory: write after a write"):
        kernel("y[i] = blockIdx.x;")((2,), (64,), (x, y, N))
    kernel("y[i + 32 * blockIdx.x] = blockIdx.x;")((2,), (32,), (x, y, N))
    assert y.tolist() == [0.0] * 32 + [1.0] * 32


def test_shared_memory_is_not_zero_at_first() -> None:
    x, y = vectors()
    kernel("__shared__ float s[64]; if (n < 0) s[i] = 1; y[i] = s[i];")((1,), (64,), (x, y, N))
    assert (y != 0).all()


@pytest.mark.parametrize("body", ["while (n) if (y[i] != 0) n--;", "while (true) __syncthreads();"])
def test_endless_loops(body: str) -> None:
    with pytest.raises(LaunchError, match="still running at the time limit"):
        kernel(body)((1,), (32,), (*vectors(), N), seconds=0.2)


def test_schedules_differ() -> None:
    """A race that is not looked for shows in the order of threads."""
    found = set()
    for order in ORDERS:
        x, y = vectors()
        kernel("x[0] = i; y[0] = x[0];", races=False)((1,), (64,), (x, y, N), order=order)
        found.add(float(y[0]))
    assert {0.0, 63.0} <= found


def test_launches_that_cannot_be() -> None:
    run = kernel("y[i] = n;")
    x, y = vectors()
    for grid, block, args, told in (
        ((1,), (2048,), (x, y, N), "2048 threads in a block, at most 1024"),
        ((0,), (32,), (x, y, N), "no such grid"),
        ((1,), (32,), (x, y), "2 arguments for 3 parameters"),
        ((1,), (32,), (x, y, np.int64(3)), "argument 2 has 8 bytes, and the kernel's parameter 4"),
    ):
        with pytest.raises(LaunchError, match=told):
            run(grid, block, args)
    with pytest.raises(LaunchError, match="bytes of shared memory, at most"):
        run((1,), (32,), (x, y, N), shared_mem=2**20)
    with pytest.raises(TypeError, match="not int"):
        run((1,), (32,), (x, y, 3))
    with pytest.raises(KeyError, match="other"):
        run.module.get_function("other")


def test_unknown_instructions_are_named() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .f32 %f<3>;\n"
    for statement, told in (("ex2.approx.f32 %f1, %f2;", "ex2.approx.f32"), ("add.f32 %f1, %f9, %f2;", "%f9")):
        with pytest.raises(PtxError, match=rf"PTX line 7: unknown .*{told}"):
            PtxModule(f"{head}{statement}\nret;\n}}")


def test_counts() -> None:
    """Two warps, one barrier. A row is 4 sectors, and one pass; with a stride of 32 floats every lane has a sector to
    itself, and all are in one bank."""
    body = "__shared__ float s[2048]; s[{0}] = x[{0}]; __syncthreads(); y[i] = s[{0}];"
    x, y = torch.zeros(2048), torch.zeros(64)  # which begin with a sector
    for place, sectors, passes in (("i", 4, 1), ("32 * i", 32, 32)):
        run = kernel(body.format(place), counting=True)
        run((1,), (64,), (x, y, N))
        counts = run.counts
        assert counts is not None and counts.barriers == 1
        assert counts.global_requests == counts.shared_requests == 4
        assert counts.global_sectors == 2 * sectors + 2 * 4 and counts.shared_passes == 4 * passes
        assert counts.lane_instructions == 32 * counts.warp_instructions == 64 * counts.critical_instructions
    for body, doubles in (("x[i]", 0), ("(double)x[i] * n + 1", 4), ("n / (double)x[i]", 23)):
        run = kernel(f"y[i] = {body};", counting=True)
        run((1,), (64,), (x, y, N))
        assert (
            run.counts is not None and run.counts.double_instructions == 2 * doubles
        )  # to doubles and back, two warps
    diverging = kernel("float sum = 0; for (int k = 0; k < i; k++) sum += x[k]; y[i] = sum;", counting=True)
    diverging((1,), (64,), (x, y, N))
    assert diverging.counts is not None
    assert diverging.counts.lane_instructions < 32 * diverging.counts.warp_instructions

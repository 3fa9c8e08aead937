"""A device `cuda:0` that is not there: tensors on it are wrappers with real values, kernels are those of a CPU.

Devices that are mixed raise. What makes the host wait, what crosses and how many bytes it has is counted. A copy to
pinned memory that nobody waited for has not arrived: until then there is rubbish. One from pinned memory may not be
written over before that. An LSTM is one operation, as cuDNN's is; inference mode is that of no gradients, for wrappers
have no views in it. Who uses this is run by the fixture ``simulate``: a CPU-only torch has no device guard for such
tensors, which indexing asks for, and no accelerator, which autograd does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from gpuparse.ops import library
from gpuparse.ops.backend import choose
from tests.budget import Tally, is_launch

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
LOOKS = ("_local_scalar_dense", "nonzero", "masked_select", "bincount", "_unique2", "is_nonzero", "equal")
RUBBISH = 0x55


class SimulatedDevice:
    """What happened on it.

    Attributes:
        waits: how often the host waited; operations: launches, of torch's operators and of ours; bytes: of what they
            made. Each by what it was and the line that it came from.
        up, down: bytes that went there and came back; transfers: how many times something crossed.
        launched: kernels of ours; done: those that the host knows to be done.
    """

    def __init__(self) -> None:
        self.reset()
        self.launched = self.done = 0
        self.pinned: dict[int, Tensor] = {}
        self._arriving: list[tuple[int, Tensor, Tensor]] = []  # launches before it, where to, what
        self._leaving: list[tuple[Tensor, Tensor]] = []  # pinned memory, and what it has to hold until it is gone

    def reset(self) -> None:
        """Count from 0."""
        self.waits, self.operations, self.bytes = Tally(), Tally(), Tally()
        self.up = self.down = self.transfers = 0

    @property
    def busy(self) -> bool:
        """Whether a kernel was launched that the host did not wait for."""
        return self.launched > self.done

    def waited(self, what: str) -> int:
        """How often for this."""
        return sum(times for line, times in self.waits.items() if line.startswith(f"{what} at "))

    def wait(self, what: str, until: int | None = None) -> None:
        """For what was launched so far, or for the first so many launches."""
        self.waits.add(what)
        self.done = max(self.done, self.launched if until is None else until)
        for source, kept in self._leaving:
            assert torch.equal(source, kept), "pinned memory was written to before it had left"
        self._leaving.clear()
        for arrival in [x for x in self._arriving if x[0] <= self.done]:
            arrival[1].copy_(arrival[2])
            self._arriving.remove(arrival)

    def leave(self, tensor: Tensor, blocking: bool) -> Tensor:
        """A tensor of the host, there."""
        self.transfers += 1
        self.up += tensor.nbytes
        if tensor.untyped_storage().data_ptr() in self.pinned and not blocking:
            self._leaving.append((tensor, tensor.clone()))
        return tensor.clone()

    def arrive(self, to: Tensor, values: Tensor, blocking: bool) -> None:
        """Values from there in a tensor of the host."""
        self.transfers += 1
        self.down += values.nbytes
        if blocking or to.untyped_storage().data_ptr() not in self.pinned:
            self.wait("copy")
            to.copy_(values)
        else:
            to.view(torch.uint8).fill_(RUBBISH)
            self._arriving.append((self.launched, to, values.clone()))


class Simulated(Tensor):
    """A tensor on it."""

    elem: Tensor
    on: SimulatedDevice

    @staticmethod
    def __new__(cls, elem: Tensor, on: SimulatedDevice) -> Simulated:
        like = {"strides": elem.stride(), "storage_offset": elem.storage_offset(), "dtype": elem.dtype}
        made: Simulated = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, elem.size(), **like, layout=elem.layout, device=CPU, requires_grad=False, dispatch_device=True
        )
        made.elem, made.on = elem, on
        return made

    def __init__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Simulated({self.elem})"

    def numpy(self, *_: object, **__: object) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    __array__ = numpy  # type: ignore[assignment]

    def tolist(self) -> Any:
        self.on.wait("tolist")
        self.on.transfers += 1
        return self.elem.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        on = next(x.on for x in _tensors(*args, *kwargs.values()) if isinstance(x, Simulated))
        return _dispatch(on, func, args, kwargs)


def _map(function: Callable[[Any], Any], x: Any) -> Any:
    """Arguments of an operator, which are nested little, by a function of what is in them: quicker than torch's."""
    if isinstance(x, (list, tuple)):
        return type(x)(_map(function, each) for each in x)
    return function(x)


def _tensors(*given: Any) -> Iterator[Tensor]:
    for x in given:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(*x)


def _dispatch(on: SimulatedDevice, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is torch.ops.prim.device.default:
        return CUDA
    space, name = func._schema.name.split("::")
    tensors = list(_tensors(*args, *kwargs.values()))
    there = [x for x in tensors if isinstance(x, Simulated)]
    goes_to = kwargs.get("device")
    to_cuda = bool(there) if goes_to is None else torch.device(goes_to).type == "cuda"
    if name == "_to_copy" and bool(there) != to_cuda:
        blocking = not kwargs.get("non_blocking", False)
        same = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking")}
        if to_cuda:
            return Simulated(func(on.leave(args[0], blocking), **same), on)
        here = func(there[0].elem, **same)
        on.arrive(here, here.clone(), blocking=True)
        return here
    if name == "copy_" and len(there) == 1:
        to, source = args[:2]
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        if there[0] is to:
            to.elem.copy_(on.leave(source, blocking))
        else:
            on.arrive(to, source.elem, blocking)
        return to
    if there and name != "copy_":
        for x in tensors:
            if not isinstance(x, Simulated) and x.dim():
                if not name.startswith(("index", "_index_put")):
                    raise RuntimeError(f"{name}: a tensor {list(x.shape)} of the CPU with one of cuda:0")
                on.transfers += 1
    masks = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
        x is not None and x.dtype is torch.bool for x in args[1]
    )
    if there and (name in LOOKS or masks):
        on.wait(name)
        on.transfers += 1
    on.launched += there != [] and space == "gpuparse"
    if goes_to is not None:
        kwargs["device"] = CPU
    found = func(*_map(_elem, args), **{key: _map(_elem, value) for key, value in kwargs.items()})
    if not to_cuda:
        return found
    if is_launch(func):
        on.operations.add(name)
        on.bytes.add(name, sum(x.nbytes for x in _tensors(found)))
    wrappers = {id(x.elem): x for x in there} if func._schema.is_mutable else {}

    def wrapped(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return wrappers[id(x)] if id(x) in wrappers else Simulated(x, on)

    return _map(wrapped, found)


def _elem(x: Any) -> Any:
    return x.elem if isinstance(x, Simulated) else x


class _Operators(TorchDispatchMode):
    def __init__(self, on: SimulatedDevice) -> None:
        super().__init__()
        self.on = on

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch(self.on, func, args, dict(kwargs or {}))


class _Functions(TorchFunctionMode):
    """Functions that do not come to the operators as they are: tensors of numbers, and pinned memory."""

    def __init__(self, on: SimulatedDevice) -> None:
        super().__init__()
        self.on = on

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name, device = getattr(func, "__name__", ""), kwargs.get("device")
        if kwargs.pop("pin_memory", False):
            made = func(*args, **kwargs)
            self.on.pinned[made.untyped_storage().data_ptr()] = made
            return made
        if name in ("tensor", "as_tensor") and device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = CPU
            made = func(*args, **kwargs)
            return made if isinstance(made, Simulated) else Simulated(self.on.leave(made, True), self.on)
        if name == "lstm" and isinstance(args[0], Simulated):
            tensors, form = tree_flatten((args, kwargs))
            made = _Lstm.apply(self.on, lambda x: func(*x[0], **x[1]), form, *tensors)  # type: ignore[no-untyped-call]
            return made
        if name == "new_tensor" and isinstance(args[0], Simulated):
            return Simulated(self.on.leave(args[0].elem.new_tensor(*args[1:], **kwargs), True), self.on)
        return func(*args, **kwargs)


class _Lstm(torch.autograd.Function):
    """One on the values, with its gradient."""

    @staticmethod
    def forward(ctx: Any, on: SimulatedDevice, run: Any, form: Any, *given: Any) -> Any:
        on.operations.add("lstm")
        wanted = zip(given, ctx.needs_input_grad[3:], strict=True)
        ctx.on, ctx.leaves = on, [_elem(x).detach().requires_grad_() if grad else _elem(x) for x, grad in wanted]
        with torch.enable_grad():
            ctx.made = run(tree_unflatten(ctx.leaves, form))
        return tuple(Simulated(x.detach(), on) for x in ctx.made)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.on.operations.add("lstm_backward")
        leaves = [x for x, wanted in zip(ctx.leaves, ctx.needs_input_grad[3:], strict=True) if wanted]
        found = iter(torch.autograd.grad(ctx.made, leaves, [_elem(x) for x in grads]))
        each = (Simulated(next(found), ctx.on) if wanted else None for wanted in ctx.needs_input_grad[3:])
        return None, None, None, *each


class _Event:
    """When it was recorded is when the host got there: the device has no clock of its own."""

    def __init__(self, on: SimulatedDevice) -> None:
        self.on = on
        self.record()

    def record(self, _: object = None) -> None:
        self.after, self.at = self.on.launched, time.perf_counter()

    def synchronize(self) -> None:
        self.on.wait("event", self.after)

    def elapsed_time(self, other: _Event) -> float:
        return 1000 * (other.at - self.at)


class _Stream:
    def __init__(self, on: SimulatedDevice) -> None:
        self.on = on

    def wait_stream(self, _: object) -> None:
        pass

    def record_event(self) -> _Event:
        return _Event(self.on)

    def synchronize(self) -> None:
        self.on.wait("stream")


@contextmanager
def simulated_cuda() -> Iterator[SimulatedDevice]:
    """Within it there is such a device, for this thread."""
    on = SimulatedDevice()
    streams: dict[str, Callable[..., Any]] = {
        "Stream": lambda *_: _Stream(on),
        "Event": lambda **_: _Event(on),
        "current_stream": lambda *_: _Stream(on),
        "stream": lambda _: nullcontext(),
        "_lazy_init": lambda: None,
        "synchronize": lambda *_: on.wait("synchronize"),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "mem_get_info": lambda *_: (8 << 30, 8 << 30),
        "memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
    }
    prepared = choose._prepared
    inference = torch.inference_mode
    modes: list[Any] = []

    def enter(self: Any) -> None:
        modes.append(torch.no_grad() if self.mode else nullcontext())
        modes[-1].__enter__()

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(inference, "__enter__", enter))
        stack.enter_context(mock.patch.object(inference, "__exit__", lambda _, *how: modes.pop().__exit__(*how)))
        for name, function in streams.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        on_cpu = {
            "_choose": lambda _, choose=choose._choose: choose("cpu"),
            "_prepared": lambda _, *k: prepared(CPU, *k),
        }
        for name, function in on_cpu.items():
            stack.enter_context(mock.patch.object(choose, name, function))
        stack.enter_context(mock.patch.object(torch.__future__, "_overwrite_module_params_on_conversion", True))
        assert library.has_kernel is choose.has_kernel
        stack.enter_context(_Operators(on))
        stack.enter_context(_Functions(on))
        yield on

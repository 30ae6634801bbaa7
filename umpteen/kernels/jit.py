"""Decorators that compile kernels: lazily, cached on disk, without the GIL and without threads of numba."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import llvmlite
import numba
from numba import _dynfunc
from numba.core import event, serialize
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

from umpteen.kernels import ahead, cache
from umpteen.kernels.compiling import compiling

# Sums may be reordered, but NaN must not be ignored.
_OPTIONS: dict[str, Any] = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}, "boundscheck": False}

_log = logging.getLogger("umpteen.kernels")


class _Kept:
    """Implements the interface of a function cache of numba.

    Unlike numba's own cache it checks what it reads, may read from one folder and write to another, and notices changes
    of functions in other files.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = _name_of(function)
        self.cache_path = None  # numba shows it in statistics

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for a signature, or None."""
        try:
            target_context.refresh()
            key = _key(sig, target_context.codegen())
            body = cache.load(self._name, key) or ahead.take(self._name, key)
            if body is None:
                return None
            from numba.core.compiler import CompileResult

            # a pickle, and compiled code: both only from the folders of ``cache`` and the process of ``ahead``
            return CompileResult._rebuild(target_context, *serialize.loads(body))
        except Exception as error:  # in any case the kernel can be compiled
            _log.info("the compiled kernel %s cannot be used and is compiled again: %s", self._name, error)
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Save the compiled function for a signature."""
        try:
            if cres.lifted or cres.library.has_dynamic_globals:  # contains addresses of this process
                return
            key, body = _key(sig, cres.codegen), serialize.dumps(cres._reduce())
            cache.save(self._name, key, body)
            ahead.give(self._name, key, body)
        except Exception as error:  # the kernel works without a cache
            _log.info("the compiled kernel %s cannot be kept: %s", self._name, error)

    def enable(self) -> None:
        """Do nothing: the cache is always used."""

    disable = flush = enable


class _Listener(event.Listener):
    """Reports the kernels of this package that numba compiles."""

    def __init__(self) -> None:
        self._open: list[AbstractContextManager[None]] = []  # numba compiles one at a time, kernels within kernels

    def on_start(self, event: Any) -> None:
        if _is_ours(event):
            self._open.append(compiling(_name_of(event.data["dispatcher"].py_func)))
            self._open[-1].__enter__()

    def on_end(self, event: Any) -> None:
        if _is_ours(event) and self._open:
            self._open.pop().__exit__(None, None, None)


class _Flags(Flags):
    """Flags of a compilation with a faster comparison, which numba calls for every function call in a kernel."""

    __slots__ = ()
    _hash = hash(Flags())  # depends on the names of the flags only

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Flags) and self._values == other._values:
            return True
        return super().__eq__(other)


class _Part(JITCodeLibrary):
    """The code of an inner function, which is optimised and compiled only as a part of the kernels that call it.

    numba would compile every function by itself, and again for each of its callers.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Translate an inner function to LLVM IR only."""

    _name = "umpteen_part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state.cr
        # numba identifies a function by this object; it is never called
        name = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), lowered.fndesc.qualname, "inner function", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(name, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=name)
        return True


class _PartCompiler(CompilerBase):
    """Compiler of numba with ``_PartLowering`` as the last step."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state, "umpteen_part")
        passes.passes = [(_PartLowering if step is NativeLowering else step, why) for step, why in passes.passes]
        passes.finalize()
        return [passes]


def _is_ours(event: Any) -> bool:
    return event.data["dispatcher"].py_func.__module__.startswith("umpteen.")


def _name_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


def _key(sig: Any, codegen: Any) -> str:
    """Return what a compiled kernel depends on besides the source: signature, processor, compiler."""
    return repr((sig, codegen.magic_tuple(), numba.__version__, llvmlite.__version__))


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel: a function that is called from Python."""
    dispatcher = _compiled(function, nogil=True)
    if hasattr(dispatcher, "_cache"):  # not with NUMBA_DISABLE_JIT
        dispatcher._cache = _Kept(function)
    return dispatcher


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that is called from kernels only, as a part of these.

    LLVM decides what is inlined. (``inline="always"`` of numba would compile the source again in every caller, which
    made cold starts several times as long and nothing faster.)
    """
    return _compiled(function, no_cpython_wrapper=True, pipeline_class=_PartCompiler)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    dispatcher = numba.njit(no_cfunc_wrapper=True, **_OPTIONS, **options)(function)
    if hasattr(dispatcher, "_compiler"):  # not with NUMBA_DISABLE_JIT
        dispatcher._compiler._customize_flags = _Flags
    return dispatcher


event.register("numba:compile", _Listener())

"""Run an encoder that was exported as an ONNX graph, which may come from a stranger. Knows nothing about torch.

A graph is data: it can name files, operators of libraries, loops and sizes. Accepted is what ``onnx_export`` writes:
one plain graph of arithmetic, whose weights lie in the file itself. All graphs of a process together may take a bounded
amount of memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from umpteen.errors import BadModelFile, MissingExtra, OutOfMemory
from umpteen.neural.pooling import Pooling

IDS, MASK = "input_ids", "attention_mask"
_OUTPUT = re.compile(r"layer_(0|[1-9]\d{0,2})")
_MOST_MEMORY = 8 << 30  # bytes of all graphs together: a large encoder has 1.4e9 bytes of weights
_DOMAINS = ("", "ai.onnx")
# Arithmetic and shapes. Neither loops and branches, nor functions, sequences, strings, images or random numbers.
_OPERATORS = {
    "Abs", "Add", "And", "ArgMax", "Cast", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "Cos", "CumSum",
    "DequantizeLinear", "Div", "DynamicQuantizeLinear", "Einsum", "Equal", "Erf", "Exp", "Expand", "Flatten",
    "Floor", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "Greater", "GreaterOrEqual", "Identity",
    "IsNaN", "LayerNormalization", "Less", "LessOrEqual", "Log", "MatMul", "MatMulInteger", "Max", "Min", "Mod",
    "Mul", "Neg", "Not", "Or", "Pad", "Pow", "QuantizeLinear", "Range", "Reciprocal", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceSum", "Relu", "Reshape", "Round", "ScatterElements", "ScatterND", "Shape", "Sigmoid",
    "Sign", "Sin", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where",
}  # fmt: skip
_REGISTERED = threading.Lock()
_has_arena = False


class OnnxGraph:
    """An exported encoder: token numbers in, the states of some of its layers out.

    Parameters
    ----------
    content
        The bytes of the file, which may be memory-mapped.
    where
        Its name in messages.
    width
        Length of a state.
    """

    def __init__(self, content: np.ndarray, where: str, width: int):
        self.layers = check_graph(content.tobytes(), where)
        self._content, self._where, self._width = content, where, width
        self._sessions: dict[int, Any] = {}
        self._lock = threading.Lock()

    def states(self, ids: np.ndarray, mask: np.ndarray | None, threads: int = 0) -> dict[int, np.ndarray]:
        """Return the states (texts, length, width) by layer; ``mask`` is false where there is padding."""
        given = np.ones_like(ids) if mask is None else mask.astype(np.int64)
        return self._run(self._session(threads), ids, given)

    def _run(self, session: Any, ids: np.ndarray, mask: np.ndarray) -> dict[int, np.ndarray]:
        try:
            found = session.run(None, {IDS: ids, MASK: mask})
        except Exception as error:  # onnxruntime has a class of its own for each status
            if "memory" in str(error):
                raise OutOfMemory(f"'{self._where}' takes more memory than is allowed; pass fewer texts") from error
            raise self._refusal(_in_one_line(error)) from error
        return dict(zip(self.layers, found, strict=True))

    def _session(self, threads: int) -> Any:
        """Return a session with so many threads; one is kept, because each has the weights once more."""
        with self._lock:
            if threads not in self._sessions:
                self._sessions.clear()
                self._sessions[threads] = self._open(threads)
            return self._sessions[threads]

    def _open(self, threads: int) -> Any:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.use_env_allocators", "1")  # whose memory is bounded
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads leave their core
        try:
            session = runtime.InferenceSession(self._content.tobytes(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise self._refusal(_in_one_line(error)) from error
        self._try(session)
        return session

    def _try(self, session: Any) -> None:
        """Refuse a graph that cannot be run, or whose states are not what they must be."""
        for shape in ((1, 2), (2, 3)):
            ids = np.zeros(shape, np.int64)
            for state in self._run(session, ids, np.ones_like(ids)).values():
                if state.dtype != np.float32 or state.shape != (*shape, self._width) or not np.isfinite(state).all():
                    raise self._refusal(f"its states are not {self._width} finite numbers for each token")

    def _refusal(self, why: str) -> BadModelFile:
        return BadModelFile(f"the exported encoder '{self._where}' cannot be used: {why}; export the model again")


def check_layers(graph: OnnxGraph, poolings: Iterable[Pooling]) -> None:
    """Raise BadModelFile if a graph lacks a layer that some poolings read."""
    if missing := {layer for pooling in poolings for layer in pooling.layers} - set(graph.layers):
        raise BadModelFile(f"the exported encoder lacks layer {min(missing)}, which is read; export the model again")


def check_graph(content: bytes, where: str) -> list[int]:
    """Return the layers whose states a graph computes; raise BadModelFile unless it is plain arithmetic."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("onnx", "onnx", "an exported encoder") from None
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, in one of its several implementations
        raise BadModelFile(f"'{where}' is no ONNX file ({_in_one_line(error)}); export the model again") from error
    try:
        _check_plain(model, onnx)
        return _layers(model.graph, onnx.TensorProto)
    except ValueError as error:
        raise BadModelFile(f"the exported encoder '{where}' {error}; export the model again") from None


def _check_plain(model: Any, onnx: Any) -> None:
    """Raise ValueError if a model has more than one graph, operators of other kinds, or weights elsewhere."""
    graph = model.graph
    if model.functions or model.training_info or graph.sparse_initializer:
        raise ValueError("has functions, steps of training or sparse weights, which no export writes")
    if any(one.domain not in _DOMAINS for one in model.opset_import):
        raise ValueError("needs operators of another library")
    tensors = list(graph.initializer)
    for node in graph.node:
        if node.domain not in _DOMAINS or node.op_type not in _OPERATORS:
            raise ValueError(f"has the operator '{node.domain[:40]}:{node.op_type[:40]}', which no export writes")
        for attribute in node.attribute:
            if attribute.type not in _attribute_kinds(onnx):
                raise ValueError(f"has a graph inside of '{node.op_type}'")
            tensors.append(attribute.t)
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data for tensor in tensors):
        raise ValueError("has weights in another file")


def _attribute_kinds(onnx: Any) -> Iterable[int]:
    kinds = onnx.AttributeProto
    return kinds.FLOAT, kinds.INT, kinds.STRING, kinds.TENSOR, kinds.FLOATS, kinds.INTS


def _layers(graph: Any, tensor: Any) -> list[int]:
    """Return the layers of the outputs; raise ValueError unless inputs and outputs are those of an encoder."""
    weights = {one.name for one in graph.initializer}
    inputs = {one.name: one.type.tensor_type.elem_type for one in graph.input if one.name not in weights}
    if inputs != {IDS: tensor.INT64, MASK: tensor.INT64}:
        raise ValueError(f"does not take {IDS} and {MASK}")
    names = [one.name for one in graph.output]
    found = [_OUTPUT.fullmatch(name) for name in names]
    if not found or None in found or len(set(names)) < len(names):
        raise ValueError("does not return states of layers")
    return [int(one[1]) for one in found if one is not None]


def _runtime() -> Any:
    """Return the package onnxruntime, after it was told how much memory graphs may take."""
    global _has_arena
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "onnx", "an exported encoder") from None
    with _REGISTERED:
        if not _has_arena:
            kind, memory = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
            place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, memory)
            onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg(_MOST_MEMORY, -1, -1, -1))
            _has_arena = True
    return onnxruntime


def _in_one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]

"""onnxruntime's side of `cargo xtask compare-onnxruntime`.

    onnxruntime_peer.py inputs MODEL INPUTS.npz            draws inputs: batch 1, other open sizes 128
    onnxruntime_peer.py check MODEL INPUTS.npz OUTPUTS.npz fails unless the outputs agree
    onnxruntime_peer.py time MODEL INPUTS.npz THREADS WARMUP REPS
                                                           prints the median time in milliseconds
"""

import sys
import time

import numpy as np
import onnxruntime

TOLERANCE = 1e-4
BATCH, LENGTH = 1, 128


def session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def draw(model, path):
    random = np.random.default_rng(1)
    inputs = {}
    for value in session(model, 1).get_inputs():
        shape = [
            size if isinstance(size, int) else (BATCH if axis == 0 else LENGTH)
            for axis, size in enumerate(value.shape)
        ]
        if value.type == "tensor(int64)":
            # A mask that hides nothing, one segment, tokens from the lower part of a vocabulary.
            name = value.name.lower()
            high = 1 if "mask" in name or "type" in name else 1000
            tensor = random.integers(0, high, shape) + (1 if "mask" in name else 0)
        elif value.type == "tensor(float)":
            tensor = random.standard_normal(shape).astype(np.float32)
        else:
            sys.exit(f"input {value.name} is {value.type}; only int64 and float are drawn")
        inputs[value.name] = tensor
    np.savez(path, **inputs)


def check(model, inputs, outputs):
    peer = session(model, 1)
    found = np.load(outputs)
    names = [value.name for value in peer.get_outputs()]
    for name, expected in zip(names, peer.run(names, dict(np.load(inputs)))):
        error = np.linalg.norm(found[name].astype(np.float64) - expected)
        error /= max(np.linalg.norm(expected.astype(np.float64)), 1e-30)
        if not error <= TOLERANCE:
            sys.exit(f"output {name} differs from onnxruntime's by {error:.2e}")


def measure(model, inputs, threads, warmup, reps):
    peer = session(model, threads)
    feed = dict(np.load(inputs))
    for _ in range(warmup):
        peer.run(None, feed)
    times = []
    for _ in range(reps):
        begin = time.perf_counter()
        peer.run(None, feed)
        times.append((time.perf_counter() - begin) * 1e3)
    print(np.median(times))


command, model, *rest = sys.argv[1:]
if command == "inputs":
    draw(model, *rest)
elif command == "check":
    check(model, *rest)
elif command == "time":
    measure(model, rest[0], *map(int, rest[1:]))
else:
    sys.exit(f"unknown command {command}")

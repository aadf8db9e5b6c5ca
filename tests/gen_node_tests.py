"""Write the ONNX node conformance tests of the installed `onnx` package as files.

Since 1.23 the wheel holds these tests as Python code only. This script evaluates that code and
stores each case the way the older wheels shipped it:

    FOLDER/node/NAME/model.onnx
    FOLDER/node/NAME/data.json                      {"rtol": ..., "atol": ...}
    FOLDER/node/NAME/test_data_set_N/input_M.pb     TensorProto, SequenceProto or OptionalProto
    FOLDER/node/NAME/test_data_set_N/output_M.pb

It never changes what a case says; a case that cannot be stored ends the run with exit code 1.

usage: gen_node_tests.py FOLDER
"""

import json
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1]) / "node"
    # Some cases compute infinities and NaNs on purpose.
    numpy.seterr(all="ignore")
    written, failures = 0, []
    for case in load_model_tests(kind="node"):
        try:
            write_case(case, folder / case.name)
            written += 1
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            failures.append(f"{case.name}: {error!r}")
    print(f"onnx {onnx.__version__}: {written} node tests written to {folder}")
    for failure in failures:
        print(f"cannot be stored: {failure}", file=sys.stderr)
    return 1 if failures or written == 0 else 0


def write_case(case, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}) + "\n")
    graph = case.model.graph
    for index, (inputs, outputs) in enumerate(case.data_sets or []):
        data_set = folder / f"test_data_set_{index}"
        data_set.mkdir(exist_ok=True)
        for kind, values, declared in (
            ("input", inputs, graph.input),
            ("output", outputs, graph.output),
        ):
            if len(values) > len(declared):
                raise ValueError(f"{len(values)} {kind}s given, {len(declared)} declared")
            for position, (value, info) in enumerate(zip(values, declared)):
                (data_set / f"{kind}_{position}.pb").write_bytes(serialise(value, info))


def serialise(value, info: onnx.ValueInfoProto) -> bytes:
    """The protobuf bytes of a test value, in the message that its declared type asks for."""
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    encoders = {
        "sequence_type": numpy_helper.from_list,
        "map_type": numpy_helper.from_dict,
        "optional_type": numpy_helper.from_optional,
    }
    kind = info.type.WhichOneof("value")
    if kind in encoders:
        return encoders[kind](value, info.name).SerializeToString()
    return numpy_helper.from_array(numpy.asarray(value), info.name).SerializeToString()


if __name__ == "__main__":
    sys.exit(main())

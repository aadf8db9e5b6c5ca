"""Times matrix products through the whole compiler: writes each as IR text, compiles it, and runs
`membar bench` on a GPU. Only the Python standard library is needed; it never checks a result, the
tests do.

    python3 benches/gemm.py --membar target/release/membar --device cuda:0 --json gemm.json

A program holds as many copies of a product, with other weights, as it takes for the weights to
exceed the GPU's cache; the compiler orders them one after another, and the time of one is the
program's over their number. `--prepare` writes the graphs and stops before a GPU is needed.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

# Columns and depth of Llama 3 8B's products: Q, K, V together, gate and up together, down.
LLAMA = [(6144, 4096), (28672, 4096), (4096, 14336)]
# The product with the vocabulary; its weight of 1 GB takes long to draw.
HEAD = (128256, 4096)
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 4096]
SQUARES = [4096, 8192]
# Weights of so many bytes leave the cache of 60 MiB between two uses of one.
WORKING_SET = 200 << 20


def copies(n: int, k: int) -> int:
    return -(-WORKING_SET // (n * k * 2))


def product(m: int, n: int, k: int) -> str:
    """The products of `[m, k]` and weights `[k, n]` in bf16, each with an operand of its own: those
    that share one could become one product."""
    numbers = range(copies(n, k))
    inputs = ",\n".join(f"  %x{i}: bf16[{m}, {k}]" for i in numbers)
    lines = ["ir 1 stage tensor", f"graph @product(\n{inputs}\n) {{"]
    for i in numbers:
        weight = f"weight random seed 1 stream {i} normal(0.02)"
        lines.append(f"  %w{i} = {weight} : bf16[{k}, {n}]")
        lines.append(f"  %y{i} = matmul %x{i}, %w{i} {{acc = f32, result = bf16}} : bf16[{m}, {n}]")
    lines.append("  return\n" + ",\n".join(f"    %y{i}" for i in numbers) + "\n}\n")
    return "\n".join(lines)


def output(command: list) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--membar", default="target/release/membar", help="the program")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--reps", type=int, default=50)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS, help="M of the table")
    parser.add_argument("--head", action="store_true", help="the vocabulary's product too")
    parser.add_argument("--json", type=pathlib.Path, help="where the rows go")
    parser.add_argument("--prepare", type=pathlib.Path, help="write the graphs there, run nothing")
    arguments = parser.parse_args()
    shapes = [(n, n, n) for n in SQUARES]
    weights = LLAMA + ([HEAD] if arguments.head else [])
    shapes += [(m, n, k) for m in arguments.rows for n, k in weights]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.prepare or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for m, n, k in shapes:
            graph = folder / f"{m}x{n}x{k}.ir"
            graph.write_text(product(m, n, k))
            if arguments.prepare:
                print(graph)
                continue
            command = [arguments.membar, "-q", "bench", graph, "--device", arguments.device]
            report = json.loads(output(command + ["--reps", str(arguments.reps), "--json"]))
            if report["device"] is None:
                sys.exit("the run was not on a GPU; nothing is compared")
            us = report["device"]["median_ms"] * 1e3 / copies(n, k)
            row = {"m": m, "n": n, "k": k, "us": us, "tflop_s": 2 * m * n * k / us / 1e6}
            row["tb_s"] = (n * k + m * k + m * n) * 2 / us / 1e6
            rows.append(row)
            print(" ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
                           for key, value in row.items()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

"""`python -m benchmarks` runs every claim in a process of its own, and writes a summary."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
NOT_CLAIMS = ("__init__", "__main__", "claim", "serving")
SUMMARY = FOLDER.parent / "build" / "benchmarks"


def main(wanted: list[str]) -> None:
    """Runs the named claims, or all; exits 1 if one failed to run, but not for a missed target."""
    files = [path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_CLAIMS]
    names = sorted(files + [path.parent.name for path in FOLDER.glob("*/__main__.py")])
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(names)}")
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        results.touch()
        environment = os.environ | {"BENCHMARK_RESULTS": str(results)}
        failed = [name for name in wanted or names if not run(name, environment)]
        claims = [json.loads(line) for line in results.read_text().splitlines()]
    write_summary(claims)
    if failed:
        sys.exit(f"failed to run: {', '.join(failed)}")


def run(name: str, environment: dict[str, str]) -> bool:
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    return subprocess.run(command, env=environment, check=False).returncode == 0


def write_summary(claims: list[dict[str, object]]) -> None:
    """Writes the figures as JSON, and as a Markdown table for docs/benchmarks.md."""
    SUMMARY.mkdir(parents=True, exist_ok=True)
    where = f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}"
    content = {"python": where, "cores": os.cpu_count(), "claims": claims}
    (SUMMARY / "summary.json").write_text(json.dumps(content, indent=1) + "\n")
    rows = [
        "| claim | ours | baseline | ratio | target | |",
        "|---|---|---|---|---|---|",
        *(
            f"| {c['name']} | {c['ours']:.4g} {c['unit']} | {c['baseline']:.4g} {c['unit']}, "
            f"{c['against']} | {c['ratio']:.3g} | {c['target']:g} | "
            f"{'met' if c['met'] else 'MISSED'} |"
            for c in claims
        ),
    ]
    (SUMMARY / "summary.md").write_text("\n".join(rows) + "\n")
    print(f"== summary: {SUMMARY / 'summary.md'} and summary.json")


if __name__ == "__main__":
    main(sys.argv[1:])

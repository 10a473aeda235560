"""Builds the compiled modules named in pyproject.toml, when a C compiler is there.

Without one, or with WINDTUNNEL_COMPILE=0, the package installs as plain Python. Where there is one
and compiling still fails, a build in place (`make compile`) fails; any other goes on without.
`python setup.py fresh` exits 0 when the binaries beside the sources are what a build would make.
"""

import ast
import gc
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import textwrap
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "windtunnel"
GENERATED = Path("build", "mypyc")


def load_forms() -> Any:
    """The package's own idea of what a manifest is, without importing the package."""
    spec = spec_from_file_location("windtunnel_forms", PACKAGE / "_forms.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


forms = load_forms()


def compiled_modules() -> list[str]:
    """The table in pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        names = tomllib.load(file)["tool"]["windtunnel"]["compiled"]
    return [str(name) for name in names]


def source_of(module: str) -> Path | None:
    """The file of a module of ours; None for anything else."""
    stem = SOURCE / module.replace(".", "/")
    candidates = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def imports_of(path: Path) -> set[str]:
    """Every module that a source may import, at the top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def wanted_manifest() -> Any:
    """What a build of the present sources compiles, and a digest of all that it reads of ours."""
    table = compiled_modules()
    waiting, seen = list(table), dict[Path, str]()
    while waiting:
        module = waiting.pop()
        path = source_of(module)
        if path is None and module in table:
            sys.exit(
                f"windtunnel: pyproject.toml compiles {module}, which has no source under src/"
            )
        if path is not None and path not in seen:
            seen[path] = forms.digest_of(path)
            waiting.extend(imports_of(path))
    digests = {path.relative_to(SOURCE).as_posix(): digest for path, digest in sorted(seen.items())}
    return forms.BuildManifest(table, digests)


def can_compile() -> bool:
    """Builds an extension of two lines: asking the compiler is surer than guessing."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text(
            "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"
        )
        command = build_ext(Distribution({"ext_modules": [Extension("probe", [str(probe)])]}))
        command.build_lib = command.build_temp = folder
        try:
            command.ensure_finalized()
            command.run()
        except Exception as error:  # noqa: BLE001 - whatever a compiler does, the answer is no
            reason = textwrap.shorten(str(error), 100)
            say(f"no working C compiler ({reason}); the hot modules stay interpreted")
            return False
    return True


# Nobody replaces a function of ours at run time, so the compiler may inline and call directly.
INLINING = ["-fno-semantic-interposition", "-fvisibility=hidden"]
# The path of a simulated request. Compiled as one C file with mypyc's runtime, so that calls from
# one module into another, and into the runtime, are inlined; the others are shared out to a few C
# files, which reads the long common header a few times instead of once per module. For those, -O1
# makes as fast code in half the time.
HOT = (
    *("core", "engine", "twin.simulation", "twin.ports", "twin.progress"),
    *("twin.requests.lifecycle", "twin.requests.service", "twin.requests.in_flight"),
    *("twin.servers.cluster", "twin.servers.replicas"),
    *("twin.results.accounts", "twin.results.columns", "twin.results.recorder"),
    *("workload.request", "workload.register", "workload.arrivals", "workload.lengths"),
    *("workload.sources", "workload.traffic", "models.step_time.model"),
    *("models.step_time.linear", "models.step_time.physics", "models.step_time.kernels"),
    *("routing.router", "routing.load_balancing", "routing.weighted", "routing.ranking"),
    *("routing.scorers", "routing.prompt_scorers", "routing.prefixes"),
)
OTHER_FILES = 12
# What runs once, as a module is imported, and what only Python calls need not be fast; gcc spends
# half of its time on it otherwise.
COLD = re.compile(
    r"^ *(char CPyDef_\w+_____top_level__\(void\)|PyObject \*CPyPy_\w+\([^)]*\))(?= \{)", re.M
)


def translate(manifest: Any) -> list[Extension]:
    """The modules as C extensions in one shared library of a few C files."""
    from mypyc.build import mypycify

    shutil.rmtree(ROOT / GENERATED, ignore_errors=True)
    paths = [path.relative_to(ROOT) for path in map(source_of, manifest.modules) if path]
    # The linter's run is the strict one; here a library that the build environment lacks, or what
    # another mypy would complain of, must not decide whether the modules are compiled. Reading
    # installed libraries would take three times as long.
    options = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    options += ["--no-site-packages"]
    # Without these, an __init__.py in any folder above this one changes the modules' names.
    options += ["--explicit-package-bases", "--namespace-packages", f"--cache-dir={os.devnull}"]
    os.environ["MYPYPATH"] = str(SOURCE)
    gc.disable()
    built: list[Extension] = mypycify(
        [*options, *map(str, paths)],
        # 3 takes longer to compile and makes little run faster; with 1 a request takes 5 % longer.
        opt_level="2",
        debug_level="0",
        target_dir=str(GENERATED),
        multi_file=True,
        group_name=manifest.library.removesuffix(forms.LIBRARY_SUFFIX),
    )
    gc.freeze()  # freeing mypy's trees at the exit would take as long as making them
    gc.enable()
    for extension in built:
        # One list may be shared by all extensions.
        extra = INLINING if os.name != "nt" else []
        extension.extra_compile_args = [*extension.extra_compile_args, *extra]
    # The others only hand over what is in the library: it offers every module by itself instead.
    library = max(built, key=lambda extension: len(extension.sources))
    library.sources = [*joined(library.sources), entries(manifest.modules)]
    return [library]


def entries(modules: Sequence[str]) -> str:
    """A C file by which Python finds each module in the library."""
    path = GENERATED / "entries.c"
    lines = ["#include <Python.h>"]
    for entry in map(forms.entry_of, modules):
        lines.append(f"extern PyObject *CPyInit_{entry}(void);")
        lines.append(f"PyMODINIT_FUNC PyInit_{entry}(void) {{ return CPyInit_{entry}(); }}")
    (ROOT / path).write_text("\n".join(lines) + "\n")
    return str(path)


def joined(sources: list[str]) -> list[str]:
    """The C files of a library as fewer: hot modules and the runtime in one, the rest by size."""
    names = tuple("windtunnel." + name for name in HOT)
    prefixes = tuple("__native_" + name.replace(".", "___") for name in names)

    def is_hot(path: Path) -> bool:
        module = path.stem
        is_runtime = not module.startswith("__native")
        return is_runtime or any(module == p or module.startswith(p + "___") for p in prefixes)

    paths = [Path(source) for source in sources]
    # The runtime goes first: generated code calls it.
    hot = sorted(filter(is_hot, paths), key=lambda path: path.stem.startswith("__native"))
    others = [(0, number, list[Path]()) for number in range(OTHER_FILES)]
    sizes = {path: (ROOT / path).stat().st_size for path in paths if path not in hot}
    for path in sorted(sizes, key=lambda path: (-sizes[path], path.name)):
        size, number, files = heappop(others)
        heappush(others, (size + sizes[path], number, [*files, path]))
    made = {"hot": hot} | {f"others_{number}": files for _, number, files in others if files}
    (header,) = (ROOT / GENERATED).glob("__native_internal_*.h")
    for name, files in made.items():
        native = [path for path in files if path.stem.startswith("__native")]
        runtime = [path for path in files if path not in native]
        cold = [found for path in native for found in COLD.findall((ROOT / path).read_text())]
        lines = [f'#include "{path.name}"' for path in (*runtime, header)]
        if os.name != "nt":
            lines += [f"{declared} __attribute__((cold));" for declared in cold]
        lines += [f'#include "{path.name}"' for path in native]
        (ROOT / GENERATED / f"{name}.c").write_text("\n".join(lines) + "\n")
    return [str(GENERATED / f"{name}.c") for name in made]


class CleanBuild(build):
    """Builds from nothing, so that what an earlier build left cannot travel in a wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildCompiled(build_ext):
    """Removes every earlier binary, builds, and leaves a manifest when all went well."""

    def run(self) -> None:
        folder = SOURCE if self.inplace else Path(self.build_lib)
        remove_binaries(folder)
        if not self.extensions:
            return
        self.force = True
        self.parallel = os.cpu_count() or 1
        try:
            super().run()
            write_manifest(folder)
        except Exception as error:
            if self.inplace:
                raise
            remove_binaries(folder)
            say(f"compiling failed ({error}); the hot modules stay interpreted")

    def build_extensions(self) -> None:
        """Compiles the files of an extension side by side, too: one extension has nearly all."""
        compile_all = self.compiler.compile

        def compile_one(source: str, options: dict[str, Any]) -> list[str]:
            if not source.endswith("hot.c") and os.name != "nt":
                options = options | {"extra_postargs": [*options["extra_postargs"], "-O1"]}
            made: list[str] = compile_all([source], **options)
            return made

        def compile_each(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(self.parallel) as pool:
                objects = pool.map(lambda source: compile_one(source, options), sources)
                return [name for names in objects for name in names]

        self.compiler.compile = compile_each
        super().build_extensions()


def write_manifest(folder: Path) -> None:
    """Vouches for the binaries in `folder`; a source edited while they were built shows here."""
    manifest = wanted_manifest()
    faults = manifest.faults(folder)
    if faults:
        raise RuntimeError(f"{faults[0]}; was a source edited meanwhile?")
    forms.manifest_path(folder / "windtunnel").write_text(manifest.to_json(folder))


def remove_binaries(folder: Path) -> None:
    """Takes away all binaries of this Python, those of modules long gone too."""
    forms.manifest_path(folder / "windtunnel").unlink(missing_ok=True)
    library = f"{forms.LIBRARY_PREFIX}*{forms.LIBRARY_SUFFIX}{forms.BINARY_SUFFIX}"
    for pattern in (library, f"windtunnel/**/*{forms.BINARY_SUFFIX}"):
        for path in folder.glob(pattern):
            path.unlink()


def say(sentence: str) -> None:
    print(f"windtunnel: {sentence}.", file=sys.stderr)


def extensions() -> list[Extension]:
    """What this command has to compile: nothing, for those that build nothing."""
    building = {"build_ext", "bdist_wheel", "editable_wheel", "build", "install"} & set(sys.argv)
    if not building or os.environ.get("WINDTUNNEL_COMPILE") == "0":
        return []
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        say("not compiled for a Python without its lock")
        return []
    manifest = wanted_manifest()
    if not manifest.modules or not can_compile():
        return []
    try:
        return translate(manifest)
    except (Exception, SystemExit) as error:
        if "--inplace" in sys.argv:
            raise
        say(f"translating to C failed ({error}); the hot modules stay interpreted")
        return []


def fresh_in_place() -> bool:
    """Whether the binaries beside the sources are those that a build would make."""
    present = forms.read_manifest(PACKAGE)
    return (
        present is not None
        and present.library == wanted_manifest().library
        and not present.faults(SOURCE)
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["fresh"]:
        sys.exit(0 if fresh_in_place() else 1)
    os.chdir(ROOT)
    setup(ext_modules=extensions(), cmdclass={"build": CleanBuild, "build_ext": BuildCompiled})

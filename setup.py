"""Builds the compiled modules named in pyproject.toml, when a C compiler is there."""

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
EXT_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
MANIFEST = Path("windtunnel") / f"compiled{EXT_SUFFIX.rpartition('.')[0]}.json"


def compiled_modules() -> dict[str, Path]:
    """The table in pyproject.toml, as module name -> source file."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        names = tomllib.load(file)["tool"]["windtunnel"]["compiled"]
    return {name: SOURCE / (name.replace(".", "/") + ".py") for name in names}


def can_compile() -> bool:
    """Tries the compiler on three lines that need Python's headers: asking is surer than guessing."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.c"
        probe.write_text("#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n")
        compiler = new_compiler()
        customize_compiler(compiler)
        compiler.add_include_dir(sysconfig.get_path("include"))
        try:
            compiler.compile([str(probe)], output_dir=folder)
        except Exception as error:  # noqa: BLE001 - whatever a compiler does, the answer is no
            print(f"windtunnel: no working C compiler ({error}); the modules stay interpreted.")
            return False
    return True


def extensions() -> list[Extension]:
    """The modules as C extensions in one shared library; none when that cannot be."""
    if os.environ.get("WINDTUNNEL_COMPILE", "1") == "0" or not can_compile():
        return []
    from mypyc.build import mypycify

    os.chdir(ROOT)
    paths = [str(path.relative_to(ROOT)) for path in compiled_modules().values()]
    built: list[Extension] = mypycify(
        ["--config-file=", "--python-version=3.11", "--strict", *paths],
        opt_level="3",
        debug_level="0",
        group_name="windtunnel",
    )
    return built


class BuildCompiled(build_ext):
    """Builds, then writes the manifest that lets a stale binary be told from a fresh one."""

    def run(self) -> None:
        manifest = (SOURCE if self.inplace else Path(self.build_lib)) / MANIFEST
        manifest.unlink(missing_ok=True)
        super().run()
        if self.extensions:
            digests = {
                name: hashlib.sha256(path.read_bytes()).hexdigest()
                for name, path in compiled_modules().items()
            }
            manifest.parent.mkdir(parents=True, exist_ok=True)
            manifest.write_text(json.dumps(digests, indent=1) + "\n")


def wants_extensions() -> bool:
    """Only the commands that build or install need the (slow) translation to C."""
    commands: list[Any] = sys.argv[1:]
    return any(word in commands for word in ("build_ext", "bdist_wheel", "editable_wheel", "build", "install"))


setup(ext_modules=extensions() if wants_extensions() else [], cmdclass={"build_ext": BuildCompiled})

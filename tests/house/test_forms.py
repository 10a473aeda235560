"""A binary that does not belong to the present sources is never run, whatever happened to it."""

import json

import pytest

from tests.house.conftest import COMPILED, Site
from windtunnel._forms import BINARY_SUFFIX, LIBRARY_SUFFIX

pytestmark = [pytest.mark.needs_compiler, pytest.mark.once, pytest.mark.xdist_group("builds")]

LIBRARY = f"*{LIBRARY_SUFFIX}{BINARY_SUFFIX}"
EVENTS = "windtunnel/core/loop.py"
LOOK = (
    "import windtunnel, windtunnel.core.loop as events\n"
    "print(windtunnel.FORM, events.__file__.endswith('.py'), getattr(events, 'EDITED', 'as built'))"
)


def run(site: Site, **variables: str) -> tuple[str, str]:
    done = site.python("-c", LOOK, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def edit(site: Site, file: str) -> None:
    with (site.folder / file).open("a") as source:
        source.write("\nEDITED = 'edited'\n")


def manifest(site: Site) -> str:
    return str(site.only("windtunnel/compiled.*.json").relative_to(site.folder))


def test_a_fresh_build_runs_compiled_and_quietly(site: Site) -> None:
    assert run(site) == ("compiled False as built", "")
    assert run(site, WINDTUNNEL_FORM="compiled") == ("compiled False as built", "")
    assert run(site, WINDTUNNEL_FORM="interpreted") == ("interpreted True as built", "")


def test_an_edited_module_runs_as_edited_and_says_so_once(site: Site) -> None:
    edit(site, EVENTS)
    said, warned = run(site)
    assert said == "interpreted True edited"
    assert warned.startswith(f"windtunnel: {EVENTS} changed after it was compiled")
    assert "make compile" in warned
    assert warned.count("\n") == 1


def test_worker_processes_have_the_form_of_their_parent_and_do_not_repeat_it(site: Site) -> None:
    edit(site, EVENTS)
    call = "from windtunnel.core.system.processes import Processes\nimport math\n"
    call += "with Processes(math.sqrt, 2) as two: print(sorted(dict(two.map([1, 4]))))"
    done = site.python("-c", call)
    assert done.stdout == "[0, 1]\n"
    assert done.stderr.count("changed after it was compiled") == 1


def test_undoing_the_edit_makes_the_binaries_fresh_again(site: Site) -> None:
    before = (site.folder / EVENTS).read_bytes()
    edit(site, EVENTS)
    (site.folder / EVENTS).write_bytes(before)
    assert run(site) == ("compiled False as built", "")


def test_a_touched_source_is_still_fresh(site: Site) -> None:
    (site.folder / EVENTS).touch()
    assert run(site) == ("compiled False as built", "")


def test_digests_are_read_only_of_files_that_may_have_changed(site: Site) -> None:
    """Reading them all takes 8 ms of each start."""
    look = (
        "import windtunnel._forms as forms\n"
        "manifest = forms.read_manifest(); root = forms.PACKAGE.parent\n"
        "manifest.stamps = {one: forms.stamp_of(root / one) for one in manifest.sources}\n"
        "forms.digest_of = read = lambda path: seen.append(path.name) or ''\n"
        "seen = []; before = manifest.faults(root)\n"
        "(root / 'windtunnel/core/errors.py').touch()\n"
        "print(before, seen, len(manifest.faults(root)), seen)"
    )
    assert site.python("-c", look).stdout.strip() == "[] ['errors.py'] 1 ['errors.py']"


def test_editing_what_a_compiled_module_imports_counts_too(site: Site) -> None:
    edit(site, "windtunnel/core/errors.py")
    said, warned = run(site)
    assert said == "interpreted True as built"
    assert "windtunnel/core/errors.py changed" in warned


def test_insisting_on_a_stale_form_is_refused_with_a_sentence(site: Site) -> None:
    edit(site, EVENTS)
    done = site.command("doctor", WINDTUNNEL_FORM="compiled")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("windtunnel: WINDTUNNEL_FORM asks for the compiled form, but ")
    assert f"{EVENTS} changed" in done.stderr
    assert done.stderr.count("\n") == 1
    library = site.python("-c", LOOK, WINDTUNNEL_FORM="compiled")
    assert library.returncode == 1
    assert "FormRefused: WINDTUNNEL_FORM asks" in library.stderr


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"modules": 3, "sources": {}}'])
def test_without_a_sound_manifest_no_binary_runs(site: Site, content: str | None) -> None:
    path = site.folder / manifest(site)
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert run(site) == ("interpreted True as built", "")
    refused = site.command("--help", WINDTUNNEL_FORM="compiled")
    assert "nothing was compiled for this Python" in refused.stderr


def test_without_the_library_all_is_interpreted(site: Site) -> None:
    site.only(LIBRARY).unlink()
    said, warned = run(site)
    assert said == "interpreted True as built"
    assert "is missing" in warned


def test_a_library_of_another_build_is_never_loaded(site: Site) -> None:
    library = site.only(LIBRARY)
    name = library.name.removesuffix(BINARY_SUFFIX)
    other = name.replace(name[11:27], "0" * 16)
    library.with_name(other + BINARY_SUFFIX).write_bytes(library.read_bytes())
    done = site.python("-c", f"import windtunnel, {other}")
    assert done.returncode == 1
    assert f"{other} belongs to another build" in done.stderr


def test_a_module_of_the_library_has_one_name(site: Site) -> None:
    look = (
        "import sys, pickle, windtunnel.core.loop as loop\n"
        "same = [n for n, m in sys.modules.items() if m is loop]\n"
        "copy = pickle.loads(pickle.dumps(loop.Clock))\n"
        "print(same, loop.__spec__.name, loop.Clock.__module__, copy)"
    )
    done = site.python("-c", look)
    name = "windtunnel.core.loop"
    assert done.stdout.strip() == f"['{name}'] {name} {name} <class '{name}.Clock'>", done.stderr


def test_the_library_beside_the_package_is_taken_wherever_else_one_is(site: Site) -> None:
    library = site.only(LIBRARY)
    decoy = site.folder / "earlier"
    decoy.mkdir()
    (decoy / library.name).write_bytes(b"not even a library")
    said, _ = run(site, PYTHONPATH=f"{decoy}:{site.folder}")
    assert said == "compiled False as built"


def test_binaries_of_another_python_are_other_files(site: Site) -> None:
    tag = BINARY_SUFFIX.split("-")[1]
    for path in [*site.folder.rglob(f"*{BINARY_SUFFIX}"), site.folder / manifest(site)]:
        path.rename(path.with_name(path.name.replace(f"-{tag}-", "-399-")))
    assert run(site) == ("interpreted True as built", "")


def test_a_left_over_binary_is_never_loaded(site: Site) -> None:
    for name in ("units", "gone"):
        binary = site.package / "core" / (name + BINARY_SUFFIX)
        binary.write_bytes(site.only(LIBRARY).read_bytes())
    done = site.python("-c", "import windtunnel.core.units as units; print(units.__file__)")
    assert done.stdout.strip().endswith("units.py")
    done = site.python("-c", "import windtunnel.core.gone")
    assert "windtunnel.core.gone is a left-over binary without a source" in done.stderr


def test_a_form_that_does_not_exist_is_a_sentence(site: Site) -> None:
    done = site.command("doctor", WINDTUNNEL_FORM="fast")
    assert done.returncode == 2
    allowed = "auto, interpreted, compiled"
    assert done.stderr == f"windtunnel: WINDTUNNEL_FORM is 'fast'; allowed: {allowed}\n"


def test_doctor_tells_how_each_module_really_loaded(site: Site) -> None:
    fresh = json.loads(site.command("doctor", "--json", "-").stdout)
    assert (fresh["form"], fresh["modules"]) == ("compiled", {COMPILED: "compiled"})
    edit(site, EVENTS)
    stale = json.loads(site.command("doctor", "--json", "-").stdout)
    assert (stale["form"], stale["modules"]) == ("interpreted", {COMPILED: "interpreted"})

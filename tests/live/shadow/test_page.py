"""The page of a shadow in a real Chromium: on a screen, on a phone, in the dark, and kept new."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.search.test_forecast import TRUTH, truth

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here"),
]


def row(one: Any) -> str:
    return (
        f'{{"arrived": {one.arrived_s}, "prompt_tokens": {one.prompt_tokens}, "id": "{one.id}", '
        f'"output_tokens": {one.output_tokens}, "ttft": {one.ttft_s}, "e2e": {one.e2e_s}}}\n'
    )


def test_the_page_fits_every_screen_and_renews_itself(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(TRUTH)
    rows = sorted(truth(800), key=lambda one: one.arrived_s + (one.e2e_s or 0.0))
    trace = tmp_path / "trace-000001.jsonl"
    trace.write_text("".join(map(row, rows[:400])))
    command = [sys.executable, "-m", "windtunnel", "shadow", "run", str(tmp_path / "fleet.yaml")]
    command += ["--trace", str(trace), "--past", "1m", "--horizon", "1m", "--tick", "1s"]
    command += ["--other", "a rather long name of a policy: serving.pools.0.replicas=1"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[2].rstrip(",")
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for width, scheme in ((1200, "light"), (420, "light"), (420, "dark")):
                size = {"width": width, "height": 900}
                page = browser.new_page(viewport=size, color_scheme=scheme)
                errors: list[str] = []
                page.on("pageerror", lambda error, said=errors: said.append(str(error)))
                page.goto(url)
                policies = page.locator(".policies tbody tr")
                playwright.expect(policies).to_have_count(2, timeout=30_000)
                assert page.evaluate("document.documentElement.scrollWidth") == width
                assert not errors
            before = page.locator(".sub").inner_text()
            with trace.open("a") as out:
                out.write("".join(map(row, rows[400:])))
            playwright.expect(page.locator(".sub")).not_to_have_text(before, timeout=30_000)
            process.terminate()
            stale = page.locator("#age")
            playwright.expect(stale).to_contain_text("does not answer", timeout=30_000)
            browser.close()
        assert process.wait(20) in (0, 143)

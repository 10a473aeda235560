"""One look at the gangs of a cluster: all caches filled once, and nothing written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from windtunnel.core.clock import unix_s
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Plain
from windtunnel.gangs.status import status_of
from windtunnel.live.kubernetes.client import open_client
from windtunnel.live.kubernetes.config import load_config
from windtunnel.live.operate.mirror import Mirror

LONGEST_S: Final = 30.0


def live_status(kubeconfig: Path | None, context: str, namespace: str) -> dict[str, Plain]:
    """The sets, gangs, pods and nodes of a cluster as `status_of` has them."""
    return asyncio.run(_look(kubeconfig, context, namespace))


async def _look(kubeconfig: Path | None, context: str, namespace: str) -> dict[str, Plain]:
    async with open_client(load_config(kubeconfig, context), name="status") as client:
        mirror = Mirror(client, unix_s, namespace, placing=True)
        await mirror.leave_out_unserved(client)
        tasks = [asyncio.create_task(one.run()) for one in mirror.reflectors.values()]
        try:
            async with asyncio.timeout(LONGEST_S):
                await mirror.wait_synced()
        except TimeoutError:
            failed = {
                kind: str(one.last_error or "no answer")
                for kind, one in mirror.reflectors.items()
                if not one.synced.is_set()
            }
            kind, why = next(iter(failed.items()))
            what = f"the cluster does not list {kind}: {why}"
            raise InputError(what, hint="`windtunnel operate crds` prints its kinds") from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return status_of(mirror.view, unix_s())

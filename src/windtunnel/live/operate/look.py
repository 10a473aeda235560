"""A one-time status of a cluster's gangs: all caches filled once, and nothing written."""

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
from windtunnel.live.kubernetes.errors import KubernetesError, NotFound
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.system import unwrapped

LONGEST_S: Final = 30.0


def live_status(kubeconfig: Path | None, context: str, namespace: str) -> dict[str, Plain]:
    """The status of a cluster in the form of `status_of`, and its invalid sets."""
    return asyncio.run(_look(kubeconfig, context, namespace))


async def _look(kubeconfig: Path | None, context: str, namespace: str) -> dict[str, Plain]:
    config = load_config(kubeconfig, context)
    async with open_client(config, name="status") as client:
        mirror = Mirror(client, unix_s, namespace, placing=True)
        try:
            async with asyncio.timeout(LONGEST_S):
                await mirror.leave_out_unserved(client)
                with unwrapped():
                    async with asyncio.TaskGroup() as tasks:
                        for one in mirror.reflectors.values():
                            tasks.create_task(one.fill())
        except TimeoutError:
            what = f"the API server has not listed everything within {LONGEST_S:g} s"
            raise InputError(what, where=config.server) from None
        except NotFound as error:
            what = f"the cluster does not serve a kind: {error}"
            hint = "`windtunnel operate crds` prints its kinds"
            raise InputError(what, where=config.server, hint=hint) from None
        except KubernetesError as error:
            error.say_of(config.server)
            raise
        invalid: dict[str, Plain] = {name: one.says for name, one in mirror.invalid.items()}
        return {**status_of(mirror.view, unix_s()), "invalid": invalid}

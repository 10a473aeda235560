"""A candidate in a leader election that writes while it leads, for tests that stop it.

    python -m tests.kubernetes.candidate KUBECONFIG NAMESPACE IDENTITY

Each write creates a ConfigMap with the term's epoch; the API server records their order.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

from windtunnel.live.kubernetes.client import open_client
from windtunnel.live.kubernetes.config import load_config
from windtunnel.live.kubernetes.errors import KubernetesError
from windtunnel.live.kubernetes.leader import LeaderElector, Timing
from windtunnel.live.kubernetes.resources import CONFIG_MAPS, Plain

TIMING: Final = Timing(lease_s=3.0, renew_deadline_s=2.4, retry_s=0.3)
WRITE_EVERY_S: Final = 0.03


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    async with open_client(load_config(Path(kubeconfig))) as client:
        elector = LeaderElector(client, namespace, "lease", identity, TIMING)
        writer = client.fenced(elector)
        election = asyncio.create_task(elector.run())
        number = 0
        while not election.done():
            await elector.led.wait()
            number += 1
            name = f"{identity}-{number}"
            meta = {"namespace": namespace, "name": name, "labels": {"windtunnel": "test"}}
            body = {"metadata": meta, "data": {"epoch": str(elector.epoch), "by": identity}}
            try:
                await writer.create(CONFIG_MAPS, body, Plain)
            except KubernetesError:
                continue
            finally:
                await asyncio.sleep(WRITE_EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

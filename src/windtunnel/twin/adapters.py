"""The account of LoRA adapters: what was asked of each, and how that went."""

from typing import Final

from windtunnel.twin.accounts import OTHERS, TenantAccount
from windtunnel.workload.request import Request

MOST_LISTED: Final = 1_000


class AdapterAccounts:
    """Accounts by number; all after the first MOST_LISTED share one. The names may grow."""

    def __init__(self, names: list[str]) -> None:
        self._names: Final = names
        self.accounts: Final[list[TenantAccount]] = []

    def of(self, adapter: int) -> TenantAccount:
        number = min(adapter, MOST_LISTED)
        while len(self.accounts) <= number:
            name = self._names[len(self.accounts)] if len(self.accounts) < MOST_LISTED else OTHERS
            self.accounts.append(TenantAccount(name))
        return self.accounts[number]

    def arrive(self, request: Request) -> None:
        self.of(int(request.adapter)).arrive(request.prompt_tokens + request.output_tokens)

    def complete(self, request: Request, good: int, ttft_s: float, e2e_s: float) -> None:
        account = self.of(int(request.adapter))
        account.complete(request.prompt_tokens, request.output_tokens, good)
        account.ttft.add(ttft_s, 1)
        account.e2e.add(e2e_s, 1)

    def fail(self, request: Request, outcome: str) -> None:
        self.of(int(request.adapter)).fail(outcome)

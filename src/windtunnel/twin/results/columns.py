"""Ended requests as columns: a list per attribute, all filled in one pass.

Requests are spread over memory, so that a pass for each attribute would wait for memory each time.
"""

from windtunnel.workload.request import Request


class RequestColumns:
    """Numbers and times of some requests; a list has the name of its attribute."""

    def __init__(self, requests: list[Request]) -> None:
        self.id: list[int] = []
        self.source: list[int] = []
        self.tenant: list[int] = []
        self.slo: list[int] = []
        self.adapter: list[int] = []
        self.model: list[int] = []
        self.session: list[int] = []
        self.turn: list[int] = []
        self.prompt_tokens: list[int] = []
        self.output_tokens: list[int] = []
        self.media_tokens: list[int] = []
        self.prefix_hit_tokens: list[int] = []
        self.preemptions: list[int] = []
        self.redirects: list[int] = []
        self.retries: list[int] = []
        self.server: list[int] = []
        self.prefill_server: list[int] = []
        self.deadline_s: list[float] = []
        self.arrived_s: list[float] = []
        self.admitted_s: list[float] = []
        self.encoded_s: list[float] = []
        self.restarted_s: list[float] = []
        self.routed_s: list[float] = []
        self.scheduled_s: list[float] = []
        self.prefilled_s: list[float] = []
        self.transfer_start_s: list[float] = []
        self.transfer_end_s: list[float] = []
        self.first_token_s: list[float] = []
        self.finished_s: list[float] = []
        for request in requests:
            self._add(request)

    def _add(self, request: Request) -> None:
        self.id.append(request.id)
        self.source.append(request.source)
        self.tenant.append(request.tenant)
        self.slo.append(request.slo)
        self.adapter.append(request.adapter)
        self.model.append(request.model)
        self.session.append(request.session)
        self.turn.append(request.turn)
        self.prompt_tokens.append(request.prompt_tokens)
        self.output_tokens.append(request.output_tokens)
        self.media_tokens.append(request.media_tokens)
        self.prefix_hit_tokens.append(request.prefix_hit_tokens)
        self.preemptions.append(request.preemptions)
        self.redirects.append(request.redirects)
        self.retries.append(request.retries)
        self.server.append(request.server)
        self.prefill_server.append(request.prefill_server)
        self.deadline_s.append(request.deadline_s)
        self.arrived_s.append(request.arrived_s)
        self.admitted_s.append(request.admitted_s)
        self.encoded_s.append(request.encoded_s)
        self.restarted_s.append(request.restarted_s)
        self.routed_s.append(request.routed_s)
        self.scheduled_s.append(request.scheduled_s)
        self.prefilled_s.append(request.prefilled_s)
        self.transfer_start_s.append(request.transfer_start_s)
        self.transfer_end_s.append(request.transfer_end_s)
        self.first_token_s.append(request.first_token_s)
        self.finished_s.append(request.finished_s)

"""The decoding requests of a server as one group: many steps pass at the cost of one.

While the set does not change, each member gains one token per step. How many blocks that takes,
and when the first member ends, follows from a few numbers:

    clock       decode steps planned so far; a member's `computed` is its offset plus the clock
    context     the sum of the members' `computed`
    residues    how many need a new block at each value of the clock modulo the block size
    a heap      of the clock at which each member ends
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.workload.request import Request


class Decoding:
    """The set of decoding requests, and what its next steps need."""

    def __init__(self, block_size: int) -> None:
        self._size: Final[i64] = block_size
        self.clock: i64 = 0
        self.count: i64 = 0
        self.context: i64 = 0
        self._residues: list[int] = [0] * block_size
        self._ends: Final[list[Request]] = []

    def join(self, request: Request) -> None:
        """Adds a request, from the next step on."""
        request.offset = request.computed - self.clock
        request.finish_clock = request.last - request.offset
        self.count += 1
        self.context += request.computed
        phase = request.offset % self._size
        needing: i64 = self._residues[phase]  # += would add them as objects
        self._residues[phase] = needing + 1
        self._ends.append(request)
        self._rise(len(self._ends) - 1, request)

    def _count_out(self, request: Request) -> None:
        self.count -= 1
        self.context -= request.computed
        phase = request.offset % self._size
        needing: i64 = self._residues[phase]
        self._residues[phase] = needing - 1
        request.finish_clock = -1

    def pass_steps(self, steps: i64, ended: list[Request]) -> None:
        """Advances by some steps; members that end with the last one leave, in order of
        admission."""
        self.clock += steps
        self.context += self.count * steps
        ends = self._ends
        while ends and ends[0].finish_clock <= self.clock:
            request = ends[0]
            moved = ends.pop()
            if moved is not request:
                self._sink(0, moved)
            request.computed = request.last
            self._count_out(request)
            ended.append(request)

    def leave(self, request: Request) -> None:
        """Removes a request that will not be computed to its end."""
        request.computed = request.offset + self.clock
        self._count_out(request)
        place: i64 = 0
        while self._ends[place] is not request:
            place += 1
        moved = self._ends.pop()
        if moved is not request:
            self._sink(place, moved)
            self._rise(place, self._ends[place])

    def dissolve(self) -> None:
        """Restores every member's own `computed`, and leaves the set empty."""
        for request in self._ends:
            request.computed = request.offset + self.clock
        self._ends.clear()
        self._residues = [0] * self._size
        self.count = 0
        self.context = 0

    def steps_to_first_end(self) -> i64:
        return self._ends[0].finish_clock - self.clock

    def needs_block(self, request: Request) -> bool:
        """Whether a member needs a new block in the next step."""
        return (request.offset + self.clock) % self._size == 0

    def blocks_for_next(self) -> i64:
        """New blocks that the members need in the next step."""
        return self._residues[(-self.clock) % self._size]

    def blocks_for(self, steps: i64) -> i64:
        """New blocks that the members need over the next steps."""
        cycles = steps // self._size
        blocks = cycles * self.count
        phase = (-self.clock) % self._size
        for _ in range(steps - cycles * self._size):
            blocks += self._residues[phase]
            phase = phase - 1 if phase > 0 else self._size - 1
        return blocks

    def affordable(self, steps: i64, free: i64) -> i64:
        """The most steps, up to `steps`, for which the free blocks suffice."""
        if steps // self._size * self.count + self.count <= free or self.blocks_for(steps) <= free:
            return steps
        cycles = free // self.count
        free -= cycles * self.count
        passed = cycles * self._size
        phase = (-self.clock) % self._size
        while passed < steps:
            free -= self._residues[phase]
            if free < 0:
                break
            passed += 1
            phase = phase - 1 if phase > 0 else self._size - 1
        return passed

    # A binary heap, written out: compiled, comparing two numbers in place beats comparing tuples.

    def _rise(self, place: i64, request: Request) -> None:
        heap = self._ends
        clock = request.finish_clock
        admission = request.admission
        while place > 0:
            above = (place - 1) >> 1
            parent = heap[above]
            if parent.finish_clock < clock or (
                parent.finish_clock == clock and parent.admission < admission
            ):
                break
            heap[place] = parent
            place = above
        heap[place] = request

    def _sink(self, place: i64, moved: Request) -> None:
        heap = self._ends
        size: i64 = len(heap)
        clock = moved.finish_clock
        admission = moved.admission
        child = 2 * place + 1
        while child < size:
            least = heap[child]
            if child + 1 < size:
                other = heap[child + 1]
                if other.finish_clock < least.finish_clock or (
                    other.finish_clock == least.finish_clock and other.admission < least.admission
                ):
                    least = other
                    child += 1
            if clock < least.finish_clock or (
                clock == least.finish_clock and admission < least.admission
            ):
                break
            heap[place] = least
            place = child
            child = 2 * place + 1
        heap[place] = moved

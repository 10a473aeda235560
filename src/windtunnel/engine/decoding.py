"""The decoding requests of a server as one group: many steps pass at the cost of one.

While the set does not change, each member gains one token per step. How many blocks that takes,
and when the first member ends, follows from a few numbers:

    clock       decode steps planned so far; a member's `computed` is its offset plus the clock
    context     the sum of the members' `computed`
    residues    how many need a new block at each value of the clock modulo the block size
    a list      of the members in the order of their ends, the next end last
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
        # Sorted, not a heap: members are spread over memory, and inserting one looks at a few.
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
        self._ends.insert(self._place(request), request)

    def _place(self, request: Request) -> i64:
        """The place of a request among the members: after all that end later."""
        ends = self._ends
        clock = request.finish_clock
        admission = request.admission
        low: i64 = 0
        high: i64 = len(ends)
        while low < high:
            middle = (low + high) >> 1
            other = ends[middle].finish_clock
            if other > clock or (other == clock and ends[middle].admission > admission):
                low = middle + 1
            else:
                high = middle
        return low

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
        while ends and ends[-1].finish_clock <= self.clock:
            request = ends.pop()
            request.computed = request.last
            self._count_out(request)
            ended.append(request)

    def leave(self, request: Request) -> None:
        """Removes a request that will not be computed to its end."""
        place = self._place(request)
        assert self._ends[place] is request
        self._ends.pop(place)
        request.computed = request.offset + self.clock
        self._count_out(request)

    def dissolve(self) -> None:
        """Restores every member's own `computed`, and leaves the set empty."""
        for request in self._ends:
            request.computed = request.offset + self.clock
        self._ends.clear()
        self._residues = [0] * self._size
        self.count = 0
        self.context = 0

    def steps_to_first_end(self) -> i64:
        return self._ends[-1].finish_clock - self.clock

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

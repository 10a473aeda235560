"""A learned rate of starts, and the share of calls that is refused at random, at any rate.

A refusal is either random, and equally frequent at any rate, or due to a limit, and goes away below
it. No single answer tells which, but the refusal share at two rates does. So while refusals are
few, starts are not paced. When they exceed the tolerated or known share (by a cumulative sum), a
*trial* slows starts to three quarters of what got through, and a sequential likelihood ratio test
compares two explanations of the result: the same share as before, or almost none, as below a limit.
If refusals are random, their share is remembered and starts are free again. If there is a limit,
starts are paced.

A pace proceeds in *blocks*, alternately slightly faster and slightly slower than its rate. A block
ends early if more is refused than random refusals explain, which reduces the rate; fast blocks that
hold increase it, twice as much each time. A limit is thus hit about once in a hundred starts. Now
and then a block is well below the rate, and its refusals are random; or, where there are random
refusals, far above it.

A run of refusals that chance would bring once in ten thousand starts, and hardly once among all
starts since the last run, means that the provider takes nothing now: its window is used up, or it
is down. What got through since the previous run, divided by that time, is the rate of the limit,
whatever its window, or less than that if much of the time was spent waiting. The outcome of a start
is known once a refusal would have come back: nothing waits for answers.
"""

import math
from collections import deque
from typing import Final

NEVER: Final = float("inf")

# Evidence.
TOLERATED: Final = 0.04
"""The refusal share that has no consequence; the target is 5 %."""
_SUSPECTED: Final = 0.12
"""The refusal share that the cumulative sum tests for: three times the tolerated one."""
_SURE: Final = math.log(20.0)
"""The log likelihood ratio that ends a trial: wrong once in twenty."""
_DOUBTED: Final = 3.0 * _SURE
"""The sum that begins a trial: at 4 % reached by chance once in 100,000 starts."""
_RARE: Final = math.log(1e-4)
"""Largest log probability, by chance, of a run of refusals that stops everything."""
_RARE_AMONG: Final = math.log(0.001)
"""Largest log probability of any such run among all starts since the last one."""
_CLEAN: Final = 0.01
"""The refusal share below a limit without random refusals: no clock is perfect."""
_CHANCE_MAX: Final = 0.5
"""A larger share is not taken as random: calling faster would gain little."""
_FAR_ABOVE: Final = 0.3
"""If more than this share is refused in a trial, its rate was far above the limit, and it says
nothing about random refusals."""
_PRIOR_STARTS: Final = 20.0
_PRIOR_REFUSALS: Final = 1.0
"""The prior: 5 % refused, with the weight of 20 starts."""
_GUESS_STARTS: Final = 24.0
_TRIAL_STARTS: Final = 50.0
"""The fewest starts that show that a rate is too high, and that determine a random share."""
_COUNTED: Final = 256.0
"""The starts remembered for shares and rates; beyond that, all counts are halved."""
_SHARE_GAIN: Final = 1.0 / 64.0
"""The recent refusal share covers about 64 starts."""

# Time: providers allow bursts of up to a second's worth, and count by up to a minute.
_MEMORY_S: Final = 1.0
"""When a trial begins to count: a one-second window is full of earlier starts."""
_BURST_S: Final = 4.0
"""A rate measured for this long is at most a quarter too high, whatever the burst; a trial at three
quarters of it is below the limit, and one a quarter above the limit is refused."""
_KNOWN: Final = 50
_LONG_S: Final = 10.0
"""If this many starts got through between two runs of refusals this far apart, their rate is the
limit."""
_LEAST_PER_S: Final = 1.0 / 60.0
"""A pace is at least one start per longest window."""
_LATE_S: Final = 0.002
"""How late a start may be without delaying the next: about the lateness of timers."""

# Moves.
_SLOWER: Final = 0.75
"""Rate of a trial relative to what got through: well below the limit, and a small loss if there is
none."""
_APART: Final = 0.01
"""Fraction by which a pace alternates above and below its rate."""
_GAIN: Final = 0.02
"""Reduction of the rate for one refusal too many."""
_GROWTH: Final = 0.5
"""Growth per two blocks, in units of the gain: every other block at the faster rate is refused."""
_DOUBLINGS_MAX: Final = 6
_FIRST_DOUBLINGS: Final = 3
"""Doublings of the growth, one with each fast block that holds: the most, and the first value where
the rate is a guess."""
_BLOCK_STARTS: Final = 25.0
_BLOCK_S: Final = 2.0
"""Least length of a block: twice what a provider remembers."""
_BLOCKS_MORE: Final = 30.0
"""Extra length of a block per share of random refusals, which have to be told apart."""
_SURPRISE: Final = 0.9
"""Refusals beyond the random ones that end a block."""
_EARLY: Final = 6.0
_EARLY_MAX: Final = 4
"""Consecutive blocks that end within this few starts reduce the rate twice as much each time, up to
a maximum."""
_FIRST_STARTS: Final = 8.0
"""Length of a block, in starts, while the growth is doubled at least `_FIRST_DOUBLINGS` times."""
_BELOW: Final = 0.06
_DEEP_AFTER: Final = 2
"""After this many slow blocks one is this far below the rate, plus the share of random refusals."""
_CHANCE_STARTS: Final = 200.0
"""The weight, in starts, of what is known of random refusals."""
_NONE: Final = 2.0
"""If this many random refusals were expected and none was seen, their share is lower."""
_CHANCE_GROWTH: Final = 30.0
_CHANCE_GROWTH_MAX: Final = 1.5
"""Where random refusals end blocks early, growth is larger by this many times their share, up to a
maximum."""
_FAR: Final = 0.25
_FAR_AFTER: Final = 4
_FAR_AFTER_MAX: Final = 64
"""Where some refusals are random, one block in this many is far faster; after each that was
refused, half as often."""
_LEFT: Final = 0.5
_FOUND_LEFT: Final = 0.9
"""The least that a run of refusals leaves of a pace: at first, and once the limit was found."""
_WAITED_PART: Final = 0.3
"""If more of the time was spent waiting, runs are expensive, and the first of the two applies."""

_FREE: Final = 0
_TRIAL: Final = 1
_PACED: Final = 2
_KEPT: Final = 3

_LOW: Final = 0
_HIGH: Final = 1
_FAR_BLOCK: Final = 2
_DEEP: Final = 3


class Pace:
    """Maximum starts per second; infinity: no limit."""

    def __init__(self) -> None:
        self.per_s = NEVER
        self.next_s = 0.0
        self.chance = 0.0
        """The share of starts that is refused at any rate, as far as is known."""
        self.share = TOLERATED
        """The share of recent starts that was refused."""
        self._state = _FREE
        self._patience_s = 0.0
        self._is_used = False
        self._pending: Final[deque[float]] = deque()
        self._sum = 0.0
        self._weight_start = 0.0
        self._weight_refusal = 0.0
        self._starts = 0.0
        self._refusals = 0.0
        self._since_s = 0.0
        self._counted_from_s = 0.0
        self._best_per_s = 0.0
        self._is_guess = False
        """Whether the rate on trial comes from a burst and may be far too high."""
        self._before_starts = self._before_refusals = 0.0
        self._base_per_s = NEVER
        self._held_per_s = 0.0
        self._block = _LOW
        self._block_used = 0.0
        self._early = 0
        self._doublings = 0
        self._deep_in = _DEEP_AFTER
        self._far_after = _FAR_AFTER
        self._far_in = _FAR_AFTER
        self._through = 0
        self._through_since_s = 0.0
        self._waited_s = 0.0
        self._suspect()

    @property
    def run(self) -> int:
        """The number of consecutive refusals that is more than chance, by the recent refusal share.

        Chance brings any run, given enough starts: the more starts, the longer the run must be.
        """
        rare = min(_RARE, _RARE_AMONG - math.log(max(1, self._through)))
        return max(3, math.ceil(rare / math.log(max(self.chance, self.share, TOLERATED))))

    def start(self, now: float, refusal_s: float) -> None:
        """Records a start; a refusal would be known after about `refusal_s`."""
        self._patience_s = 1.2 * refusal_s
        self._through += 1
        self.share -= _SHARE_GAIN * self.share
        self._is_used = (now - self.next_s) * self.per_s < 0.5
        if now >= self._counted_from_s:
            self._pending.append(now)
        self._settle(now)
        if self.per_s < NEVER:
            gap_s = 1.0 / self.per_s
            self.next_s = max(self.next_s, now - min(gap_s, _LATE_S)) + gap_s

    def space(self, next_s: float) -> None:
        """Lets nothing start before `next_s`."""
        self.next_s = max(self.next_s, next_s)

    def idle(self, for_s: float) -> None:
        """Excludes time without demand, which says nothing about a rate."""
        self._since_s += for_s
        self._through_since_s += for_s

    def forgive(self) -> None:
        """Takes back the count of a start that was refused for any reason."""
        self._through -= 1

    def refuse(self, at_s: float, now: float) -> None:
        """Records a start that was refused for its rate, or at random."""
        # Earlier starts would have been refused earlier.
        self._settle(now, at_s)
        self.share += _SHARE_GAIN
        if at_s < self._counted_from_s:
            return
        self._refusals += 1.0
        if self._state == _PACED:
            self._judge_block(now)
            return
        self._sum += self._weight_refusal - self._weight_start
        if self._state == _TRIAL:
            self._judge(now)
        elif self._sum >= _DOUBTED:
            self._suspect()
            self._try_slower(now)

    def stop(self, now: float, resumes_s: float) -> None:
        """Handles a run of refusals: what got through since the last one is the rate of the limit.

        This is a lower bound: during the wait, a limit without a burst would have let more through.
        """
        elapsed_s = now - self._through_since_s
        if self._state == _KEPT:
            self._through, self._through_since_s = 0, now
            return
        if self._through <= 0 or elapsed_s <= 0.0:
            self._waited_s += max(0.0, resumes_s - now)
            return
        per_s = self._through / elapsed_s
        is_known = self._state == _PACED or (elapsed_s >= _LONG_S and self._through >= _KNOWN)
        if self._state != _FREE:
            per_s = self._bounded(per_s, now)
        self._pending.clear()
        if is_known:
            self.pace_at(per_s, resumes_s)
        else:
            share = max(self._known_share(), self.chance + TOLERATED)
            self._begin_trial(per_s, share, resumes_s, is_guess=True)
        self._through, self._through_since_s = 0, now
        self._waited_s = max(0.0, resumes_s - now)

    def _bounded(self, per_s: float, now: float) -> float:
        """Bounds a new estimate of the limit near the current one, as it may be from few starts."""
        if self._state == _PACED and self._held_per_s > 0.0:
            held_per_s, self._held_per_s = self._held_per_s, 0.0
            return min(self._base_per_s, max(held_per_s, per_s))
        was_per_s = self._best_per_s if self._state == _TRIAL else self._base_per_s
        is_found = self._state == _PACED and self._doublings == 0
        if self._waited_s > _WAITED_PART * (now - self._through_since_s):
            is_found = False
        if is_found:
            return max(_FOUND_LEFT * was_per_s, min(was_per_s, per_s))
        # The rate outside of waits is above the limit.
        awake_s = max(1e-6, now - self._through_since_s - self._waited_s)
        least_per_s = min(_LEFT * was_per_s, self._through / awake_s)
        return max(least_per_s, min(was_per_s, per_s))

    def pace_at(self, per_s: float, now: float, doublings: int = 0) -> None:
        """Paces starts at a rate, and searches for a better one."""
        self._state = _PACED
        self._base_per_s = self._best_per_s = max(_LEAST_PER_S, per_s)
        self._doublings = doublings
        self._begin_block(_LOW, now, now)

    def keep(self, per_s: float) -> None:
        """Paces starts at a known rate."""
        self._state = _KEPT
        self._counted_from_s = NEVER
        self.per_s = self._base_per_s = self._best_per_s = per_s
        self._pending.clear()

    def drop(self, now: float) -> None:
        """Removes the pace."""
        self._state = _FREE
        self._counted_from_s = 0.0
        self.per_s = NEVER
        self.next_s = 0.0
        self._suspect()
        self._count_anew(now)

    # Counting of starts whose refusal would be known by now.

    def _settle(self, now: float, until_s: float = 0.0) -> None:
        pending, known_s = self._pending, max(until_s, now - self._patience_s)
        while pending and pending[0] <= known_s:
            pending.popleft()
            self._starts += 1.0
            if self._state == _PACED:
                if self._is_used:
                    self._block_used += 1.0
                self._judge_block(now)
            else:
                self._sum += self._weight_start
                if self._state == _TRIAL:
                    self._judge(now)
                else:
                    self._watch(now)

    def _watch(self, now: float) -> None:
        self._sum = max(0.0, self._sum)
        if self._starts >= _COUNTED:
            share = self._refusals / self._starts
            if share < self.chance:
                self.chance = share
                self._suspect()
            self._halve(now)

    def _halve(self, now: float) -> None:
        if now - self._since_s < 2.0 * _BURST_S:
            return
        self._starts *= 0.5
        self._refusals *= 0.5
        self._since_s = 0.5 * (now + self._since_s)

    def _begin_block(self, block: int, counted_from_s: float, now: float) -> None:
        """Begins a block at another rate; earlier starts do not count."""
        self._block = block
        below = min(0.5, _BELOW + self.chance)
        more = (-_APART, _APART, _FAR, -below)[block]
        self.per_s = self._base_per_s * (1.0 + more)
        self._counted_from_s = counted_from_s
        self._block_used = 0.0
        self._pending.clear()
        self._count_anew(max(counted_from_s, now))

    def _judge_block(self, now: float) -> None:
        """Ends a block that is long enough, or in which more is refused than chance explains."""
        excess = self._refusals - self.chance * self._starts
        is_far = self._block == _FAR_BLOCK
        least = _BLOCK_STARTS * (1.0 + _BLOCKS_MORE * self.chance)
        least_s = 2.0 * _BURST_S if is_far else _BLOCK_S
        if self._doublings >= _FIRST_DOUBLINGS:
            least, least_s = _FIRST_STARTS, _MEMORY_S
        noise = 1.0 + math.sqrt(self.chance * max(least, self.per_s * least_s))
        is_refused = excess >= _SURPRISE * (2.0 if is_far else 1.0) * noise
        span_s = now - self._patience_s - self._since_s
        if not is_refused and (self._starts < least or span_s < least_s):
            return
        self._end_block(excess / noise, is_refused=is_refused)
        if self._block == _LOW and is_refused:
            self._deep_in = 0
        is_low = self._block in (_LOW, _DEEP)
        block = _HIGH if is_low or self._doublings >= _FIRST_DOUBLINGS else _LOW
        if block == _LOW:
            self._deep_in -= 1
            if self._deep_in < 0:
                self._deep_in = _DEEP_AFTER
                block = _DEEP
        if block == _HIGH and self.chance > _CLEAN:
            self._far_in -= 1
            if self._far_in <= 0:
                self._far_in = self._far_after
                block = _FAR_BLOCK
        self._begin_block(block, now + _MEMORY_S if is_refused else now, now)

    def _end_block(self, excess: float, *, is_refused: bool) -> None:
        """Moves the rate by the result of a block, if the block was used."""
        if self._block_used < 0.5 * self._starts:
            return
        if self._block == _FAR_BLOCK:
            if is_refused:
                self._far_after = min(_FAR_AFTER_MAX, 2 * self._far_after)
            else:
                self._far_after = self._far_in = 1
                self._base_per_s *= 1.0 + _FAR
            return
        growth = _GAIN * _GROWTH * (1.0 + min(_CHANCE_GROWTH_MAX, _CHANCE_GROWTH * self.chance))
        step = -_GAIN * max(-1.0, excess)
        if is_refused and self._starts < _EARLY:
            self._early = min(_EARLY_MAX, self._early + 1)
            step *= 2.0 ** (self._early - 1)
        else:
            self._early = 0
        if self._block != _HIGH:
            share = self._refusals / max(self._starts, _BLOCK_STARTS)
            gain = self._starts / (self._starts + _CHANCE_STARTS)
            is_none = self._refusals == 0.0 and self.chance * self._starts > _NONE
            if self._block == _DEEP or is_none:
                self.chance += gain * (share - self.chance)
        elif is_refused:
            if self._doublings > 0 and self._held_per_s > 0.0:
                self._base_per_s = self._held_per_s
            self._doublings = 0
            step += growth
        else:
            self._held_per_s = self._base_per_s
            step += growth * 2.0**self._doublings
            self._doublings = min(_DOUBLINGS_MAX, self._doublings + 1)
        self._base_per_s = max(_LEAST_PER_S, self._base_per_s * (1.0 + step))

    def _known_share(self) -> float:
        return (self._refusals + _PRIOR_REFUSALS) / (self._starts + _PRIOR_STARTS)

    def _suspect(self) -> None:
        """Starts testing for more refusals than are tolerated."""
        tolerated, suspected = self.chance + TOLERATED, self.chance + _SUSPECTED
        self._sum = 0.0
        self._weight_refusal = math.log(suspected / tolerated)
        self._weight_start = math.log((1.0 - suspected) / (1.0 - tolerated))

    def _try_slower(self, now: float) -> None:
        """Begins a trial, or paces at once if more than half were refused."""
        share = self._known_share()
        through = max(1.0, self._starts - self._refusals)
        per_s = through / max(1e-6, now - self._since_s)
        is_guess = now - self._since_s < _BURST_S
        if self._state == _TRIAL:
            is_guess = is_guess or share > _FAR_ABOVE
            per_s = min(per_s, self._best_per_s)
        if share > _CHANCE_MAX:
            self.pace_at(per_s, now, _FIRST_DOUBLINGS)
            return
        self._before_starts, self._before_refusals = self._starts, self._refusals
        share = max(share, self.chance + TOLERATED)
        self._begin_trial(per_s, share, now, is_guess=is_guess)

    def _begin_trial(self, per_s: float, share: float, now: float, *, is_guess: bool) -> None:
        self._best_per_s = per_s
        self._state = _TRIAL
        self._is_guess = is_guess
        self.per_s = max(_LEAST_PER_S, _SLOWER * per_s)
        self.space(now + 1.0 / self.per_s)
        self._sum = 0.0
        below = _CLEAN + 0.5 * self.chance
        self._weight_refusal = math.log(below / share)
        self._weight_start = math.log((1.0 - below) / (1.0 - share))
        self._pending.clear()
        self._counted_from_s = now if is_guess else now + _MEMORY_S
        self._count_anew(self._counted_from_s)

    def _judge(self, now: float) -> None:
        """Ends a trial when one explanation is twenty times as likely as the other."""
        is_load = self._sum >= _SURE
        if not is_load:
            if self._sum > -_SURE:
                return
            is_clear = self._refusals > _FAR_ABOVE * max(_GUESS_STARTS, self._starts)
            if self._refusals <= (self.chance + TOLERATED) * self._starts:
                self._is_guess = False  # no more than tolerated, so not above a limit
            if self._is_guess:
                is_enough = self._starts >= _GUESS_STARTS and now - self._since_s >= _BURST_S
            else:
                is_enough = self._starts >= _TRIAL_STARTS
            if not (is_enough or is_clear):
                return
            if self._is_guess:
                self._try_slower(now)
                return
        if is_load:
            self.chance = self._refusals / (self._starts + _PRIOR_STARTS)
            self.pace_at(self._best_per_s, now, _FIRST_DOUBLINGS)
            return
        refusals, starts = self._refusals + self._before_refusals, self._starts
        self.chance = min(_CHANCE_MAX, refusals / (starts + self._before_starts))
        self.drop(now)

    def _count_anew(self, now: float) -> None:
        self._starts = self._refusals = 0.0
        self._since_s = now

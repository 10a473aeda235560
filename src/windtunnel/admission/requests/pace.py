"""A learned rate of starts, and the share of calls that is refused whatever the rate.

A refusal is either chance, and comes as often at any rate, or it is a limit, and goes away below
it. No single answer says which; the share of refusals at two rates does. So while refusals are few,
starts are free. When they become more than was tolerated or known (a cumulative sum), a *trial*
slows starts to three quarters of what got through, and a sequential likelihood ratio test compares
two explanations of what comes back: the same share as before, or next to none, as below a limit. If
it is chance, its share is remembered and starts are free again. If it is a limit, starts are paced.

A pace goes on in *blocks*, in turn a little faster and a little slower than its rate. A block ends
early with more refusals than chance explains, and that takes something off the rate; fast blocks
that hold add to it, twice as much each time. So a limit is met once in about a hundred starts. Now
and then a block is well below the rate, and what is refused there is chance; or, where there is
chance, far above it.

A run of refusals that chance would bring once in ten thousand starts, and hardly once in all since
the last one, says that the provider takes nothing now: its window is used up, or it is down. What
got through since the run before it, over that time, is the rate of the limit, whatever its window;
or less, where it waited for long.
What came of a start is known when a refusal would have come back: nothing waits for answers.
"""

import math
from collections import deque
from typing import Final

NEVER: Final = float("inf")

# Evidence.
TOLERATED: Final = 0.04
"""The share that is refused without consequence: the target is 5 of 100."""
_SUSPECTED: Final = 0.12
"""The share that the cumulative sum looks for: three times what is tolerated."""
_SURE: Final = math.log(20.0)
"""The likelihood ratio that ends a trial: wrong once in twenty."""
_DOUBTED: Final = 3.0 * _SURE
"""The sum that begins one: at 4 % by chance once in a hundred thousand starts."""
_RARE: Final = math.log(1e-4)
"""How likely a run of refusals is by chance at most, if it stops everything."""
_RARE_AMONG: Final = math.log(0.001)
"""How likely any such run is among all starts since the last one."""
_CLEAN: Final = 0.01
"""The share of refusals below a limit without chance: no clock is perfect."""
_CHANCE_MAX: Final = 0.5
"""More than half refused is not taken for chance: calling faster would gain little."""
_FAR_ABOVE: Final = 0.3
"""So many refused in a trial, and its rate was far above the limit: it says nothing of chance."""
_PRIOR_STARTS: Final = 20.0
_PRIOR_REFUSALS: Final = 1.0
"""What is believed before anything is seen: 5 %, with the weight of 20 starts."""
_GUESS_STARTS: Final = 24.0
_TRIAL_STARTS: Final = 50.0
"""The least that tells that a rate is too high, and the least that tells a share of chance."""
_COUNTED: Final = 256.0
"""So many starts are remembered for shares and rates; then all counts are halved."""
_SHARE_GAIN: Final = 1.0 / 64.0
"""The recent refusal share is that of about 64 starts."""

# Time: providers allow bursts of up to a second's worth, and count by up to a minute.
_MEMORY_S: Final = 1.0
"""A trial counts from then on: a window of a second is full of what was sent before."""
_BURST_S: Final = 4.0
"""A rate measured for so long is at most a quarter too high, whatever the burst; a trial at three
quarters of it is below the limit, and one a quarter above the limit is refused."""
_KNOWN: Final = 50
_LONG_S: Final = 10.0
"""So many that got through from one run of refusals to the next, this much later, are the limit."""
_LEAST_PER_S: Final = 1.0 / 60.0
"""A pace is at least one start in the longest window."""
_LATE_S: Final = 0.002
"""How late a start may be without delaying the next: timers are late by about that."""

# Moves.
_SLOWER: Final = 0.75
"""Of what got through, in a trial: well below the limit, and a small loss if there is none."""
_APART: Final = 0.01
"""A pace alternates between a little more and a little less than its rate, by this part."""
_GAIN: Final = 0.02
"""What a refusal too many takes off the rate."""
_GROWTH: Final = 0.5
"""What two blocks give back, in such steps: every other block at the faster rate is refused."""
_DOUBLINGS_MAX: Final = 6
_FIRST_DOUBLINGS: Final = 3
"""The climb doubles with each fast block that holds; from here on where the rate is a guess."""
_BLOCK_STARTS: Final = 25.0
_BLOCK_S: Final = 2.0
"""A block is at least so long: twice what a provider remembers."""
_BLOCKS_MORE: Final = 30.0
"""It is longer by so many times the share of chance, which is to be told apart."""
_SURPRISE: Final = 0.9
"""So many refusals more than by chance end a block."""
_EARLY: Final = 6.0
_EARLY_MAX: Final = 4
"""Blocks that end within so few starts, one after another, take off twice as much each time."""
_FIRST_STARTS: Final = 8.0
"""The length of a block, while the climb has doubled so often."""
_BELOW: Final = 0.06
_DEEP_AFTER: Final = 2
"""After so many slow blocks one is so far below the rate; further by the share of chance."""
_CHANCE_STARTS: Final = 200.0
"""What is known of chance has the weight of so many starts."""
_NONE: Final = 2.0
"""So many refusals expected by chance and none seen: the share is lower."""
_CHANCE_GROWTH: Final = 30.0
_CHANCE_GROWTH_MAX: Final = 1.5
"""Where chance ends blocks early, more is given back, by so many times its share."""
_FAR: Final = 0.25
_FAR_AFTER: Final = 4
_FAR_AFTER_MAX: Final = 64
"""Where some are refused by chance, every so many blocks one is far faster; after each that was
refused, half as often."""
_LEFT: Final = 0.5
_FOUND_LEFT: Final = 0.9
"""What a run of refusals leaves of a pace at least: first, and once the limit was found."""
_WAITED_PART: Final = 0.3
"""Where more of the time was spent waiting, runs are dear, and the first of the two holds."""

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
        """Whether the rate on trial is from a burst, and may be far too high."""
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
        """So many refused one after another are more than chance, by the recent refusal share.

        Chance brings every run, given enough starts: the more of them, the longer it has to be.
        """
        rare = min(_RARE, _RARE_AMONG - math.log(max(1, self._through)))
        return max(3, math.ceil(rare / math.log(max(self.chance, self.share, TOLERATED))))

    def start(self, now: float, refusal_s: float) -> None:
        """A request starts; a refusal would be known after about `refusal_s`."""
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
        """Lets nothing start before then."""
        self.next_s = max(self.next_s, next_s)

    def idle(self, for_s: float) -> None:
        """Nothing wanted to start for so long; that time says nothing of a rate."""
        self._since_s += for_s
        self._through_since_s += for_s

    def forgive(self) -> None:
        """A start was refused, whatever for."""
        self._through -= 1

    def refuse(self, at_s: float, now: float) -> None:
        """A start was refused for its rate, or by chance."""
        # Those that started before it would have been refused before it.
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
        """A run of refusals: what got through since the last one is the rate of the limit.

        At least: while it waited, a limit without a burst would have let more through.
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
        """A new estimate of the limit, not far below the one in use: it may be from few starts."""
        if self._state == _PACED and self._held_per_s > 0.0:
            held_per_s, self._held_per_s = self._held_per_s, 0.0
            return min(self._base_per_s, max(held_per_s, per_s))
        was_per_s = self._best_per_s if self._state == _TRIAL else self._base_per_s
        is_found = self._state == _PACED and self._doublings == 0
        if self._waited_s > _WAITED_PART * (now - self._through_since_s):
            is_found = False
        if is_found:
            return max(_FOUND_LEFT * was_per_s, min(was_per_s, per_s))
        # What got through in the time that was not spent waiting is more than the limit.
        awake_s = max(1e-6, now - self._through_since_s - self._waited_s)
        least_per_s = min(_LEFT * was_per_s, self._through / awake_s)
        return max(least_per_s, min(was_per_s, per_s))

    def pace_at(self, per_s: float, now: float, doublings: int = 0) -> None:
        """Spaces starts by a rate, and looks for a better one."""
        self._state = _PACED
        self._base_per_s = self._best_per_s = max(_LEAST_PER_S, per_s)
        self._doublings = doublings
        self._begin_block(_LOW, now, now)

    def keep(self, per_s: float) -> None:
        """Spaces starts by a rate that is known."""
        self._state = _KEPT
        self._counted_from_s = NEVER
        self.per_s = self._base_per_s = self._best_per_s = per_s
        self._pending.clear()

    def drop(self, now: float) -> None:
        """Starts are free."""
        self._state = _FREE
        self._counted_from_s = 0.0
        self.per_s = NEVER
        self.next_s = 0.0
        self._suspect()
        self._count_anew(now)

    # What follows counts starts whose answer would be known if it were a refusal.

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
        """Starts are at another rate; those made before do not count."""
        self._block = block
        below = min(0.5, _BELOW + self.chance)
        more = (-_APART, _APART, _FAR, -below)[block]
        self.per_s = self._base_per_s * (1.0 + more)
        self._counted_from_s = counted_from_s
        self._block_used = 0.0
        self._pending.clear()
        self._count_anew(max(counted_from_s, now))

    def _judge_block(self, now: float) -> None:
        """Ends a block when it is long enough, or when more are refused than chance explains."""
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
        """Moves the rate by what a block has shown, if it was used."""
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
        """Begins to look for more refusals than are tolerated."""
        tolerated, suspected = self.chance + TOLERATED, self.chance + _SUSPECTED
        self._sum = 0.0
        self._weight_refusal = math.log(suspected / tolerated)
        self._weight_start = math.log((1.0 - suspected) / (1.0 - tolerated))

    def _try_slower(self, now: float) -> None:
        """Begins a trial; more than half refused needs none."""
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
                self._is_guess = False  # no more than is tolerated: not above a limit, if any
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

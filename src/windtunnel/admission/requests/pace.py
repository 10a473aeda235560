"""A learned rate of starts, and the share of calls that is refused whatever the rate.

A refusal is either chance, and comes as often at any rate, or it is a limit, and goes away below
it. No single answer says which; the share of refusals at two rates does. So while refusals are few,
starts are free. When they become more than was tolerated or known (a cumulative sum), a *trial*
slows starts to three quarters of what got through, and a sequential likelihood ratio test compares
two explanations of what comes back: the same share as before, or next to none, as below a limit. If
it is chance, its share is remembered and starts are free again. If it is a limit, starts are paced:
the rate steps back with each refusal and climbs in between, so that in balance 2 of 100 more than
by chance are refused; while none are, the climb doubles. Now and then a trial upwards asks the same
of a faster rate: is as large a share refused, or all that is more?

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
_PACED_PART: Final = 1.0 / 3.0
"""Of both, where there is a pace: it should leave few refusals."""
_SURE: Final = math.log(20.0)
"""The likelihood ratio that ends a trial: wrong once in twenty."""
_DOUBTED: Final = 3.0 * _SURE
"""The sum that begins one: at 4 % by chance once in a hundred thousand starts."""
_PACED_DOUBTED: Final = 2.0 * _SURE
"""Where there is a pace already: a trial costs less there."""
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
_LONG_S: Final = 10.0
"""What got through from one run of refusals to the next, this much later, is the limit."""
_WINDOW_S: Final = 60.0
"""A step of the climb takes no longer than the longest window."""
_LEAST_PER_S: Final = 1.0 / _WINDOW_S
"""A pace is at least one start in the longest window."""
_LATE_S: Final = 0.002
"""How late a start may be without delaying the next: timers are late by about that."""

# Moves.
_SLOWER: Final = 0.75
"""Of what got through, in a trial: well below the limit, and a small loss if there is none."""
_FASTER_BY: Final = 0.25
_FASTER_BY_MAX: Final = 1.0
"""A trial upwards is by a quarter, and by twice as much after each that held."""
_FASTER_AFTER: Final = 100.0
_FASTER_AFTER_MAX: Final = 16_000.0
"""Starts from one trial upwards to the next, twice as many after each that failed."""
_STEP: Final = 0.03
"""What a refusal takes off the rate: with the climb back, on average 1.5 % below the limit."""
_STEP_STARTS: Final = 50.0
"""So many starts climb by what one refusal takes: 2 of 100 are refused, 5 are allowed."""
_FIRST_STEP_STARTS: Final = 6.0
"""At first, as what got through is only known to be possible; twice as many after each refusal."""
_DOUBLINGS_MAX: Final = 6.0
"""The climb doubles in each step without refusals, up to this often."""
_LEFT: Final = 0.5
_FOUND_LEFT: Final = 0.9
"""What a run of refusals leaves of a pace at least: first, and once the limit was found."""
_WAITED_PART: Final = 0.3
"""Where more of the time was spent waiting, runs are dear, and the first of the two holds."""

_FREE: Final = 0
_TRIAL: Final = 1
_PACED: Final = 2
_FASTER: Final = 3


class Pace:
    """At most so many starts a second; infinity is no limit."""

    def __init__(self) -> None:
        self.per_s = NEVER
        self.next_s = 0.0
        self.chance = 0.0
        """The share of starts that is refused at any rate, as far as is known."""
        self._share = TOLERATED
        self._state = _FREE
        self._patience_s = 0.0
        self._is_used = False
        self._pending: Final[deque[float]] = deque()
        self._blind_until_s = 0.0
        """Of a pace: starts before then were made before what is known of it had an effect."""
        self._sum = 0.0
        self._weight_start = 0.0
        self._weight_refusal = 0.0
        self._starts = 0.0
        self._refusals = 0.0
        self._since_s = 0.0
        self._counted_from_s = 0.0
        self._best_per_s = 0.0
        self._back_to_per_s = NEVER
        self._is_guess = False
        """Whether the rate on trial is from a burst, and may be far too high."""
        self._before_starts = self._before_refusals = 0.0
        self._clean = self._excess = 0.0
        self._step_starts = self._step_starts_most = _STEP_STARTS
        self._through = 0
        self._through_since_s = 0.0
        self._waited_s = 0.0
        self._faster_after = _FASTER_AFTER
        self._faster_until_s = 0.0
        self._since_faster = 0.0
        self._faster_by = _FASTER_BY
        self._suspect()

    @property
    def run(self) -> int:
        """So many refused one after another are more than chance, by the recent refusal share.

        Chance brings every run, given enough starts: the more of them, the longer it has to be.
        """
        rare = min(_RARE, _RARE_AMONG - math.log(max(1, self._through)))
        return max(3, math.ceil(rare / math.log(max(self.chance, self._share, TOLERATED))))

    def start(self, now: float, refusal_s: float) -> None:
        """A request starts; a refusal would be known after about `refusal_s`."""
        self._patience_s = 1.2 * refusal_s
        self._through += 1
        self._share -= _SHARE_GAIN * self._share
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
        """A start was refused for another reason than its rate."""
        self._through -= 1

    def refuse(self, at_s: float, now: float) -> None:
        """A start was refused."""
        self._through -= 1
        # Those that started before it would have been refused before it.
        self._settle(now, at_s)
        self._share += _SHARE_GAIN
        if at_s < self._counted_from_s:
            return
        self._refusals += 1.0
        if self._state == _PACED:
            self.per_s = max(_LEAST_PER_S, self.per_s * (1.0 - self._gain()))
            if at_s < self._blind_until_s and self.chance <= _CLEAN:
                return  # a hair above a limit without bursts every second start is refused
            self._blind_until_s = now
            self._excess += 1.0
            if self._excess >= 1.0 + 20.0 * self.chance:
                self._excess = self._clean = 0.0
                self._step_starts = min(self._step_starts_most, 2.0 * self._step_starts)
        self._sum += self._weight_refusal - self._weight_start
        if self._state == _TRIAL:
            self._judge(now)
        elif self._state == _FASTER:
            # Chance brings every sum, given enough starts.
            if self._sum >= _SURE + math.log(max(1.0, self._starts / _TRIAL_STARTS)):
                self._end_faster(now)
        elif self._sum >= (_PACED_DOUBTED if self._state == _PACED else _DOUBTED):
            self._suspect()
            self._try_slower(now)

    def stop(self, now: float, resumes_s: float) -> None:
        """A run of refusals: what got through since the last one is the rate of the limit.

        At least: while it waited, a limit without a burst would have let more through.
        """
        elapsed_s = now - self._through_since_s
        if self._state == _FASTER:
            self._end_faster(now)
        if self._through <= 0 or elapsed_s <= 0.0:
            self._waited_s += max(0.0, resumes_s - now)
            return
        per_s = self._through / elapsed_s
        is_known = self._state == _PACED or (elapsed_s >= _LONG_S and self._through >= _STEP_STARTS)
        if self._state != _FREE:
            per_s = self._bounded(per_s, now)
        lag = 1.0 + per_s * self._patience_s
        most = max(_STEP_STARTS, per_s * _WINDOW_S / lag)
        self._step_starts_most = min(most, max(_STEP_STARTS, self._through / lag))
        self._pending.clear()
        if is_known:
            self._step_starts = self._step_starts_most
            self.pace_at(per_s, resumes_s)
        else:
            self._step_starts = _FIRST_STEP_STARTS
            share = max(self._known_share(), self.chance + TOLERATED)
            self._begin_trial(per_s, share, NEVER, resumes_s, is_guess=True)
        self._through, self._through_since_s = 0, now
        self._waited_s = max(0.0, resumes_s - now)

    def _bounded(self, per_s: float, now: float) -> float:
        """A new estimate of the limit, not far below the one in use: it may be from few starts."""
        was_per_s = self._best_per_s if self._state == _TRIAL else self.per_s
        is_found = self._state == _PACED and self._step_starts >= _STEP_STARTS
        if self._waited_s > _WAITED_PART * (now - self._through_since_s):
            is_found = False
        if is_found:
            return max(_FOUND_LEFT * was_per_s, min(was_per_s, per_s))
        # What got through in the time that was not spent waiting is more than the limit.
        awake_s = max(1e-6, now - self._through_since_s - self._waited_s)
        least_per_s = min(_LEFT * was_per_s, self._through / awake_s)
        return max(least_per_s, min(was_per_s, per_s))

    def pace_at(self, per_s: float, now: float) -> None:
        """Spaces starts by a rate, and looks for a better one."""
        self._state = _PACED
        self._counted_from_s = 0.0
        self.per_s = self._best_per_s = max(_LEAST_PER_S, per_s)
        self._clean = self._excess = 0.0
        self._suspect()
        self._count_anew(now)

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
            at_s = pending.popleft()
            self._starts += 1.0
            if self._state == _PACED:
                if at_s >= self._blind_until_s or self.chance > _CLEAN:
                    self._sum = max(0.0, self._sum + self._weight_start)
                self._climb(now)
            else:
                self._sum += self._weight_start
                if self._state == _TRIAL:
                    self._judge(now)
                elif self._state == _FASTER:
                    self._judge_faster(now)
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

    def _climb(self, now: float) -> None:
        self._excess = max(0.0, self._excess - 2.0 * self.chance)
        if not self._is_used:
            return
        lag = 1.0 + self.per_s * self._patience_s
        self._clean = min(_DOUBLINGS_MAX, self._clean + 1.0 / (self._step_starts * lag))
        climb = math.log(2.0) * 2.0**self._clean / self._step_starts
        growth = _STEP / lag * (self.chance + climb)
        self.per_s *= 1.0 + min(growth, _STEP + math.log(2.0) / self.per_s)
        self._since_faster += 1.0
        if self._since_faster >= self._faster_after and self._refusals > 0.0:
            self._try_faster(now)
            return
        if self._starts >= _COUNTED:
            self._halve(now)

    def _gain(self) -> float:
        """A step, over the starts that are on their way when its answer comes."""
        return _STEP / (1.0 + self.per_s * self._patience_s)

    def _known_share(self) -> float:
        return (self._refusals + _PRIOR_REFUSALS) / (self._starts + _PRIOR_STARTS)

    def _suspect(self) -> None:
        """Begins to look for more refusals than are tolerated; for fewer where it is paced."""
        part = 1.0 if self._state == _FREE else _PACED_PART
        tolerated, suspected = self.chance + part * TOLERATED, self.chance + part * _SUSPECTED
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
            self.pace_at(per_s, now)
            return
        self._before_starts, self._before_refusals = self._starts, self._refusals
        back_to_per_s = NEVER if self._is_guess else self.per_s
        share = max(share, self.chance + TOLERATED)
        self._begin_trial(per_s, share, back_to_per_s, now, is_guess=is_guess)

    def _begin_trial(
        self, per_s: float, share: float, back_to_per_s: float, now: float, *, is_guess: bool
    ) -> None:
        self._best_per_s = per_s
        self._back_to_per_s = back_to_per_s
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

    def _try_faster(self, now: float) -> None:
        """Begins a trial upwards: are as many of more refused, or all that is more?"""
        share = self._known_share()
        more = 1.0 - (1.0 - share) / (1.0 + self._faster_by)
        self._since_faster = 0.0
        self._state = _FASTER
        self._back_to_per_s = self.per_s
        self.per_s *= 1.0 + self._faster_by
        self._faster_until_s = now + _BURST_S
        self._sum = 0.0
        self._weight_refusal = math.log(more / share)
        self._weight_start = math.log((1.0 - more) / (1.0 - share))
        self._count_anew(now)

    def _judge_faster(self, now: float) -> None:
        self._sum = max(-_SURE, self._sum)
        if now >= self._faster_until_s and self._starts >= _TRIAL_STARTS and self._sum <= -_SURE:
            self.chance = self._refusals / self._starts
            self._faster_after = 0.5 * _FASTER_AFTER
            self._faster_by = min(_FASTER_BY_MAX, 2.0 * self._faster_by)
            self.pace_at(self.per_s, now)

    def _end_faster(self, now: float) -> None:
        self._faster_after = min(_FASTER_AFTER_MAX, 2.0 * self._faster_after)
        self._faster_by = _FASTER_BY
        self.pace_at(self._back_to_per_s, now)

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
            self.pace_at(self._best_per_s, now)
            return
        refusals, starts = self._refusals + self._before_refusals, self._starts
        self.chance = min(_CHANCE_MAX, refusals / (starts + self._before_starts))
        self._step_starts = _FIRST_STEP_STARTS
        if self._back_to_per_s < NEVER:
            self.pace_at(self._back_to_per_s, now)
        else:
            self.drop(now)

    def _count_anew(self, now: float) -> None:
        self._starts = self._refusals = 0.0
        self._since_s = now

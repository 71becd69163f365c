"""Simulate users inside one worker's event loop: what each sends and when, never two requests at once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from time import monotonic_ns

from servebench.load.arrivals import Pause
from servebench.load.exchange import Exchange
from servebench.load.requests import Conversation, Request, Requests
from servebench.load.stream import failed, parse
from servebench.load.transport import Channel

# Requests that a closed loop's user has encoded at once, and the bytes after which it encodes no further one. Encoding
# one alone, between replies, costs many times as much: none of its code is in the processor's caches then.
_AHEAD, _AHEAD_BYTES = 8, 1 << 15
# Pause after a failure: without it 64 users would send 100,000 requests a second to a server that refuses them.
FAILURE_PAUSE_S = 1.0


@dataclass
class Ledger:
    """Keep every exchange of one process, from its begin to its end.

    Where exchanges are not `recorded`, each reply is read when it ends and only counted: `answered`, `refused` by
    status, and the reason of the latest refusal.
    """

    process: int
    processes: int
    recorded: bool = True
    answered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refusal: str | None = None
    finished: list[Exchange] = field(default_factory=list)
    running: dict[int, Exchange] = field(default_factory=dict)
    failures: int = 0
    # Of ended exchanges: pieces that arrived; replies with at least one piece, and their summed seconds to the first.
    pieces: int = 0
    replies: int = 0
    first_piece_s: float = 0.0
    # Users whose first request has ended, and when the last of these requests ended.
    through: set[int] = field(default_factory=set)
    through_ns: int = 0
    # The exchange that was the first to end, other than by cancellation.
    first: Exchange | None = None
    begun: int = 0

    def begin(self, user: int, prompt_id: str, scheduled_ns: int) -> Exchange:
        request_id = self.begun * self.processes + self.process
        self.begun += 1
        exchange = Exchange(request_id, user, self.process, prompt_id, scheduled_ns)
        self.running[request_id] = exchange
        return exchange

    def end(self, exchange: Exchange) -> None:
        del self.running[exchange.request_id]
        if self.first is None and exchange.failure != "cancelled":
            self.first = exchange
        if self.recorded:
            self.finished.append(exchange)
        elif exchange.failure != "cancelled":
            self._read(exchange)
        exchange.failed = failed(exchange)
        if exchange.failed and exchange.failure != "cancelled":
            self.failures += 1
        self.pieces += len(exchange.blocks)
        if exchange.sent_ns is not None and exchange.blocks:
            self.replies += 1
            self.first_piece_s += (exchange.blocks[0][0] - exchange.sent_ns) / 1e9
        if exchange.user not in self.through and exchange.end_ns is not None:
            self.through.add(exchange.user)
            self.through_ns = max(self.through_ns, exchange.end_ns)

    def _read(self, exchange: Exchange) -> None:
        parsed = parse(exchange)
        if parsed.status == "ok":
            self.answered += 1
            return
        self.refused[parsed.status] += 1
        self.refusal = parsed.error if parsed.status == "http_error" else f"{parsed.status}: {parsed.error}"

    def begun_since(self, start_ns: int, *, by_schedule: bool) -> int:
        """Count the requests begun at or after `start_ns`, running ones included."""
        count = sum(exchange.began_ns(by_schedule) >= start_ns for exchange in self.running.values())
        for exchange in reversed(self.finished):  # in order of their ends
            if exchange.end_ns is not None and exchange.end_ns < start_ns:
                break
            count += exchange.began_ns(by_schedule) >= start_ns
        return count

    def awaits(self, start_ns: int, end_ns: int, *, by_schedule: bool) -> bool:
        """Return whether the window [start, end) needs a request that still runs.

        It needs targets, and warm-up requests of which any block has arrived: waiting too long is better than too
        short.
        """
        for exchange in self.running.values():
            began_ns = exchange.began_ns(by_schedule)
            if began_ns >= end_ns:
                continue
            if began_ns >= start_ns or any(start_ns <= at_ns < end_ns for at_ns, _ in exchange.blocks):
                return True
        return False


async def sleep_until(due_ns: int) -> None:
    """Sleep until `due_ns` or 1 to 2 ms later, plus the loop's lag; never shorter.

    uvloop's timers are whole milliseconds and may fire early.
    """
    while (delay_ns := due_ns - monotonic_ns()) > 0:
        await asyncio.sleep(-(-delay_ns // 1_000_000) / 1000)


@dataclass
class Tickets:
    """Share permissions to send among all processes.

    Each permission is a byte of one file that all processes read through one inherited descriptor, so that the kernel
    gives out each byte once.
    """

    descriptor: int

    def take(self) -> bool:
        return os.read(self.descriptor, 1) != b""


@dataclass
class Crew:
    """Run the users of one process.

    The n-th request of user u of N is of prompt u + n·N. So every user asks the same in the same order whatever the
    server's speed and the number of processes.
    """

    ledger: Ledger
    requests: Requests
    channel: Callable[[], Channel]
    seed: int
    total_users: int
    channels: dict[int, Channel] = field(default_factory=dict)
    stopped: bool = False  # no user sends any more, even where a cancellation was lost

    async def warm(self, users: list[int]) -> tuple[int, str | None]:
        """Open a connection for each user, a few at a time; return how many opened, and why one failed, or None."""
        gate = asyncio.Semaphore(32)

        async def open_one(user: int) -> str | None:
            async with gate:
                return await self.channels.setdefault(user, self.channel()).open()

        refusals = [why for why in await asyncio.gather(*map(open_one, users)) if why is not None]
        return len(users) - len(refusals), refusals[0] if refusals else None

    async def carry(self, user: int, request: Request, scheduled_ns: int) -> Exchange:
        exchange = self.ledger.begin(user, request.prompt_id, scheduled_ns)
        try:
            await self.channels[user].exchange(exchange, request.payload)
        finally:
            self.ledger.end(exchange)
        return exchange

    async def closed(self, user: int, start_ns: int, pause: Pause | None, tickets: Tickets | None) -> None:
        """Send, wait for the whole reply, pause, and send the next request, until cancelled or out of tickets.

        The next requests are encoded while the server works on the present one, so that encoding never delays sending.
        """
        loop = asyncio.get_running_loop()
        random = Random(f"{self.seed} pause {user}")
        numbers = count(user, self.total_users)
        ready: deque[Request] = deque()

        def encode() -> None:
            while len(ready) < _AHEAD and sum(len(request.payload) for request in ready) < _AHEAD_BYTES:
                ready.append(self.requests.nth(next(numbers)))

        encode()
        await sleep_until(start_ns)
        scheduled_ns = start_ns
        while not self.stopped and (tickets is None or tickets.take()):
            request = ready.popleft()
            if not ready:
                loop.call_soon(encode)
            exchange = await self.carry(user, request, scheduled_ns)
            scheduled_ns = await self._rest(exchange, pause, random)

    async def conversing(self, user: int, start_ns: int, turns: int, pause: Pause | None) -> None:
        """Send as `closed` does, in conversations of `turns` turns; a failed turn ends its conversation."""
        random = Random(f"{self.seed} pause {user}")
        await sleep_until(start_ns)
        scheduled_ns = start_ns
        for number in count(user, self.total_users):
            if self.stopped:
                return
            conversation = Conversation(self.requests, number)
            talking = True
            while (
                talking
                and not self.stopped
                and conversation.turn < turns
                and (request := conversation.request()) is not None
            ):
                exchange = await self.carry(user, request, scheduled_ns)
                talking = conversation.heard(exchange)
                scheduled_ns = await self._rest(exchange, pause, random)

    async def _rest(self, exchange: Exchange, pause: Pause | None, random: Random) -> int:
        """Pause after an exchange; return when (ns) the next request is due."""
        rest_s = FAILURE_PAUSE_S if exchange.failed else pause.draw_s(random) if pause else 0.0
        due_ns = (exchange.end_ns or monotonic_ns()) + round(rest_s * 1e9)
        await sleep_until(due_ns)
        return due_ns


@dataclass
class Dispatcher:
    """Send requests at their scheduled times, whatever the server does (open loop, trace).

    A "user" is a connection; a free connection is used before another is opened.
    """

    crew: Crew
    due: Iterator[tuple[int, Callable[[], Request]]]
    # When the next request is due; None after the last. The window does not end before this time has passed.
    next_ns: int | None = None
    _free: list[int] = field(default_factory=list)

    async def run(self) -> None:
        self._free = sorted(self.crew.channels, reverse=True)
        async with asyncio.TaskGroup() as sending:
            for due_ns, make in self.due:
                self.next_ns = due_ns
                request = make()
                await sleep_until(due_ns)
                sending.create_task(self._send(request, due_ns))
                await asyncio.sleep(0)  # let the request begin before `next_ns` moves on
            self.next_ns = None

    async def _send(self, request: Request, due_ns: int) -> None:
        crew = self.crew
        if not self._free:
            first = crew.ledger.process
            user = len(crew.channels) * crew.ledger.processes + first
            crew.channels[user] = crew.channel()
        else:
            user = self._free.pop()
        try:
            await crew.carry(user, request, due_ns)
        finally:
            self._free.append(user)

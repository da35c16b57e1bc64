"""The worker of the replay's Redis: carries out orders a while after they were put in a list.

Run as ``python -m supervisor.replay.worker SOCKET DELAY_MS``; it ends when its standard input does.

An order moves from the list ``orders`` to the sorted set ``working``, due a while later; then the stock is one less and
the order committed, or it failed. ``shop`` says in words how many orders are in which state.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

STOCK = 1
_EVERY_S = 0.005

_STEP = """
local now, delay = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('SET', 'stock', ARGV[3], 'NX')
while true do
  local order = redis.call('LPOP', 'orders')
  if not order then break end
  if redis.call('SET', 'status:' .. order, 'pending', 'NX') then redis.call('ZADD', 'working', now + delay, order) end
end
for _, order in ipairs(redis.call('ZRANGEBYSCORE', 'working', '-inf', now)) do
  local done = 'failed'
  if tonumber(redis.call('GET', 'stock')) > 0 then redis.call('DECR', 'stock'); done = 'committed' end
  redis.call('SET', 'status:' .. order, done)
  redis.call('ZREM', 'working', order)
  redis.call('INCR', 'count:' .. done)
end
local function count(name) return redis.call('GET', 'count:' .. name) or '0' end
redis.call('SET', 'shop', 'orders: ' .. redis.call('ZCARD', 'working') .. ' pending, ' .. count('committed')
  .. ' committed, ' .. count('failed') .. ' failed')
"""


def main(socket: str, delay_ms: str) -> None:
    """Work until standard input ends."""
    threading.Thread(target=_work, args=(socket, int(delay_ms)), daemon=True).start()
    sys.stdin.buffer.read()


def _work(socket: str, delay_ms: int) -> None:
    import redis  # noqa: PLC0415 - 100 ms in which standard input may already end

    client: Any = redis.Redis(unix_socket_path=socket)
    while True:
        client.eval(_STEP, 0, int(time.monotonic() * 1000), delay_ms, STOCK)
        time.sleep(_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:3])

-- Note that a fenced run is told to end, and say whether its agent is to be asked (again) now.
--
-- KEYS  ending (of this token)
-- ARGV  longest pause between two asks in seconds, expiry in seconds
-- Returns {microseconds since it was first told, due (1 | 0)}.
-- Invariant: of any number of passes at once one is told `due`; the pauses are 1, 2, 4, … seconds, up to the longest. A lost
--   key begins anew, which only makes a slot wait longer.
local ending_key = KEYS[1]
local longest, expiry = tonumber(ARGV[1]), ARGV[2]

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local known = redis.call('HMGET', ending_key, 'told', 'next', 'pause')
local told, next_at, pause = tonumber(known[1] or now), tonumber(known[2] or now), tonumber(known[3] or 0.5)

local due = now >= next_at
if due then
  pause = math.min(2 * pause, longest)
  redis.call('HSET', ending_key, 'told', string.format('%.0f', told), 'next', string.format('%.0f', now + pause * 1000000),
    'pause', pause)
end
redis.call('EXPIRE', ending_key, expiry)
return {now - told, due and 1 or 0}

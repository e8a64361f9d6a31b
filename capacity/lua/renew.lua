-- Renew many leases; the first renewal of a granted slot starts it.
--
-- KEYS  epoch, versions, leases, then for each lease: slots, holders, slot
-- ARGV  hint channel, lease in seconds, then for each lease: agent name, execution id, token, timeout in seconds
-- Returns a code for each lease: 0 rebuilding (carry on, ask again), 1 ok, 2 refused (stop the work).
-- Invariant: a lease never goes past its hard limit, and nothing released or lost comes back. A start takes the slot's
--   clock from the taking to the start: score, started_at, hard limit and EXPIRE.
local epoch_key, versions_key, leases_key = unpack(KEYS, 1, 3)
local channel, lease_seconds = ARGV[1], tonumber(ARGV[2])

local open = is_open(epoch_key)
local now, micros = clock()
local answers = {}

local function renew(slots_key, holders_key, slot_key, name, id, own_token, timeout)
  local token, phase, number, hard = unpack_holder(redis.call('HGET', holders_key, id))
  if token ~= own_token or phase == 'lost' or now >= hard then return 2 end
  if phase == 'granted' then
    hard = now + tonumber(timeout) + HARD_LIMIT_MARGIN
    redis.call('HSET', holders_key, id, pack(token, 'started', number, hard, '1'))
    redis.call('ZADD', slots_key, seconds(now), id)
    redis.call('HSET', slot_key, 'started_at', iso(now), 'slot_number', number, 'timeout_seconds', timeout)
    redis.call('EXPIREAT', slot_key, math.ceil(hard))
    step(versions_key, channel, name, micros)
  end
  redis.call('ZADD', leases_key, seconds(math.min(now + lease_seconds, hard)), name .. ':' .. id)
  return 1
end

for i = 1, (#KEYS - 3) / 3 do
  local k, a = i * 3, i * 4 - 2
  answers[i] = open and renew(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]) or REBUILDING
end
return answers

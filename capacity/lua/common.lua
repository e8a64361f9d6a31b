-- Put in front of every script beside it. Nothing here runs by itself.
--
-- A holder is one field of agent:holders:{name}: `token phase number hard started`, by blanks.
--   phase    granted | started | lost
--   number   1-based place of the agent
--   hard     unix time its lease can never go past
--   started  1 once a worker began with it; tells a lost holder that ran from one that never did
-- Times are Redis's own, unix seconds as a double. Code 0 is always `rebuilding`: nothing was changed.

local HARD_LIMIT_MARGIN = 300
local REBUILDING = 0

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000, tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

-- Whether the slot keys are those of this server's life: false after a restart, a failover, FLUSHALL. A plain search:
-- a pattern tried at each character costs as much as all the rest of a script.
local function is_open(epoch_key)
  local epoch = redis.call('GET', epoch_key)
  return epoch and string.find(redis.call('INFO', 'server'), 'run_id:' .. epoch .. '\r\n', 1, true) ~= nil
end

local function seconds(t)
  return string.format('%.6f', t)
end

-- ISO 8601 of a unix time: the sandbox has no os.date. Civil date from days, era by era of 400 years.
local function iso(t)
  local floor = math.floor
  local s = floor(t)
  local z = floor(s / 86400) + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local rest = s % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, doy - floor((153 * mp + 2) / 5) + 1,
    floor(rest / 3600), floor(rest % 3600 / 60), rest % 60, floor((t - s) * 1000000))
end

local function pack(token, phase, number, hard, started)
  return string.format('%s %s %d %.6f %s', token, phase, number, hard, started)
end

-- token, phase, number, hard, started; nothing for a field that isn't there (false).
local function unpack_holder(value)
  if not value then return nil end
  local token, phase, number, hard, started = string.match(value, '^(%S+) (%a+) (%d+) (%S+) (%d)$')
  return token, phase, tonumber(number), tonumber(hard), started
end

-- Version step and hint are one with the change they announce; the clock makes versions outlive a FLUSHALL.
local function step(versions_key, channel, name, micros)
  local old = tonumber(redis.call('HGET', versions_key, name) or 0) or 0
  local version = string.format('%.0f', math.max(old + 1, micros))
  redis.call('HSET', versions_key, name, version)
  redis.call('PUBLISH', channel, name .. ' ' .. version)
  return version
end

-- {id: value} and how many, in one call.
local function read_holders(holders_key)
  local flat = redis.call('HGETALL', holders_key)
  local all = {}
  for i = 1, #flat, 2 do all[flat[i]] = flat[i + 1] end
  return all, #flat / 2
end

local function lowest_free(all)
  local used = {}
  for _, value in pairs(all) do
    local _, _, number = unpack_holder(value)
    if number then used[number] = true end
  end
  local number = 1
  while used[number] do number = number + 1 end
  return number
end

-- Plain arguments, not a table of them: this is the dearest part of a grant.
local function write_holder(slots_key, holders_key, slot_key, leases_key, name, id, token, number, phase, taken, hard, lease,
  timeout, preview)
  redis.call('HSET', holders_key, id, pack(token, phase, number, hard, phase == 'started' and '1' or '0'))
  redis.call('ZADD', slots_key, taken, id)
  redis.call('ZADD', leases_key, lease, name .. ':' .. id)
  redis.call('HSET', slot_key, 'started_at', iso(taken), 'message_preview', preview, 'slot_number', number,
    'timeout_seconds', timeout)
  redis.call('EXPIREAT', slot_key, math.ceil(hard))
end

local function erase_holder(slots_key, holders_key, slot_key, leases_key, name, id)
  redis.call('HDEL', holders_key, id)
  redis.call('ZREM', slots_key, id)
  redis.call('ZREM', leases_key, name .. ':' .. id)
  redis.call('DEL', slot_key)
end

-- Whether `nonce` may go on rebuilding. The run id is part of the fence: a snapshot brings an old nonce back, too.
local function may_rebuild(epoch_key, rebuild_key, nonce, expiry_ms)
  local run = run_id()
  if redis.call('GET', epoch_key) == run or redis.call('GET', rebuild_key) ~= run .. ' ' .. nonce then return false end
  redis.call('PEXPIRE', rebuild_key, expiry_ms)
  return true
end

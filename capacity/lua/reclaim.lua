-- Mark the holders whose lease has ended as lost, and list every lost one.
--
-- KEYS  epoch, versions, leases, reclaimed
-- ARGV  hint channel, prefix of the holders keys, lease in seconds, pause in seconds, out of reach since (1 | 0)
-- Returns {code, agent, id, token, number, started (1 | 0), agent, id, ...}: code 0 rebuilding, 1 ok.
-- Invariant: frees nothing: a lost holder keeps its slot, renewals are refused, and each pass lists it until it is
--   released. Where no pass was made for longer than the pause, or the store was out of reach, workers could not renew
--   either: every started holder that isn't lost first gets one fresh lease.
local epoch_key, versions_key, leases_key, reclaimed_key = unpack(KEYS)
local channel, holders_prefix, lease_seconds, pause_seconds, out_of_reach = unpack(ARGV)

if not is_open(epoch_key) then return {REBUILDING} end

local now, micros = clock()
local last = tonumber(redis.call('GET', reclaimed_key) or 0) or 0
redis.call('SET', reclaimed_key, seconds(now), 'EX', 3600)

local function each_until(latest, visit)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', leases_key, '-inf', latest)) do
    local name, id = string.match(member, '^([^:]+):(.+)$')
    local token, phase, number, hard, started = unpack_holder(redis.call('HGET', holders_prefix .. name, id))
    if token then visit(member, name, id, token, phase, number, hard, started) end
  end
end

if now - last > tonumber(pause_seconds) or out_of_reach == '1' then
  local fresh = now + tonumber(lease_seconds)
  each_until('(' .. seconds(fresh), function(member, _, _, _, phase, _, hard)
    if phase == 'started' then redis.call('ZADD', leases_key, seconds(math.min(fresh, hard)), member) end
  end)
end

local answer, stepped = {1}, {}
each_until(seconds(now), function(_, name, id, token, phase, number, hard, started)
  if phase ~= 'lost' then
    redis.call('HSET', holders_prefix .. name, id, pack(token, 'lost', number, hard, started))
    if not stepped[name] then step(versions_key, channel, name, micros) end
    stepped[name] = true
  end
  for _, part in ipairs({name, id, token, number, started}) do answer[#answer + 1] = part end
end)
return answer

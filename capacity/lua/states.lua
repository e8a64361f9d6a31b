-- Count the holders of many agents, and of the fleet.
--
-- KEYS  epoch, versions, leases, then the holders of each agent
-- ARGV  prefix of the holders keys, then the name of each agent
-- Returns {code, fleet, version, active, lost, version, active, lost, ...}: code 0 rebuilding, 1 ok; versions as text.
-- Invariant: changes nothing; versions are read before values. Only leases that ended are looked into for lost ones.
local epoch_key, versions_key, leases_key = unpack(KEYS, 1, 3)
local holders_prefix = ARGV[1]

if not is_open(epoch_key) then return {REBUILDING} end

local answer, lost = {1, redis.call('ZCARD', leases_key)}, {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', leases_key, '-inf', seconds((clock())))) do
  local name, id = string.match(member, '^([^:]+):(.+)$')
  local _, phase = unpack_holder(redis.call('HGET', holders_prefix .. name, id))
  if phase == 'lost' then lost[name] = (lost[name] or 0) + 1 end
end
for i = 2, #ARGV do
  local name = ARGV[i]
  answer[#answer + 1] = redis.call('HGET', versions_key, name) or '0'
  answer[#answer + 1] = redis.call('HLEN', KEYS[i + 2])
  answer[#answer + 1] = lost[name] or 0
end
return answer

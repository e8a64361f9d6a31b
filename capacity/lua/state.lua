-- Read one agent's holders.
--
-- KEYS  epoch, versions, leases, slots, holders
-- ARGV  agent name, prefix of the agent's display hashes ('' = without previews)
-- Returns {code, version, now, id, holder, taken at, lease ends at, preview, id, ...}: code 0 rebuilding, 1 ok; times as text.
-- Invariant: changes nothing. Holders are listed by what decisions read; the display hash may be gone.
local epoch_key, versions_key, leases_key, slots_key, holders_key = unpack(KEYS)
local name, slot_prefix = unpack(ARGV)

if not is_open(epoch_key) then return {REBUILDING} end

local answer = {1, redis.call('HGET', versions_key, name) or '0', seconds((clock()))}
local all = redis.call('HGETALL', holders_key)
for i = 1, #all, 2 do
  local id, value = all[i], all[i + 1]
  local preview = slot_prefix ~= '' and redis.call('HGET', slot_prefix .. id, 'message_preview') or ''
  local taken = redis.call('ZSCORE', slots_key, id) or '0'
  local lease = redis.call('ZSCORE', leases_key, name .. ':' .. id) or '0'
  for _, part in ipairs({id, value, taken, lease, preview}) do answer[#answer + 1] = part end
end
return answer

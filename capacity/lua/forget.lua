-- Remove what is kept of a deleted agent, as soon as nothing of it holds a slot.
--
-- KEYS  epoch, versions, slots, holders
-- ARGV  hint channel, agent name, prefix of the agent's display hashes
-- Returns code: 0 rebuilding, 1 forgotten, 2 held (holders stay as they are; what was shown of their messages is gone).
-- Invariant: frees no slot. The last hint carries the agent's last version; a version that begins anew is the clock's, so
--   under a reused name it still only grows.
local epoch_key, versions_key, slots_key, holders_key = unpack(KEYS)
local channel, name, slot_prefix = unpack(ARGV)

if not is_open(epoch_key) then return REBUILDING end

local _, micros = clock()
local held = redis.call('HKEYS', holders_key)
local hidden = 0
for _, id in ipairs(held) do hidden = hidden + redis.call('DEL', slot_prefix .. id) end
if #held > 0 then
  if hidden > 0 then step(versions_key, channel, name, micros) end
  return 2
end
step(versions_key, channel, name, micros)
redis.call('DEL', slots_key, holders_key)
redis.call('HDEL', versions_key, name)
return 1

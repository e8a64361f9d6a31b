-- Free the slot that an execution holds under this token.
--
-- KEYS  epoch, versions, leases, slots, holders, slot (of this execution)
-- ARGV  hint channel, agent name, execution id, token
-- Returns code: 0 rebuilding, 1 released, 2 absent (not held, or under another token: nothing freed).
-- Invariant: a double, late or foreign release frees nothing. Needs no limit and no display hash.
local epoch_key, versions_key, leases_key, slots_key, holders_key, slot_key = unpack(KEYS)
local channel, name, id, token = unpack(ARGV)

if not is_open(epoch_key) then return REBUILDING end
if unpack_holder(redis.call('HGET', holders_key, id)) ~= token then return 2 end

local _, micros = clock()
erase_holder(slots_key, holders_key, slot_key, leases_key, name, id)
step(versions_key, channel, name, micros)
return 1

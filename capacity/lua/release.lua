-- Free the slot that an execution holds under this token.
--
-- KEYS  epoch, versions, leases, slots, holders, slot (of this execution)
-- ARGV  hint channel, agent name, execution id, token, phase ('' = any)
-- Returns code: 0 rebuilding, 1 released, 2 absent (not held, under another token, or in another phase: nothing
--   freed).
-- Invariant: a double, late or foreign release frees nothing, and repair frees a slot only in the phase it saw: a worker
--   may have started it since. Needs no limit and no display hash.
local epoch_key, versions_key, leases_key, slots_key, holders_key, slot_key = unpack(KEYS)
local channel, name, id, token, phase = unpack(ARGV)

if not is_open(epoch_key) then return REBUILDING end
local held_token, held_phase = unpack_holder(redis.call('HGET', holders_key, id))
if held_token ~= token or (phase ~= '' and phase ~= held_phase) then return 2 end

local _, micros = clock()
erase_holder(slots_key, holders_key, slot_key, leases_key, name, id)
step(versions_key, channel, name, micros)
return 1

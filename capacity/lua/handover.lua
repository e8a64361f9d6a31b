-- Free one execution's slot and grant a slot to the next one of the same agent, as one step.
--
-- KEYS  epoch, versions, leases, slots, holders, slot (of the one done), slot (of the one following)
-- ARGV  hint channel, agent name, id done, its token, id following, its token, limit, fleet limit ('' = no cap),
--       paused (1 | 0), started (1: first short lease now | 0: granted), lease in seconds, timeout in seconds, preview
-- Returns {code, number, version}: 0 rebuilding, 1 granted, 2 released (freed, nothing granted), 3 foreign (the one done
--   was not held under its token: nothing freed, nothing granted).
-- Invariant: no newcomer sees the slot free in between; a slot is granted only for one that was held, while holders <
--   limit after the release and the fleet was below its cap before it. A second call answers `granted` like the first.
local epoch_key, versions_key, leases_key, slots_key, holders_key, done_slot_key, slot_key = unpack(KEYS)
local channel, name, done_id, done_token, id, token, limit_text, fleet_text, paused, started, lease_seconds, timeout, preview =
  unpack(ARGV)

if not is_open(epoch_key) then return {REBUILDING, 0, '0'} end

local all, count = read_holders(holders_key)
local held_token, held_phase, held_number = unpack_holder(all[id])
if held_token == token and held_phase ~= 'lost' then
  return {1, held_number, redis.call('HGET', versions_key, name) or '0'}
end
if unpack_holder(all[done_id]) ~= done_token then return {3, 0, '0'} end

local fleet_free = fleet_text == '' or redis.call('ZCARD', leases_key) < (tonumber(fleet_text) or 0)
local now, micros = clock()
erase_holder(slots_key, holders_key, done_slot_key, leases_key, name, done_id)
all[done_id] = nil

local grant = paused ~= '1' and not all[id] and count - 1 < (tonumber(limit_text) or 0) and fleet_free
local number = 0
if grant then
  number = lowest_free(all)
  local hard = now + tonumber(timeout) + HARD_LIMIT_MARGIN
  local phase, lease = 'granted', hard
  if started == '1' then phase, lease = 'started', math.min(now + tonumber(lease_seconds), hard) end
  write_holder(slots_key, holders_key, slot_key, leases_key, name, id, token, number, phase, now, hard, lease, timeout, preview)
end
return {grant and 1 or 2, number, step(versions_key, channel, name, micros)}

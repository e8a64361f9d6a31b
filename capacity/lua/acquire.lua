-- Take the lowest free slot of an agent for one execution.
--
-- KEYS  epoch, versions, leases, slots, holders, slot (of this execution)
-- ARGV  hint channel, agent name, execution id, token, limit, fleet limit ('' = no cap), timeout in seconds, preview,
--   announce ('1': the line has changed, so step the version also where it is full)
-- Returns {code, number, version}: 0 rebuilding, 1 acquired, 2 held (by this token already: a second try answers like
--   the first), 3 busy (held under another token), 4 full (agent), 5 full (fleet). Version '0' where nothing changed.
-- Invariant: a slot is granted only while holders < limit and the fleet < its cap; every holder counts, whether its
--   lease has ended or not. A limit that can't be read is 0.
local epoch_key, versions_key, leases_key, slots_key, holders_key, slot_key = unpack(KEYS)
local channel, name, id, token, limit_text, fleet_text, timeout, preview, announce = unpack(ARGV)

if not is_open(epoch_key) then return {REBUILDING, 0, '0'} end

local all, count = read_holders(holders_key)
local held_token, _, held_number = unpack_holder(all[id])
if held_token == token then return {2, held_number, redis.call('HGET', versions_key, name) or '0'} end
if all[id] then return {3, 0, '0'} end

local now, micros = clock()
local function full(code)
  return {code, 0, announce == '1' and step(versions_key, channel, name, micros) or '0'}
end
if not (count < (tonumber(limit_text) or 0)) then return full(4) end
if fleet_text ~= '' and not (redis.call('ZCARD', leases_key) < (tonumber(fleet_text) or 0)) then return full(5) end

local number = lowest_free(all)
local hard = now + tonumber(timeout) + HARD_LIMIT_MARGIN
write_holder(slots_key, holders_key, slot_key, leases_key, name, id, token, number, 'granted', now, hard, hard, timeout, preview)
return {1, number, step(versions_key, channel, name, micros)}

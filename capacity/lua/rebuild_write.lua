-- Write holders back from their rows, as started, with a fresh lease each.
--
-- KEYS  epoch, versions, leases, rebuild, then for each holder: slots, holders, slot
-- ARGV  nonce, its expiry in ms, lease in seconds, then for each holder: agent name, execution id, token, number,
--       timeout in seconds, seconds since it began, seconds left to its hard limit, preview
-- Returns 1: written; 0: no longer this nonce's turn, nothing written.
-- Invariant: every holder keeps its token, and its number unless that is missing or another holder's; then it gets the
--   lowest free one. Writing a holder twice is writing it once.
local epoch_key, versions_key, leases_key, rebuild_key = unpack(KEYS, 1, 4)
local nonce, expiry_ms, lease_seconds = unpack(ARGV, 1, 3)

if not may_rebuild(epoch_key, rebuild_key, nonce, expiry_ms) then return 0 end

local now = clock()
for i = 1, (#KEYS - 4) / 3 do
  local slots_key, holders_key, slot_key = unpack(KEYS, i * 3 + 2, i * 3 + 4)
  local name, id, token, number, timeout, age, remaining, preview = unpack(ARGV, i * 8 - 4, i * 8 + 3)
  local all = read_holders(holders_key)
  all[id] = nil
  number = tonumber(number)
  local free = lowest_free(all)
  for _, value in pairs(all) do
    local _, _, taken = unpack_holder(value)
    if taken == number then number = free end
  end
  if number < 1 then number = free end
  local hard = now + tonumber(remaining)
  write_holder({slots = slots_key, holders = holders_key, slot = slot_key, leases = leases_key, name = name, id = id,
    token = token, number = number, phase = 'started', taken = now - tonumber(age), hard = hard,
    lease = math.min(now + tonumber(lease_seconds), hard), timeout = timeout, preview = preview})
  redis.call('HSETNX', versions_key, name, 0)  -- known to rebuild_open, which steps and announces it
end
return 1

-- Write holders back from their rows, as started, with a fresh lease each.
--
-- KEYS  epoch, versions, leases, rebuild, then for each holder: slots, holders, slot
-- ARGV  nonce, its expiry in ms, lease in seconds, then for each holder: agent name, execution id, token, number,
--       timeout in seconds, seconds since it began, seconds left to its hard limit, preview
-- Returns 1: written; 0: no longer this nonce's turn, nothing written. Without a holder it only keeps the nonce.
-- Invariant: every holder keeps its token, and its number unless that is missing or another holder's; then it gets the
--   lowest free one. Writing a holder twice is writing it once.
local epoch_key, versions_key, leases_key, rebuild_key = unpack(KEYS, 1, 4)
local nonce, expiry_ms, lease_seconds = unpack(ARGV, 1, 3)

if not may_rebuild(epoch_key, rebuild_key, nonce, expiry_ms) then return 0 end

local now = clock()
local known = {}  -- {agent: {id: number}}, read once

local function numbers_of(name, holders_key)
  if not known[name] then
    known[name] = {}
    for id, value in pairs((read_holders(holders_key))) do
      local _, _, number = unpack_holder(value)
      known[name][id] = number
    end
  end
  return known[name]
end

-- `wanted`, unless it is none or another's.
local function own_number(numbers, id, wanted)
  local used = {}
  for other, number in pairs(numbers) do
    if other ~= id then used[number] = true end
  end
  if wanted >= 1 and not used[wanted] then return wanted end
  local number = 1
  while used[number] do number = number + 1 end
  return number
end

for i = 1, (#KEYS - 4) / 3 do
  local slots_key, holders_key, slot_key = unpack(KEYS, i * 3 + 2, i * 3 + 4)
  local name, id, token, wanted, timeout, age, remaining, preview = unpack(ARGV, i * 8 - 4, i * 8 + 3)
  local numbers = numbers_of(name, holders_key)
  local number = own_number(numbers, id, tonumber(wanted))
  local hard = now + tonumber(remaining)
  numbers[id] = number
  local lease = math.min(now + tonumber(lease_seconds), hard)
  write_holder(slots_key, holders_key, slot_key, leases_key, name, id, token, number, 'started', now - tonumber(age), hard, lease,
    timeout, preview)
end
-- Known to rebuild_open, which steps and announces them.
for name in pairs(known) do redis.call('HSETNX', versions_key, name, 0) end
return 1

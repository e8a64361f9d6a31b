-- End a rebuild: from here on slots are granted again.
--
-- KEYS  epoch, versions, rebuild
-- ARGV  nonce, its expiry in ms, hint channel
-- Returns 1: open by this nonce; 0: not this nonce's turn.
-- Invariant: opens only what this nonce wrote. Every known agent's version steps: what was cleared has changed, too.
--   The nonce stays as done until it expires, so that a second try answers like the first.
local epoch_key, versions_key, rebuild_key = unpack(KEYS)
local nonce, expiry_ms, channel = unpack(ARGV)

local run = run_id()
local own = run .. ' ' .. nonce
if redis.call('GET', epoch_key) == run then return redis.call('GET', rebuild_key) == own .. ' done' and 1 or 0 end
if redis.call('GET', rebuild_key) ~= own then return 0 end
redis.call('SET', epoch_key, run)
redis.call('SET', rebuild_key, own .. ' done', 'PX', expiry_ms)
local _, micros = clock()
for _, name in ipairs(redis.call('HKEYS', versions_key)) do step(versions_key, channel, name, micros) end
return 1

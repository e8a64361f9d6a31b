-- Begin to rebuild the slot keys, alone.
--
-- KEYS  epoch, rebuild
-- ARGV  nonce, its expiry in ms (every further step of the rebuild renews it)
-- Returns 1: this nonce is the one that rebuilds; 0: nothing to rebuild, or another nonce is at it.
-- Invariant: one rebuild at a time. A nonce that is done, or of an earlier life of the server (back from a snapshot),
--   doesn't count.
local epoch_key, rebuild_key = unpack(KEYS)
local nonce, expiry_ms = unpack(ARGV)

local run = run_id()
local own = run .. ' ' .. nonce
local other = redis.call('GET', rebuild_key)
if redis.call('GET', epoch_key) == run then return 0 end
if other and other ~= own and string.match(other, '^(%w+) %S+$') == run then return 0 end
redis.call('SET', rebuild_key, own, 'PX', expiry_ms)
return 1

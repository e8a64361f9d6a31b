-- Remove slot keys of the server's earlier life.
--
-- KEYS  epoch, rebuild, then the keys to remove
-- ARGV  nonce, its expiry in ms
-- Returns 1: removed; 0: no longer this nonce's turn, nothing removed.
-- Invariant: a rebuilder that was overtaken can't remove what its successor wrote.
local epoch_key, rebuild_key = unpack(KEYS, 1, 2)
local nonce, expiry_ms = unpack(ARGV)

if not may_rebuild(epoch_key, rebuild_key, nonce, expiry_ms) then return 0 end
redis.call('UNLINK', unpack(KEYS, 3))
return 1

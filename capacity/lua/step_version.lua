-- Step agents' versions and announce them, for changes outside the slots: backlog, settings.
--
-- KEYS  versions
-- ARGV  hint channel, then agent names
-- Returns 1. Needs no epoch: versions outlive a rebuild.
-- Invariant: a version only grows.
local versions_key = KEYS[1]
local channel = ARGV[1]

local _, micros = clock()
for i = 2, #ARGV do step(versions_key, channel, ARGV[i], micros) end
return 1

-- Decides one request over one or two sliding logs, at the store and by its clock: the rule of decision.py.
-- KEYS[1]: the log of this request. Then, each optional: the log that is counted with it; a wider log, which records the
-- request, too.
-- ARGV[1]: the limit. ARGV[2]: 1 records an accepted request, 0 only reports. ARGV[3], with a wider log: its own limit.
-- Returns four numbers: 1 if the request is accepted, else 0; the requests counted before it; the microseconds until the
-- oldest of them expires (this request if there is none); and those until the next request is accepted (0: this one was).
-- A log is a sorted set of distinct times in microseconds since 1970, which are both member and score.
-- Source: docs/interface.md section D8.
local WINDOW = 60 * 1000000
local FAR_AHEAD = 1000000

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function at(key, index)
    return tonumber(redis.call('ZRANGE', key, index, index)[1])
end

local function record(key, time)
    redis.call('ZADD', key, time, time)
    redis.call('PEXPIRE', key, WINDOW / 1000 + 1000)
end

-- The clock was set back: count every entry from now on; otherwise it would be counted for longer by that time.
local function restart(key)
    local count = redis.call('ZCARD', key)
    redis.call('DEL', key)
    for older = count - 1, 0, -1 do
        record(key, now - older)
    end
end

-- Returns the count of a log, its oldest and its newest entry. Reads come first: a store without memory refuses the
-- first write.
local function read_log(key)
    local newest = at(key, -1)
    if not newest then
        return 0
    end
    if newest > now + FAR_AHEAD then
        restart(key)
        newest = now
    end
    local oldest = at(key, 0)
    if oldest <= now - WINDOW then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', now - WINDOW)
        oldest = at(key, 0)
    end
    return redis.call('ZCARD', key), oldest, newest
end

-- At most a minute, even if entries are ahead of a clock that was set back by less than a second.
local function until_expiry(time)
    return math.min(time + WINDOW - now, WINDOW)
end

local first, oldest, newest = read_log(KEYS[1])
local second = 0
local others = #KEYS - 1
local wider = ARGV[3] and KEYS[#KEYS]
if wider then
    others = others - 1
end
if others == 1 then
    local other_oldest
    second, other_oldest = read_log(KEYS[2])
    oldest = math.min(oldest or other_oldest or now, other_oldest or oldest or now)
end
local counted = first + second
local limit = tonumber(ARGV[1])
local reset = until_expiry(oldest or now)

local wider_newest
local wider_retry = 0
local wider_reset = 0
if wider then
    local wider_count, wider_oldest
    wider_count, wider_oldest, wider_newest = read_log(wider)
    local wider_limit = tonumber(ARGV[3])
    if wider_count >= wider_limit then
        wider_reset = until_expiry(wider_oldest or now)
        wider_retry = WINDOW
        if wider_limit > 0 then
            wider_retry = until_expiry(at(wider, wider_count - wider_limit))
        end
    end
end

local function refused(retry)
    if wider_retry > 0 then
        return {0, math.max(counted, limit), wider_reset, math.max(retry, wider_retry)}
    end
    return {0, counted, reset, retry}
end

if counted < limit then
    if wider_retry > 0 then
        return refused(0)
    end
    if ARGV[2] == '1' then
        record(KEYS[1], math.max(now, (newest or 0) + 1))
        if wider then
            record(wider, math.max(now, (wider_newest or 0) + 1))
        end
    end
    return {1, counted, reset, 0}
end

-- More than one must leave if the limit was lowered, or if one log grew while the other was not counted.
local leaving = counted - limit + 1
if leaving == 1 then
    return refused(reset)
end
if leaving > counted then
    return refused(WINDOW)
end
-- The `leaving`-th oldest of both logs: `low` of them are from the first log, found by binary search.
local low = math.max(0, leaving - second)
local high = math.min(leaving, first)
while low < high do
    local middle = math.floor((low + high) / 2)
    if at(KEYS[1], middle) >= at(KEYS[2], leaving - 1 - middle) then
        high = middle
    else
        low = middle + 1
    end
end
local last = 0
if low > 0 then
    last = at(KEYS[1], low - 1)
end
if low < leaving then
    last = math.max(last, at(KEYS[2], leaving - low - 1))
end
return refused(until_expiry(last))

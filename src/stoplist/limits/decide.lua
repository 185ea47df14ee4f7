-- One decision over one or two sliding logs, at the server of the store and by its clock: the rule of decision.py.
-- KEYS[1]: the log of this request. KEYS[2], perhaps: the log that counts beside it.
-- ARGV[1]: the ceiling. ARGV[2]: 1 records what is accepted, 0 only looks.
-- Returns: whether it is accepted (1 or 0), how many were counted before it, after how many microseconds the oldest of
-- them leaves (this request if there is none), and after how many the next request is accepted (0: this one was).
-- A log is a sorted set of microseconds since 1970, which are both member and score; each is there once.
-- Source: docs/interface.md section D8.
local WINDOW = 60 * 1000000
local FAR_AHEAD = 1000000

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function at(key, index)
    return tonumber(redis.call('ZRANGE', key, index, index)[1])
end

local function keep(key, time)
    redis.call('ZADD', key, time, time)
    redis.call('PEXPIRE', key, WINDOW / 1000 + 1000)
end

-- The clock was set back: all that was counted is counted from now on, or it would be for as long as that took.
local function count_anew(key)
    local count = redis.call('ZCARD', key)
    redis.call('DEL', key)
    for older = count - 1, 0, -1 do
        keep(key, now - older)
    end
end

-- How many a log holds, its oldest and its newest. Reads come first: a store without memory refuses the first write.
local function look(key)
    local newest = at(key, -1)
    if not newest then
        return 0
    end
    if newest > now + FAR_AHEAD then
        count_anew(key)
        newest = now
    end
    local oldest = at(key, 0)
    if oldest <= now - WINDOW then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', now - WINDOW)
        oldest = at(key, 0)
    end
    return redis.call('ZCARD', key), oldest, newest
end

local first, oldest, newest = look(KEYS[1])
local second = 0
if KEYS[2] then
    local other_oldest
    second, other_oldest = look(KEYS[2])
    oldest = math.min(oldest or other_oldest or now, other_oldest or oldest or now)
end
local counted = first + second

-- At most a minute, also where entries lie ahead of a clock that was set back by less than a second.
local function wait(time)
    return math.min(time + WINDOW - now, WINDOW)
end

local limit = tonumber(ARGV[1])
local reset = wait(oldest or now)
if counted < limit then
    if ARGV[2] == '1' then
        keep(KEYS[1], math.max(now, (newest or 0) + 1))
    end
    return {1, counted, reset, 0}
end

-- More than one must leave if the ceiling was lowered, or if one log grew while the other was aside.
local leaving = counted - limit + 1
if leaving == 1 then
    return {0, counted, reset, reset}
end
if leaving > counted then
    return {0, counted, reset, WINDOW}
end
-- The `leaving`-th oldest of both: `few` of them are from the first log, searched for by halves.
local few = math.max(0, leaving - second)
local most = math.min(leaving, first)
while few < most do
    local middle = math.floor((few + most) / 2)
    if at(KEYS[1], middle) >= at(KEYS[2], leaving - 1 - middle) then
        most = middle
    else
        few = middle + 1
    end
end
local last = 0
if few > 0 then
    last = at(KEYS[1], few - 1)
end
if few < leaving then
    last = math.max(last, at(KEYS[2], leaving - few - 1))
end
return {0, counted, reset, wait(last)}
